# --report says what a rank sends in a step, as counted by hand for a GPT-2 of four layers: tp reduces
# twice forward and backward in a layer, and five times outside (embedding, largest logit, sum of
# exponentials, loss, the gradient of what the head reads); dp all-reduces every gradient; a stage sends
# what its last layer gives; ZeRO 3 gathers a layer's parameters forward and backward.
. "$(dirname "$0")/../support/lib.sh"
size=(-D layers=4 -D dim=32 -D heads=4 -D vocab=64 -D context=16 -D length=16 -D train.batch=4 -D train.microbatch=2)
report() { "$DTC" "$SRC/examples/gpt2.dt" "${size[@]}" --precision fp64 "$@" --report=json >report.json; }
rows() {
  python3 -c 'import json
r = json.load(open("report.json"))
print(*sorted("%(axis)s %(what)s %(count)d %(bytes)d" % x for x in r["communication"]), sep="; ")'
}
expect() {
  got=$(rows)
  [ "$got" = "$1" ] || { echo "got '$got', expected '$1'"; exit 1; }
}
n=53440 width=$((2 * 16 * 32 * 8)) # parameters; bytes of a microbatch's activations
report
expect ""
report --dp 2
expect "data gradients 0 $((n * 8))"
report --dp 2 --zero 1
expect "data gradients 0 $((n * 4)); data parameters 0 $((n * 4))"
report --dp 2 --zero 2
expect "data gradients 0 $((n * 4)); data parameters 0 $((n * 4))"
report --dp 2 --zero 3
outside=$((64 * 32 + 16 * 32 + 2 * 32))
expect "data gradients 0 $((n * 4)); data parameters 0 $(((outside + 2 * (n - outside)) * 4))"
report --pp 4
python3 -c 'import json; r = json.load(open("report.json")); assert 0 < r["bubble"] < 1, r'
report --tp 2
# Activations: embedding, 16 in layers, that of the head. For each of 32 rows the largest logit and the sum of
# exponentials. The loss.
expect "tp all-reduce $((2 * 21)) $((2 * (18 * width + 2 * 32 * 8 + 8)))"
report --pp 2
python3 -c 'import json, sys
rows = json.load(open("report.json"))["communication"]
assert {(x["axis"], x["what"]) for x in rows} <= {("pp", "activations"), ("pp", "their gradients"), ("pp", "tied gradients")}, rows
assert [x for x in rows if x["what"] in ("activations", "their gradients") and x["count"] == 2 and x["bytes"] == 2 * int(sys.argv[1])], rows
assert [x["bytes"] for x in rows if x["what"] == "tied gradients"] == [64 * 32 * 8], rows' $width
