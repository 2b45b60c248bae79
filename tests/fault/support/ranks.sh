# Ranks of a running program: `start N OPTIONS...` starts it in the background with standard error in err.txt, sets $pid
# (the parent's) and $rank[0] ... (the ranks'), and returns when it has logged its third step.
start() {
  local n=$1
  shift
  rm -f err.txt log.jsonl
  # In a group of its own, and with INT not ignored.
  set -m
  "$TRAIN" --quiet --ranks "$n" --threads 1 --log log.jsonl "$@" >out.txt 2>err.txt &
  pid=$!
  set +m
  for i in $(seq 600); do
    [ ! -e log.jsonl ] || [ "$(grep -c '"loss"' log.jsonl)" -lt 3 ] || break
    sleep 0.05
  done
  [ "$(grep -c '"loss"' log.jsonl)" -ge 3 ] || { cat err.txt; fail "it does not get to its third step"; }
  rank=($(cat "/proc/$pid/task/$pid/children"))
  [ ${#rank[@]} -eq "$n" ] || fail "${#rank[@]} ranks"
}

# ended STATUS SECONDS: the parent ends with the status, in that time at most, and no rank is left. Time is counted in
# sleeps: what this machine stops all together is not late.
ended() {
  local status=0 i r
  for i in $(seq $(($2 * 20))); do
    kill -0 $pid 2>/dev/null || break
    sleep 0.05
  done
  kill -0 $pid 2>/dev/null && { cat err.txt; kill -KILL $pid; fail "it is still there after $2 s"; }
  wait $pid 2>/dev/null || status=$?
  [ $status -eq "$1" ] || { cat err.txt; fail "exit status $status, expected $1"; }
  for r in "${rank[@]}"; do
    for i in $(seq 40); do kill -0 "$r" 2>/dev/null || continue 2; sleep 0.05; done
    fail "a rank is left: process $r"
  done
}
