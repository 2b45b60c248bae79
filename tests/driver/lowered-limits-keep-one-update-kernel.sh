# The optimizer's update is one kernel at whatever sizes the compiler chooses (DTC_LIMITS): threads call it on pieces.
. "$(dirname "$0")/../support/lib.sh"
for limit in kernel_statements=1 nest_statements=1 inline_points=0 inline_operators=0 join_work=0; do
  DTC_LIMITS=$limit "$DTC" "$SRC/examples/gpt2.dt" "${SMALL_GPT2[@]}" -o train || fail "$limit"
done
