# TERM, INT and HUP finish the microbatch, save and exit with 75; the run goes on from there to the same bits. Without a place
# to save to the status is the signal's: nothing would go on from there. A second signal at once is the same request, after two seconds it ends the process. USR2 tells what it is doing.
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/support/fake.sh"
fake_data
train --steps 2000 --export whole.safetensors
export FAKE_DELAY=3000
for signal in TERM INT HUP; do
  # In a shell without job control a background process would ignore INT.
  set -m
  "$TRAIN" --quiet --steps 2000 --resume ck --save ck >out.txt 2>err.txt &
  pid=$!
  set +m
  sleep 0.5
  kill -USR2 $pid
  sleep 0.2
  kill -$signal $pid
  kill -$signal $pid
  status=0
  wait $pid || status=$?
  [ $status -eq 75 ] || { cat err.txt; fail "$signal: exit status $status"; }
  says "rank 0: step [0-9]+ of 2000, " err.txt
  says "stopped by SIG$signal after step [0-9]+, which is saved; continue with --resume ck" err.txt
done
FAKE_DELAY=0 train --steps 2000 --resume ck --export resumed.safetensors
same whole.safetensors resumed.safetensors

# Without --save nothing is kept, and it says so: 75 would promise a checkpoint.
"$TRAIN" --quiet --steps 2000 2>err.txt &
pid=$!
sleep 0.3
kill -TERM $pid
status=0
wait $pid || status=$?
[ $status -eq 143 ] || fail "exit status $status"
says "nothing is saved" err.txt

# The parent of local ranks passes HUP on; and where it is ignored from the start, as by nohup, it is no request.
"$TRAIN" --ranks 2 --quiet --steps 2000 --save hung 2>err.txt &
pid=$!
sleep 0.5
kill -HUP $pid
status=0
wait $pid || status=$?
[ $status -eq 75 ] || { cat err.txt; fail "HUP to the parent: exit status $status"; }
says "stopped by SIGHUP" err.txt
for ranks in 1 2; do
  (trap '' HUP && exec "$TRAIN" --ranks $ranks --quiet --steps 300 2>err.txt) &
  pid=$!
  sleep 0.4
  kill -HUP $pid
  wait $pid || { cat err.txt; fail "HUP ends $ranks ranks that ignore it"; }
done

# A microbatch that takes 10 seconds: the second signal does not wait for it.
FAKE_DELAY=10000000 "$TRAIN" --quiet --steps 2000 2>err.txt &
pid=$!
sleep 0.3
kill -TERM $pid
sleep 2.2
kill -TERM $pid
status=0
wait $pid || status=$?
[ $status -eq 143 ] || fail "second signal: exit status $status"

# The data's file cut off under a running program: a message, not a crash.
FAKE_DELAY=20000 "$TRAIN" --quiet --steps 2000 2>err.txt &
pid=$!
sleep 0.3
: >x.npy
status=0
wait $pid || status=$?
[ $status -eq 74 ] || fail "data cut off: exit status $status"
says "a mapped file became shorter" err.txt
