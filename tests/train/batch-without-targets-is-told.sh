# A batch in which no target is valid has no mean: the loss is "nan", without a sign, and the message says why.
. "$(dirname "$0")/../support/lib.sh"
python3 - <<'P'
import struct
head = lambda d, s: (lambda h: b"\x93NUMPY\x01\x00" + struct.pack("<H", len(h)) + h)(
    (str({"descr": d, "fortran_order": False, "shape": s}) + " " * 40 + "\n").encode())
def put(name, v): open(name, "wb").write(head("<i4", (len(v) // 6, 6)) + struct.pack("<%di" % len(v), *v))
put("x.npy", [i * 7 % 11 for i in range(96)])
put("y.npy", [i * 5 % 11 if i < 48 else -1 for i in range(96)])
put("none.npy", [-1] * 96)
P
cat >few.dt <<'M'
use nn
model Few(vocab = 11, t = 6, dim = 8) {
  wte = nn.Embedding(vocab, dim)
  loss(x[b, t]: int, y[b, t]: int) {
    h = wte(x)
    logits[b, t, v] = sum(d: h[b, t, d] * wte.weight[v, d])
    return nn.cross_entropy(logits, y)
  }
}
train Few {
  data = arrays(x = "x.npy", y = "y.npy")
  batch = 8
  microbatch = 2
  steps = 3
  optimizer = adamw(lr = 1e-2)
}
M
"$DTC" few.dt --target cpu -o few
for ranks in 1 2; do
  expect 79 ./few --quiet --no-shuffle --threads 1 --ranks $ranks --log log.jsonl
  says "step 2: the loss is nan \(its divisor, such as the number of valid targets, is 0 in this batch\)" err.txt
  records log.jsonl | python3 -c 'import json, sys
r = [json.loads(line) for line in sys.stdin]
assert len(r) == 2 and r[0]["loss"] > 0 and r[1]["loss"] is None and r[1]["skipped"], r'
done
expect 0 ./few --eval-only --val x=x.npy,y=none.npy
says "val_loss nan" out.txt
