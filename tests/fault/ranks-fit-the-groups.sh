# A launch whose ranks do not fit --zero-group is refused with 78 by every rank, whatever was asked of the program.
. "$(dirname "$0")/../support/lib.sh"
tokens train.bin 3000 97
for layout in "" "--pp 2"; do
  "$DTC" "$SRC/examples/gpt2.dt" "${SMALL_GPT2[@]}" --zero 3 --zero-group 2 $layout -o train
  stages=${layout:+2}
  for ranks in 1 3; do
    for how in "--steps 1" --dry-run --info; do
      expect 78 ./train --data train.bin --ranks $((ranks * ${stages:-1})) $how
      says "zero-group 2 does not divide the $ranks ranks that share parameters" err.txt
    done
  done
  expect 0 ./train --data train.bin --ranks $((2 * ${stages:-1})) --steps 1
done
