# Messages about a rank that waits are complete, whoever posted the operation: operation, tensor or unit, bytes, axes, step, microbatch, layer and the
# line of the model. The profile of a run lists what there is to wait for; when a rank is stopped, the others name one of those.
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/support/ranks.sh"
tokens train.bin 2000 32
cat >model.dt <<'M'
use nn
layer Block(dim, heads) {
  ln = nn.LayerNorm(dim)
  attn = nn.CausalSelfAttention(dim, heads)
  mlp = nn.MLP(dim, 2 * dim)
  forward(x[b, t, dim]) {
    x = x + attn(ln(x))
    return x + mlp(x)
  }
}
model Small(vocab = 32, dim = 16) {
  wte = nn.Embedding(vocab, dim)
  blocks = stack 4 of Block(dim, heads = 2)
  ln_f = nn.LayerNorm(dim)
  loss(tokens[b, t]: int, targets[b, t]: int) {
    x = wte(tokens)
    n = ln_f(blocks(x))
    logits[b, t, v] = sum(d: n[b, t, d] * wte.weight[v, d])
    return nn.cross_entropy(logits, targets)
  }
}
train Small {
  data = tokens("train.bin", length = 8)
  batch = 8
  microbatch = 2
  steps = 2
  optimizer = adamw(lr = 1e-2)
}
M
TRAIN=$PWD/train

# known AXES: all that the profile of two steps has, one a line; each is complete. Prints what is expected of each kind:
# `OPERATION TENSOR` with the layers and microbatches it is told with.
cat >known.py <<'P'
import json, sys
profile = json.load(open("profile.json"))
events = profile["traceEvents"]
for r, row in enumerate(profile["ranks"]):  # how much of it was beside computation, and what it was
  assert row["rank"] == r and row["operations"] and all(o["what"] or o["operation"] == "barrier" for o in row["operations"]), row
  assert abs(row["computing"] + row["waiting"] - row["seconds"]) < 1e-4, row
  assert -1e-4 < row["communicating"] - row["beside_computation"] < row["waiting"] + 1e-4, row
  mine = [e for e in events if e["pid"] == r and e["ph"] == "X" and e["tid"] in (1, 3)]
  assert sum(o["count"] for o in row["operations"]) == len(mine), row
seen = {}
with open("known.txt", "w") as out:
  for e in events:
    if e.get("tid") not in (1, 3) or e["ph"] != "X": continue
    a = e["args"]
    op, _, what = e["name"].partition(" ")
    if op == "barrier" or what in ("status", "profile", "handshake"): continue
    assert what and a["bytes"] > 0 and a["axes"], e
    step_work = a["step"] > 0
    assert step_work, e
    assert a["source"].startswith("model.dt:"), e
    seen.setdefault((op, what, a["axes"], a["source"]), set()).add((a["microbatch"], a["layer"]))
    layer = ", layer %d" % a["layer"] if a["layer"] >= 0 else ""
    micro = ", microbatch %d" % a["microbatch"] if a["microbatch"] >= 0 else ""
    out.write("%s of %s%s (%d bytes|%s|%s, %s\n" % (op, what, layer, a["bytes"], a["axes"], micro, a["source"]))
for check in sys.argv[1:]:
  axes, line, micro, layers = check.split(";")
  want = {(m, l) for m in map(int, micro.split(",")) for l in map(int, layers.split(","))}
  here = [k for k, v in seen.items() if k[2] == axes and k[3] == "model.dt:" + line and v == want]
  assert here, "nothing over %s of line %s is told with microbatches %s and layers %s:\n%s" % (
    axes, line, micro, layers, "\n".join("%s %s" % (k, sorted(v)) for k, v in sorted(seen.items())))
P

cat >told.py <<'P'
import re, sys
known = {tuple(l.rstrip("\n").split("|")) for l in open("known.txt")}
lines = [l for l in open("err.txt") if "this rank waited in" in l]
assert len(lines) == int(sys.argv[1]) - 1, open("err.txt").read()
for l in lines:
  m = re.search(r"this rank waited in (.* \(\d+ bytes)[^:]* over ([a-z,]+): ranks [0-9 ]+\), step \d+(.*)$", l)
  assert m and m.groups() in known, "%s\n%s" % (l, "\n".join(sorted("|".join(k) for k in known)))
P

# AXES;LINE;MICROBATCHES;LAYERS of operations that there must be
layout() { # RANKS OPTIONS CHECK...
  local ranks=$1
  # shellcheck disable=SC2086
  "$DTC" model.dt $2 -o train
  shift 2
  ./train --quiet --ranks "$ranks" --threads 1 --profile profile.json
  python3 known.py "$@"
  DT_COMM_DELAY_MS=2 start "$ranks" --steps 100000 --timeout 1
  kill -STOP "${rank[1]}"
  ended 69 20
  python3 told.py "$ranks"
}
STEP="tp,cp,dp,pp;15;-1;-1"
layout 2 "--tp 2" "tp;7;0,1,2,3;0,1,2,3" "tp;8;0,1,2,3;0,1,2,3" "tp;19;0,1,2,3;-1" "$STEP"
layout 2 "--cp 2" "cp;7;0,1,2,3;0,1,2,3" "cp;19;0,1,2,3;-1" "$STEP"
layout 2 "--pp 2" "pp;17;0,1,2,3;-1" "pp;16;-1;-1" "$STEP"
layout 2 "--zero 3" "cp,dp;17;0,1;0,1,2,3" "cp,dp;16;0,1;-1" "cp,dp;16;0;-1" "$STEP"
layout 4 "--tp 2 --pp 2 --zero 1" "tp;7;0,1,2,3;0,1,2,3" "pp;17;0,1,2,3;-1" "$STEP"
