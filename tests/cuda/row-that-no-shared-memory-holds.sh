# A kernel whose one row is longer than shared memory is one thread's. That of many rows is too.
. "$(dirname "$0")/../support/lib.sh"
model() { # ROWS
  cat >model.dt <<END
model M(n = 13000, rows = $1) {
  param w[rows, n] = normal(1)
  loss(x[b, n]) {
    e[r, i] = exp(-abs(w[r, i]))
    total[r] = sum(i: e[r, i])
    y[r, i < n] = e[r, n - 1 - i] / total[r] + w[r, i]
    return mean(b, i, r: x[b, i] * y[r, i])
  }
}
train M {
  data = arrays(x = "x.npy")
  batch = 2
  optimizer = sgd(lr = 0.1)
}
END
}
for rows in 1 3; do
  model $rows
  # A value that few threads would make stays in its reader's kernel.
  export DTC_LIMITS=optimise=0,join_points=1
  "$DTC" model.dt --target cuda --emit cuda -o kernels.cu
  says "^// $rows point.*a thread each" kernels.cu
  expect 0 "$DTC" model.dt --target cuda --emulate --verify-run
  ! grep -q warning err.txt || fail "$(cat err.txt)"
done
