# Text of a pipeline is that of one rank, token by token: from the last stage's logits, sent back to the first, in each schedule,
# with every stage cut in turn, after training and from a checkpoint.
. "$(dirname "$0")/../support/lib.sh"
tokens train.bin 2000 97
SIZE=("${SMALL_GPT2[@]}" -D layers=4 -D batch=8 -D warmup=0 -D lr=1e-2 --precision fp64)
"$DTC" "$SRC/examples/gpt2.dt" "${SIZE[@]}" -o train
./train --quiet --threads 1 --steps 3 --sample 20 --save ck >one
./train --quiet --threads 1 --steps 3 --resume ck --sample 9 --temperature 0.5 --prompt ABC >again
while read -r ranks options; do
  # shellcheck disable=SC2086
  "$DTC" "$SRC/examples/gpt2.dt" "${SIZE[@]}" $options -o train
  ./train --ranks "$ranks" --quiet --threads 1 --steps 3 --sample 20 >many
  same one many
  ./train --ranks "$ranks" --quiet --threads 1 --steps 3 --resume ck --sample 9 --temperature 0.5 --prompt ABC >many
  same again many
done <<'O'
2 --pp 2
4 --pp 2 --tp 2 --zero 3
4 --pp 4 --schedule zb
2 --pp 2 --schedule interleaved:2
O
[ -s one ] || fail "no text"
