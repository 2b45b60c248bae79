# Each call that a save makes, at the end of the run or behind the next steps, failed in turn with "no space left on device",
# once or from there on: the exit status is 73 or 74, the message names file and cause, and the checkpoint before is intact.
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/support/fake.sh"
fake_data
cc -shared -fPIC -O1 -o fail_nth.so "$HERE/fail_nth.c" -ldl
train --steps 3 --export three.safetensors
train --steps 6 --export six.safetensors
train --steps 3 --save before
cp -r before ck
export FAKE_DELAY=200
for behind in "" "--save-every 2"; do
rm -f calls.txt
env LD_PRELOAD="$PWD/fail_nth.so" IO_TRACE="$PWD/calls.txt" "$TRAIN" --quiet --steps 6 --resume ck --save ck $behind
for on in "" 1; do
  failed=0
  for n in $(seq "$(wc -l <calls.txt)"); do
    rm -rf ck
    cp -r before ck
    status=0
    env LD_PRELOAD="$PWD/fail_nth.so" FAIL_AT=$n ${on:+FAIL_ON=1} \
      "$TRAIN" --quiet --steps 6 --resume ck --save ck $behind >out.txt 2>err.txt || status=$?
    case $status in
      0) ;; # a folder that exists need not be made
      73 | 74)
        says "ck.*: No space left on device" err.txt
        [ "$(wc -l <err.txt)" -eq 1 ] || { cat err.txt; fail "call $n: said more than once"; }
        failed=$((failed + 1))
        ;;
      *) cat err.txt; fail "call $n: exit status $status" ;;
    esac
    ls ck | grep tmp && fail "call $n: a temporary folder is left"
    train --resume ck/step-00000003 --steps 0 --export got.safetensors
    same got.safetensors three.safetensors
    train --resume ck --steps 6 --save ck
    train --resume ck --steps 0 --export got.safetensors
    same got.safetensors six.safetensors
  done
  echo "$failed of $n calls failed${on:+, and all after}${behind:+, behind the steps}"
  [ $failed -gt $((${#behind} ? 23 : 11)) ] || fail "fewer calls than a save makes"
done
rm -rf ck
cp -r before ck
done
