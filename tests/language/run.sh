#!/bin/bash
# Language tests: every .dt file here is one. error/FILE.dt must be refused (exit status 1) with exactly the text of
# FILE.err on stderr; any other file must pass --check, and print what FILE.err holds where there is one: a warning.
# A first line `# flags: ...` adds options; with --dump-after PASS the passes run up to that one.
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
  code=0
  case $file in error/*) code=1 ;; *) [ -e "$want" ] || want=/dev/null ;; esac
  [ $status -eq $code ] && diff -u "$want" "$out" && continue
  echo "FAIL $file: exit status $status, expected $code and the text of $want"
  fail=$((fail + 1))
done
[ $update = yes ] && exit 0
echo "$count language tests, $fail failed"
[ $fail -eq 0 ] && exit 0
echo "to accept what dtc prints now: tests/language/run.sh $dtc --update; git diff tests/language"
exit 1
