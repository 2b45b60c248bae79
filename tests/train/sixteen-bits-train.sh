# Programs in bf16 and fp16 learn as in fp32; each gradient of the first step is within the error that correct
# layouts have, 4 * 1.03^(depth) roundings of the type, of fp64's, in a pipeline, with tp
# and with cp, keys gathered and in a ring, too; ZeRO 0 and 3 give the same bits; every example compiles.
. "$(dirname "$0")/../support/lib.sh"
rm -f ./*.jsonl
head -c 20000 "$SRC/doc/training.md" >text.txt
SIZE=(-D layers=2 -D dim=64 -D heads=2 -D length=32 -D context=32 -D batch=8 -D microbatch=4)
compile() { "$DTC" "$SRC/examples/chargpt.dt" "${SIZE[@]}" "${@:2}" -o "$1"; }
run() { "./$1" --quiet --threads 1 --eval-every 0 --steps "$2" --log "$3.jsonl" "${@:4}"; }
compile fp64 --precision fp64
run fp64 1 fp64 --export-gradient fp64.st
compile fp32 --precision fp32
run fp32 40 fp32
for p in bf16 fp16; do
  compile $p --precision $p
  run $p 40 $p
  run $p 1 one --export-gradient $p.one.st
  compile $p.pp --precision $p --pp 2
  run $p.pp 1 pp --ranks 2 --export-gradient $p.pp.st
  compile $p.tp --precision $p --tp 2
  run $p.tp 1 tp --ranks 2 --export-gradient $p.tp.st
  compile $p.cp --precision $p --cp 2
  run $p.cp 1 cp --ranks 2 --export-gradient $p.cp.st
  compile $p.ring --precision $p --cp 4 --cp-attention ring
  run $p.ring 1 ring --ranks 4 --export-gradient $p.ring.st
done
for z in 0 3; do
  compile zero$z --precision bf16 --zero $z --accumulate once
  run zero$z 3 zero$z --ranks 2 --export zero$z.st
done
same zero0.st zero3.st
python3 - <<'PY'
import json, math, struct, sys
def tensors(path):
    raw = open(path, "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    head = json.loads(raw[8:8 + n])
    kind = {"F32": "f", "F64": "d"}
    for name, t in head.items():
        if name == "__metadata__": continue
        a, b = t["data_offsets"]
        size = struct.calcsize(kind[t["dtype"]])
        yield name, struct.unpack("<%d%s" % ((b - a) // size, kind[t["dtype"]]), raw[8 + n + a:8 + n + b])
def losses(path): return [r["loss"] for r in map(json.loads, open(path)) if "loss" in r and "step" in r]
want, bad, L = dict(tensors("fp64.st")), 0, 2
for p, eps in ("bf16", 2**-8), ("fp16", 2**-11):
    for a, b in zip(losses("fp32.jsonl"), losses(p + ".jsonl"), strict=True):
        if abs(a - b) > 0.005 * a: bad += 1; print(p, "has a loss of", b, "and fp32 of", a)
    for kind in "one", "pp", "tp", "cp", "ring":
        got = dict(tensors(f"{p}.{kind}.st"))
        assert got.keys() == want.keys()
        for name in want:
            depth = L + 1 - int(name.split(".")[1]) if name.startswith("blocks.") else L + 1
            off = math.dist(got[name], want[name])
            size = math.hypot(*want[name])
            if off > 4 * 1.03**depth * eps * size: bad += 1; print(p, kind, name, off / size / eps, "roundings")
sys.exit(bad != 0)
PY
for e in gpt2 llama mlp classifier; do
  for p in bf16 fp16; do "$DTC" "$SRC/examples/$e.dt" --precision $p --emit c -o $e.c; done
done
