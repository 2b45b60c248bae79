# TERM to one rank, or to all, ends a long step of several ranks early, whatever they exchange in it: the state of the last
# whole step is saved, 75, and the run goes on to the same bits. A pipeline finishes its step first.
. "$(dirname "$0")/../support/lib.sh"
text 20000 >text.txt
model=("$SRC/examples/chargpt.dt" "${SMALL_CHARGPT[@]}" -D microbatch=2)
run() { ./train --data text.txt --ranks 2 --threads 1 --quiet "$@"; }

# stop WHOM BATCH STEP: TERM in the middle of step 2, which has BATCH samples; STEP is then the last whole one.
stop() {
  local pid status=0 began child
  rm -rf ck err.txt
  cp -r first ck
  DT_COMM_DELAY_MS=${delay:-0} ./train --data text.txt --ranks 2 --threads 1 --quiet --steps ${steps:-2} --batch "$2" --resume ck --save ck 2>err.txt &
  pid=$!
  for i in $(seq 200); do
    mapfile -t child < <(pgrep -P $pid)
    grep -qs 'step 2 of' err.txt && break
    [ $i -lt 5 ] || [ ${#child[@]} -lt 2 ] || kill -USR2 "${child[@]}" 2>/dev/null || true
    sleep 0.1
  done
  says 'step 2 of' err.txt
  began=$(date +%s%N)
  if [ "$1" = all ]; then kill -TERM "${child[@]}"; else kill -TERM "${child[$1]}"; fi
  wait $pid || status=$?
  took=$((($(date +%s%N) - began) / 1000000))
  [ $status -eq 75 ] || { cat err.txt; fail "exit status $status"; }
  [ "$(grep -c "stopped by SIGTERM after step $3, which is saved" err.txt)" -eq 1 ] || { cat err.txt; fail "one message"; }
}

# layout DELAY BATCH OPTIONS...: two seconds between looks at most, and the machine may be busy.
layout() {
  local delay=$1 batch=$2
  shift 2
  "$DTC" "${model[@]}" "$@" -o train
  rm -rf first
  run --steps 1 --save first
  run --steps 2 --resume first --export whole.safetensors
  for whom in 0 1 all; do
    stop $whom "$batch" 1
    [ $took -lt 15000 ] || fail "$*: it took $took ms"
    run --steps 2 --resume ck --export resumed.safetensors
    same whole.safetensors resumed.safetensors
  done
}
# Steps of minutes.
layout 0 400000
layout 5 20000 --tp 2
layout 5 20000 --tp 2 --in-flight 2
layout 5 20000 --cp 2 --cp-attention ring
layout 5 40000 --zero 3
layout 5 40000 --zero 2
# Of a pipeline the step is finished, in seconds.
"$DTC" "${model[@]}" --pp 2 -o train
rm -rf first
run --steps 1 --save first
steps=3 delay=20 stop 0 200 2
