# The model's state takes what the tables of ZeRO say (Rajbhandari et al., 2020; 16 bytes a parameter in
# fp32: 112 GB for 7 billion parameters, and on 2 ranks 84, 70 and 56, on 4 ranks 70, 49 and 28), in the
# report and in the program.
. "$(dirname "$0")/../support/lib.sh"
size=(-D vocab=4096 -D context=32 -D length=32 -D layers=4 -D heads=4 -D dim=128 -D batch=8 -D microbatch=2)
check() {
  python3 -c 'import json, sys
stage, ranks = int(sys.argv[1]), int(sys.argv[2])
billion = {(0, 1): 112, (1, 2): 84, (2, 2): 70, (3, 2): 56, (1, 4): 70, (2, 4): 49, (3, 4): 28}
r = json.load(open("report.json"))
want = billion.get((stage, ranks), 112) / 7 * r["parameters"]
got = r["memory"]["state"]
assert abs(got - want) <= 0.001 * want, (stage, ranks, got, want)
m = json.load(open("info.json"))["memory"]
assert m["parameters"] + m["gradients"] + m["moments"] == got, (m, got)
assert m["total"] == r["memory"]["total"], (m, r)' "$@"
}
for stage in 0 1 2 3; do
  "$DTC" "$SRC/examples/gpt2.dt" "${size[@]}" --zero $stage -o train
  for ranks in 1 2 4; do
    "$DTC" "$SRC/examples/gpt2.dt" "${size[@]}" --zero $stage --dp $ranks --report=json >report.json
    ./train --info --ranks $ranks >info.json
    check $([ $ranks -eq 1 ] && echo 0 || echo $stage) $ranks
  done
done
