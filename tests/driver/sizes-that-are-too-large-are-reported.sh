# Sizes that no machine has are errors (status 1), wherever they first lead to too many bytes: never a bug in dtc, and
# never a signal.
. "$(dirname "$0")/../support/lib.sh"
cat >m.dt <<'END'
layer L(d) {
  param w[d, d] = normal(1)
  forward(x[b, d]) {
    y[b, j] = sum(i: square(x[b, i]) * w[i, j])
    return y
  }
}
model M(n = 2, d = 3) {
  s = stack n of L(d)
  loss(x[b, d]) {
    y = s(x)
    return mean(b, i: y[b, i])
  }
}
train M {
  data = arrays(x = "x.npy")
  batch = 4
}
END
large=(100000 1000000 4000000000 3000000000000 1000000000000000 100000000000000000 2305843009213693952
  4611686018427387904 9223372036854775807)
for what in --check "--emit c" --report; do
  for size in n d batch; do
    for value in "${large[@]}"; do
      got=0
      (ulimit -t 60; "$DTC" m.dt $what -D $size=$value -o out) >out.txt 2>err.txt || got=$?
      [ $got -le 1 ] || fail "status $got: $what $size=$value: $(cat err.txt)"
      [ $got -eq 0 ] || says "error: .*(large|bytes|layers|256 TiB|size)" err.txt
    done
  done
done
expect 1 "$DTC" m.dt --emit c -D n=2000000000
says "at most 1000000 layers" err.txt
expect 1 "$DTC" m.dt --emit c -D batch=100000000000000
says "more than 256 TiB" err.txt
expect 1 "$DTC" m.dt --emit c -D batch=1000000000000000000
says "more bytes than 64 bits count" err.txt
# A grid of CUDA has at most 2^31 - 1 blocks.
expect 1 "$DTC" m.dt --target cuda --emit cuda -D batch=4194304 -D d=4194304
says "needs [0-9]+ blocks, and CUDA has 2147483647 at most" err.txt
expect 1 "$DTC" m.dt --target cuda --emit c -D batch=4194304 -D d=4194304
says "needs [0-9]+ blocks" err.txt
