# With ZeRO 3 a layer's parameters are asked for before the layer ahead of it computes, forward and
# backward, and its gradients are sent off before the next layer's are made; what is still there from
# the pass before is not gathered again. Parameters outside stacks go in one operation.
. "$(dirname "$0")/../support/lib.sh"
tokens train.bin 3000 97
LAYERS=4 MICRO=3
# profile NAME OPTIONS...
profile() {
  "$DTC" "$SRC/examples/gpt2.dt" "${SMALL_GPT2[@]}" -D layers=$LAYERS -D batch=$((2 * MICRO)) -D microbatch=1 \
    --zero 3 "${@:2}" -o train
  DT_COMM_DELAY_MS=20 ./train --quiet --eval-every 0 --threads 1 --steps 2 --ranks 2 --profile "$1.json"
}
cat >look.py <<'P'
import collections, json, sys
L, M, once = int(sys.argv[1]), int(sys.argv[2]), sys.argv[4] == "once"
events = [e for e in json.load(open(sys.argv[3]))["traceEvents"] if e["pid"] == 0]
ops = [e for e in events if e["tid"] == 1 and e["ph"] == "X" and e["args"]["step"] == 2]
counts = collections.Counter(e["name"] for e in ops)
# The last two layers of a pass are there when the other pass begins with them.
gathers = L if once else L + (L - 2) + (M - 1) * 2 * (L - 2)
assert counts["all_gather blocks"] == gathers, (counts, gathers)
assert counts["all_gather small parameters"] == 1, counts
assert counts["reduce_scatter blocks"] == M * L, counts
assert counts["reduce_scatter small parameters"] == M, counts
assert sum(counts.values()) - counts["all_reduce status"] == gathers + 1 + M * L + M + 1, counts
if once:
  sys.exit()

# Kernels of the stack, in order: (time, pass, layer, first of the layer).
kernels, seen, first = [], collections.Counter(), {}
for e in events:
  if e["tid"] == 0 and e["ph"] == "B" and e["name"].startswith("Block_"):
    kind = e["name"].split("_")[1]
    begins = e["name"] == first.setdefault(kind, e["name"])
    seen[kind] += begins
    layer = (seen[kind] - 1) % L
    kernels.append((e["ts"], kind, layer if kind == "forward" else L - 1 - layer, begins))
def after(t):
  return next((k for k in kernels if k[0] > t), None)

early = collections.Counter()
for e in ops:
  layer, end, k = e["args"]["layer"], e["ts"] + e["dur"], after(e["args"]["posted"])
  if e["name"] == "all_gather blocks":
    assert k[3], "layer %d is asked for in the middle of layer %d" % (layer, k[2])
    ahead = layer - 1 if k[1] == "forward" else layer + 1
    assert k[2] == ahead or (k[1], k[2], layer) == ("forward", 0, 0), (layer, k)
  elif e["name"] == "reduce_scatter blocks":
    assert k is None or k[3], "gradients of layer %d are sent off in the middle of layer %d" % (layer, k[2])
    assert k is None or k[2] == layer - 1 or (k[1], k[2], layer) == ("forward", 0, 0), (layer, k)
  else:
    continue
  if k:
    early[e["name"], k[0] < end] += 1
# While they are on their way the layer computes; now and then a busy machine is late.
for name in ("all_gather blocks", "reduce_scatter blocks"):
  assert early[name, True] > early[name, False], early
print(dict(counts), dict(early))
P
profile each
python3 look.py $LAYERS $MICRO each.json each || fail "layers are not gathered as they should be"
profile once --gather once
python3 look.py $LAYERS $MICRO once.json once || fail "--gather once gathers otherwise"
