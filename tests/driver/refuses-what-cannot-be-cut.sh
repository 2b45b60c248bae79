# A degree over which nothing of the model can be cut is refused, with the size and the degree.
. "$(dirname "$0")/../support/lib.sh"
expect 1 "$DTC" "$SRC/examples/mlp.dt" --cp 2
says "\-\-cp 2: no sequence of this model can be cut over 2 ranks" err.txt
expect 1 "$DTC" "$SRC/tests/gradient/models/gelu.dt" --tp 3
says "\-\-tp 3: nothing of this model can be cut over 3 ranks" err.txt
expect 1 "$DTC" "$SRC/examples/gpt2.dt" --tp 4 --cp 2 --sequence-parallel -D train.length=1020
says "a sequence of 1020 does not divide over 8 ranks" err.txt
expect 1 "$DTC" "$SRC/examples/gpt2.dt" --tp 2 --sequence-parallel -D layers=2 -D train.length=1
says "a sequence of 1 does not divide over 2 ranks of --tp$" err.txt
# Heads that are exchanged for the sequence must divide over the ranks.
exchange=(--cp-attention alltoall -D layers=2)
expect 1 "$DTC" "$SRC/examples/gpt2.dt" --cp 2 "${exchange[@]}" -D heads=3 -D dim=12
says "alltoall: 3 heads cannot be divided evenly over 2 ranks of --cp" err.txt
expect 1 "$DTC" "$SRC/examples/gpt2.dt" --tp 2 --cp 4 "${exchange[@]}" -D heads=4 -D dim=16
says "alltoall: 4 heads cannot be divided evenly over 8 ranks of --tp and --cp" err.txt
expect 1 "$DTC" "$SRC/examples/llama.dt" --cp 8 "${exchange[@]}" -D heads=8 -D kv_heads=2 -D dim=32
says "there are 2 groups of 4 heads, and one of these numbers must divide evenly" err.txt
# Keys go round in equal shares; what is gathered need not divide, but is not balanced.
expect 1 "$DTC" "$SRC/examples/gpt2.dt" --cp 3 --cp-attention ring -D layers=2 -D length=16
says "ring: a sequence of 16 does not divide over 3 ranks" err.txt
expect 0 "$DTC" "$SRC/examples/gpt2.dt" --cp 3 -D layers=2 -D length=16 --report
says "warning: \-\-cp 3: a sequence of 16 is no multiple of 6" err.txt
cat >plain.dt <<'M'
use nn
model Plain(vocab = 10, dim = 4) {
  wte = nn.Embedding(vocab, dim)
  head = nn.Linear(dim, vocab)
  loss(tokens[b, t]: int, targets[b, t]: int) {
    return nn.cross_entropy(head(wte(tokens)), targets)
  }
}
train Plain {
  data = tokens("train.bin", length = 8)
  batch = 4
  steps = 1
  optimizer = adamw(lr = 1e-2)
}
M
expect 0 "$DTC" plain.dt --cp 2 --report
expect 1 "$DTC" plain.dt --cp 2 --cp-attention alltoall --report
says "alltoall: this model has no attention" err.txt
expect 1 "$DTC" plain.dt --cp 2 --cp-attention ring --report
says "ring: this model has no attention" err.txt
# A microbatch of one sample is cut as others are.
expect 0 "$DTC" "$SRC/examples/mlp.dt" --tp 2 -D batch=3 -D microbatch=1 --report
says "^  tp +all-reduce .* 3 times" out.txt
