# Where a run fits into the machine's memory but for the snapshot of --save-every, it is refused at the start with that cause,
# and runs with --save-sync.
. "$(dirname "$0")/../support/lib.sh"
text 4000 >text.txt
"$DTC" "$SRC/examples/chargpt.dt" "${SMALL_CHARGPT[@]}" -o train
if ldd train | grep -q libasan; then exit 0; fi # it asks for pages too
cat >pages.c <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>
// A machine of PAGES pages.
long sysconf(int name) {
  if (name == _SC_PHYS_PAGES && getenv("PAGES")) return atol(getenv("PAGES"));
  return ((long (*)(int))dlsym(RTLD_NEXT, "sysconf"))(name);
}
C
cc -shared -fPIC -O1 -o pages.so pages.c -ldl
# total RANKS OPTIONS...: bytes of all ranks
total() {
  ./train --info --threads 1 --ranks "$@" | python3 -c 'import json, sys; print(json.load(sys.stdin)["memory"]["total"] * int(sys.argv[1]))' "$1"
}
save=(--save ck --save-every 2)
for ranks in 1 2; do
  with=$(total $ranks "${save[@]}") without=$(total $ranks "${save[@]}" --save-sync)
  [ $((with - without)) -gt 8192 ] || fail "a snapshot of $((with - without)) bytes"
  run=(env LD_PRELOAD="$PWD/pages.so" ./train --quiet --data text.txt --threads 1 --ranks $ranks --steps 4)
  PAGES=$(((with - 1) / 4096)) expect 71 "${run[@]}" "${save[@]}"
  says "needs .* GiB of memory.*, the machine has .*; .* GiB of it are the snapshot that --save-every writes behind the steps: --save-sync needs none" err.txt
  PAGES=$(((with + 4095) / 4096)) expect 0 "${run[@]}" "${save[@]}"
  PAGES=$(((without + 4095) / 4096)) expect 0 "${run[@]}" "${save[@]}" --save-sync
  rm -rf ck
  PAGES=1 expect 71 "${run[@]}"
  ! grep -q save err.txt || { cat err.txt; fail "a run without --save is told of it"; }
done
