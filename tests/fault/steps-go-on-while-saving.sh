# --save-every writes behind the next steps: a slow disk does not stop them, the log says when a checkpoint is complete, and the
# files are those of --save-sync. One that is not complete when the next is due, when a signal comes, when the loss is not
# finite or at the end of the run is waited for.
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/support/fake.sh"
fake_data
cc -shared -fPIC -O1 -o slow_disk.so "$HERE/slow_disk.c" -ldl
export FAKE_ZERO=2

# slowly FILE SECONDS COMMAND...: the first synchronisation of such a file takes that long.
slowly() { env LD_PRELOAD="$PWD/slow_disk.so" SLOW_SYNC="$1" SLOW_SYNC_SECONDS="$2" "${@:3}"; }
# record LOG STEP KEY: of the checkpoint.
record() {
  python3 -c 'import json, sys
found = [r for r in map(json.loads, open(sys.argv[1])) if r.get("checkpoint") == "step-%08d" % int(sys.argv[2])]
assert len(found) == 1 and found[0]["step"] == int(sys.argv[2]), found
print(found[0][sys.argv[3]])' "$@"
}
# steps_before LOG STEP: the last step in the log before that checkpoint's record.
steps_before() {
  python3 -c 'import json, sys
last = 0
for r in map(json.loads, open(sys.argv[1])):
    if r.get("checkpoint") == "step-%08d" % int(sys.argv[2]): print(last); break
    if "loss" in r: last = r["step"]' "$@"
}
holds() { python3 -c 'import sys; sys.exit(not eval(sys.argv[1]))' "$1" || fail "$1 is not so: ${*:2}"; }

for ranks in 1 3; do
  rm -rf ck sync
  run=("$TRAIN" --quiet --threads 1 --ranks $ranks)
  FAKE_DELAY=20000 slowly part-00000 1 "${run[@]}" --steps 200 --save ck --save-every 100 --log log-$ranks.jsonl 2>err.txt
  [ ! -s err.txt ] || { cat err.txt; fail "something is said of a disk that is fast enough"; }
  "${run[@]}" --steps 200 --save sync --save-every 100 --save-sync --log sync-$ranks.jsonl
  diff -r ck sync || fail "$ranks ranks: the files are not those of --save-sync"
  at=$(steps_before log-$ranks.jsonl 100)
  [ "$at" -ge 102 ] || fail "$ranks ranks: the log says at step $at that the checkpoint of step 100 is complete"
  [ "$(steps_before sync-$ranks.jsonl 100)" -eq 100 ] || fail "--save-sync went on before its checkpoint was complete"
  holds "$(record log-$ranks.jsonl 100 seconds) > 1 > 2 * $(record log-$ranks.jsonl 100 blocked_seconds)" "step 100"
  holds "$(record log-$ranks.jsonl 200 blocked_seconds) == $(record log-$ranks.jsonl 200 seconds)" "the last waits"

  # The next is due: said once.
  rm -rf ck
  slowly part-00000 1 "${run[@]}" --steps 8 --save ck --save-every 2 --log late-$ranks.jsonl 2>err.txt
  [ "$(grep -c 'the checkpoint of step 2 was not complete when that of step 4 was due: the run waited' err.txt)" -eq 1 ] ||
    { cat err.txt; fail "that the run had to wait is not said once"; }
  [ "$(echo $(ls ck))" = "step-00000002 step-00000004 step-00000006 step-00000008" ] || fail "there is $(ls ck)"
  holds "$(record late-$ranks.jsonl 2 blocked_seconds) > 0.5" "step 2"
  for step in 2 4 6 8; do record late-$ranks.jsonl $step seconds >/dev/null; done

  # A signal: the checkpoint on its way, then that of the last step.
  rm -rf ck
  # Not by a function: $! is then the program itself.
  env FAKE_DELAY=20000 LD_PRELOAD="$PWD/slow_disk.so" SLOW_SYNC=part-00000 SLOW_SYNC_SECONDS=2 "${run[@]}" --steps 3000 --save ck --save-every 10 --log stop-$ranks.jsonl 2>err.txt &
  pid=$!
  for i in $(seq 200); do
    [ ! -e ck/step-00000010.tmp/part-00000.safetensors.tmp ] || break
    sleep 0.02
  done
  [ -e ck/step-00000010.tmp/part-00000.safetensors.tmp ] || fail "no checkpoint is being written"
  kill -TERM $pid
  status=0
  wait $pid || status=$?
  [ $status -eq 75 ] || { cat err.txt; fail "exit status $status"; }
  at=$(sed -n 's/.*stopped by SIGTERM after step \([0-9]*\), which is saved.*/\1/p' err.txt)
  [ "$(echo $(ls ck))" = "$(echo $(printf 'step-%08d\n' 10 "$at" | sort -u))" ] || fail "after step $at there is $(ls ck)"
  "${run[@]}" --steps $((at + 3)) --resume ck --export resumed.safetensors
  "${run[@]}" --steps $((at + 3)) --export whole.safetensors
  same whole.safetensors resumed.safetensors

  # A loss that is not finite in the steps after.
  rm -rf ck
  status=0
  FAKE_NAN_AT=12 slowly part-00000 1 "${run[@]}" --steps 30 --save ck --save-every 10 2>err.txt || status=$?
  [ $status -eq 79 ] || { cat err.txt; fail "exit status $status"; }
  [ "$(ls ck)" = step-00000010 ] || fail "there is $(ls ck)"
done

# A run with both names of one thing; --save-sync alone.
expect 64 train --steps 2 --save-sync
says "save-sync needs --save DIR" err.txt
