# TERM to any rank, or to the launcher, under torchrun's variables, Open MPI's and MPICH's mpirun, over shared memory and over
# MPI: all ranks stop at the same step, which is saved once, and the run goes on from there to the same bits. Where
# the launcher is killed its ranks end too, and the newest checkpoint resumes.
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/support/fake.sh"
fake_data
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_btl=self,vader
STEPS=3000
train --ranks 3 --threads 1 --steps $STEPS --export whole.safetensors
export FAKE_DELAY=10000
RUN=("$TRAIN" --quiet --threads 1 --steps $STEPS --resume ck --save ck --log log.jsonl)

# The ranks of this test, in their order.
ranks() {
  local p
  for p in $(pgrep -x rt_fake_train || true); do
    [ "$(readlink "/proc/$p/cwd" || true)" = "$WORK" ] || continue
    echo "$(tr '\0' '\n' <"/proc/$p/environ" 2>/dev/null | sed -nE 's/^(RANK|PMI_RANK|OMPI_COMM_WORLD_RANK)=//p') $p"
  done | sort -n | sed -n 's/^[0-9][0-9]* //p'
}

# begin LAUNCHER DT_COMM: in the background, until it has logged some steps; its processes in pids, its ranks in rank.
begin() {
  local r i before
  before=$(cat log.jsonl 2>/dev/null | grep -c '"loss"' || true)
  pids=()
  if [ "$1" = torchrun ]; then
    for r in 0 1 2; do
      env RANK=$r WORLD_SIZE=3 LOCAL_RANK=$r LOCAL_WORLD_SIZE=3 MASTER_PORT=$$ "${RUN[@]}" >>out.txt 2>&1 &
      pids+=($!)
    done
  else
    DT_COMM=$2 "mpirun.$1" -n 3 "${RUN[@]}" >out.txt 2>&1 </dev/null &
    pids+=($!)
  fi
  for i in $(seq 1200); do
    [ "$(cat log.jsonl 2>/dev/null | grep -c '"loss"' || true)" -lt $((before + 3)) ] || break
    sleep 0.05
  done
  mapfile -t rank < <(ranks)
  [ ${#rank[@]} -eq 3 ] || { cat out.txt; fail "$*: ${#rank[@]} ranks"; }
}

# gone: within 30 s, in sleeps; the highest status of the launcher's processes in status.
gone() {
  local i p s
  for i in $(seq 600); do
    [ -n "$(ranks)" ] || break
    sleep 0.05
  done
  [ -z "$(ranks)" ] || { cat out.txt; kill -KILL "${rank[@]}"; fail "ranks are left"; }
  status=0
  for p in "${pids[@]}"; do
    s=0
    wait "$p" 2>/dev/null || s=$?
    [ $s -le $status ] || status=$s
  done
}

# saved_once NAME: a checkpoint of the last step in the log, which is a later one than before.
saved_once() {
  local steps
  says "stopped by SIGTERM after step [0-9]+, which is saved; continue with --resume ck" out.txt
  [ "$(grep -c 'which is saved' out.txt)" -eq 1 ] || { cat out.txt; fail "$1: told more than once"; }
  steps=$(sed -nE 's/.*after step ([0-9]+), which is saved.*/\1/p' out.txt)
  [ "$(ls ck | tail -n 1)" = "$(printf 'step-%08d' "$steps")" ] || fail "$1: saved $(ls ck), said $steps"
  [ "$(losses log.jsonl | wc -l)" -eq "$steps" ] || fail "$1: the log ends at $(losses log.jsonl | wc -l), not $steps"
  : >out.txt
}

: >out.txt
for victim in 0 1 2; do
  begin torchrun
  kill -TERM "${rank[victim]}"
  gone
  [ $status -eq 75 ] || { cat out.txt; fail "torchrun: exit status $status"; }
  saved_once "torchrun, rank $victim"
done
begin torchrun
kill -TERM "${rank[@]}"
gone
[ $status -eq 75 ] || { cat out.txt; fail "torchrun: exit status $status"; }
saved_once "torchrun, all"

for mpi in openmpi mpich; do
  command -v mpirun.$mpi >/dev/null && [ -e "$BUILD/lib/dtc/dtc-$mpi.so" ] || continue
  for comm in "" mpi; do
    begin $mpi "$comm"
    kill -TERM "${rank[$((RANDOM % 3))]}"
    gone
    [ $status -ne 0 ] || fail "$mpi: status 0 after TERM to a rank"
    saved_once "$mpi, DT_COMM=$comm"

    # What mpirun makes of a signal is its own affair: it may give its ranks little time, and MPICH's, which
    # passes the signal on, exits with 0 once in 30 times although its ranks exit with 75.
    for signal in TERM KILL; do
      begin $mpi "$comm"
      kill -$signal "${pids[0]}"
      gone
      [ $status -ne 0 ] || [ $mpi$signal = mpichTERM ] || fail "$mpi: status 0 after $signal to mpirun"
    done
  done
done
FAKE_DELAY=0 "${RUN[@]}" --ranks 3 --export resumed.safetensors 2>err.txt || { cat err.txt; fail "it does not resume"; }
grep 'going back' err.txt && fail "a checkpoint was not whole"
same whole.safetensors resumed.safetensors
