# The examples train: accuracy on held-out data rises far above chance.
. "$(dirname "$0")/../support/lib.sh"
python3 "$SRC/examples/data/make_arrays.py" mlp mlp 2000
"$DTC" "$SRC/examples/mlp.dt" -o train
(cd mlp && ../train --steps 200 --eval-every 200 --log ../mlp.jsonl --quiet)
python3 "$SRC/examples/data/make_arrays.py" classifier classifier 2000
"$DTC" "$SRC/examples/classifier.dt" -D layers=2 -D dim=64 -D lr=1e-3 -o train
(cd classifier && ../train --steps 300 --eval-every 300 --log ../classifier.jsonl --quiet)
python3 - <<'PY'
import json
for name, least in (("mlp", 0.9), ("classifier", 0.6)):
    last = [r for r in map(json.loads, open(name + ".jsonl")) if "val_loss" in r][-1]
    print(name, last)
    assert last["val_accuracy"] >= least, name
PY
