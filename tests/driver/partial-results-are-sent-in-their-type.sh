# Partial results over tp are sent in the type of the value: in bf16 all sums of activations and adjoints in 16 bits,
# with `residual = fp32` what is added to the residual stream as float, and statistics always as float.
. "$(dirname "$0")/../support/lib.sh"
sums() { # OPTIONS...: type and rank of each sum over tp of arrays of three dimensions or two
  "$DTC" "$SRC/examples/gpt2.dt" --precision bf16 --tp 2 --sequence-parallel --dump-after localise "$@" \
    --emit c -o unused.c |
    sed -nE 's/.*: (f32|bf16)\[([0-9, ]*)\] = (all_reduce|reduce_scatter) (sum|max) tp ([^ ]*).*/\1 \2 \5/p' |
    awk '{ n = NF - 2; print $1, n, $NF }'
}
sums | sort | uniq -c >plain
[ "$(grep -c 'bf16 3 ' plain)" -ge 5 ] || fail "$(cat plain)"
if grep -q ' f32 3 ' plain; then fail "$(cat plain)"; fi
says ' f32 2 result.lse.sum' plain
sums -D residual=fp32 | sort | uniq -c >wide
says ' f32 3 result.proj.y.sum' wide
says ' f32 3 x.2.proj.y.sum' wide
says ' bf16 3 d.ln1' wide
