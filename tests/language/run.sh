#!/bin/bash
# Language tests: every .dt file here is one. FILE.dt with FILE.err beside it must be refused (exit status 1) with
# exactly that text on stderr; a file without one must pass --check. A first line `# flags: ...` adds options.
#
#     run.sh DTC|BUILD_DIR [--update] [FILE...]
set -u
here=$(cd "$(dirname "$0")" && pwd)
dtc=${1:?usage: run.sh DTC|BUILD_DIR [--update] [FILE...]}
[ -d "$dtc" ] && dtc=$dtc/bin/dtc
dtc=$(realpath "$dtc")
shift
update=no
[ "${1:-}" = --update ] && update=yes && shift
cd "$here" || exit 2
[ $# -gt 0 ] || set -- $(find . -name '*.dt' ! -path './parts/*' ! -path './meaning/*' | sed 's|^\./||' | sort)

fail=0 count=0
out=$(mktemp) && trap 'rm -f "$out"' EXIT
for file in "$@"; do
  count=$((count + 1))
  want=${file%.dt}.err
  flags=$(sed -n '1s/^# flags: //p' "$file")
  NO_COLOR=1 "$dtc" --check $flags "$file" 2>"$out" >/dev/null
  status=$?
  sed -i 's|^/[^ ]*/stdlib/|stdlib/|' "$out" # wherever this build has it
  if [ $update = yes ]; then
    if [ $status -eq 0 ] && [ ! -s "$out" ]; then rm -f "$want"; else cp "$out" "$want"; fi
    continue
  fi
  if [ -e "$want" ]; then
    [ $status -eq 1 ] && diff -u "$want" "$out" && continue
    echo "FAIL $file: exit status $status, expected 1 and $want"
  else
    [ $status -eq 0 ] && [ ! -s "$out" ] && continue
    cat "$out"
    echo "FAIL $file: exit status $status, expected 0 and no diagnostics"
  fi
  fail=$((fail + 1))
done
[ $update = yes ] && exit 0
echo "$count language tests, $fail failed"
[ $fail -eq 0 ] && exit 0
echo "to accept what dtc prints now: tests/language/run.sh $dtc --update; git diff tests/language"
exit 1
