# IR text printed after every pass parses back, and the passes run alone on it give what they gave in order.
. "$(dirname "$0")/../support/lib.sh"
passes=(inline range batch differentiate optimizer precision simplify normalise fuse overlap plan)
for model in "mlp" "chargpt ${SMALL_CHARGPT[*]}" "llama ${SMALL_LLAMA[*]}" "classifier" "gpt2 ${SMALL_GPT2[*]}"; do
  set -- $model
  name=$1
  shift
  "$DTC" "$SRC/examples/$name.dt" "$@" --emit ir -o before.ir
  "$DTC" --run "" before.ir >again.ir 2>err.txt || { cat err.txt; fail "$name: the IR does not parse back"; }
  same before.ir again.ir
  for pass in "${passes[@]}"; do
    "$DTC" "$SRC/examples/$name.dt" "$@" --dump-after $pass --check >dump.txt
    "$DTC" --run $pass before.ir >after.ir
    "$DTC" --run "" after.ir >again.ir
    same after.ir again.ir
    cp after.ir before.ir
  done
done
