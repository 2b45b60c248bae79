# A run that was stopped and resumed gives the same bits as one that was not; so does one killed while
# it was writing a checkpoint.
. "$(dirname "$0")/../support/lib.sh"
text 20000 >text.txt
"$DTC" "$SRC/examples/chargpt.dt" "${SMALL_CHARGPT[@]}" -o train
run() { ./train --data text.txt --threads 2 --quiet "$@"; }
rm -rf ckpt ckpt2 w.safetensors
run --steps 30 --export whole.safetensors
run --steps 10 --save ckpt
run --steps 30 --resume ckpt --export resumed.safetensors
same whole.safetensors resumed.safetensors

kills=0
for i in $(seq 1 400); do
  status=0
  # The moments reach further from try to try, so that a slow machine gets to save as well.
  ms=$((RANDOM % 300 + 50 + 10 * i))
  timeout -s KILL "$((ms / 1000)).$(printf %03d $((ms % 1000)))" \
    ./train --data text.txt --threads 2 --quiet --steps 3000 --save ckpt2 --save-every 2 --keep 2 --resume ckpt2 || status=$?
  [ $status -eq 137 ] && kills=$((kills + 1)) || [ $status -eq 0 ] || fail "status $status"
  last=$({ ls ckpt2 2>/dev/null || true; } | sed -n '/^step-[0-9]*$/p' | sort | tail -n 1) # or nothing yet
  [ "$kills" -ge 10 ] && [ -n "$last" ] && break
done
[ "$kills" -ge 10 ] || fail "the run was never killed"
at=$((10#${last#step-} + 4))
run --steps $at --resume ckpt2 --export a.safetensors
run --steps $at --export b.safetensors
same a.safetensors b.safetensors
