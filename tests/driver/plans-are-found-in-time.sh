# A plan for nested stacks of several kinds of attention, which has too many states for all of them to be tried. The limit
# is far above what it takes (4 s), and far below what trying all would (many minutes).
. "$(dirname "$0")/../support/lib.sh"
for mesh in "--cp 2" "--tp 2 --cp 2"; do
  (ulimit -t 60 && "$DTC" "$SRC/tests/driver/models/nested-attention.dt" $mesh --dump-after shard >plan.ir) ||
    fail "no plan for $mesh"
done
