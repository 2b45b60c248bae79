# --resume of a run that is at its last step says that it is finished, and how to go on; not where it is taken up for
# its weights or with --quiet.
. "$(dirname "$0")/../support/lib.sh"
text 20000 >text.txt
"$DTC" "$SRC/examples/chargpt.dt" "${SMALL_CHARGPT[@]}" -o train
rm -rf ckpt
expect 0 ./train --data text.txt --threads 1 --quiet --steps 2 --save ckpt
expect 0 ./train --data text.txt --threads 1 --steps 2 --resume ckpt
says "ckpt/step-00000002 is of step 2 and the run ends with step 2: it is finished; --steps N continues it" err.txt
for how in "--quiet" "--export w.safetensors" "--sample 3" "--steps 3"; do
  steps="--steps 2"
  [ "$how" = "--steps 3" ] && steps=
  expect 0 ./train --data text.txt --threads 1 $steps --resume ckpt $how
  ! grep -q "it is finished" err.txt || fail "$how: $(cat err.txt)"
done
