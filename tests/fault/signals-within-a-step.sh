# A signal ends a step: that of a rank alone at its next microbatch, that of several within about a second. The state of
# the last whole step is saved, 75, and the run goes on from there to the same bits. A long step shows its progress.
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/support/fake.sh"
fake_data
train --steps 3 --batch 48 --export whole.safetensors # 16 microbatches of 3
step() { date +%s%N; }
stop() { # MOST-MILLISECONDS OPTIONS...: TERM in the middle of a step
  local began status=0 pid
  FAKE_DELAY=250000 "$TRAIN" --quiet --steps 3 --batch 48 --resume ck --save ck "${@:2}" >out.txt 2>err.txt &
  pid=$!
  sleep 1.2
  began=$(step)
  kill -TERM $pid
  wait $pid || status=$?
  took=$((($(step) - began) / 1000000))
  [ $status -eq 75 ] || { cat err.txt; fail "exit status $status"; }
  says "stopped by SIGTERM after step $1, which is saved" err.txt
}
rm -rf ck
stop 0
[ $took -lt 2000 ] || fail "it took $took ms: the step has 4000"
FAKE_DELAY=0 train --steps 1 --batch 48 --resume ck --save ck
stop 1
ls ck | grep -q step-00000001 || fail "$(ls ck)"
FAKE_DELAY=0 train --steps 3 --batch 48 --resume ck --export resumed.safetensors
same whole.safetensors resumed.safetensors
# Two ranks, 8 microbatches each, in steps of 2 seconds, of which the first is looked into at once.
rm -rf ck
stop 0 --ranks 2 --threads 1
FAKE_DELAY=0 train --steps 1 --batch 48 --ranks 2 --threads 1 --resume ck --save ck
FAKE_DELAY=0 train --steps 3 --batch 48 --ranks 2 --threads 1 --resume ck --export resumed.safetensors
train --steps 3 --batch 48 --ranks 2 --threads 1 --export whole.safetensors
same whole.safetensors resumed.safetensors
# On a terminal.
FAKE_DELAY=100000 script -qec "$TRAIN --steps 1 --batch 48" /dev/null >out.txt </dev/null
tr '\r' '\n' <out.txt >lines.txt
says 'step 1/1  microbatch 8/16  [0-9]+ samples/s  ETA 0:0[0-9]' lines.txt
[ "$(grep -c microbatch lines.txt)" -ge 10 ] || fail "few lines"
# On a pipe a line in ten seconds at most.
FAKE_DELAY=100000 "$TRAIN" --steps 1 --batch 48 >out.txt
! grep microbatch out.txt || fail "a pipe is filled"
