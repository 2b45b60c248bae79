# With the sequence on ranks and attention by heads, programs give one rank's losses (fp64, 1e-11).
. "$(dirname "$0")/../support/lib.sh"
tokens train.bin 2000 97
run() { # run NAME RANKS OPTIONS...
  local name=$1 ranks=$2
  shift 2
  "$DTC" "$SRC/examples/$model.dt" "${sizes[@]}" -D eps=1e-4 -D warmup=0 --precision fp64 -o train "$@"
  ./train --quiet --threads 1 --ranks "$ranks" --steps 3 --log log.jsonl --data train.bin
  losses log.jsonl >"$name"
  near one "$name" 1e-11
}
exchange=(--cp 2 --cp-attention alltoall)
model=gpt2 sizes=("${SMALL_GPT2[@]}" -D heads=4)
run one 1
run stages 4 --pp 2 "${exchange[@]}"
model=llama sizes=("${SMALL_LLAMA[@]}")
run one 1
run all 8 --tp 2 --sequence-parallel --zero 3 "${exchange[@]}"
