# `shard(...)` in a model overrides the compiler's choice; without ranks on the axis it says nothing;
# what no plan honours is refused with statement, index, axis and reason.
. "$(dirname "$0")/../support/lib.sh"
model() { # model STATEMENT PARAMETER ONE MAXIMUM: annotations of these
  cat >m.dt <<M
use nn
model M(vocab = 19, dim = 8, hidden = 12, one = 1) {
  param embed[vocab, dim] = normal(0.02)
  param up[dim | hidden] $2 = normal(0.02)
  param down[hidden | dim] = normal(0.02)
  param shift[one, vocab] $3 = normal(0.02)
  loss(tokens[b, t]: int, targets[b, t]: int) {
    x[b, t, d] = embed[tokens[b, t], d]
    h[b, t, j] = sum(i: x[b, t, i] * up[i, j]) $1
    y[b, t, d] = sum(j: tanh(h[b, t, j]) * down[j, d])
    m[b, t, k < one] = max(d: y[b, t, d]) $4
    logits[b, t, v] = sum(d: y[b, t, d] * embed[v, d]) + shift[0, v] * m[b, t, 0]
    return nn.cross_entropy(logits, targets)
  }
}
train M {
  data = tokens("train.bin", length = 8)
  batch = 4
  microbatch = 2
  steps = 3
  optimizer = adamw(lr = 1e-2, eps = 1e-4)
}
M
}
cut() { # cut PATTERN OPTIONS...: the plan has a line like that
  local pattern=$1
  shift
  expect 0 "$DTC" m.dt --dump-after shard -o train "$@"
  says "$pattern" out.txt
}
refused() {
  local message=$1
  shift
  expect 1 "$DTC" m.dt --report "$@"
  says "$message" err.txt
}
model '' '' '' ''
"$DTC" m.dt --emit c >plain.c
cut 'h\[b<2, t<8, j<12@tp\]' --tp 2
cut 'param up\[8 . 12\] @tp split 1' --tp 2
model 'shard(i: tp)' '' '' ''
cut 'h\[b<2, t<8, j<12\]: f32 @tp sum = sum\(i<8@tp:' --tp 2
cut 'param up\[8 . 12\] @tp split 0' --tp 2
"$DTC" m.dt --emit c >marked.c
for c in plain marked; do # but for the source's text and its hash
  sed 's/ *shard(i: tp)//; s/ *$//; /\.build = /d' $c.c >$c.text
done
same plain.text marked.text
model 'shard(none: tp)' '' '' ''
cut 'h\[b<2, t<8, j<12\]: f32 = sum\(i<8:' --tp 2
model '' 'shard(dim: tp)' '' ''
cut 'param up\[8 . 12\] @tp split 0' --tp 2
model '' 'shard(none: tp)' '' ''
cut 'param up\[8 . 12\] = ' --tp 2
model 'shard(i: tp)' 'shard(hidden: tp)' '' ''
cut 'param up\[8 . 12\] @tp split 1' --tp 2

model 'shard(b: tp)' '' '' ''
refused "m.dt:9:5: error: index 'b' of 'h' cannot be cut over 2 ranks of tp: it runs over samples" --tp 2
model 'shard(t: tp)' '' '' ''
refused "index 't' of 'h' cannot be cut over 2 ranks of tp: it runs over the sequence" --tp 2
cut 'h\[b<2, t<8@tp, j<12\]' --tp 2 --sequence-parallel
model 'shard(j: cp)' '' '' ''
refused "index 'j' of 'h' cannot be cut over 2 ranks of cp: it runs over no sequence" --cp 2
model '' '' 'shard(one: tp)' ''
refused "m.dt:6:9: error: dimension 0 of parameter 'shift' cannot be cut over 2 ranks of tp: it has one" --tp 2
model '' '' '' 'shard(k: tp)'
refused "index 'k' of 'm' cannot be cut over 2 ranks of tp: it has one position" --tp 2
cut 'm\[b<2, t<8@cp, k<1\]' --cp 2
model 'shard(t: tp, t: cp)' '' '' ''
refused "index 't' of 'h' cannot be cut over 3 ranks of tp: its extent does not divide over two axes" \
  --tp 3 --cp 2 --sequence-parallel
