# TERM to any rank, or to the parent, stops all ranks after the same step with a checkpoint and status 75, and the run
# goes on from there to the same bits. A loss that is no number, a log that cannot be written and a bad input are one
# status and one message of all.
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/support/fake.sh"
fake_data
ranks=(--ranks 3 --threads 1 --quiet)
"$TRAIN" "${ranks[@]}" --steps 2000 --export whole.safetensors
export FAKE_DELAY=3000
for whom in parent 0 1 2; do
  rm -f log.jsonl
  "$TRAIN" "${ranks[@]}" --steps 2000 --resume ck --save ck --log log.jsonl 2>err.txt &
  pid=$!
  for i in $(seq 300); do grep -qs '"loss"' log.jsonl && break; sleep 0.1; done
  mapfile -t child < <(pgrep -P $pid)
  [ ${#child[@]} -eq 3 ] || fail "${#child[@]} children"
  if [ $whom = parent ]; then kill -TERM $pid; else kill -TERM "${child[$whom]}"; fi
  status=0
  wait $pid || status=$?
  [ $status -eq 75 ] || { cat err.txt; fail "$whom: exit status $status"; }
  [ "$(grep -c "stopped by SIGTERM after step [0-9]*, which is saved" err.txt)" -eq 1 ] || { cat err.txt; fail "one message"; }
done
FAKE_DELAY=0 "$TRAIN" "${ranks[@]}" --steps 2000 --resume ck --export resumed.safetensors
same whole.safetensors resumed.safetensors

export FAKE_DELAY=0
expect 79 env FAKE_NAN_AT=3 "$TRAIN" "${ranks[@]}" --steps 9
[ "$(grep -c "step 3: the loss is" err.txt)" -eq 1 ] || { cat err.txt; fail "one message"; }
expect 74 "$TRAIN" "${ranks[@]}" --steps 9 --log /dev/full
[ "$(grep -c "cannot write /dev/full" err.txt)" -eq 1 ] || { cat err.txt; fail "one message"; }
expect 74 "$TRAIN" "${ranks[@]}" --steps 2000 --log >(head -n 3 >/dev/null) --save full
[ "$(grep -c "cannot write /dev/fd/" err.txt)" -eq 1 ] || { cat err.txt; fail "one message"; }
ls full/step-* >/dev/null || fail "the log's failure is no reason to lose the state"
expect 66 "$TRAIN" "${ranks[@]}" --data nowhere
[ "$(grep -c "nowhere" err.txt)" -eq 1 ] || { cat err.txt; fail "one message"; }
expect 73 "$TRAIN" "${ranks[@]}" --steps 9 --save /proc/none
[ "$(grep -c "error" err.txt)" -eq 1 ] || { cat err.txt; fail "one message"; }
