# --verify-run compares a program's first step with the interpreter's of the model as it is written: examples are right on
# layouts of every kind, and a kernel that was altered is found. What it cannot do is said.
. "$(dirname "$0")/../support/lib.sh"
E=$SRC/examples
verify() { "$DTC" "$@" --verify-run >out.txt 2>err.txt; }

verify "$E/mlp.dt" -D inputs=12 -D hidden=9 -D batch=8 -D microbatch=3 --dp 2 || fail "$(cat out.txt err.txt)"
says "x.npy does not exist, so random data are used" err.txt
says "^right: the largest error is 0\.[0-9]+ of the error allowed in fp32" out.txt
verify "$E/gpt2.dt" "${SMALL_GPT2[@]}" --tp 2 --dp 2 --zero 3 || fail "$(cat out.txt err.txt)"
says "^blocks.\*.mlp.fc.weight +8192 " out.txt
verify "$E/llama.dt" "${SMALL_LLAMA[@]}" --cp 2 --cp-attention ring --precision fp64 || fail "$(cat out.txt err.txt)"
verify "$E/llama.dt" "${SMALL_LLAMA[@]}" --cp 2 --cp-attention ring --precision bf16 || fail "$(cat out.txt err.txt)"
says "^right: the largest error is 0\.[0-9]+ of the error allowed in bf16" out.txt
verify "$E/gpt2.dt" "${SMALL_GPT2[@]}" --tp 2 --pp 2 --precision fp16 || fail "$(cat out.txt err.txt)"
# A rounding is 2^-11, and the interpreter that rounds so on one rank is about as far off as the program.
python3 - <<'PY'
rows = [l.split() for l in open("out.txt") if l.startswith("blocks.")]
assert len(rows) > 8, rows
for name, n, largest, relative, own, part in rows:
    assert 2**-14 < float(relative) < 2**-8 and 0.5 < float(relative) / float(own) < 2, (name, relative, own)
PY
# Gradients that ranks reduce in bf16 have its roundings, in any precision.
for precision in fp32 bf16 fp16; do
  verify "$E/gpt2.dt" "${SMALL_GPT2[@]}" --dp 2 --zero 3 --precision $precision --reduce-dtype bf16 ||
    fail "$(cat out.txt err.txt)"
done
expect 2 "$DTC" "$E/gpt2.dt" "${SMALL_GPT2[@]}" --precision fp64 --reduce-dtype bf16 --verify-run
says "a program of fp64 sums gradients in fp64" err.txt
text 4000 >text.txt
verify "$E/chargpt.dt" "${SMALL_CHARGPT[@]}" --pp 2 --data text.txt || fail "$(cat out.txt err.txt)"
[ ! -s err.txt ] || fail "$(cat err.txt)"

# Subtractions in kernels become additions.
small=(-D inputs=12 -D hidden=9 -D batch=8)
"$DTC" "$E/mlp.dt" "${small[@]}" --save-temps src -o altered
cp src/kernels.ll right.ll
expect 0 "$DTC" "$E/mlp.dt" "${small[@]}" --verify-run=altered
sed -i 's/= fsub /= fadd /' src/kernels.ll
cmp -s right.ll src/kernels.ll && fail "no fsub in kernels.ll"
make -s -C src DTC="$BUILD" >/dev/null
expect 1 "$DTC" "$E/mlp.dt" "${small[@]}" --verify-run=src/train
says "^WRONG: the largest error is .* times the error allowed in fp32" out.txt
says "WRONG$" out.txt
"$DTC" "$E/mlp.dt" "${small[@]}" --reduce-dtype bf16 --save-temps reduced -o altered
expect 0 "$DTC" "$E/mlp.dt" "${small[@]}" --dp 2 --reduce-dtype bf16 --verify-run=altered
sed -i 's/= fsub /= fadd /' reduced/kernels.ll
make -s -C reduced DTC="$BUILD" >/dev/null
expect 1 "$DTC" "$E/mlp.dt" "${small[@]}" --dp 2 --reduce-dtype bf16 --verify-run=reduced/train
says "^WRONG: the largest error is .* times the error allowed in fp32" out.txt

# So they are in fp16; and where gradients are too large for it at first, there is nothing to compare.
"$DTC" "$E/mlp.dt" "${small[@]}" --precision fp16 --save-temps half -o altered
sed -i 's/= fsub /= fadd /' half/kernels.ll
make -s -C half DTC="$BUILD" >/dev/null
expect 1 "$DTC" "$E/mlp.dt" "${small[@]}" --precision fp16 --verify-run=half/train
says "^WRONG: the largest error is .* times the error allowed in fp16" out.txt
sed 's/return nn/return 1e6 * nn/' "$E/mlp.dt" >large.dt
expect 1 "$DTC" large.dt "${small[@]}" --precision fp16 --verify-run
says "gradients of the first step are not finite in fp16, so the program skips it" err.txt

expect 1 "$DTC" "$E/gpt2.dt" --verify-run
says "a step computes .* elements, and the interpreter takes at most" err.txt
says "the largest statement is .logits. over b<512" err.txt
expect 1 "$DTC" "$SRC/tests/gradient/models/batch_norm.dt" --dp 2 --verify-run
says "statistics over .local" err.txt
expect 1 "$DTC" "$E/mlp.dt" "${small[@]}" --verify-run --data missing
says "ended with status 66" err.txt
