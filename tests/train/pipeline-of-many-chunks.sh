# Pipelines of more chunks than a word has bits: of a stack that is cut into 72, and of shared parameters on the first
# and the last.
. "$(dirname "$0")/../support/lib.sh"
cat >deep.dt <<'END'
use nn
layer Step(dim) {
  fc = nn.Linear(dim, dim)
  forward(x[b, dim]) { return x + nn.silu(fc(x)) }
}
model Deep(dim = 4, layers = 72) {
  param shared[dim, dim] = normal(0.5)
  steps = stack layers of Step(dim)
  loss(x[b, dim]) {
    h[b, j < dim] = sum(i: x[b, i] * shared[i, j])
    z = steps(h)
    y[b, j < dim] = sum(i: z[b, i] * shared[i, j])
    return mean(b, j: square(y[b, j]))
  }
}
train Deep { data = arrays(x = "x.npy"); batch = 8; microbatch = 2; optimizer = sgd(lr = 0.01); steps = 2 }
END
"$DTC" deep.dt --report >out.txt 2>err.txt || { cat err.txt; fail "the model"; }
for layout in "--pp 2 --schedule interleaved:36" "--pp 4 --schedule interleaved:18" "--pp 72"; do
  expect 0 "$DTC" deep.dt --precision fp64 $layout --dp 1 --verify-run
done
