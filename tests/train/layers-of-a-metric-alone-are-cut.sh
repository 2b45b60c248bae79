# Layers that a metric alone reads have no gradient; on ranks of a tensor-parallel group their
# parameters, of a stack too, and the gradients that stay zero are split alike.
. "$(dirname "$0")/../support/lib.sh"
cat >model.dt <<'DT'
use nn
layer Block(n) {
  fc = nn.Linear(n, n)
  forward(x[b, n]) {
    return fc(x)
  }
}
model M(n = 16) {
  w     = nn.Linear(n, n)
  extra = stack 3 of Block(n)
  alone = nn.Linear(n, n)
  loss(x[b, n]) {
    y = w(x)
    z = extra(y)
    u = alone(y)
    return mean(b, i: square(y[b, i]))
  }
}
train M {
  metric size = mean(b: sum(i: z[b, i] + u[b, i]))
  data        = arrays(x = "x.npy")
  batch       = 8
  optimizer   = sgd(lr = 0.1)
}
DT
python3 - <<'PY'
import random, struct
r = random.Random(1)
h = "{'descr': '<f4', 'fortran_order': False, 'shape': (32, 16), }"
h += " " * (63 - (10 + len(h)) % 64) + "\n"
with open("x.npy", "wb") as f:
    f.write(b"\x93NUMPY\1\0" + struct.pack("<H", len(h)) + h.encode())
    f.write(struct.pack("<512f", *[r.gauss(0, 1) for _ in range(512)]))
PY
numbers() {
  records "$1" | python3 -c 'import json, sys
for line in sys.stdin:
    r = json.loads(line)
    if "loss" in r: print(*["%.17g" % r[k] for k in ("loss", "grad_norm", "size")], sep="\n")'
}
"$DTC" model.dt --precision fp64 -o train
./train --steps 3 --log one.jsonl --quiet
numbers one.jsonl >one.txt
for layout in "2 --tp 2" "4 --tp 2 --pp 2" "4 --tp 2 --zero 3"; do
  echo "$layout"
  "$DTC" model.dt --precision fp64 ${layout#* } -o cut
  ./cut --ranks "${layout%% *}" --steps 3 --log cut.jsonl --quiet
  numbers cut.jsonl >cut.txt
  near one.txt cut.txt 1e-11
done
