# Each allocation of a run that resumes, validates, saves, samples and exports, failed in turn, on one rank and on each of
# two: the run ends with 71 and says so, or does all that it should. No signal, and no success with something lost.
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/support/fake.sh"
fake_data
export FAKE=tokens
more=(--sample 4 --val train.bin --eval-every 3)
cc -shared -fPIC -O1 -o fail_alloc.so "$HERE/fail_alloc.c" -ldl
mkdir before
train --steps 2 --save before/ck --log before/log.jsonl
train --steps 3 --export three.safetensors

run() { # RANKS [VARIABLE=VALUE...]: to step 3
  local ranks=$1
  shift
  rm -rf now
  cp -r before now
  status=0
  env LD_PRELOAD="$PWD/fail_alloc.so" "$@" "$TRAIN" --quiet --timeout 5 --ranks "$ranks" --threads 2 --steps 3 --resume now/ck \
    --save now/ck --save-every 1 --log now/log.jsonl --export now/three.safetensors --profile now/p.json \
    "${more[@]}" >out.txt 2>err.txt || status=$?
}

complete() {
  [ -f now/ck/step-00000003/manifest.json ] && [ -s now/p.json ] || fail "$1: status 0, and a file is missing"
  [ "$(losses now/log.jsonl | wc -l)" -eq 3 ] || fail "$1: status 0, and the log is not complete"
  same now/three.safetensors three.safetensors
}

judge() { # WHAT
  case $status in
    0) complete "$1" ;;
    71)
      says 'error: .*([Mm]emory|cannot map|cannot start)' err.txt
      [ -d now/ck/step-00000002 ] || fail "$1: the checkpoint before is lost"
      refused=$((refused + 1))
      ;;
    *) cat err.txt; fail "$1: exit status $status" ;;
  esac
}

# each RANKS [FAIL_RANK]
each() {
  run "$1" COUNT="$PWD/count" ${2:+FAIL_RANK=$2}
  [ $status -eq 0 ] || { cat err.txt; fail 'the run fails'; }
  complete 'no allocation failed'
  local n=$(cat count) refused=0
  for k in $(seq "$n"); do
    run "$1" FAIL_AT="$k" ${2:+FAIL_RANK=$2}
    judge "$1 ranks, allocation $k of $n${2:+ of rank $2}"
  done
  echo "$1 ranks${2:+, rank $2}: $refused runs of $n refused"
}
each 1
each 2 1
# ZeRO's buffers, units of layers and their buckets.
rm -rf before
export FAKE=layers FAKE_ZERO=3
more=()
mkdir before
train --steps 2 --save before/ck --log before/log.jsonl
train --steps 3 --export three.safetensors
each 2 1
