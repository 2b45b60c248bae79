# A rank stopped by SIGSTOP is named by all others, with the operation that they wait in, once it has been silent for
# --timeout; one stopped for less is waited for. A rank that takes long over a step is not silent.
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/support/fake.sh"
. "$(dirname "$0")/support/ranks.sh"
fake_data
export FAKE_DELAY=3000
for victim in 0 2; do
  start 3 --steps 100000 --timeout 1.5
  kill -STOP "${rank[$victim]}"
  ended 69 15
  for r in 0 1 2; do
    [ $r -ne $victim ] || continue
    says "^train: rank $r: error: rank $victim has been silent for more than 1.5 s, .*; this rank waited in [a-z_]+ .*\([0-9]+ bytes over [a-z,]+: ranks 0 1 2\), step [0-9]+" err.txt
  done
done

# Killed while it is stopped.
start 3 --steps 100000 --timeout 60
kill -STOP "${rank[1]}"
sleep 0.3
kill -KILL "${rank[1]}"
ended 69 8
for r in 0 2; do says "^train: rank $r: error: rank 1 was lost \(killed by signal 9, Killed\).* this rank waited in " err.txt; done

start 3 --steps 100000 --timeout 3 --save ck
for i in 1 2 3; do
  kill -STOP "${rank[1]}"
  sleep 0.5
  kill -CONT "${rank[1]}"
done
# All of them, as a terminal does it: nobody was silent.
kill -STOP -- -$pid
sleep 5
kill -CONT -- -$pid
sleep 0.5
kill -TERM $pid
ended 75 15

FAKE_DELAY=1500000 expect 0 "$TRAIN" --quiet --ranks 2 --batch 6 --steps 3 --timeout 1
