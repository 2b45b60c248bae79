# With parameters in 16 bits and float masters, and with gradients reduced in bf16, every ZeRO stage gives the same bits
# at equal ranks, groups and accumulation; initial values and files are the masters, the same in every precision; and a
# checkpoint of one stage is resumed by another as if the run had not stopped.
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/support/fake.sh"
fake_data
# run NAME OPTIONS...: weights and log (without times) as NAME.st, NAME.log
run() {
  train --threads 1 --export "$1.st" --log "$1.jsonl" "${@:2}"
  records "$1.jsonl" | python3 -c 'import json, sys
for line in sys.stdin:
  r = json.loads(line)
  print([r.get(k) for k in ("step", "loss", "lr", "grad_norm", "loss_scale", "skipped")])' >"$1.log"
}
equal() {
  same "$1.st" "$2.st"
  same "$1.log" "$2.log"
}
# Ranks in one group, and in two; gradients reduced once a step, and at every microbatch.
for case in "bf16 4 0123 :2" "fp16 3 03 each"; do
  read -r FAKE ranks stages layout <<<"$case"
  for stage in $(grep -o . <<<"$stages"); do
    FAKE_ZERO=$stage$layout run $FAKE$stage --ranks $ranks --steps 2
    equal ${FAKE}0 $FAKE$stage
  done
done
for case in "fp32 3 03" "bf16 4 0123 :2each"; do
  read -r FAKE ranks stages layout <<<"$case"
  for stage in $(grep -o . <<<"$stages"); do
    FAKE_REDUCE=bf16 FAKE_ZERO=$stage$layout run reduced$stage --ranks $ranks --steps 2
    equal reduced0 reduced$stage
  done
  FAKE_ZERO=0$layout run float --ranks $ranks --steps 2
  cmp -s float.st reduced0.st && fail "--reduce-dtype bf16 changes nothing"
  near <(losses float.jsonl) <(losses reduced0.jsonl) 1e-3 >near.txt
done

# One rank sends nothing: nothing is rounded.
FAKE=fp32 FAKE_REDUCE=bf16 run alone --ranks 1
FAKE=fp32 run float --ranks 1
equal alone float

for FAKE in bf16 fp16; do
  FAKE_ZERO=1 run whole --ranks 3
  FAKE_ZERO=3 run part --ranks 3 --steps 2 --save ck-$FAKE
  for stage in 0 2; do
    FAKE_ZERO=$stage run resumed --ranks 3 --resume ck-$FAKE
    same whole.st resumed.st
  done
  # On another number of ranks sums have another order; what the checkpoint holds is the same.
  for ranks in 1 2; do
    FAKE_ZERO=3 run held --ranks $ranks --resume ck-$FAKE --steps 2
    same part.st held.st
  done
done

for FAKE in bf16 fp16; do
  FAKE=fp32 run float --steps 0
  FAKE_ZERO=3 run first --steps 0 --ranks 2
  same float.st first.st
  FAKE=fp32 run float --init part.st --steps 0
  run taken --init part.st --steps 0
  same float.st taken.st
done
FAKE=fp32 run float --steps 2 --save ck
FAKE=bf16 run taken --resume ck --steps 2 2>err.txt
same float.st taken.st
says "was saved in fp32, and this program trains in bf16" err.txt
# The kernels see rounded weights: the first loss differs a little.
FAKE=fp32 run float --steps 1
FAKE=bf16 run rounded --steps 1
[ "$(losses float.jsonl)" != "$(losses rounded.jsonl)" ] || fail "bf16 weights are not rounded"
near <(losses float.jsonl) <(losses rounded.jsonl) 1e-3 >near.txt
