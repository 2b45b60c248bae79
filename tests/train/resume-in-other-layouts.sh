# A checkpoint holds the same bits whatever the layout that loads and saves it, and a run that goes on from it in another
# layout has the losses and gradient norms of one rank that was never stopped. RESUME_PAIRS=all tries every pair.
. "$(dirname "$0")/../support/lib.sh"
tokens train.bin 3000 97
SIZE=("${SMALL_GPT2[@]}" -D layers=3 -D batch=7 -D microbatch=2 -D lr=1e-2 -D warmup=0 -D eps=1e-4 -D steps=6)
compile() { "$DTC" "$SRC/examples/gpt2.dt" "${SIZE[@]}" --precision fp64 -o "$@"; }
compile z0
compile z1 --zero 1
compile z2 --zero 2 --accumulate once
compile z3 --zero 3
compile z3g2 --zero 3 --zero-group 2
compile tp2 --tp 2
compile tp2z3 --tp 2 --zero 3
compile cp2z1 --cp 2 --zero 1
compile tp2cp2 --tp 2 --cp 2 --zero 2
LAYOUTS=("z0 1" "z0 3" "z1 2" "z2 4" "z3 3" "z3g2 4" "tp2 2" "tp2z3 4" "cp2z1 4" "tp2cp2 4")

# in_layout LAYOUT OPTIONS...
in_layout() {
  local program ranks
  read -r program ranks <<<"$1"
  shift
  "./$program" --quiet --eval-every 0 --threads 1 --ranks "$ranks" "$@"
}
rm -rf ck.*
in_layout "z0 1" --steps 6 --log whole.jsonl
numbers() { python3 -c 'import json, sys
for line in open(sys.argv[1]):
  r = json.loads(line)
  if r["step"] > 4: print(repr(r["loss"]), repr(r["grad_norm"]), sep="\n")' "$1"; }
numbers whole.jsonl >whole.txt
# What ranks write between them is what one rank writes, tensor for tensor.
read_and_compare() { # FROM TO
  in_layout "${LAYOUTS[$2]}" --resume "ck.$1" --steps 4 --save again --export got.safetensors
  same "$1.safetensors" got.safetensors
  python3 - "ck.$1/step-00000004" again/step-00000004 <<'P'
import glob, json, struct, sys
def tensors(folder):
  out = {}
  for part in glob.glob(folder + "/part-*.safetensors"):
    data = open(part, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    for name, t in json.loads(data[8:8 + n]).items():
      assert name not in out, name
      a, b = t["data_offsets"]
      out[name] = (t["dtype"], t["shape"], data[8 + n + a:8 + n + b])
  return out
a, b = tensors(sys.argv[1]), tensors(sys.argv[2])
assert a and a == b, [k for k in a.keys() | b.keys() if a.get(k) != b.get(k)]
assert sum("/" in k for k in a) == 2 * sum("/" not in k for k in a), list(a)
P
  rm -rf again
  in_layout "${LAYOUTS[$2]}" --resume "ck.$1" --steps 6 --log got.jsonl
  numbers got.jsonl >got.txt
  echo "${LAYOUTS[$1]} ranks, then ${LAYOUTS[$2]}:"
  near whole.txt got.txt 1e-11
}
# Without RESUME_PAIRS each layout is in one pair.
n=${#LAYOUTS[@]}
for a in "${!LAYOUTS[@]}"; do
  [ "${RESUME_PAIRS:-}" = all ] || [ $((a % 2)) -eq 0 ] || continue
  in_layout "${LAYOUTS[a]}" --steps 4 --save "ck.$a" --export "$a.safetensors"
  for b in "${!LAYOUTS[@]}"; do
    [ "${RESUME_PAIRS:-}" = all ] || [ $(((a + 3) % n)) -eq "$b" ] || continue
    read_and_compare "$a" "$b"
  done
done
