#!/bin/bash
# Which lines of passes/ and codegen/ do random programs never reach?
#
#   tests/coverage.sh FOLDER [COUNT] [OPTIONS of random_random_test...]
#
# Builds with gcov in FOLDER (kept, so that a second run is quick), runs COUNT random programs (2000)
# and prints the unreached lines by file and function, then how many there are of how many.
set -euo pipefail
SRC=$(cd "$(dirname "$0")/.." && pwd)
[ $# -ge 1 ] || { sed -n '2,8s/^# \?//p' "$0"; exit 2; }
mkdir -p "$1"
BUILD=$(cd "$1" && pwd)
COUNT=${2:-2000}
shift $(($# < 2 ? $# : 2))
cmake -S "$SRC" -B "$BUILD" -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_C_FLAGS="--coverage -O1 -fprofile-update=single" \
  -DCMAKE_EXE_LINKER_FLAGS="-Wl,-u,__gcov_dump" >"$BUILD/configure.log"
ninja -C "$BUILD" random_random_test >"$BUILD/build.log"
find "$BUILD" -name '*.gcda' -delete
(cd "$BUILD" && CC="cc --coverage" tests/random_random_test --batch 32 --count "$COUNT" "$@") >&2
cd "$BUILD"
find passes codegen -name '*.gcda' -print0 | xargs -0 -r gcov --json-format --stdout 2>/dev/null |
  python3 "$SRC/tests/support/unreached.py" "$SRC"
