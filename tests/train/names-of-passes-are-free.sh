# A model may call its parameters, layers and values what passes, tables and emitted code call theirs: every name of this one is
# such a word, and it trains alike on one rank, on many and in the interpreter.
. "$(dirname "$0")/../support/lib.sh"
tokens train.bin 2000 11
cat >model.dt <<'M'
use nn
layer total(frame) {
  param w[frame | frame] = normal(0.0, 0.3)
  param tp[frame] = normal(0.0, 0.3)
  param first[frame] = ones
  forward(call[b, t, frame]) {
    batch[b, t, frame] = call[b, t, frame] * first[frame]
    total[b, t, frame] = batch[b, t, frame] + tp[frame]
    total = tanh(total)
    first_[b, t, o] = sum(frame: total[b, t, frame] * w[frame, o])
    return call + first_
  }
}
layer step(frame) {
  grad = total(frame)
  rank = total(frame)
  slot = stack 2 of total(frame)
  forward(in_[b, t, frame]) {
    return slot(rank(grad(in_)))
  }
}
model count(key = 11, frame = 8) {
  param first[key | frame] = normal(0.0, 1.0)
  param batch[frame] = normal(0.0, 1.0)
  grad = total(frame)
  rank = total(frame)
  param w[frame] = ones
  param tp[frame] = ones
  slot = stack 4 of step(frame)
  out = total(frame)
  chunk0 = total(frame)
  param_ = nn.Linear(frame, key)
  loss(data[b, t]: int, next[b, t]: int) {
    lr[b, t, frame] = first[data[b, t], frame] + batch[frame]
    total = grad(lr)
    total = rank(total)
    total[b, t, frame] = total[b, t, frame] * w[frame] + tp[frame]
    total = slot(total)
    total = chunk0(out(total))
    stage = param_(total)
    return nn.cross_entropy(stage, next)
  }
}
train count {
  data = tokens("train.bin", length = 8)
  batch = 10
  microbatch = 2
  steps = 3
  optimizer = adamw(lr = 1e-2, eps = 1e-4, weight_decay = 0.1)
  clip = 0.5
  precision = fp64
}
M
"$DTC" model.dt -o train
./train --quiet --threads 1 --log 1.jsonl --export 1.st
losses 1.jsonl >1.loss
"$DTC" model.dt --interpret >i.jsonl
losses i.jsonl >i.loss
near 1.loss i.loss 1e-11
while read -r ranks options; do
  # shellcheck disable=SC2086
  "$DTC" model.dt $options -o train
  ./train --ranks "$ranks" --quiet --threads 1 --log many.jsonl
  losses many.jsonl >many.loss
  near 1.loss many.loss 1e-11
done <<'O'
2 --tp 2
2 --cp 2
2 --pp 2
4 --tp 2 --pp 2 --zero 3
2 --pp 2 --schedule interleaved:2
O
for name in first batch grad.first rank.tp w slot.3.slot.1.tp slot.0.rank.w chunk0.first; do
  grep -qa "\"$name\"" 1.st || fail "no tensor is called $name"
done
