# A degree over which nothing of the model can be cut is refused, with the size and the degree.
. "$(dirname "$0")/../support/lib.sh"
expect 1 "$DTC" "$SRC/examples/mlp.dt" --cp 2
says "\-\-cp 2: no sequence of this model can be cut over 2 ranks" err.txt
expect 1 "$DTC" "$SRC/tests/gradient/models/gelu.dt" --tp 3
says "\-\-tp 3: nothing of this model can be cut over 3 ranks" err.txt
expect 1 "$DTC" "$SRC/examples/gpt2.dt" --tp 4 --cp 2 --sequence-parallel -D train.length=1020
says "a sequence of 1020 does not divide over 8 ranks" err.txt
