# From the same weights and data, 20 AdamW steps give PyTorch's losses. reference/make.py made the numbers.
. "$(dirname "$0")/../support/lib.sh"
ref=$SRC/tests/train/reference
small=(-D vocab=97 -D layers=2 -D heads=4 -D dim=32 -D length=16 -D batch=4 -D microbatch=3
  -D lr=1e-2 -D warmup=5 -D steps=20 -D eps=1e-4)
for model in gpt2 llama; do
  more=(-D context=16)
  [ $model = llama ] && more=(-D kv_heads=2 -D hidden=48)
  for precision in fp32 fp64; do
    "$DTC" "$SRC/examples/$model.dt" "${small[@]}" "${more[@]}" --precision $precision -o train
    rm -f log.jsonl
    ./train --data "$ref/tokens.bin" --init "$ref/$model.safetensors" --no-shuffle --log log.jsonl --quiet
    losses log.jsonl >losses.txt
    tolerance=1e-5
    [ $precision = fp64 ] && tolerance=1e-9
    near losses.txt "$ref/$model.$precision.txt" $tolerance
  done
done
