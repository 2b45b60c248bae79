# Random models in drawn layouts give one rank's loss, gradients, moments and weights (fp64, 1e-11), as do models
# that once did not. tests/layouts/random_models.py alone takes 200 models and 10 layouts of each.
. "$(dirname "$0")/../support/lib.sh"
python3 "$SRC/tests/layouts/random_models.py" --dtc "$DTC" --found --models "${MODELS:-3}" --layouts "${LAYOUTS:-3}" --seed "${SEED:-1}"
