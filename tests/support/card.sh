# GPT-2 of a small size on one rank and as tp 2 x pp 2 x dp 2 with ZeRO 3, in double and single precision, and the
# comparison of their losses and gradient norms. Sourced after lib.sh, in the folder to work in.
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE SLURM_PROCID OMPI_COMM_WORLD_SIZE PMI_SIZE
CARD=(-D vocab=97 -D context=16 -D length=16 -D layers=4 -D heads=2 -D dim=32 -D batch=8 -D microbatch=2 -D warmup=0
  -D lr=1e-2 -D eps=1e-4 -D steps=4)
OPTIONS=(--quiet --threads 1 --eval-every 0)

card_programs() {
  tokens train.bin 3000 97
  for precision in fp64 fp32; do
    "$DTC" "$SRC/examples/gpt2.dt" "${CARD[@]}" --precision $precision -o one-$precision
    "$DTC" "$SRC/examples/gpt2.dt" --tp 2 --pp 2 --zero 3 "${CARD[@]}" --precision $precision -o train-$precision
    ./one-$precision "${OPTIONS[@]}" --log one-$precision.jsonl
    numbers one-$precision.jsonl >one-$precision.txt
  done
}

numbers() {
  records "$1" | python3 -c 'import json, sys
for line in sys.stdin:
  r = json.loads(line)
  print(repr(r["loss"]), repr(r["grad_norm"]), sep="\n")'
}

# against_one_rank NAME PRECISION: what NAME.jsonl logged. In single precision sums in another order differ by some
# units in the last place, 6e-8 of a number, and four steps of AdamW at this rate multiply that.
against_one_rank() {
  numbers "$1.jsonl" >"$1.txt"
  [ "$(wc -l <"$1.txt")" -eq 8 ] || fail "$1: $(wc -l <"$1.txt") numbers of 4 steps"
  if [ "$2" = fp64 ]; then near "one-$2.txt" "$1.txt" 1e-11; else near "one-$2.txt" "$1.txt" 1e-4; fi
}
