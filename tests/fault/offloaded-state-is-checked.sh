# --offload: a byte of the file that changes, a read or a write that fails, a disk without room, a folder that cannot be
# written: each ends the run with its status and a message that names file and cause; the checkpoint before goes on to the
# same bits; nothing is left of the file, not of a killed run either.
. "$(dirname "$0")/../support/lib.sh"
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
cd "$WORK"
cc -shared -fPIC -O1 -o damage.so "$SRC/tests/fault/support/damage_file.c" -ldl
tokens train.bin 3000 97
SIZE=("${SMALL_GPT2[@]}" -D lr=1e-2 -D warmup=0)
"$DTC" "$SRC/examples/gpt2.dt" "${SIZE[@]}" --offload optimizer -o p
"$DTC" "$SRC/examples/gpt2.dt" "${SIZE[@]}" --offload optimizer --zero 1 --precision bf16 -o two
export DT_OFFLOAD_SLICE=4096
if ldd p | grep -q libasan; then export ASAN_OPTIONS=verify_asan_link_order=0; fi
mkdir -p state
train() { ./p --quiet --eval-every 0 --offload-dir state "$@"; }
empty() { [ -z "$(ls -A state)" ] || fail "$* left $(ls -A state)"; }
train --steps 6 --export want.safetensors

# with VARIABLE=N STATUS PATTERN: a run to step 6 with a checkpoint after 2.
with() {
  rm -rf ck
  expect "$2" env LD_PRELOAD="$PWD/damage.so" "$1" ./p --quiet --eval-every 0 --offload-dir state --steps 6 --save ck --save-every 2
  says "$3" err.txt
  empty "$1"
}
# A step of this model writes some 30 slices, and a checkpoint reads some 60 parts of them.
with FLIP_AT=70 65 "^train: error: state/dtc-offload-0-......: slice [0-9]+ of [0-9]+ \(bytes [0-9]+ to [0-9]+ of the file\) is not what was written"
[ "$(ls ck)" = step-00000002 ] || fail "the checkpoints are $(ls ck)"
train --resume ck --steps 6 --export got.safetensors
same want.safetensors got.safetensors
with FLIP_AT=1 65 "slice 1 of"
with READ_AT=100 74 "^train: error: cannot read state/dtc-offload-0-......: Input/output error"
with WRITE_AT=70 74 "^train: error: cannot write state/dtc-offload-0-......: Input/output error"
[ "$(ls ck)" = step-00000002 ] || fail "the checkpoints are $(ls ck)"
with RESERVE=1 74 "^train: error: cannot reserve [0-9]+ bytes for --offload in state/dtc-offload-0-......: No space left"
[ ! -e ck ] || [ -z "$(ls ck)" ] || fail "a run without room has saved"

# Of several ranks one says what it is, and all end.
status=0
LD_PRELOAD="$PWD/damage.so" STATE=dtc-offload-1- FLIP_AT=20 timeout 60 ./two --quiet --eval-every 0 --ranks 2 --offload-dir state --steps 4 >out.txt 2>err.txt || status=$?
[ $status -eq 65 ] || [ $status -eq 69 ] || { cat err.txt >&2; fail "two ranks: $status"; }
says "error: state/dtc-offload-1-......: slice" err.txt
says "rank 0: error: rank 1 has left" err.txt
empty "two ranks"

# A rank whose read fails, in an update or in a checkpoint: the others end too, and what was saved before goes on.
./two --quiet --eval-every 0 --ranks 2 --offload-dir state --steps 5 --export want2.safetensors
for n in 60 140 200 260; do
  rm -rf ck
  status=0
  LD_PRELOAD="$PWD/damage.so" STATE=dtc-offload-1- READ_AT=$n timeout 60 ./two --quiet --eval-every 0 --ranks 2 --offload-dir state \
    --steps 5 --save ck --save-every 1 >out.txt 2>err.txt || status=$?
  [ $status -eq 74 ] || [ $status -eq 69 ] || { cat err.txt >&2; fail "read $n of rank 1: $status"; }
  says "cannot read state/dtc-offload-1-......: Input/output error" err.txt
  ./two --quiet --eval-every 0 --ranks 2 --offload-dir state --steps 5 --resume ck --save ck --export got.safetensors
  same want2.safetensors got.safetensors
done
empty "failed reads"

# What cannot be: no folder, one that is not there, a program that has nothing to put there, ranks that differ.
expect 64 ./p --quiet --steps 1
says "--offload-dir DIR" err.txt
expect 73 ./p --quiet --steps 1 --offload-dir none/such
says "cannot create a file for --offload in none/such: No such file" err.txt
expect 0 ./p --quiet --steps 0 --sample 1 # reads parameters alone
expect 0 ./p --info
"$DTC" "$SRC/examples/gpt2.dt" "${SIZE[@]}" -o plain
expect 64 ./plain --quiet --steps 1 --offload-dir state
says "compiled without --offload" err.txt
expect 64 env DT_OFFLOAD_SLICE=4097 ./p --quiet --steps 1 --offload-dir state
says "DT_OFFLOAD_SLICE=4097" err.txt

# A killed run leaves nothing.
./p --quiet --eval-every 0 --offload-dir state --steps 100000 &
run=$!
for _ in $(seq 100); do [ -e /proc/$run/fd ] && ls -l /proc/$run/fd 2>/dev/null | grep -q "dtc-offload.*deleted" && break; sleep 0.05; done
ls -l /proc/$run/fd | grep -q "dtc-offload.*deleted" || fail "the run has no such file"
kill -9 $run
wait $run 2>/dev/null || true
empty "a killed run"

# Killed at any moment, it goes on from its checkpoints to the same bits.
rm -rf ck
for n in $(seq 8); do
  ./p --quiet --eval-every 0 --offload-dir state --steps 40 --save ck --save-every 1 --keep 2 --resume ck >out.txt 2>err.txt &
  run=$!
  sleep 0.$((n * 7 % 10))
  kill -9 $run 2>/dev/null || true
  wait $run 2>/dev/null || true
done
train --steps 40 --resume ck --save ck --export got.safetensors
train --steps 40 --export forty.safetensors
same forty.safetensors got.safetensors
empty "runs that were killed"

# A file system of 200 KiB has no room for 230 KiB; one of 1 MiB has, and none for a second rank's.
mkdir -p small
cat >inside.sh <<'SH'
mount -t tmpfs -o size=200k none small || exit 200
./p --quiet --eval-every 0 --steps 2 --offload-dir small >out.txt 2>err.txt
[ $? -eq 74 ] || exit 201
grep -q 'cannot reserve [0-9]* bytes for --offload in small/dtc-offload-0-......: No space left on device' err.txt || exit 202
mount -o remount,size=1m small || exit 203
./p --quiet --eval-every 0 --steps 6 --offload-dir small --export got.safetensors || exit 204
[ -z "$(ls -A small)" ] || exit 205
SH
status=0
unshare -rm bash inside.sh 2>inside.txt || status=$?
if [ $status -eq 200 ] || grep -q 'unshare' inside.txt; then
  echo "no file system can be mounted here: that part is left out"
else
  [ $status -eq 0 ] || { cat inside.txt out.txt err.txt; fail "on a small file system: $status"; }
  same want.safetensors got.safetensors
fi
