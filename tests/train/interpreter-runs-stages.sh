# The interpreter runs what pass pipeline makes, stage by stage on as many ranks, and gives the losses and norms of one rank and of
# the compiled pipeline: the schedules, a tied head, several chunks a stage, tensor parallelism and ZeRO.
. "$(dirname "$0")/../support/lib.sh"
tokens train.bin 900 97
SIZE=(-D vocab=97 -D context=8 -D layers=4 -D heads=2 -D dim=8 -D length=8 -D batch=7 -D microbatch=2 -D warmup=0 -D lr=1e-2)
numbers() {
  records "$1" | python3 -c 'import json, sys
for line in sys.stdin:
  r = json.loads(line)
  print(repr(r["loss"]), repr(r["grad_norm"]), sep="\n")'
}
"$DTC" "$SRC/examples/gpt2.dt" "${SIZE[@]}" --interpret >one.jsonl
numbers one.jsonl >one.txt
while read -r options; do
  # shellcheck disable=SC2086
  "$DTC" "$SRC/examples/gpt2.dt" "${SIZE[@]}" $options --interpret >many.jsonl
  numbers many.jsonl >many.txt
  near one.txt many.txt 1e-11
done <<'O'
--pp 2
--pp 4 --schedule zb
--pp 2 --schedule interleaved:2
--pp 2 --tp 2 --schedule gpipe
--pp 2 --schedule interleaved:2 --zero 2 --accumulate each --dp 2
--pp 2 --zero 3 --dp 2
O
"$DTC" "$SRC/examples/gpt2.dt" "${SIZE[@]}" --precision fp64 --pp 2 -o train
./train --quiet --threads 1 --ranks 2 --steps 3 --log log.jsonl
numbers log.jsonl >compiled.txt
near one.txt compiled.txt 1e-11
