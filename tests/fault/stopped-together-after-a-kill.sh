# After all processes were stopped for longer than ranks have to end in, and continued, the survivors of a kill still say
# which rank was lost and what they waited in, before their parent ends them.
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/support/fake.sh"
. "$(dirname "$0")/support/ranks.sh"
fake_data
export FAKE_DELAY=3000
start 3 --steps 100000 --timeout 60
kill -STOP "${rank[0]}" "${rank[2]}"
kill -KILL "${rank[1]}"
sleep 0.5 # the parent knows of it
kill -STOP $pid
sleep 11
kill -CONT $pid
sleep 1
kill -CONT "${rank[0]}" "${rank[2]}"
ended 69 20
for r in 0 2; do says "^train: rank $r: error: rank 1 was lost.*; this rank waited in [a-z_]+ .*, step [0-9]+" err.txt; done
