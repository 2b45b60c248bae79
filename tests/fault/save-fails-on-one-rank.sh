# The disk is full for one rank of three, whichever it is and at whichever call: that rank says so, all end with its
# status, there is no manifest and no new checkpoint, and the one before is as it was. At the end of the run, and behind its
# steps.
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/support/fake.sh"
fake_data
export FAKE_ZERO=1
cc -shared -fPIC -O1 -o fail_nth.so "$HERE/fail_nth.c" -ldl
train --ranks 3 --steps 3 --save before --export three.safetensors
# each FILE OPTIONS...: at each call on it while step 6 is saved.
each() {
  local file=$1 failed=0 n
  for n in 1 2 3 4 5 6 7 8 9 10 11 12; do
    rm -rf ck
    cp -r before ck
    status=0
    env LD_PRELOAD="$PWD/fail_nth.so" FAIL_AT=$n FAIL_PATH="$file" \
      "$TRAIN" --quiet --ranks 3 --resume ck --save ck "${@:2}" >out.txt 2>err.txt || status=$?
    [ $status -ne 0 ] || break
    [ $status -eq 73 ] || [ $status -eq 74 ] || { cat err.txt; fail "$*, call $n: exit status $status"; }
    failed=$((failed + 1))
    says "$file.*: No space left on device" err.txt
    [ "$(grep -c 'No space' err.txt)" -eq 1 ] || { cat err.txt; fail "$*, call $n: told more than once"; }
    [ "$(ls ck)" = step-00000003 ] || fail "$*, call $n: left $(ls ck)"
  done
  echo "$*: $failed calls"
  [ $failed -ge 1 ] || fail "no call on $file failed"
}
for file in part-00000 part-00001 part-00002 manifest.json step-00000006; do each $file --steps 6; done
export FAKE_DELAY=5000
for file in step-00000006 step-00000006.tmp/part-0000{0,1,2} step-00000006.tmp/manifest.json; do
  each $file --steps 12 --save-every 6
done
unset FAKE_DELAY
train --ranks 2 --resume ck/step-00000003 --steps 0 --export got.safetensors
same got.safetensors three.safetensors

# Not the first rank's export either.
status=0
"$TRAIN" --quiet --ranks 3 --steps 3 --export /dev/full 2>err.txt || status=$?
[ $status -eq 74 ] || fail "--export to a full disk: $status"
says "/dev/full: No space left" err.txt
