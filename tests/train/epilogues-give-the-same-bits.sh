# Residuals and functions that a product's kernel computes from its sums, and separate kernels, give the same bits: on both
# targets, with all types. Limits say which.
. "$(dirname "$0")/../support/lib.sh"
tokens train.bin 2000 97
products=product_side=1,product_sum=1,product_work=1
separate=plus_points=9007199254740992,act_points=9007199254740992
within=plus_points=0,act_points=0

compare() { # target, precision, example, pattern of the kernels' text, options
  local target=($1)
  for way in separate within; do
    DTC_LIMITS=$products,${!way} expect 0 "$DTC" "$SRC/examples/$3.dt" "${@:5}" --precision "$2" "${target[@]}" -o $way
    expect 0 ./$way --data train.bin --steps 2 --seed 5 --quiet --export $way.st
    DTC_LIMITS=$products,${!way} expect 0 "$DTC" "$SRC/examples/$3.dt" "${@:5}" --precision "$2" "${target[@]}" --dump-after plan --check
    mv out.txt $way.ir
  done
  same separate.st within.st
  grep -qE "$4" within.ir || fail "$*: no kernel has it"
  ! grep -qE "$4" separate.ir || fail "$*: limits do not part them"
}

gelu='^    act gelu'
other='^    act pointwise'
residual='^    plus '
compare "--target cpu" fp32 gpt2 "$gelu" "${SMALL_GPT2[@]}"
compare "--target cpu" fp32 llama "$other" "${SMALL_LLAMA[@]}"
compare "--target cpu" fp16 gpt2 "$gelu" "${SMALL_GPT2[@]}"
compare "--target cpu" bf16 llama "$other" "${SMALL_LLAMA[@]}"
compare "--target cpu" fp64 gpt2 "$residual" "${SMALL_GPT2[@]}"
products=$products,plus_first=1 compare "--target cpu" bf16 gpt2 "$residual" "${SMALL_GPT2[@]}"

command -v c++ >/dev/null || { echo "no C++ compiler"; exit 77; }
for precision in fp32 bf16 fp16; do
  compare "--target cuda --emulate" $precision gpt2 "$gelu" "${SMALL_GPT2[@]}"
  # Two residuals a layer in each of three functions, each before the bias.
  [ "$(grep -A1 "$residual" within.ir | grep -c '^    bias')" = 6 ] || fail "$precision: residuals are not within"
done
compare "--target cuda --emulate" bf16 llama "$residual" "${SMALL_LLAMA[@]}"
