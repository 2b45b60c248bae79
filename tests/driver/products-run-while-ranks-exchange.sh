# With --tp, the backward pass posts the all-reduce of what the previous layer needs before it computes
# gradients of weights, and waits for it after them.
. "$(dirname "$0")/../support/lib.sh"
expect 0 "$DTC" "$SRC/examples/gpt2.dt" -D layers=2 --tp 2 --emit c -o gpt2.c
awk '/^static void Block_backward\(/ { inside = 1 }
     inside && /dt_all_reduce/ { posted++; open = 1 }
     inside && open && /dt_matmul/ { products++ }
     inside && /dt_wait/ { waits++; open = 0 }
     inside && /^}/ { print posted + 0, waits + 0, products + 0; exit }' gpt2.c >counts.txt
read -r posted waits products <counts.txt
[ "$posted" = 2 ] || fail "the backward pass of a block posts $posted all-reduces, not 2"
[ "$waits" = "$posted" ] || fail "it waits $waits times for $posted collectives"
[ "$products" -ge 4 ] || fail "only $products of its four gradients of weights run while ranks exchange"
