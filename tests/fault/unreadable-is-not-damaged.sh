# Each call that a resumed run makes to look at, open, read, map or close a file, failed in turn with EIO, ENOMEM, EMFILE
# and EACCES, on one rank and on one of two: the run goes on from the newest checkpoint, or ends with 71, 73 or 74 and
# every file is as it was. An error of the system is no sign of damage: no run goes back to the checkpoint before.
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/support/fake.sh"
fake_data
cc -shared -fPIC -O1 -o fail_read.so "$HERE/fail_read.c" -ldl
mkdir before
train --steps 2 --save before/ck --log before/log.jsonl
train --steps 4 --resume before/ck --save before/ck --log before/log.jsonl
train --steps 5 --export five.safetensors

resume() { # [VARIABLE=VALUE...]: to step 5
  rm -rf now
  cp -r before now
  status=0
  env LD_PRELOAD="$PWD/fail_read.so" "$@" \
    "$TRAIN" --quiet --steps 5 --resume now/ck --save now/ck --log now/log.jsonl >out.txt 2>err.txt || status=$?
}

went_on() {
  [ -d now/ck/step-00000005 ] && [ -d now/ck/step-00000004 ] || fail "$1: a checkpoint is missing"
  [ "$(losses now/log.jsonl | wc -l)" = 5 ] || fail "$1: the log lost records"
  train --resume now/ck --steps 0 --export got.safetensors
  same got.safetensors five.safetensors
}

judge() { # WHAT
  ! grep 'going back' err.txt || fail "$1: taken for damage"
  case $status in
    0) went_on "$1" ;;
    71 | 73 | 74)
      says 'error: ' err.txt
      diff -r before now >&2 || fail "$1: files have changed"
      stopped=$((stopped + 1))
      ;;
    *) cat err.txt; fail "$1: exit status $status" ;;
  esac
}

# The calls until the log was read; what comes after writes, and any-write-fails.sh is about that.
resume IO_TRACE="$PWD/calls.txt"
went_on 'no call failed'
calls=$(awk '/getline/ { n = NR } END { print n + 0 }' calls.txt)
stopped=0
for n in $(seq "$calls"); do
  call=$(sed -n "${n}p" calls.txt)
  for with in 5 12 13 24; do
    resume FAIL_AT=$n FAIL_WITH=$with
    judge "call $n, $call, errno $with"
  done
done
echo "$stopped runs of $((4 * calls)) stopped"
[ $stopped -gt $((2 * calls)) ] || fail 'fewer runs stopped than files are needed'

# Two ranks, of which one fails. One may be lost to the other before they have met.
pair() { # RANK-THAT-FAILS VARIABLE=VALUE...
  local bad=$1 good=$((1 - $1))
  shift
  rm -rf now
  cp -r before now
  status=0
  export WORLD_SIZE=2 MASTER_PORT=$$
  RANK=$good "$TRAIN" --quiet --timeout 2 --steps 5 --resume now/ck --save now/ck >out2.txt 2>err2.txt &
  env RANK=$bad LD_PRELOAD="$PWD/fail_read.so" "$@" \
    "$TRAIN" --quiet --timeout 2 --steps 5 --resume now/ck --save now/ck >out.txt 2>err.txt || status=$?
  local other=0
  wait $! || other=$?
  unset WORLD_SIZE MASTER_PORT
  [ $status = $other ] || [ $other = 69 ] || fail "the ranks end with $status and $other"
  cat err2.txt >>err.txt
  cp before/log.jsonl now # no log here
}
for bad in 0 1; do
  rm -f calls.txt
  pair $bad IO_TRACE="$PWD/calls.txt"
  # As far as the check of the newest checkpoint: the open, fstat, mmap and close of its part.
  last=$(awk '/^open .*[.]safetensors/ && !n { n = NR + 3 } END { print n + 0 }' calls.txt)
  stopped=0
  for n in $(seq "$last"); do
    pair $bad FAIL_AT=$n FAIL_WITH=5
    ! grep 'going back' err.txt || fail "rank $bad, call $n: taken for damage"
    if [ $status = 0 ]; then
      [ -d now/ck/step-00000005 ] || fail "rank $bad, call $n: the last step is not saved"
    else
      judge "rank $bad, call $n, $(sed -n "${n}p" calls.txt)"
    fi
  done
  echo "rank $bad: $stopped runs of $last stopped"
  [ $stopped -gt 5 ] || fail 'fewer runs stopped than files are needed'
done
