# Losses, gradient norms, validation losses and weights of pipelines are those of one rank: to the last
# bit for models without a parameter on two stages, in every schedule; with one (a tied head) as near as
# fp64 is. Microbatches that the stages do not divide, and fewer of them than stages.
. "$(dirname "$0")/../support/lib.sh"

python3 - <<'END'
import random, struct
r = random.Random(1)
open("tok.bin", "wb").write(struct.pack("<900H", *[r.randrange(97) for _ in range(900)]))
def npy(path, descr, shape, raw):
  head = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (descr, shape)
  head += " " * ((-(len(head) + 11)) % 64) + "\n"
  open(path, "wb").write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + raw)
npy("x.npy", "<f4", "(50, 5)", struct.pack("<250f", *[r.gauss(0, 1) for _ in range(250)]))
npy("y.npy", "<i4", "(50,)", struct.pack("<50i", *[r.randrange(4) for _ in range(50)]))
END

# run PROGRAM NAME BATCH ARGS...: three steps; the loss, norm and validation loss of each, and the weights.
run() {
  "./$1" "${@:4}" --batch "$3" --steps 3 --log "$2.jsonl" --export "$2.st" --quiet --threads 1
  records "$2.jsonl" | python3 -c 'import json, sys
for line in sys.stdin:
  r = json.loads(line)
  for key in "loss", "grad_norm", "val_loss":
    if key in r: print(repr(r[key]))' >"$2.txt"
}

# compare WHAT TIED
compare() {
  if [ "$2" = tied ]; then
    near one.txt many.txt 1e-11
    python3 -c 'import json, struct, sys
def read(p):
  d = open(p, "rb").read(); n = struct.unpack("<Q", d[:8])[0]
  return {k: struct.unpack("<%dd" % ((v["data_offsets"][1] - v["data_offsets"][0]) // 8),
          d[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]])
          for k, v in json.loads(d[8:8 + n]).items() if k != "__metadata__"}
a, b = read("one.st"), read("many.st")
assert a.keys() == b.keys()
worst = max(abs(x - y) for k in a for x, y in zip(a[k], b[k]))
assert worst <= 1e-11, "weights differ by %g" % worst' || fail "$1: weights"
  else
    cmp one.txt many.txt || fail "$1: losses"
    cmp one.st many.st || fail "$1: weights"
  fi
}

# model NAME TIED FILE "LAYOUTS" "OPTIONS" ARGS...
model() {
  local name=$1 tied=$2 file=$3 layouts=$4 options=$5 args=("${@:6}")
  # shellcheck disable=SC2086
  $DTC "$SRC/$file" $options --precision fp64 -o one
  for layout in $layouts; do
    # shellcheck disable=SC2086
    $DTC "$SRC/$file" $options --precision fp64 --pp "${layout%%:*}" --schedule "${layout#*:}" -o many
    for batch in 10 3; do
      run one one $batch "${args[@]}"
      run many many $batch --ranks "${layout%%:*}" "${args[@]}"
      compare "$name, $layout, batch $batch" "$tied"
    done
  done
}

tokens=(--data tok.bin --val tok.bin --eval-samples 19 --eval-every 2)
model gpt2 tied examples/gpt2.dt "2:interleaved:2 3:zb" "-D vocab=97 -D context=8 -D layers=4 -D heads=2 -D dim=16 -D length=8 -D microbatch=2 -D batch=10" "${tokens[@]}"
model llama apart examples/llama.dt "2:1f1b 4:1f1b 3:gpipe 2:interleaved:2 3:zb" "-D vocab=97 -D layers=6 -D heads=4 -D kv_heads=2 -D dim=16 -D hidden=24 -D length=8 -D microbatch=2 -D batch=10" "${tokens[@]}"
model layers apart tests/passes/pipeline/layers.dt "4:1f1b 2:zb" "-D microbatch=2"
model rows apart tests/passes/pipeline/parameters-met-in-validation.dt "3:1f1b 2:zb" "-D microbatch=2" --eval-every 1

expect 64 ./many --ranks 2 --sample 3
says "Rows is not a model over tokens that has logits" err.txt
expect 78 ./many
says "tp 1 x cp 1 x pp 2" err.txt
