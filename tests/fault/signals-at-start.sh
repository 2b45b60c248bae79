# TERM or INT while ranks start, to all processes at once as from a terminal: the status is that of the signal, or 75 where
# --save was given and the state is saved; no rank is said to be lost. While ranks that a launcher started wait for one
# that does not come, a signal to any of them ends all soon.
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/support/fake.sh"
fake_data
export FAKE_DELAY=3000

# ended STATUS SECONDS PID...: in sleeps, which do not count while this machine has stopped everything.
ended() {
  local i p s want=$1 n=$(($2 * 20))
  for p in "${@:3}"; do
    for (( ; n > 0; n--)); do
      kill -0 "$p" 2>/dev/null || break
      sleep 0.05
    done
    kill -0 "$p" 2>/dev/null && { cat err*.txt; kill -KILL "${@:3}"; fail "it is still there after $2 s"; }
    s=0
    wait "$p" 2>/dev/null || s=$?
    [ $s -eq "$want" ] || { cat err*.txt; fail "exit status $s, expected $want: $when"; }
  done
}

# all SIGNAL STATUS OPTIONS...: for moments from the first rank's to some later.
all() {
  local pid i ms
  for ms in 000 002 005 010 020 050; do
    rm -rf ck
    set -m # a group of its own, and INT not ignored
    "$TRAIN" --quiet --ranks 6 --threads 1 --steps 100000 "${@:3}" >out.txt 2>err.txt &
    pid=$!
    set +m
    for i in $(seq 4000); do
      [ -z "$(cat "/proc/$pid/task/$pid/children" 2>/dev/null || true)" ] || break
    done
    sleep 0.$ms
    kill -"$1" -- -$pid
    when="SIG$1 $ms ms after the first rank was there"
    ended "$2" 30 $pid
    grep -E "lost|was ended by|has left|silent" err.txt && fail "$when"
    [ $# -eq 2 ] || says "stopped by SIG$1 after step [0-9]+, which is saved" err.txt
  done
}
all TERM 143
all INT 130
all TERM 75 --save ck --resume ck

# Rank 2 of three does not come.
for victim in 0 1; do
  pids=()
  for r in 0 1; do
    set -m
    env RANK=$r WORLD_SIZE=3 LOCAL_RANK=$r LOCAL_WORLD_SIZE=3 MASTER_PORT=$$ TORCHELASTIC_RESTART_COUNT=$victim \
      "$TRAIN" --quiet --threads 1 --steps 3 >out.txt 2>err-$r.txt &
    set +m
    pids+=($!)
  done
  # Until rank 1 has come: then it has the memory of all ranks.
  for i in $(seq 400); do
    grep -q dtc-ranks "/proc/${pids[1]}/maps" 2>/dev/null && break
    sleep 0.05
  done
  kill -TERM "${pids[victim]}"
  when="rank $victim, waiting for another"
  ended 143 20 "${pids[@]}"
  for r in 0 1; do says "stopped by SIGTERM before all ranks had started" err-$r.txt; done
done
# Nobody is there.
env RANK=1 WORLD_SIZE=3 LOCAL_RANK=1 LOCAL_WORLD_SIZE=3 MASTER_PORT=$$ TORCHELASTIC_RESTART_COUNT=9 \
  "$TRAIN" --quiet --threads 1 --steps 3 >out.txt 2>err.txt &
pids=($!)
sleep 1
kill -TERM "${pids[0]}"
when="rank 1, alone"
ended 143 20 "${pids[@]}"
says "stopped by SIGTERM before all ranks had started" err.txt
