# Sums over ranges that are the number of samples, or a multiple of it, are those of the whole batch in microbatches of
# any size.
. "$(dirname "$0")/../support/lib.sh"
python3 - <<'PY'
import random, struct
random.seed(1)
head = "{'descr': '<f4', 'fortran_order': False, 'shape': (8, 5, 3), }".ljust(117) + "\n"
values = struct.pack("<120f", *[random.gauss(0, 1) for _ in range(120)])
open("x.npy", "wb").write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + values)
PY
for batch in 8 6; do # a microbatch of 4 has two samples of padding in the latter
  for micro in 1 2 4 "$batch"; do
    "$DTC" --interpret --steps 2 -D "batch=$batch" -D "microbatch=$micro" --data x=x.npy \
      "$SRC/tests/language/ok/multiples-of-the-number-of-samples.dt" >log.jsonl
    losses log.jsonl >"$batch-$micro.txt"
    near "$batch-1.txt" "$batch-$micro.txt" 1e-12
  done
done
