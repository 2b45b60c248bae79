# The memory plan of each example in each layout: frames of activations, and slots of a pipeline, need at most 3% more than
# the largest sum of bytes that are alive in them at one time. Interleaved schedules are left out: where chunks of a stage
# differ in size, gaps remain between their slots (doc/parallel.md).
. "$(dirname "$0")/../support/lib.sh"
cat >near.py <<'PY'
import json, subprocess, sys

dtc, folder = sys.argv[1:]
layouts = ["", "--tp 2", "--tp 2 --sequence-parallel", "--tp 2 --in-flight 2", "--cp 2", "--cp 2 --cp-attention ring", "--zero 3",
           "--pp 2", "--pp 2 --tp 2", "--pp 4 --schedule zb", "--pp 2 --schedule gpipe", "--precision bf16 --tp 2",
           "--precision bf16 --pp 2 --schedule zb --checkpoint selective", "--checkpoint full", "--tp 2 --checkpoint selective",
           "--pp 2 --tp 2 --cp 2", "--pp 2 --tp 2 --checkpoint full"]
taken = 0
for model in ("mlp", "classifier", "chargpt", "gpt2", "llama"):
    for layout in layouts:
        if model == "mlp" and "--cp" in layout:
            continue  # it has no sequence
        run = [dtc, f"{folder}/{model}.dt", "--dp", "2" if "zero" in layout else "1", "--report", "json", *layout.split()]
        r = subprocess.run(run, capture_output=True, text=True)
        assert r.returncode == 0, (run, r.stderr)
        r = json.loads(r.stdout)
        memory, bound = r["memory"], r["memory_bound"]
        assert bound["activations"] > 0 and ("--pp" in layout) == (bound["pipeline"] > 0), (run, bound)
        for arena in bound:
            assert bound[arena] <= memory[arena] <= 1.03 * bound[arena], (run, arena, memory[arena], bound[arena])
        taken += 1
assert taken == 5 * len(layouts) - 3, taken
PY
python3 near.py "$DTC" "$SRC/examples"
expect 0 "$DTC" "$SRC/examples/gpt2.dt" --pp 2 --report
says "^of memory that is used again, alive at one time at most$" out.txt
says "^  pipeline +[0-9]+ bytes +[0-9.]+ MiB  0.0% less$" out.txt
