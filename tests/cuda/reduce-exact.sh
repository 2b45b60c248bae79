# Sums over GPUs: in the order of ranks ZeRO 0 to 3 give the same bits; all ranks take them alike; and an operation of GPUs
# that fails, or does not end, ends all ranks, and nothing is saved.
. "$(dirname "$0")/../support/lib.sh"
command -v c++ >/dev/null || { echo "no C++ compiler"; exit 77; }
text 4000 >text.txt
for zero in 0 1 2 3; do
  expect 0 "$DTC" "$SRC/examples/chargpt.dt" "${SMALL_CHARGPT[@]}" -D microbatch=2 --zero $zero --target cuda --emulate -o train$zero
  expect 0 ./train$zero --ranks 4 --threads 1 --data text.txt --steps 3 --quiet --reduce exact --export $zero.st
  same $zero.st 0.st
done
for way in "" "--reduce nccl"; do
  expect 0 ./train3 --ranks 4 --threads 1 --data text.txt --steps 3 --quiet $way --export other.st
  [ ! -e nccl.st ] || same other.st nccl.st
  mv other.st nccl.st
done
! cmp -s nccl.st 0.st || fail "the stand-in takes sums in the order of ranks, so that this shows nothing"

# The log has the time for which kernels waited: that of a delay, too.
for program in ./train1 ./train_cpu; do
  [ -e train_cpu ] || expect 0 "$DTC" "$SRC/examples/chargpt.dt" "${SMALL_CHARGPT[@]}" -D microbatch=2 --zero 1 -o train_cpu
  DT_COMM_DELAY_MS=50 expect 0 $program --ranks 2 --threads 1 --data text.txt --steps 3 --quiet --log exposed.jsonl
  python3 -c 'import json
for r in map(json.loads, open("exposed.jsonl")):
  if "loss" in r: assert 0.04 < r["comm_exposed_seconds"] <= r["seconds"], r' || fail "$program: comm_exposed_seconds"
  rm exposed.jsonl
done

expect 64 ./train0 --ranks 2 --data text.txt --reduce sum
says "--reduce=sum: it may be 'exact' or 'nccl'" err.txt
expect 64 ./train_cpu --data text.txt --reduce exact
says "sums over ranks are in their order always" err.txt

stops() { # status, text, variable=value, options
  expect "$1" env "$3" timeout 60 ./train1 --ranks 2 --threads 1 --data text.txt --steps 50 --quiet --save ck --save-every 1 "${@:4}"
  says "$2" err.txt
  says "this rank waited in .*, step 1, .*chargpt.dt:[0-9]*" err.txt
}
stops 69 "NCCL 2.28.9 reports an error: a planted error" DT_EMULATE_NCCL_ERROR=3
[ ! -e ck/step-00000001 ] || fail "a step with an error is saved"
stops 69 "all ranks have come to an operation that does not end on their devices" DT_EMULATE_NCCL_STUCK=3 --timeout 0.3
