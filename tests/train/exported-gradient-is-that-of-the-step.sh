# --export-gradient writes the gradient of the last step, whole, before clipping, from any layout: what AdamW's
# first moment took in, and the same on all of them (fp64, 1e-11). A run of no steps has none.
. "$(dirname "$0")/../support/lib.sh"
python3 - "$DTC" "$SRC" <<'EOF'
import json, math, os, random, shutil, sys
sys.path.insert(0, sys.argv[2] + "/tests/layouts")
import equality as eq, layouts

def read(path):
    return {k[7:]: v for k, v in eq.tensors(path).items()}

layouts.write_data(".", random.Random(1))
model = layouts.model_of("gpt2", ".")
model.arguments = ["--data", "tokens.bin"]
runner, first = eq.Runner(sys.argv[1], "."), None
for text in ("micro=12", "tp=2 zero=2 micro=5 ranks=4", "zero=3 micro=2 ranks=3", "zero=1 group=2 micro=3 ranks=4",
             "pp=2 schedule=1f1b zero=0 micro=4 ranks=4", "tp=2 pp=2 cp=1 accumulate=each zero=3 micro=4 ranks=8"):
    l = eq.parse(text)
    runner.compile(model, l, "train")
    runner.must(["./train", *model.arguments, "--ranks", str(l["ranks"]), "--threads", "1", "--steps", "2", "--quiet",
                 "--export-gradient", "dir.part", "--save", "ck", "--save-every", "1", "--log", "log"])
    os.makedirs("one", exist_ok=True)
    os.rename("dir.part", "one/gradient.safetensors")
    got = read("one")
    states = [eq.tensors(f"ck/step-{s:08d}") for s in (1, 2)]
    logs = [r for r in map(json.loads, open("log")) if "loss" in r]
    shutil.rmtree("ck")
    os.remove("log")
    want = eq.gradients(states, logs, model.clip)[1]
    assert got.keys() == want.keys(), sorted(got.keys() ^ want.keys())
    total = sum(map(len, got.values()))
    norm = math.sqrt(sum(x * x for v in got.values() for x in v))
    assert abs(norm - logs[1]["grad_norm"]) < 1e-11 * norm, (text, norm, logs[1]["grad_norm"])
    first = first or got
    for other, what in ((want, "the moment's"), (first, "that of one rank")):
        for k, v in got.items():
            d = eq.frobenius(other[k], v, norm, total)
            assert d < 10, f"{text}: {k} is not {what}: {d}"
EOF
expect 64 ./train --data tokens.bin --steps 0 --export-gradient g --ranks 4
says "needs a step" err.txt
