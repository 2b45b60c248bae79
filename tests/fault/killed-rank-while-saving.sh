# Any of three ranks killed by SIGKILL at any moment, saving after every step: all are gone soon, one that is left says
# which was lost, and the newest checkpoint resumes, on that number of ranks and others. The run that goes on so ends
# with the same bits as one that was left alone. KILLS=50 for more.
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/support/fake.sh"
fake_data
KILLS=${KILLS:-4}
export FAKE_ZERO=2 FAKE_DELAY=1000
RANKS=("$TRAIN" --quiet --ranks 3 --threads 1 --resume ck --save ck --save-every 1 --keep 2 --timeout 60)

# How long this machine takes to start and for 10 steps with their checkpoints: kills come within twice that.
begin=$(date +%s%N)
"${RANKS[@]}" --steps 10
stretch=$((($(date +%s%N) - begin) / 1000000 + 100))

# gone PID SECONDS: waits for it to end; its status in $status.
gone() {
  for i in $(seq $(($2 * 20))); do
    kill -0 "$1" 2>/dev/null || break
    sleep 0.05
  done
  ! kill -0 "$1" 2>/dev/null || fail "process $1 is still there after $2 s"
}

kills=0
for try in $(seq $((KILLS * 4))); do
  [ $kills -lt "$KILLS" ] || break
  # Not in a function: $! is then the program itself, whose children are the ranks.
  "${RANKS[@]}" --steps 100000 >out.txt 2>err.txt &
  pid=$!
  children=
  for i in $(seq 1000); do
    children=$(cat "/proc/$pid/task/$pid/children" 2>/dev/null || true)
    [ "$(wc -w <<<"$children")" -lt 3 ] || break
    sleep 0.02
  done
  ms=$((RANDOM % (2 * stretch)))
  sleep "$((ms / 1000)).$(printf %03d $((ms % 1000)))"
  victim=$((RANDOM % 3))
  kill -KILL "$(cut -d' ' -f$((victim + 1)) <<<"$children")"
  gone $pid 30
  status=0
  wait $pid || status=$?
  for child in $children; do gone "$child" 1; done
  [ $status -eq 69 ] || { cat err.txt; fail "rank $victim killed after $ms ms: exit status $status"; }
  says "rank $victim (was lost|was ended by signal 9)" err.txt
  kills=$((kills + 1))
done
[ $kills -eq "$KILLS" ] || fail "only $kills kills"

at=$(ls ck | grep -E '^step-[0-9]+$' | sort | tail -n 1)
last=$((10#${at#step-} + 3))
unset FAKE_DELAY
FAKE_ZERO=0 train --resume ck --steps 0 --export one.safetensors
"${RANKS[@]}" --steps 0 --export three.safetensors
same one.safetensors three.safetensors
"${RANKS[@]}" --steps $last --export resumed.safetensors
train --ranks 3 --steps $last --export whole.safetensors
same whole.safetensors resumed.safetensors
ls ck | grep tmp && fail "a temporary folder is left"
echo "$kills kills up to step $last"
