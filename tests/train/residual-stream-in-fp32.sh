# With `residual = fp32` in bf16 what layers add up is float: layouts are right by the interpreter, pipelines send
# float, and in a model of many layers loss and gradients are closer to those in fp64 than without.
. "$(dirname "$0")/../support/lib.sh"
text 4000 >text.txt
SIZE=("${SMALL_CHARGPT[@]}" -D precision=bf16)
for layout in "--tp 2 --sequence-parallel --pp 2" "--cp 2 --cp-attention ring --zero 3 --dp 2"; do
  # shellcheck disable=SC2086
  expect 0 "$DTC" "$SRC/examples/chargpt.dt" "${SIZE[@]}" -D residual=fp32 $layout --verify-run --data text.txt
done
sends() {
  "$DTC" "$SRC/examples/chargpt.dt" "${SIZE[@]}" "$@" --pp 2 --emit c -o train.c
  grep -o 'sent_bytes = {[0-9]*' train.c | head -1 | grep -o '[0-9]*$'
}
wide=$(sends -D residual=fp32)
[ "$wide" -eq $((2 * $(sends))) ] || fail "a stage sends $wide bytes, and $(sends) in bf16"

# A stream of large values, to which each layer adds a small one.
cat >deep.dt <<'M'
use nn
layer Block(dim) {
  norm = nn.LayerNorm(dim)
  up = nn.Linear(dim, dim)
  forward(x[b, dim]) {
    return x + nn.gelu(up(norm(x)))
  }
}
model Deep(dim = 16, layers = 24) {
  blocks = stack layers of Block(dim)
  head = nn.Linear(dim, 1)
  loss(x[b, dim], y[b]) {
    z[b, d] = 8.0 * x[b, d]
    p = head(blocks(z))
    return mean(b: square(p[b, 0] - y[b]))
  }
}
train Deep {
  data = arrays(x = "x.npy", y = "y.npy")
  batch = 8
  precision = bf16
}
M
for residual in precision fp32; do
  expect 0 "$DTC" deep.dt -D residual=$residual --verify-run
  cp out.txt $residual.txt
done
python3 - <<'PY'
def rows(path):
    return {w[0]: float(w[3]) for w in map(str.split, open(path)) if len(w) > 5 and w[0].startswith(("blocks", "head"))}
plain, wide = rows("precision.txt"), rows("fp32.txt")
assert plain.keys() == wide.keys() and len(plain) == 6, plain
print(plain, wide)
for name in plain:
    assert wide[name] < 0.7 * plain[name], (name, plain[name], wide[name])
PY
