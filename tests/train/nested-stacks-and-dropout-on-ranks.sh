# A stack in a stack is gathered and reduced with the layer that holds it, one that is run twice as a whole, and the one
# layer of a stack again before its last gradients are reduced; and dropout falls on the same elements on any number of ranks.
. "$(dirname "$0")/../support/lib.sh"
tokens train.bin 2000 65
cat >model.dt <<'M'
use nn
layer Inner(dim) {
  fc = nn.Linear(dim, dim)
  drop = nn.Dropout(0.2)
  forward(x[b, t, dim]) {
    return x + drop(tanh(fc(x)))
  }
}
layer Outer(dim) {
  ln = nn.LayerNorm(dim)
  inner = stack 2 of Inner(dim)
  forward(x[b, t, dim]) {
    return x + inner(ln(x))
  }
}
model Nested(vocab = 65, dim = 24) {
  wte = nn.Embedding(vocab, dim)
  once = stack 3 of Outer(dim)
  twice = stack 2 of Inner(dim)
  one = stack 1 of Outer(dim)
  head = nn.Linear(dim, vocab)
  loss(tokens[b, t]: int, targets[b, t]: int) {
    x = wte(tokens)
    x = one(twice(once(twice(x))))
    return nn.cross_entropy(head(x), targets)
  }
}
train Nested {
  data = tokens("train.bin", length = 8)
  batch = 10
  microbatch = 2
  steps = 3
  optimizer = adamw(lr = 1e-2, eps = 1e-4, weight_decay = 0.1)
  clip = 0.5
  precision = fp64
}
M
"$DTC" model.dt --emit c >model.c
says '"once", .count = 3' model.c
grep -q '"twice", .count' model.c && fail "a stack that runs twice is cut into layers"
for stage in 0 1 2 3; do
  "$DTC" model.dt --zero $stage --accumulate each -o train
  for ranks in 1 2 3; do
    ./train --quiet --threads 1 --ranks $ranks --export $stage.$ranks.st --log log.jsonl
    losses log.jsonl >$stage.$ranks.loss
    near 0.1.loss $stage.$ranks.loss 1e-11
    same 0.$ranks.st $stage.$ranks.st
  done
done
