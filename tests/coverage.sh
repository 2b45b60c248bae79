#!/bin/bash
# Which lines of passes/ and codegen/ do the random tests never reach?
#
#   tests/coverage.sh FOLDER [PROGRAMS [MODELS]]
#
# Builds with gcov in FOLDER (kept, so that a second run is quick). Runs PROGRAMS random programs (2000), a fifth as
# many for CUDA, then MODELS random models (100) in 3 layouts each, then the tests of errors: models and modules that dtc
# must refuse, compilers that fail, conversions that plans seldom hold, and a program that nvcc builds, where it is
# there. Prints the lines that neither random test reached, by file and function, without those that only report a bug of
# dtc. In brackets are those that the tests of errors reached: they are for wrong input. Lines that cannot be reached here
# are named with the reason (tests/support/unreached.py has the list). The last line counts. Counts of runs are kept in
# FOLDER/random.json and FOLDER/errors.json.
#
# SEED=N draws others (1). JOBS=N runs N at a time (2).
set -euo pipefail
SRC=$(cd "$(dirname "$0")/.." && pwd)
[ $# -ge 1 ] || { sed -n '2,15s/^# \?//p' "$0"; exit 2; }
mkdir -p "$1"
BUILD=$(cd "$1" && pwd)
PROGRAMS=${2:-2000} MODELS=${3:-100} SEED=${SEED:-1} JOBS=${JOBS:-2}

cmake -S "$SRC" -B "$BUILD" -G Ninja -DCMAKE_BUILD_TYPE=Release -DDTC_COVERAGE=ON >"$BUILD/configure.log"
ninja -C "$BUILD" dtc random_random_test passes_lowered_test passes_localise_test codegen_other_target_test >"$BUILD/build.log"

# Writes what was counted since the last call to a file.
counts() {
  (cd "$BUILD" && find passes codegen -name '*.gcda' -print0 | xargs -0 -r gcov --json-format --stdout 2>/dev/null) >"$1"
  find "$BUILD" -name '*.gcda' -delete
}

find "$BUILD" -name '*.gcda' -delete
status=0
(cd "$BUILD" && tests/random_random_test --seed "$SEED" --batch 32 --count "$PROGRAMS" --jobs "$JOBS") >&2 || status=1
(cd "$BUILD" && tests/random_random_test --arch cuda --seed "$SEED" --count $((PROGRAMS / 5)) --jobs "$JOBS") >&2 || status=1
python3 "$SRC/tests/layouts/random_models.py" --dtc "$BUILD/bin/dtc" --models "$MODELS" --layouts 3 --seed "$SEED" \
  --jobs "$JOBS" >&2 || status=1
counts "$BUILD/random.json"
# Files of the language tests that are refused, modules that a pass refuses, and kernels that their verifier does.
(cd "$SRC/tests/language" && bash run.sh "$BUILD" error/*.dt) >&2 || status=1
for out in $(grep -l ': error: ' "$SRC"/tests/passes/text/*.out); do
  name=${out%.out}
  "$BUILD/bin/dtc" --run "${name##*.}" "${name%.*}.ir" >/dev/null 2>&1 && echo "$out: it is not refused" >&2
done
for test in passes_lowered_test passes_localise_test codegen_other_target_test; do
  (cd "$BUILD" && "tests/$test") >&2 || status=1
done
for test in passes/kernels-that-cannot-be-are-refused driver/named-processor-is-asked-for \
  driver/annotations-choose-the-cut driver/compilers-that-fail-are-reported \
  driver/refuses-what-cannot-be-cut driver/sizes-that-are-too-large-are-reported \
  driver/outputs-that-fail-are-reported cuda/program-for-a-gpu; do
  mkdir -p "$BUILD/tests/work/$test"
  (cd "$BUILD/tests/work/$test" && bash "$SRC/tests/$test.sh" "$BUILD") >&2 || [ $? -eq 77 ] || status=1
done
counts "$BUILD/errors.json"

python3 "$SRC/tests/support/unreached.py" "$SRC" "$BUILD/random.json" "$BUILD/errors.json"
exit $status
