# Drawn layouts of examples, as CUDA programs of several ranks whose kernels run on the CPU: gradients, losses, checkpoints
# and texts are those of the CPU target and of one rank. tests/layouts/targets.py alone takes 40 layouts. And a random
# model in fp64, to 1e-11.
. "$(dirname "$0")/../support/lib.sh"
command -v c++ >/dev/null || { echo "no C++ compiler"; exit 77; }
python3 "$SRC/tests/layouts/targets.py" --dtc "$DTC" --count "${LAYOUTS:-2}" --seed "${SEED:-1}"
python3 "$SRC/tests/layouts/random_models.py" --dtc "$DTC" --cuda --models "${MODELS:-1}" --layouts 1 --seed "${SEED:-1}" | tail -60
