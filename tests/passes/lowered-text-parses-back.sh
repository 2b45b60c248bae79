# The kernels of every example in many layouts verify, print, parse back and print the same again: after fuse, after overlap,
# after plan.
. "$(dirname "$0")/../support/lib.sh"
back() { # model options
  DTC_VERIFY=1 "$DTC" "$@" --dump-after fuse,overlap,plan >dump.txt
  awk '/^# after /{n++; next} {print > ("level" n ".ir")}' dump.txt
  for n in 1 2 3; do
    "$DTC" --run "" level$n.ir >again.ir || fail "$*: does not parse back"
    same level$n.ir again.ir
  done
  # What overlap and plan make of text is what they made in order.
  "$DTC" --run overlap level1.ir >again.ir
  same level2.ir again.ir
  "$DTC" --run plan level2.ir >again.ir
  same level3.ir again.ir
}
for layout in "" "--tp 2" "--tp 2 --sequence-parallel" "--cp 2 --zero 1" "--cp 2 --cp-attention ring" "--cp 2 --cp-attention alltoall" \
  "--pp 2 --zero 3" "--pp 2 --schedule zb" "--tp 2 --pp 2 --schedule interleaved:2"; do
  for model in "gpt2 ${SMALL_GPT2[*]}" "llama ${SMALL_LLAMA[*]}" "chargpt ${SMALL_CHARGPT[*]}"; do
    set -- $model
    back "$SRC/examples/$1.dt" "${@:2}" $layout
  done
done
for layout in "" "--tp 2" "--pp 2"; do
  back "$SRC/examples/mlp.dt" $layout
  back "$SRC/examples/classifier.dt" $layout
done
