# An intrinsic function whose body is not attention as kernels know it computes what it says, compiled and in the
# interpreter, on one rank and with --tp and --cp: the same as the function without the word `intrinsic`. The ring and
# alltoall refuse such a body.
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/support/own_attention.sh"
both_ways() { # WORDS: compares the intrinsic function of model.dt, which is none that kernels know
  sed 's/^intrinsic fn/fn/' model.dt >plain.dt
  "$DTC" plain.dt --interpret=source --steps 3 >log.jsonl
  losses log.jsonl >plain
  interpreted
  compiled 1
  compiled 2 --tp 2
  compiled 2 --cp 2
  for how in ring alltoall; do
    expect 1 "$DTC" model.dt --cp 2 --cp-attention $how -o train
    says "cp-attention $how cannot cut .own.: it $1" err.txt
  done
  "$DTC" model.dt --emit c -o train.c
  grep -q DtAttention train.c && fail "this body is taken for another: $2"
  return 0
}
other() { # SCORES: everything but the ring is right
  scores=$1 own_attention >model.dt
  both_ways "has other scores than" "$1"
}
other "where((t - s) % 2 == 0, $product * scale, -inf)"
other "where(s <= t, $product * scale * (1.0 + 0.1 * real(g)), -inf)"
other "where(s <= t, tanh($product * scale) + tanh($product), -inf)"
formals=", slope[g, r]" make="slope[h < heads, r < 1] = table[h, r]" actuals=", slope" \
  other "where(s <= t, $product * scale + slope[g, r] * real(s - t), -inf)"
output="sum(s: tanh(exp(z[b, g, r, t, s] - lse[b, g, r, t])) * v[b, s, g, e])" own_attention >model.dt
both_ways "does not compute the softmax" "tanh of the weights"
