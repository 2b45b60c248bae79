# Ranks of one machine come to rank 0. One that came and ends before the last is there ends all: rank 0 says which, at
# once, and not after its five minutes that another one has not come.
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/support/fake.sh"
fake_data
# Of four ranks, the last never comes.
pid=()
for rank in 0 1 2; do
  env RANK=$rank WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=$$ "$TRAIN" --quiet --threads 1 --steps 3 2>err$rank.txt &
  pid+=($!)
done
# Whoever has the shared memory was let in.
for rank in 1 2; do
  for i in $(seq 600); do
    ! grep -qs memfd "/proc/${pid[$rank]}/maps" || break
    sleep 0.05
  done
  grep -q memfd "/proc/${pid[$rank]}/maps" || { cat err*.txt; kill "${pid[@]}"; fail "rank $rank is not let in"; }
done
kill -KILL "${pid[1]}"
for i in $(seq 600); do
  kill -0 "${pid[0]}" 2>/dev/null || kill -0 "${pid[2]}" 2>/dev/null || break
  sleep 0.05
done
for rank in 0 2; do
  kill -0 "${pid[$rank]}" 2>/dev/null && { kill "${pid[@]}"; fail "rank $rank waits on after rank 1 was lost"; }
  status=0
  wait "${pid[$rank]}" || status=$?
  [ $status -eq 69 ] || { cat err*.txt; fail "rank $rank: exit status $status"; }
done
says "rank 1 of 4 was lost while rank 0 waited for the others" err0.txt
says "rank [01] was lost" err2.txt

# A rank whose command line is wrong does not come, and lets the others know: rank 0, or another one.
for wrong in 0 2; do
  pid=()
  for rank in 0 1 2; do
    [ $rank -ne $wrong ] || continue
    env RANK=$rank WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=$$$wrong "$TRAIN" --quiet --threads 1 --steps 3 2>err$rank.txt &
    pid[$rank]=$!
  done
  sleep 2
  expect 64 env RANK=$wrong WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=$$$wrong "$TRAIN" --frobnicate
  says "unknown option '--frobnicate'" err.txt
  for i in $(seq 600); do
    kill -0 "${pid[@]}" 2>/dev/null || break
    sleep 0.05
  done
  for rank in "${!pid[@]}"; do
    kill -0 "${pid[$rank]}" 2>/dev/null && { kill "${pid[@]}"; fail "rank $rank waits for rank $wrong, which told of its mistake"; }
    status=0
    wait "${pid[$rank]}" || status=$?
    [ $status -eq 69 ] || { cat err*.txt; fail "rank $rank: exit status $status, rank $wrong does not come"; }
  done
done
says "rank 2 of 3 ended before it joined; its message gives the reason" err0.txt
