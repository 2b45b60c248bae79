# Drawn layouts of three examples give one rank's loss, gradients, moments and weights (fp64, 1e-11).
# tests/layouts/layouts.py --all does all of them.
. "$(dirname "$0")/../support/lib.sh"
python3 "$SRC/tests/layouts/layouts.py" --dtc "$DTC" --count "${LAYOUTS:-6}" --seed "${SEED:-1}"
# Chunks of a pipeline that are parted one after the other, as more values come to be.
python3 "$SRC/tests/layouts/layouts.py" --dtc "$DTC" --model classifier \
  --layout "tp=2 pp=3 cp=1 zero=1 accumulate=each schedule=zb micro=5 ranks=6"
