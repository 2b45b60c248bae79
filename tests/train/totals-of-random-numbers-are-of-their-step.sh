# A loss divided by a count of random positions, as a masked-language model's is: the count is that of the step's own
# random numbers, on any ranks, in microbatches, in validation, after a resume, and in the interpreter. So the loss
# stays exactly 1. A metric of random numbers alone is that of one rank; so is one of what a stack with parameters
# draws, which is known only when the stack has run.
. "$(dirname "$0")/../support/lib.sh"
cat >model.dt <<'DT'
layer Mix(dim) {
  param weight[dim | dim] = normal(0.3)
  forward(x[b, t, dim]) {
    kept[b < b] = where(random() < 0.6, 1.0, 0.0)
    y[b, t, o] = x[b, t, o] + kept[b] * sum(i: x[b, t, i] * weight[i, o])
    return y, kept
  }
}
model M(dim = 6, len = 5) {
  mix = stack 2 of Mix(dim)
  loss(x[b, len, dim]) {
    mask[b < b, t < len, d < dim] = where(random() < 0.3, 1.0, 0.0)
    count = sum(b, t, d: mask[b, t, d])
    h, kept = mix(x)
    one[b, t, d] = 1.0 + h[b, t, d] - stop_gradient(h[b, t, d])
    drawn = mean(b, t, d: mask[b, t, d])
    return sum(b, t, d: mask[b, t, d] * one[b, t, d]) / count
  }
}
train M {
  data = arrays(x = "x.npy")
  val = arrays(x = "x.npy")
  batch = 8
  eval_every = 2
  optimizer = sgd(lr = 0.1)
  precision = fp64
  metric drawn = drawn
  metric count = count
  metric kept = mean(b, l: kept[l, b])
}
DT
python3 - <<'PY'
import random, struct
r = random.Random(1)
head = "{'descr': '<f8', 'fortran_order': False, 'shape': (24, 5, 6), }"
head += " " * (63 - (10 + len(head)) % 64) + "\n"
with open("x.npy", "wb") as f:
    f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode())
    f.write(struct.pack("<720d", *(r.gauss(0, 1) for _ in range(720))))
PY
results() { # LOG: losses must be 1; the metrics, and one gradient norm a step
  records "$1" >last.jsonl
  python3 - last.jsonl <<'PY'
import json, sys
for line in open(sys.argv[1]):
    r = json.loads(line)
    loss = r["loss"] if "loss" in r else r["val_loss"]
    if abs(loss - 1) > 1e-12:
        sys.exit("%s: the loss is %r in step %d" % (sys.argv[1], loss, r["step"]))
    for k in ("drawn", "count", "grad_norm", "kept", "val_drawn", "val_count", "val_kept"):
        if k in r:
            print(r[k])
PY
}
check() { # LOG
  results "$1" >got
  near one got 1e-12
}
run() { # RANKS STEPS OPTIONS...
  ./train --ranks "$1" --steps "$2" --log log.jsonl --quiet "${@:3}"
}
"$DTC" model.dt -o train
run 1 5
results log.jsonl >one
[ "$(grep -cx 1.0 one)" -eq 0 ] || fail "no random metric may be 1"
for ranks in 2 4; do
  run $ranks 5
  check log.jsonl
done
layout() { # RANKS OPTIONS...
  "$DTC" model.dt -D microbatch=2 "${@:2}" -o train
  run "$1" 5
  check log.jsonl
}
layout 1
layout 2 --zero 1
layout 4 --tp 2
layout 4 --pp 2
layout 2 --tp 2 --in-flight 2
# A resumed run counts as the unbroken one does.
"$DTC" model.dt -o train
run 2 2 --save saved
./train --ranks 2 --steps 5 --log log.jsonl --quiet --resume saved
check log.jsonl
# The interpreter too.
"$DTC" model.dt --interpret --steps 5 >log.jsonl
check log.jsonl
"$DTC" model.dt -D microbatch=2 --interpret --dp 2 --steps 5 >log.jsonl
check log.jsonl
"$DTC" model.dt -D microbatch=2 --interpret --dp 2 --pp 2 --steps 5 >log.jsonl
check log.jsonl
