# Integers on a linear model with dropout are exact in any layout; initial weights, runs twice and on other threads,
# stages of ZeRO, and pipelines against none are the same to the last bit. tests/layouts/bits.py --all does all meshes.
. "$(dirname "$0")/../support/lib.sh"
python3 "$SRC/tests/layouts/bits.py" --dtc "$DTC" --count "${LAYOUTS:-6}" --seed "${SEED:-1}"
