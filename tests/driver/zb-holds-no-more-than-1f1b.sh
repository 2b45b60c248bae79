# What a pipeline saves: zb no more than 1f1b, whatever the model, with a smaller bubble; and chunks of a stage share slots of
# one size, so that interleaved has as many as it holds microbatches, 2 (P - 1) + (V - 1) P + 1 on the first stage.
. "$(dirname "$0")/../support/lib.sh"
LLAMA405=(-D vocab=128256 -D layers=126 -D heads=128 -D kv_heads=8 -D dim=16384 -D hidden=53248 -D length=8192 -D batch=128 -D microbatch=1)
saved() { # MODEL OPTIONS...: what the pipeline saves, and its bubble
  local model=$1
  shift
  "$DTC" "$SRC/examples/$model.dt" "$@" --dp 1 --report json |
    python3 -c 'import json, sys; r = json.load(sys.stdin); print(r["memory"]["pipeline"], r["bubble"])'
}
compare() {
  local one zb
  one=$(saved "$@" --schedule 1f1b)
  zb=$(saved "$@" --schedule zb)
  python3 - "$@" $one $zb <<'PY'
import sys
one, bubble, zb, less = map(float, sys.argv[-4:])
assert zb <= one and less < bubble, sys.argv
PY
}
compare llama "${LLAMA405[@]}" --tp 8 --sequence-parallel --pp 16 --precision bf16
compare llama "${LLAMA405[@]}" --tp 8 --pp 8
compare gpt2 --pp 4
compare gpt2 --pp 4 --precision bf16 -D microbatch=2
compare chargpt --pp 2 -D microbatch=2
compare classifier --pp 2 -D microbatch=4

# 6 stages of 7 chunks of 3 layers, all but the first and last of one size.
"$DTC" "$SRC/examples/llama.dt" "${LLAMA405[@]}" --tp 8 --pp 6 --schedule interleaved:7 --precision bf16 --emit c -o big.c
each=$(grep -o 'slot_bytes = {[0-9]*' big.c | sed -n '2s/.*{//p')
now=$(saved llama "${LLAMA405[@]}" --tp 8 --pp 6 --schedule interleaved:7 --precision bf16)
python3 - "$each" $now <<'PY'
import sys
each, now = int(sys.argv[1]), float(sys.argv[2])
held = 2 * 5 + 6 * 6 + 1
assert (held - 1) * each < now < (held + 10) * each, (now / each, held)
PY
