# One rank of two cannot use its --save: it is not there, it is another run's, or a file cannot be made in it. That rank
# says so, by name, whichever it is, and both end with status 73. Under the variables of torchrun each has a folder of
# its own.
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/support/fake.sh"
fake_data

# pair PATTERN FOLDER-OF-0 FOLDER-OF-1
runs=0
pair() {
  local r s status=(0 0) pids=()
  runs=$((runs + 1))
  for r in 0 1; do
    env RANK=$r WORLD_SIZE=2 LOCAL_RANK=$r LOCAL_WORLD_SIZE=2 MASTER_PORT=$$ TORCHELASTIC_RESTART_COUNT=$runs \
      "$TRAIN" --quiet --threads 1 --steps 2 --save "$([ $r -eq 0 ] && echo "$2" || echo "$3")" >/dev/null 2>err-$r.txt &
    pids+=($!)
  done
  for r in 0 1; do wait "${pids[r]}" || status[r]=$?; done
  cat err-0.txt err-1.txt >err.txt
  [ "${status[*]}" = "73 73" ] || { cat err.txt; fail "exit status ${status[*]}"; }
  says "$1" err.txt
  [ "$(wc -l <err.txt)" -eq 1 ] || { cat err.txt; fail "$(wc -l <err.txt) lines"; }
}
pair "^train: rank 1: error: cannot write to ck1: No such file or directory" ck0 ck1
ls ck0/step-* 2>/dev/null && fail "a checkpoint was saved"
touch file
pair "^train: rank 0: error: .*file" file ck0
mkdir held
exec 9<held
flock -x 9
pair "^train: rank 1: error: another run is saving to held" ck0 held
exec 9<&-
pair "^train: rank 1: error: the name is too long" ck0 "$(printf '%05000d' 0)"
