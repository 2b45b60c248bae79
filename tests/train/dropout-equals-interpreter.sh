# Random numbers of a compiled program are the interpreter's: dropout inside a stack, in uneven microbatches.
. "$(dirname "$0")/../support/lib.sh"
cat >model.dt <<'DT'
use nn
layer Block(dim) {
  fc = nn.Linear(dim, dim)
  drop = nn.Dropout(0.3)
  forward(x[b, dim]) {
    return x + drop(fc(x))
  }
}
model M(dim = 19, classes = 5) {
  blocks = stack 3 of Block(dim)
  out = nn.Linear(dim, classes)
  loss(x[b, dim], y[b]: int) {
    return nn.cross_entropy(out(blocks(x)), y)
  }
}
train M {
  data = arrays(x = "x.npy", y = "y.npy")
  batch = 8
  microbatch = 3
  optimizer = adamw(lr = 1e-2, eps = 1e-4)
  precision = fp64
}
DT
python3 - <<'PY'
import random, struct
r = random.Random(1)
def npy(path, shape, kind, values):
    head = "{'descr': '%s', 'fortran_order': False, 'shape': %r, }" % ({"f": "<f4", "i": "<i4"}[kind], shape)
    head += " " * (63 - (10 + len(head)) % 64) + "\n"
    open(path, "wb").write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode()
                           + struct.pack("<%d%s" % (len(values), kind), *values))
npy("x.npy", (40, 19), "f", [r.gauss(0, 1) for _ in range(760)])
npy("y.npy", (40,), "i", [r.randrange(5) for _ in range(40)])
PY
"$DTC" model.dt -o train
./train --steps 4 --log log.jsonl --quiet
"$DTC" model.dt --interpret --steps 4 >oracle.jsonl
losses log.jsonl >a
losses oracle.jsonl >b
near a b 1e-12
