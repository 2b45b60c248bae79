# A signal that asks for a stop, sent to any rank, to the parent, or to all of them at once, stops all ranks at the same
# step, which is saved: status 75. A second one after two seconds ends it at once. Ranks die with their parent.
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/support/fake.sh"
. "$(dirname "$0")/support/ranks.sh"
fake_data
export FAKE_DELAY=3000
train --ranks 3 --threads 1 --steps 400 --export whole.safetensors --seed 4
stopped() {
  ended 75 20
  says "stopped by SIG$1 after step [0-9]+, which is saved; continue with --resume ck" err.txt
  [ "$(grep -c 'stopped by' err.txt)" -eq 1 ] || { cat err.txt; fail "it says so more than once"; }
}
run=(--steps 400 --resume ck --save ck --seed 4)
start 3 "${run[@]}"
kill -TERM "${rank[2]}"
stopped TERM
start 3 "${run[@]}"
kill -INT $pid
stopped INT
start 3 "${run[@]}"
kill -INT -- -$pid
stopped INT
start 3 "${run[@]}"
kill -USR2 $pid
sleep 0.5
for r in 0 1 2; do says "^train: rank $r: step [0-9]+ of 400, " err.txt; done
kill -TERM "${rank[0]}" "${rank[1]}" $pid
stopped TERM
FAKE_DELAY=0 train --ranks 3 --threads 1 "${run[@]}" --export resumed.safetensors
same whole.safetensors resumed.safetensors

# A step that takes half a minute: the second signal to the parent does not wait for it.
rm -rf ck
FAKE_DELAY=3000 start 3 --steps 100000
kill -STOP "${rank[1]}"
kill -TERM $pid
sleep 0.5
kill -TERM $pid
sleep 2
kill -0 $pid || fail "a signal within two seconds is the same request"
kill -TERM $pid
ended 143 5

start 3 --steps 100000
kill -KILL $pid
ended 137 5
