# What dtc needs to build a program may be missing or fail: the C compiler, the runtime, a folder for its files, room in
# it. Each is status 3 and is named, and no program is left.
. "$(dirname "$0")/../support/lib.sh"
MLP=$SRC/examples/mlp.dt
refused() { # MESSAGE [VARIABLE=VALUE...]
  expect 3 env "${@:2}" "$DTC" "$MLP" -o train
  says "$1" err.txt
  [ ! -e train ] || fail "train is there: $1"
}
mkdir -p bin && rm -f train

refused "cannot run the C compiler '/missing/cc': No such file or directory" CC=/missing/cc
refused "cannot run the C compiler 'cc'" PATH="$PWD/missing"
printf '#!/bin/sh\nexit 7\n' >bin/cc && chmod +x bin/cc
refused "'cc' failed with status 7" PATH="$PWD/bin:$PATH"
printf '#!/bin/sh\nkill -9 $$\n' >bin/cc
refused "'cc' was stopped by signal 9" PATH="$PWD/bin:$PATH"
refused "missing/dtc-.*: No such file or directory" TMPDIR="$PWD/missing"
refused "File name too long" TMPDIR="$(printf 'x%.0s' {1..5000})"

mkdir -p temps && ln -sf /dev/full temps/train.c
expect 3 "$DTC" "$MLP" --save-temps temps -o train
says "temps/train.c: No space left on device" err.txt
[ -c /dev/full ] || fail "/dev/full was removed"

# A parent that ignores SIGCHLD is no failure of the compiler.
python3 -c 'import signal, subprocess, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
p = subprocess.Popen(sys.argv[1:], restore_signals=False)
signal.signal(signal.SIGCHLD, signal.SIG_DFL)
sys.exit(p.wait())' "$DTC" "$MLP" -o train 2>err.txt || fail "with SIGCHLD ignored: $(cat err.txt)"
rm train

# A copy of dtc without the runtime, in a folder of bin/ and in one that is not. Above them there is none either.
OUTSIDE=$(mktemp -d)
trap 'rm -r "$OUTSIDE"' EXIT
for folder in bin .; do
  mkdir -p "$OUTSIDE/$folder"
  cp "$DTC" "$OUTSIDE/$folder/dtc"
  expect 3 "$OUTSIDE/$folder/dtc" "$MLP" -I "$SRC/stdlib" -o train
  says "the runtime is missing: .*lib/dtc/libdtc_rt.a" err.txt
  [ ! -e train ] || fail "train is there"
done

expect 2 "$DTC" "$MLP" --target bogus -o train
says "--target bogus: expected cpu" err.txt
