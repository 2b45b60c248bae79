# Regions begin as a pattern, which shows what each rank wrote of them: that is what the compiler and the
# program planned, to the byte, in drawn layouts; with ZeRO 3 on 8 ranks the sum over units of ceil(n / 8).
# tests/layouts/memory.py draws more.
. "$(dirname "$0")/../support/lib.sh"
python3 "$SRC/tests/layouts/memory.py" --dtc "$DTC" --count "${LAYOUTS:-4}" --seed "${SEED:-2}" --model gpt2 >out.txt ||
  { cat out.txt >&2; fail "a rank used other memory than planned"; }
cat out.txt
says "[1-9][0-9]* held ZeRO 3's pieces" out.txt
# With the optimizer's state in files.
python3 "$SRC/tests/layouts/memory.py" --dtc "$DTC" --offload --count "${LAYOUTS:-2}" --seed "${SEED:-3}" --model gpt2 >out.txt ||
  { cat out.txt >&2; fail "a rank used other memory than planned with --offload"; }
cat out.txt
