# Emitted C hands addresses of the device on and follows none: with regions whose addresses fault on the host (tests/runtime/
# apart), programs give the bits that they give on the CPU.
. "$(dirname "$0")/../support/lib.sh"
tokens train.bin 2000 97
apart=$SRC/tests/runtime/apart
wrapped=$(grep -oE 'dt_[a-z_0-9]+' "$apart/program.c" | grep -vE '^dt_(launch|parallel)' | sort -u | sed 's/.*/-Wl,--wrap=&/')
run() { # run RANKS MODEL OPTIONS...
  local ranks=$1 model=$2
  shift 2
  "$DTC" "$SRC/examples/$model.dt" "$@" --save-temps temps -o train
  # shellcheck disable=SC2086
  cc -std=gnu17 -O1 -I"$apart" -I"$SRC/tests/runtime" -I"$SRC" $wrapped -o apart temps/train.c temps/kernels.o \
    "$apart/device.c" "$apart/program.c" "$BUILD/lib/dtc/libdtc_rt.a" $(sed -n 's/^LDLIBS ?= //p' temps/Makefile)
  for program in train apart; do
    ./$program --quiet --threads 1 --ranks "$ranks" --steps 2 --data train.bin --export $program.st ||
      fail "$program: exit status $?: $model $*"
  done
  same train.st apart.st
}
run 2 gpt2 "${SMALL_GPT2[@]}" --cp 2 --cp-attention ring
run 2 llama "${SMALL_LLAMA[@]}" --cp 2 --cp-attention ring --precision bf16 --zero 3
run 2 gpt2 "${SMALL_GPT2[@]}" --cp 2 --cp-attention gather
run 4 llama "${SMALL_LLAMA[@]}" --cp 2 --cp-attention alltoall --pp 2 --precision fp16
run 4 gpt2 "${SMALL_GPT2[@]}" --tp 2 --sequence-parallel --pp 2 --schedule zb
run 2 llama "${SMALL_LLAMA[@]}" --in-flight 2 --tp 2
