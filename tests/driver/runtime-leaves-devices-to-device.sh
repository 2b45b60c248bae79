# No file of the runtime outside runtime/device/ names a processor or a target, but runtime/base/processor.[ch], which
# the host's own code asks; and none hands a region of the device to a function on the host's memory. (That the host
# follows no address of a device, by whatever name, is tests/runtime/device_apart.c.)
. "$(dirname "$0")/../support/lib.sh"
cd "$SRC/runtime"
find . -name '*.[ch]' ! -path './device/*' ! -path './base/processor.[ch]' >"$OLDPWD/files"
[ "$(wc -l <"$OLDPWD/files")" -ge 80 ] || fail "the runtime's files are not found"

names='x86|\bavx|\bsse[0-9]|ia32|mmintrin|cpuid|__builtin_cpu|\bdt_cpu_|\bcpu_level|\bcpu_features|device/(cpu|cuda)'
grep -qEi "$names" base/processor.c device/cpu/device.c || fail "the names are not found where they are"
if xargs grep -nEi "$names" <"$OLDPWD/files" >"$OLDPWD/named"; then
  cat "$OLDPWD/named" >&2
  fail "a processor or a target is named outside runtime/device"
fi

# Regions by the names of runtime/train/run.h, train/zero.h and pipeline/walk.h.
regions='(z|zero|r|run|walk)(->|\.)(param|master|gathered|grad|sum|moment|packed|frame|other_frame|buffer|other_buffer|results|scalars|norm|received|memory|tied)\b'
touches="(mem(cpy|move|set|cmp)|dt_(get|set|put_real|narrow|widen)) *\([^;]*\b$regions"
echo 'memcpy(to, z->param + n, bytes);' | grep -qE "$touches" || fail "the pattern finds nothing"
if xargs grep -nE "$touches" <"$OLDPWD/files" >"$OLDPWD/touched"; then
  cat "$OLDPWD/touched" >&2
  fail "a region of the device is read or written as the host's memory"
fi
