# A rank that opens its data, or saves, for longer than any limit of --timeout is waited for: it shows that it lives.
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/support/fake.sh"
fake_data
export FAKE_ZERO=1
cc -shared -fPIC -O1 -o slow_disk.so "$HERE/slow_disk.c" -ldl

# two NAME=VALUE...: rank 1 of two has them.
runs=0
two() {
  local r s pids=()
  runs=$((runs + 1))
  for r in 0 1; do
    env RANK=$r WORLD_SIZE=2 LOCAL_RANK=$r LOCAL_WORLD_SIZE=2 MASTER_PORT=$$ TORCHELASTIC_RESTART_COUNT=$runs \
      $([ $r -eq 0 ] || echo LD_PRELOAD="$PWD/slow_disk.so" "$@") \
      "$TRAIN" --quiet --threads 1 --steps 3 --timeout 1 --resume ck --save ck >out.txt 2>err-$r.txt &
    pids+=($!)
  done
  for r in 0 1; do
    s=0
    wait "${pids[r]}" || s=$?
    [ $s -eq 0 ] || { cat err-0.txt err-1.txt; fail "rank $r: exit status $s with $*"; }
  done
}
# One that is alive has six seconds; until the first step is done, twelve.
two SLOW_SYNC=part-00001 SLOW_SYNC_SECONDS=9
[ "$(ls ck)" = step-00000003 ] || fail "there is $(ls ck)"
rm -rf ck
two SLOW_OPEN=x.npy SLOW_OPEN_SECONDS=15
[ "$(ls ck)" = step-00000003 ] || fail "there is $(ls ck)"
