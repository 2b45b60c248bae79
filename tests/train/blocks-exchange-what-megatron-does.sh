# What ranks exchange in a step of a running program, as its profile has it: in each layer two all-reduces forward and two
# backward at tp=2; with the sequence on tp two all-gathers and two reduce-scatters, backward the same and two all-gathers
# of what the layer kept its share of, once in a split backward pass too (Korthikanti et al., 2022, section 4.2.2). A
# parameter that is whole is reduced once a step. Nothing that is exchanged has the vocabulary's extent.
. "$(dirname "$0")/../support/lib.sh"
tokens train.bin 2000 97
exchanges() { # MODEL RANKS WANTED-IN-A-LAYER OPTIONS...
  local model=$1 ranks=$2 want=$3
  shift 3
  "$DTC" "$SRC/examples/$model.dt" "${sizes[@]}" --tp 2 "$@" -o train
  ./train --quiet --threads 1 --ranks "$ranks" --steps 2 --data train.bin --profile profile.json
  python3 - "$want" "$model $*" <<'PY' || fail "$model $*"
import collections, json, sys
layers, outside, whole = collections.Counter(), collections.Counter(), collections.Counter()
for e in json.load(open("profile.json"))["traceEvents"]:
    if e["ph"] != "X" or e["tid"] != 1 or e["args"]["axes"] != "tp": continue
    a = e["args"]
    at = e["pid"], a["step"], a["microbatch"], a["layer"]
    op, what = e["name"].split(" ", 1)
    # of 97 words a rank has 49 or 48
    assert all(a["bytes"] // 4 % n for n in (97, 98, 49, 48)), e
    if a["microbatch"] < 0: whole[e["pid"], a["step"], what, a["layer"]] += 1
    elif a["layer"] < 0: outside[at] += 1
    else: layers[at, op] += 1
want = dict(w.split("=") for w in sys.argv[1].split())
print("%s: a layer runs %d times, %s each; %d reductions once a step" % (sys.argv[2], len({at for at, op in layers}), sys.argv[1], len(whole)))
assert outside and len({at for at, op in layers}) >= 2 * 2 * 2 * 2, "ranks, steps, microbatches and layers"
assert {op for at, op in layers} == set(want), layers
for (at, op), n in layers.items(): assert n == int(want[op]), (at, op, n)
assert all(n == 1 for n in whole.values()), whole
split = "--sequence-parallel" in sys.argv[2]
assert bool(whole) == split, whole
assert not split or any(layer < 0 for *_, layer in whole) and all(
    ("*" in what) == (layer >= 0) for _, _, what, layer in whole), whole
PY
}
apart="all_gather=6 reduce_scatter=4"
sizes=("${SMALL_GPT2[@]}" -D heads=4)
exchanges gpt2 2 "all_reduce=4"
exchanges gpt2 2 "$apart" --sequence-parallel
exchanges gpt2 4 "$apart" --sequence-parallel --pp 2 --schedule zb
sizes=("${SMALL_LLAMA[@]}")
exchanges llama 2 "all_reduce=4"
exchanges llama 2 "$apart" --sequence-parallel
