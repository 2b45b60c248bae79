# Emitted kernels compile without warnings where threads have no element at their last position of a row (rows of 24), and
# where a grid has one point (sequences of one token). lib.sh makes warnings errors.
. "$(dirname "$0")/../support/lib.sh"
command -v c++ >/dev/null || { echo "no C++ compiler"; exit 77; }
build() { expect 0 "$DTC" "$SRC/examples/$1.dt" "${@:2}" --target cuda --emulate -o train; }
build gpt2 "${SMALL_GPT2[@]}" -D dim=24
build gpt2 "${SMALL_GPT2[@]}" -D dim=40 --precision bf16
build gpt2 "${SMALL_GPT2[@]}" -D dim=24 --cp 2 -D microbatch=1
build chargpt "${SMALL_CHARGPT[@]}" -D context=1 -D length=1
