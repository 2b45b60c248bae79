# A batch cut into microbatches, with a remainder too, is the same function (fp64, to rounding).
. "$(dirname "$0")/../support/lib.sh"
text 4000 >text.txt
for micro in 7 3 1; do
  "$DTC" "$SRC/examples/chargpt.dt" "${SMALL_CHARGPT[@]}" --precision fp64 -D batch=7 -D microbatch=$micro -o train
  rm -f log.jsonl
  ./train --data text.txt --steps 4 --log log.jsonl --quiet
  losses log.jsonl >losses.$micro
done
near losses.7 losses.3 1e-12
near losses.7 losses.1 1e-12

# The batch's extent as a range: samples are counted and numbered over the whole batch.
cat >counts.dt <<'END'
model M(n = 4) {
  param w[n] = ones
  loss(x[b, n]) {
    count = sum(c < b: 1.0)
    place[c < b] = real(c % 3)
    slot[c < b, k < 3] = 0.5
    slot[b, int(place[b]) % 3] += where(x[b, 0] > 0.0, x[b, 0] * place[b], 0.0)
    total[b] = sum(k: slot[b, k] * w[k + 1]) + sum(i: x[b, i] * w[i])
    return sum(b: square(total[b])) / (count + 1.0)
  }
}

train M {
  data  = arrays(x = "x.npy")
  batch = 7
}
END
python3 - <<'END'
import random, struct
r = random.Random(1)
head = "{'descr': '<f8', 'fortran_order': False, 'shape': (23, 4), }".ljust(117) + "\n"
with open("x.npy", "wb") as f:
    f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode())
    f.write(struct.pack("<92d", *[r.gauss(0, 1) for _ in range(92)]))
END
for micro in 7 3 1; do
  "$DTC" counts.dt --precision fp64 -D microbatch=$micro -o train
  rm -f log.jsonl
  ./train --steps 4 --log log.jsonl --quiet
  losses log.jsonl >losses.$micro
done
near losses.7 losses.3 1e-12
near losses.7 losses.1 1e-12
