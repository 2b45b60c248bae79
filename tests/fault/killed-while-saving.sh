# A run killed by SIGKILL at any moment, saving after every step, goes on from its newest checkpoint and ends with the
# same bits as one that was left alone.
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/support/fake.sh"
fake_data
export FAKE_DELAY=200

# As many steps, each with its checkpoint, as this machine's disk takes in some 20 seconds; kills come at any moment of a
# tenth of that, so that a run gets on however slow the disk is.
begin=$(date +%s%N)
train --steps 20 --save timed --save-every 1 --keep 2
took=$((($(date +%s%N) - begin) / 1000000 + 1))
steps=$((20 * 20000 / took))
steps=$((steps < 60 ? 60 : steps > 400 ? 400 : steps))
stretch=$((took * steps / 200 + 50))
FAKE_DELAY=0 train --steps $steps --export whole.safetensors

kills=0
for i in $(seq 1 40); do
  ms=$((RANDOM % stretch + 10))
  status=0
  # The group's redirection hides the shell's own line about the killed process.
  { timeout -s KILL "$((ms / 1000)).$(printf %03d $((ms % 1000)))" \
    "$TRAIN" --quiet --steps $steps --resume ck --save ck --save-every 1 --keep 2 --log log.jsonl; } 2>err.txt || status=$?
  [ $status -eq 137 ] || [ $status -eq 0 ] || { cat err.txt; fail "exit status $status"; }
  [ $status -eq 0 ] && break
  kills=$((kills + 1))
done
[ $status -eq 0 ] || train --steps $steps --resume ck --save ck --save-every 1 --keep 2 --log log.jsonl
echo "$kills kills"
[ $kills -ge 3 ] || fail "too few kills to mean anything"
train --resume ck --steps 0 --export resumed.safetensors
same whole.safetensors resumed.safetensors
ls ck | grep tmp && fail "a temporary folder is left"
[ "$(ls ck | wc -l)" -eq 2 ] || fail "--keep 2 kept $(ls ck | wc -l)"
losses log.jsonl >losses.txt
[ "$(wc -l <losses.txt)" -eq $steps ] || fail "the log has $(wc -l <losses.txt) records for $steps steps"
