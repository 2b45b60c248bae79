# A rank stopped by SIGSTOP before it has done anything, or a moment later, is named by all others that speak, as silent;
# no operation is told of one that has begun none.
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/support/fake.sh"
fake_data
export FAKE_DELAY=1000000 # so that the first step is under way
cc -shared -fPIC -O1 -o stop_rank.so "$HERE/stop_rank.c" -ldl
RUN=("$TRAIN" --quiet --ranks 3 --threads 1 --steps 100000 --timeout 0.5)

# named RANK: the parent $pid ends with 69, and the other two name the rank. It has longer until the first step is done.
named() {
  local i r status=0
  for i in $(seq 400); do
    kill -0 $pid 2>/dev/null || break
    sleep 0.05
  done
  kill -0 $pid 2>/dev/null && { cat err.txt; kill -KILL $pid; fail "it is still there after 20 s"; }
  wait $pid 2>/dev/null || status=$?
  [ $status -eq 69 ] || { cat err.txt; fail "rank $1 stopped $when: exit status $status"; }
  for r in 0 1 2; do
    [ $r -ne $1 ] || continue
    says "^train: rank $r: error: rank $1 has been silent for more than (3|0.5) s, as if it were stopped: it was last seen " err.txt
  done
  grep -E "error: rank .* (runs, but|in a ring)|0 bytes over \)" err.txt && fail "rank $1 stopped $when"
  return 0
}

when="before anything"
for victim in 0 2; do
  STOP_RANK=$victim LD_PRELOAD=$PWD/stop_rank.so "${RUN[@]}" >out.txt 2>err.txt &
  pid=$!
  named $victim
  [ "$(grep -c "it was last seen at starting" err.txt)" -eq 2 ] || { cat err.txt; fail "what rank $victim was at"; }
done

for ms in 000 005 010 040; do
  when="$ms ms after all ranks were there"
  "${RUN[@]}" >out.txt 2>err.txt &
  pid=$!
  rank=()
  for i in $(seq 2000); do
    rank=($(cat "/proc/$pid/task/$pid/children" 2>/dev/null || true))
    [ ${#rank[@]} -lt 3 ] || break
    sleep 0.01
  done
  [ ${#rank[@]} -eq 3 ] || { cat err.txt; fail "${#rank[@]} ranks"; }
  sleep 0.$ms
  kill -STOP "${rank[1]}"
  named 1
done
