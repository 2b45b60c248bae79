# A batch cut into microbatches, with a remainder too, is the same function (fp64, to rounding).
. "$(dirname "$0")/../support/lib.sh"
text 4000 >text.txt
for micro in 7 3 1; do
  "$DTC" "$SRC/examples/chargpt.dt" "${SMALL_CHARGPT[@]}" --precision fp64 -D batch=7 -D microbatch=$micro -o train
  rm -f log.jsonl
  ./train --data text.txt --steps 4 --log log.jsonl --quiet
  losses log.jsonl >losses.$micro
done
near losses.7 losses.3 1e-12
near losses.7 losses.1 1e-12
