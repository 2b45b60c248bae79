# dtc's results are added to a file that standard output is appended to: also those of -o /dev/stdout and --interpret.
. "$(dirname "$0")/../support/lib.sh"
cat >m.dt <<'M'
model M() {
  param w[3] = normal(1)
  loss(x[b, 3]) { return mean(b, i: square(x[b, i] - w[i])) }
}
train M { data = arrays(x = "x.npy"); batch = 4; optimizer = sgd(lr = 0.1); steps = 2 }
M
python3 -c 'import struct
head = "{\x27descr\x27: \x27<f4\x27, \x27fortran_order\x27: False, \x27shape\x27: (8, 3), }".ljust(117) + "\n"
open("x.npy", "wb").write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + struct.pack("<24f", *range(24)))'
kept() { [ "$(head -n 1 f)" = before ] && [ "$(grep -c "$1" f)" -eq "$2" ] || { cat f; fail "f lost what was in it, or has not $2 times $1"; }; }
echo before >f
"$DTC" m.dt --interpret --steps 2 >>f
kept '"loss"' 2
"$DTC" m.dt --interpret --steps 2 >>f
kept '"loss"' 4
echo before >f
"$DTC" m.dt --emit ir -o /dev/stdout >>f
"$DTC" m.dt --emit ir -o /dev/fd/3 3>>f
kept '^module' 2
