# Every fuzz harness for a few seconds, under the sanitizers. A long run: FUZZ_SECONDS=600 tests/fuzz/short.sh BUILD.
# FUZZ_ONLY=tokens runs that one.
. "$(dirname "$0")/../support/lib.sh"
seconds=${FUZZ_SECONDS:-10}
# Any clang that has libFuzzer: the name without a version, then the newest.
clang= probe='#include <stddef.h>
int LLVMFuzzerTestOneInput(const char *p, size_t n) { return p == 0 && n; }'
for c in clang $(compgen -c clang- | grep -E '^clang-[0-9]+$' | sort -t- -k2 -rnu); do
  echo "$probe" | "$c" -fsanitize=fuzzer,address,undefined -x c - -o probe 2>/dev/null || continue
  clang=$c
  break
done
[ -n "$clang" ] || { echo "no clang with libFuzzer is installed: fuzzing is skipped"; exit 77; }
export UBSAN_OPTIONS=halt_on_error=1
flags=(-g -O1 -std=gnu17 -ffp-contract=off -fsanitize=fuzzer-no-link,address,undefined
  -fno-sanitize-recover=undefined -I"$SRC" -I"$SRC/frontend" -I"$BUILD/frontend" -I"$(llvm-config-19 --includedir)")

# lib NAME SOURCES...: objects, rebuilt where a source is newer.
objects() {
  local dir=$1 objs=()
  shift
  mkdir -p "$dir"
  for src in "$@"; do
    local o=${src#"$SRC/"} # several folders have a file of the same name
    o=$dir/$(tr / - <<<"${o#"$BUILD/"}").o
    [ "$o" -nt "$src" ] || "$clang" "${flags[@]}" -c "$src" -o "$o" || fail "cannot compile $src"
    objs+=("$o")
  done
  rm -f "$dir/lib.a"
  ar rcs "$dir/lib.a" "${objs[@]}"
}
mapfile -t ir < <(find "$SRC/ir" "$SRC/passes" "$SRC/codegen" -name '*.c' | sort)
mapfile -t runtime < <(find "$SRC/runtime" -name '*.c' ! -path '*/mpi/*' ! -path '*/device/*' | sort)
objects compiler "${ir[@]}" "$SRC"/frontend/*.c "$BUILD"/frontend/*.tab.c "$BUILD"/frontend/*.yy.c
objects runtime "${runtime[@]}"

for harness in "$SRC"/tests/fuzz/fuzz_*.c; do
  name=$(basename "$harness" .c)
  [ "${FUZZ_ONLY:-${name#fuzz_}}" = "${name#fuzz_}" ] || continue
  "$clang" "${flags[@]}" -fsanitize=fuzzer "$harness" compiler/lib.a runtime/lib.a "$BUILD/lib/dtc/libdtc_rt.a" $(llvm-config-19 --ldflags --libs) -lm -lpthread -o "$name" ||
    fail "cannot build $name"
  mkdir -p "corpus.$name"
  seeds=()
  [ -d "$SRC/tests/fuzz/seeds/$name" ] && seeds+=("$SRC/tests/fuzz/seeds/$name")
  [ "$name" = fuzz_lowered_text ] && seeds+=("$SRC/tests/passes/lowered")
  dict=()
  [ -f "$SRC/tests/fuzz/$name.dict" ] && dict+=("-dict=$SRC/tests/fuzz/$name.dict")
  if ! "./$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=3000 "${dict[@]}" \
    "corpus.$name" "${seeds[@]}" >"$name.log" 2>&1; then
    tail -n 40 "$name.log"
    fail "$name found an input that breaks it"
  fi
  tail -n 1 "$name.log"
done
