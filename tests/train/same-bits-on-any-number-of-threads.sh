# The same program gives the same bits on 1, 2 and 3 threads, and twice.
. "$(dirname "$0")/../support/lib.sh"
text 20000 >text.txt
"$DTC" "$SRC/examples/chargpt.dt" "${SMALL_CHARGPT[@]}" -D microbatch=3 -o train
for run in 1 2 3 2; do
  rm -f log.jsonl
  ./train --data text.txt --steps 12 --threads $run --log log.jsonl --export w.safetensors --quiet
  losses log.jsonl >losses.txt
  [ "$(wc -l <losses.txt)" -eq 12 ] || fail "12 steps make 12 records"
  [ -f first.safetensors ] || { cp w.safetensors first.safetensors; cp losses.txt first.txt; }
  same w.safetensors first.safetensors
  same losses.txt first.txt
done
