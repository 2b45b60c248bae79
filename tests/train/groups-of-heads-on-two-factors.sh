# Llama with 2 heads of keys and values, each for 4 queries, on 4 and 8 ranks of tp, which then is two factors: losses,
# gradients, moments and weights are those of one rank, whatever else is cut; the interpreter's, too; checkpoints go on
# under other layouts; --report tells one axis.
. "$(dirname "$0")/../support/lib.sh"
unset RANK WORLD_SIZE SLURM_PROCID OMPI_COMM_WORLD_SIZE PMI_SIZE
for layout in "tp=8 micro=2 ranks=8" "tp=4 zero=3 micro=5 ranks=8" \
  "tp=4 pp=2 schedule=zb sequence=True zero=1 micro=2 ranks=8" "tp=4 cp=2 attention=ring micro=2 ranks=8"; do
  python3 "$SRC/tests/layouts/layouts.py" --dtc "$DTC" --model llama --sizes heads=8 dim=32 --layout "$layout"
done
python3 "$SRC/tests/layouts/resume.py" --dtc "$DTC" --grouped --count "${PAIRS:-3}" --seed "${SEED:-1}"

tokens train.bin 4000 96
small=(-D vocab=96 -D length=16 -D layers=2 -D heads=8 -D kv_heads=2 -D dim=32 -D hidden=48 -D batch=5 -D microbatch=2)
"$DTC" "$SRC/examples/llama.dt" --precision fp64 "${small[@]}" --tp 4 -o train
rm -f log.jsonl
./train --ranks 4 --data train.bin --steps 3 --log log.jsonl --quiet
"$DTC" "$SRC/examples/llama.dt" --precision fp64 "${small[@]}" --tp 4 -D data=train.bin --interpret --steps 3 >oracle.jsonl
python3 - <<'PY'
import json
a, b = ([r for r in map(json.loads, open(f)) if "loss" in r] for f in ("log.jsonl", "oracle.jsonl"))
assert len(a) == len(b) == 3, (len(a), len(b))
for x, y in zip(a, b):
    for k in ("loss", "grad_norm"):
        assert abs(x[k] - y[k]) <= 1e-11 * abs(y[k]), (x["step"], k, x[k], y[k])
PY
"$DTC" "$SRC/examples/llama.dt" "${small[@]}" --tp 4 --report >report.txt
says "^  tp +all-reduce" report.txt
! grep -q "tp[.][01]" report.txt || fail "a factor of tp is told"
