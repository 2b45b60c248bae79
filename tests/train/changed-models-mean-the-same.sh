# Examples and random models that are changed in ways that must not change what they mean (samples in another order, twice, or cut
# up; other names; another order of declarations; a parameter transposed; a dimension padded; twice the loss) give the same
# loss and gradients, and those of the interpreter. tests/layouts/metamorphic.py alone takes 50 models and every example.
. "$(dirname "$0")/../support/lib.sh"
python3 "$SRC/tests/layouts/metamorphic.py" --dtc "$DTC" --models "${MODELS:-2}" --examples mlp llama --seed "${SEED:-1}"
# A gradient that is not doubled is found.
sed 's/factor=2.0, exact=True/factor=2.0000000001/' "$SRC/tests/layouts/metamorphic.py" >altered.py
expect 1 env PYTHONPATH="$SRC/tests/layouts" python3 altered.py --dtc "$DTC" --models 0 --examples mlp --kinds scale
says "FAIL mlp, scale: .* times as far off as allowed" out.txt
