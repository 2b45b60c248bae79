# An output that cannot be written is status 3, whatever wrote it, and a half of a file is not left behind.
. "$(dirname "$0")/../support/lib.sh"
MLP=$SRC/examples/mlp.dt
full() { # OPTION...: with a full standard output
  local got=0
  "$DTC" "$MLP" "$@" >/dev/full 2>err.txt || got=$?
  [ $got -eq 3 ] || fail "status $got: $* >/dev/full: $(cat err.txt)"
  says "No space left on device" err.txt
}
for what in ast ir kernels c llvm asm plan; do
  full --emit $what
  expect 3 "$DTC" "$MLP" --emit $what -o /dev/full
  says "/dev/full: No space left on device" err.txt
  expect 3 "$DTC" "$MLP" --emit $what -o missing/out
  says "missing/out: No such file or directory" err.txt
done
for form in text json html; do full --report=$form; done
full --check --dump-after all
full --pp 2 --emit schedule
full --help
[ -c /dev/full ] || fail "/dev/full was removed"

"$DTC" "$MLP" --emit ir >whole.ir
full=0
"$DTC" --run simplify whole.ir >/dev/full 2>err.txt || full=$?
[ $full -eq 3 ] || fail "--run: status $full"

# A file that grows past the limit is not left half written.
(
  ulimit -f 1
  expect 3 "$DTC" "$SRC/examples/gpt2.dt" --emit c -o half.c
  [ ! -e half.c ] || fail "half.c is there"
  expect 3 "$DTC" "$SRC/examples/gpt2.dt" --save-temps temps -o train
  [ ! -e temps/kernels.ll ] && [ ! -e temps/train.c ] || fail "temps holds halves"
  [ ! -e train ] || fail "train is there"
)

expect 3 "$DTC" "$MLP" -o missing/folder/train
expect 3 "$DTC" "$MLP" --save-temps missing/folder -o train
if [ "$(id -u)" -ne 0 ]; then
  mkdir -p closed && chmod a-w closed
  expect 3 "$DTC" "$MLP" -o closed/train
  chmod u+w closed
fi
for how in --check "--emit ast" "--emit c" "-o train"; do
  expect 2 "$DTC" "$MLP" --arch bogus $how
  says "arch bogus: unknown processor" err.txt
done
