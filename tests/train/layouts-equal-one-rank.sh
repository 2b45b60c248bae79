# Drawn layouts of three examples give one rank's loss, gradients, moments and weights (fp64, 1e-11).
# tests/layouts/layouts.py --all does all of them.
. "$(dirname "$0")/../support/lib.sh"
python3 "$SRC/tests/layouts/layouts.py" --dtc "$DTC" --count "${LAYOUTS:-6}" --seed "${SEED:-1}"
