#!/usr/bin/env bash
# Writes a real text of 4.3 million bytes, the King James Bible (public domain), as Debian's package
# bible-kjv holds it: `make_text.sh TEXT [VAL]`, the last twentieth going to VAL where one is named.
set -euo pipefail
out=${1:?usage: make_text.sh TEXT [VAL]}
all=$(mktemp)
trap 'rm -f "$all"' EXIT
bible -l 78 'Genesis1:1-Revelation22:21' >"$all"
if [ $# -lt 2 ]; then
  cp "$all" "$out"
  exit
fi
size=$(stat -c %s "$all")
head -c $((size - size / 20)) "$all" >"$out"
tail -c $((size / 20)) "$all" >"$2"
