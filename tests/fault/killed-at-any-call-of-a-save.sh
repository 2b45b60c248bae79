# Killed at each call that a checkpoint behind the steps makes, in turn, as between the last part and the manifest: the
# checkpoint before is whole, a run goes on from the newest to the same bits, and it removes the incomplete one.
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/support/fake.sh"
fake_data
export FAKE_ZERO=1
cc -shared -fPIC -O1 -o fail_nth.so "$HERE/fail_nth.c" -ldl

# each RANKS FILE LEAST: of calls on FILE in step-00000006, at least LEAST are met.
each() {
  local run=("$TRAIN" --quiet --threads 1 --ranks "$1" --timeout 60 --resume ck --save ck) n status newest
  for n in $(seq 30); do
    rm -rf ck
    cp -r before-$1 ck
    status=0
    { FAKE_DELAY=5000 env LD_PRELOAD="$PWD/fail_nth.so" FAIL_AT=$n FAIL_KILLS=1 FAIL_PATH="$2" \
      "${run[@]}" --steps 40 --save-every 3; } 2>err.txt || status=$?
    [ $status -ne 0 ] || break
    [ $status -eq $(($1 == 1 ? 137 : 69)) ] || { cat err.txt; fail "$2, call $n: exit status $status"; }
    newest=$(ls ck | grep -E '^step-[0-9]+$' | sort | tail -n 1)
    [ "$newest" = step-00000003 ] || [ "$newest" = step-00000006 ] || fail "$2, call $n: the newest is $newest"
    "${run[@]}" --steps 14 --export resumed.safetensors >out.txt 2>err.txt || { cat err.txt; fail "$2, call $n: it does not resume"; }
    [ ! -s err.txt ] || { cat err.txt; fail "$2, call $n: it did not go on from $newest"; }
    same resumed.safetensors whole-$1.safetensors
    ls ck | grep tmp && fail "$2, call $n: an incomplete checkpoint is left"
  done
  echo "$1 ranks, $2: killed at $((n - 1)) calls"
  [ "$n" -gt "$3" ] || fail "fewer calls than a save makes"
}
for ranks in 1 3; do
  train --ranks $ranks --steps 3 --save before-$ranks
  train --ranks $ranks --steps 14 --export whole-$ranks.safetensors
done
each 1 step-00000006 11
each 3 step-00000006.tmp/part-00001 4
each 3 step-00000006.tmp/manifest 4
