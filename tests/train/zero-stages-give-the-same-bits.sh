# Whatever ZeRO cuts, the owner of an element and the order of its sums are the same: at equal ranks,
# groups and accumulation the weights and the log are the same to the bit, on any number of threads,
# in every run, and after a resume.
. "$(dirname "$0")/../support/lib.sh"
tokens train.bin 3000 97
SIZE=("${SMALL_GPT2[@]}" -D layers=3 -D batch=7 -D microbatch=2 -D lr=1e-2 -D warmup=0 -D steps=6)
compile() { "$DTC" "$SRC/examples/gpt2.dt" "${SIZE[@]}" -o "$@"; }
# [THREADS=N STEPS=N] train PROGRAM NAME OPTIONS...: weights and log (without times) as NAME.st, NAME.log
train() {
  "./$1" --quiet --eval-every 0 --threads "${THREADS:-1}" --steps "${STEPS:-4}" --export "$2.st" --log "$2.jsonl" "${@:3}"
  records "$2.jsonl" | python3 -c 'import json, sys
for line in sys.stdin:
  r = json.loads(line)
  print([r[k] for k in ("step", "loss", "lr", "grad_norm")])' >"$2.log"
}
equal() {
  same "$1.st" "$2.st"
  same "$1.log" "$2.log"
}
for accumulate in once each; do
  for stage in 0 1 2 3; do
    compile p --zero $stage --accumulate $accumulate --zero-group 2
    train p $accumulate$stage --ranks 4
    equal ${accumulate}0 $accumulate$stage
    [ $stage -gt 0 ] || train p again --ranks 4
    [ $stage -gt 0 ] || equal ${accumulate}0 again
  done
done
for stage in 0 3; do
  compile p$stage --zero $stage --accumulate each
  train p$stage three$stage --ranks 3
done
equal three0 three3
compile once --zero 3 --gather once
train once gathered --ranks 3
equal three0 gathered
for stage in 0 3; do
  compile r$stage --zero $stage --accumulate each --reduce-dtype bf16
  train r$stage reduced$stage --ranks 3
done
equal reduced0 reduced3
cmp -s reduced0.st three0.st && fail "--reduce-dtype bf16 changes nothing"
THREADS=2 train p3 threads --ranks 3
equal three0 threads

# A checkpoint of cut state, and the run that goes on from it.
STEPS=2 train p3 half --ranks 3 --save ck
train p3 half --ranks 3 --resume ck
same three0.st half.st
