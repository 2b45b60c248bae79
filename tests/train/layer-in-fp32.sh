# A layer whose precision is fp32 computes in float in bf16 and fp16: its products, and attention and functions that
# it calls. Layouts are right by the interpreter, errors are less than without, and in fp32 and fp64 the program is
# the same with it and without.
. "$(dirname "$0")/../support/lib.sh"
cat >model.dt <<'M'
use nn
layer MLP(dim, hidden) {
  precision = fp32
  up = nn.Linear(dim, hidden)
  down = nn.Linear(hidden, dim)
  forward(x[b, t, dim]) {
    return down(nn.gelu(up(x)))
  }
}
layer Attention(dim, heads) {
  precision = fp32
  attn = nn.CausalSelfAttention(dim, heads)
  forward(x[b, t, dim]) {
    return attn(x)
  }
}
layer Block(dim, heads, wide) {
  ln = nn.LayerNorm(dim)
  attn = Attention(dim, heads) if wide else nn.CausalSelfAttention(dim, heads)
  ln2 = nn.LayerNorm(dim)
  mlp = MLP(dim, 2 * dim)
  forward(x[b, t, dim]) {
    x = x + attn(ln(x))
    return x + mlp(ln2(x))
  }
}
layer Head(dim, vocab) {
  precision = fp32
  out = nn.Linear(dim, vocab, biased = false)
  forward(x[b, t, dim]) {
    return out(x)
  }
}
model Small(vocab = 32, dim = 32, wide = false) {
  wte = nn.Embedding(vocab, dim)
  blocks = stack 2 of Block(dim, 2, wide)
  ln_f = nn.LayerNorm(dim)
  head = Head(dim, vocab)
  loss(tokens[b, t]: int, targets[b, t]: int) {
    return nn.cross_entropy(head(ln_f(blocks(wte(tokens)))), targets)
  }
}
train Small {
  data = tokens("train.bin", length = 16)
  batch = 4
  microbatch = 1
  precision = bf16
}
M
verify() { expect 0 "$DTC" "$@" --verify-run; }
verify model.dt --tp 2 --sequence-parallel --dp 2 --zero 3
verify model.dt --cp 2 --cp-attention ring --pp 2 -D wide=true
verify model.dt --precision fp16 -D wide=true
verify model.dt --precision fp64
sed '/^  precision = fp32/d' model.dt >plain.dt
# On data alone only parameters are rounded.
cat >one.dt <<'M'
use nn
layer MLP(dim, hidden) {
  precision = fp32
  up = nn.Linear(dim, hidden)
  mid = nn.Linear(hidden, hidden)
  down = nn.Linear(hidden, dim)
  forward(x[b, dim]) {
    return down(nn.gelu(mid(nn.gelu(up(x)))))
  }
}
model One(dim = 8, hidden = 24) {
  mlp = MLP(dim, hidden)
  loss(x[b, dim], y[b, dim]) {
    p = mlp(x)
    return mean(b, d: square(p[b, d] - y[b, d]))
  }
}
train One {
  data = arrays(x = "x.npy", y = "y.npy")
  batch = 16
  precision = bf16
}
M
verify one.dt
cp out.txt wide.txt
sed '/^  precision = fp32/d' one.dt >narrow.dt
verify narrow.dt
python3 - <<'PY'
def relative(path):
    return {w[0]: float(w[3]) for w in map(str.split, open(path)) if len(w) > 5 and w[1].isdigit()}
wide, plain = relative("wide.txt"), relative("out.txt")
print(wide, plain)
assert len(wide) == 6 and all(wide[name] < 0.9 * plain[name] for name in wide)
assert wide["mlp.down.bias"] < 0.2 * plain["mlp.down.bias"]
PY
for p in fp32 fp64; do
  for m in model plain; do "$DTC" $m.dt --precision $p --emit llvm -o $m.ll; done
  same model.ll plain.ll
done
# Attention in float: no call of its kernels has operands of 16 bits.
"$DTC" model.dt --emit c -o narrow.c
says "\.operand = DT_TYPE_BF16" narrow.c
"$DTC" model.dt -D wide=true --emit c -o wide.c
says "static const DtAttention" wide.c
if grep -q "\.operand = DT_TYPE_BF16" wide.c; then fail "attention of a layer in fp32 takes 16 bits"; fi
