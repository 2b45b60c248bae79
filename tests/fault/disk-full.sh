# Outputs on a full disk: exit status 74 (73 where nothing can be created), a message with file and cause.
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/support/fake.sh"
fake_data
expect 74 train --steps 2 --log /dev/full
says "/dev/full: No space left" err.txt
expect 74 train --steps 2 --export /dev/full
says "/dev/full: No space left" err.txt
expect 74 train --steps 2 --profile /dev/full
says "/dev/full: No space left" err.txt
status=0
"$TRAIN" --info >/dev/full 2>err.txt || status=$?
[ $status -eq 74 ] || fail "--info to a full disk: $status"
mkdir -p none
expect 73 train --steps 2 --export none/such/w.safetensors
expect 73 train --steps 2 --export none
expect 73 train --steps 2 --log none/such/log.jsonl
expect 73 train --steps 2 --save x.npy
says "x.npy" err.txt

# A real file system of 20 KiB: one checkpoint of 12 KiB fits, a second does not.
mkdir small
cat >inside.sh <<'SH'
mount -t tmpfs -o size=20k none small || exit 200
FAKE=arrays "$1" --quiet --steps 3 --save small/ck || exit 201
FAKE=arrays "$1" --quiet --steps 6 --resume small/ck --save small/ck >out.txt 2>err.txt
[ $? -eq 74 ] || exit 202
grep -q 'small/ck/.*No space left on device' err.txt || exit 203
FAKE=arrays "$1" --quiet --resume small/ck --steps 0 --export got.safetensors || exit 204
[ "$(ls small/ck)" = step-00000003 ] || exit 205
# The same behind the steps, with a million of them to go.
FAKE=arrays FAKE_DELAY=1000 "$1" --quiet --steps 1000000 --resume small/ck --save small/ck --save-every 3 >out.txt 2>err.txt
[ $? -eq 74 ] || exit 206
grep -q 'small/ck/.*No space left on device' err.txt || exit 207
[ "$(ls small/ck)" = step-00000003 ] || exit 208
SH
status=0
unshare -rm bash inside.sh "$TRAIN" 2>inside.txt || status=$?
if [ $status -eq 200 ] || grep -q 'unshare' inside.txt; then
  echo "no file system can be mounted here: that part is left out"
else
  [ $status -eq 0 ] || { cat inside.txt out.txt err.txt; fail "on a small file system: $status"; }
  train --steps 3 --export three.safetensors
  same got.safetensors three.safetensors
fi
