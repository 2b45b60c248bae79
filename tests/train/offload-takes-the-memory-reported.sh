# A model of 27 million parameters: with --offload optimizer moments (and in 16 bits masters) are in the file and not in
# memory. The most that a run has resident is what --report and --info say, within 5% and 64 MiB, and the file has the
# bytes that they name.
. "$(dirname "$0")/../support/lib.sh"
tokens train.bin 3000 97
SIZE=(-D vocab=16384 -D context=16 -D length=16 -D layers=2 -D heads=12 -D dim=768 -D batch=2 -D microbatch=1)
cat >check.py <<'PY'
import json, sys
name, ranks, state = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
info, report = (json.load(open(f"{name}.{k}")) for k in ("info", "report"))
m, levels = report["memory"], info["memory"]["levels"]
assert m["total"] == info["memory"]["total"] == levels["device"] + levels["host"], (m, info["memory"])
assert (m["device"], m["host"], m["file"]) == (0, m["total"], levels["file"]), (m, levels)
most = max(r["memory_bytes"] for r in map(json.loads, open(f"{name}.jsonl")) if "loss" in r)
print(f"{name} on {ranks}: {most / 2**20:.1f} MiB resident, {m['total'] / 2**20:.1f} reported, {m['file'] / 2**20:.1f} in a file")
assert abs(most - m["total"]) <= 0.05 * m["total"] + (64 << 20), (most, m)
away = name.startswith("offload")
for r in map(json.loads, open(f"{name}.jsonl")):
  if "loss" in r: assert 0 < r["offload_exposed_seconds"] <= r["seconds"] if away else "offload_exposed_seconds" not in r, r
assert m["optimizer"] == 0 if away else m["optimizer"] >= 8 * info["parameters"], m
if away: # whole slices of each array
    assert state <= m["file"] < state + 3 * (1 << 20) + 4096 and m["masters"] == 0 < m["staging"] <= 13 << 20, (state, m)
json.dump([most, m["total"]], open(f"{name}.both", "w"))
PY
# measure NAME RANKS STATE OPTIONS...: STATE bytes of a rank in its file.
measure() {
  local name=$1 ranks=$2 state=$3 where=
  shift 3
  case $name in offload*) where="--offload-dir ." ;; esac
  expect 0 "$DTC" "$SRC/examples/gpt2.dt" "${SIZE[@]}" "$@" --dp "$ranks" --report=json
  mv out.txt "$name.report"
  expect 0 "$DTC" "$SRC/examples/gpt2.dt" "${SIZE[@]}" "$@" -o train
  if ldd train | grep -q libasan; then exit 77; fi # its shadow is resident
  rm -f "$name.jsonl"
  ./train --quiet --ranks "$ranks" --threads 1 --steps 2 --eval-every 0 --log "$name.jsonl" $where
  ./train --info --ranks "$ranks" --threads 1 >"$name.info"
  python3 check.py "$name" "$ranks" "$state"
}
N=26773248
measure plain 1 0
measure offload 1 $((8 * N)) --offload optimizer
measure plain16 1 0 --precision bf16
measure offload16 1 $((12 * N)) --offload optimizer --precision bf16
measure offload2 2 $((4 * N)) --offload optimizer --zero 2
python3 -c '
import json
a = {k: json.load(open(k + ".both")) for k in ("plain", "offload", "plain16", "offload16")}
for k, state in (("", 200), ("16", 300)):
  less = [x - y for x, y in zip(a["plain" + k], a["offload" + k])]
  assert min(less) > 0.9 * state * 2**20, (k, less)'
