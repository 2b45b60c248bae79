# In bf16 and fp16 each gradient of drawn layouts is within what correct layouts differ by from the interpreter in fp64,
# and ZeRO 0 to 3 give the same bits. tests/layouts/sixteen_bits.py alone takes 40 layouts.
. "$(dirname "$0")/../support/lib.sh"
python3 "$SRC/tests/layouts/sixteen_bits.py" --dtc "$DTC" --count "${LAYOUTS:-4}" --seed "${SEED:-1}"
