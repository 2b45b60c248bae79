# Data-parallel ranks compute what one rank does, to rounding in fp64: with a remainder in the last
# microbatch, with more ranks than microbatches, and with a rank that has not one valid target.
. "$(dirname "$0")/../support/lib.sh"
python3 "$SRC/tests/layouts/layouts.py" --dtc "$DTC" --axes --count 6 --ranks 2 3 4 --model gpt2 classifier

# The valid targets of the batch lie in its first two samples, so that other ranks have none.
python3 - <<'P'
import struct
head = lambda d, s: (lambda h: b"\x93NUMPY\x01\x00" + struct.pack("<H", len(h)) + h)(
    (str({"descr": d, "fortran_order": False, "shape": s}) + " " * 40 + "\n").encode())
x = [((i * 7919) % 101) / 50 - 1 for i in range(8 * 4)]
open("x.npy", "wb").write(head("<f8", (8, 4)) + struct.pack("<32d", *x))
y = [1, 2] + [-1] * 6
open("y.npy", "wb").write(head("<i4", (8,)) + struct.pack("<8i", *y))
P
cat >model.dt <<'M'
use nn
model Few(dim = 4) {
  a = nn.Linear(dim, 8)
  b = nn.Linear(8, 3)
  loss(x[n, dim], y[n]: int) {
    h[n, j] = tanh(a(x)[n, j])
    logits = b(h)
    lse[n] = log(sum(c: exp(logits[n, c])))
    total = sum(n: where(y[n] >= 0, lse[n] - logits[n, y[n]], 0.0))
    return total / sum(n: where(y[n] >= 0, 1.0, 0.0))
  }
}
train Few {
  data       = arrays(x = "x.npy", y = "y.npy")
  batch      = 8
  microbatch = 2
  steps      = 4
  optimizer  = adamw(lr = 1e-2, eps = 1e-4)
  clip       = 0.1
  precision  = fp64
}
M
for stage in 0 1 2 3; do
  "$DTC" model.dt --zero $stage -o few
  for ranks in 1 2 4 6; do
    ./few --no-shuffle --quiet --ranks $ranks --threads 1 --log $ranks.jsonl
    losses $ranks.jsonl >$ranks.loss
    near 1.loss $ranks.loss 1e-11
  done
done

# Validation is shared out, and text comes of parameters that no rank has whole.
tokens train.bin 1000 97
"$DTC" "$SRC/examples/gpt2.dt" "${SMALL_GPT2[@]}" --precision fp64 --zero 3 -o gpt2
for ranks in 1 3; do
  ./gpt2 --quiet --ranks $ranks --threads 1 --steps 1 --eval-every 1 --val train.bin --eval-samples 13 --log eval.jsonl --sample 6 >text$ranks
  records eval.jsonl | python3 -c 'import json, sys
print([json.loads(l)["val_loss"] for l in sys.stdin if "val_loss" in l][0])' >eval$ranks
done
near eval1 eval3 1e-11
same text1 text3
