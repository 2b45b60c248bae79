# A loss takes bool data from a .npy of bool, on one rank and on several, as the interpreter does; any other type is
# refused with what to do.
. "$(dirname "$0")/../support/lib.sh"
python3 - <<'P'
import random, struct
r = random.Random(5)
head = lambda d, s: (lambda h: b"\x93NUMPY\x01\x00" + struct.pack("<H", len(h)) + h)(
    (str({"descr": d, "fortran_order": False, "shape": s}) + " " * 40 + "\n").encode())
def put(name, descr, code, shape, v):
    open(name, "wb").write(head(descr, shape) + struct.pack("<%d%s" % (len(v), code), *v))
x = [r.gauss(0, 1) for _ in range(24 * 7)]
keep = [r.random() < 0.4 for _ in range(24 * 7)]
put("x.npy", "<f4", "f", (24, 7), x)
put("keep.npy", "|b1", "?", (24, 7), keep)
put("real.npy", "<f4", "f", (24, 7), [1.0 if k else 0.0 for k in keep])
put("sign.npy", "|b1", "?", (24,), [k for k in keep[:24]])
P
model() { # NAME TYPE TEST
  cat <<M
model $1() {
  param w[7 | 7] = normal(0.5)
  loss(x[b, 7], keep[b, 7]$2, sign[b]: bool) {
    y[b, j] = sum(i: where($3, x[b, i], 0.0) * w[i, j])
    z[b, j] = where(sign[b], y[b, j], 0.5 - y[b, j]) - real(sign[b])
    count = sum(b, i: where($3, 1.0, 0.0))
    return sum(b, j: square(z[b, j])) / count
  }
}
train $1 {
  data = arrays(x = "x.npy", keep = "$4", sign = "sign.npy")
  batch = 8
  microbatch = 3
  steps = 6
  optimizer = sgd(lr = 0.05)
}
M
}
model Bools ": bool" "keep[b, i]" keep.npy >bools.dt
model Reals "" "keep[b, i] > 0.5" real.npy >reals.dt
"$DTC" bools.dt -o bools
"$DTC" reals.dt -o reals
./reals --quiet --log reals.jsonl && losses reals.jsonl >reals.txt
./bools --quiet --log bools.jsonl && losses bools.jsonl >bools.txt
same reals.txt bools.txt
./bools --ranks 2 --quiet --log two.jsonl && losses two.jsonl >two.txt
near bools.txt two.txt 1e-5
"$DTC" bools.dt --interpret --steps 6 >interp.jsonl && losses interp.jsonl >interp.txt
near bools.txt interp.txt 1e-4
# Reals and bools of the data reach the interpreter in any layout.
for cut in "--pp 2" "--tp 7"; do
  "$DTC" bools.dt $cut --interpret --steps 2 >cut.jsonl && losses cut.jsonl >cut.txt || fail "$cut"
  head -n 2 interp.txt >two-steps.txt
  near cut.txt two-steps.txt 1e-9
done
expect 65 ./bools --data keep=real.npy
says "real.npy holds float32; 'keep' takes bool: save x.astype" err.txt
expect 0 ./bools --info
says '"bool"' out.txt
"$DTC" bools.dt --pp 2 -o piped
./piped --ranks 2 --quiet --log piped.jsonl && losses piped.jsonl >piped.txt
near bools.txt piped.txt 1e-5
