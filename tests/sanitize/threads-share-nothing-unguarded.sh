# The runtime under the thread sanitizer: products, attention, the pool, a training run on 3 threads, and worlds of
# up to 3 ranks; two microbatches in flight; slices of arrays in a file.
. "$(dirname "$0")/../support/lib.sh"
flags=(-g -O1 -std=gnu17 -ffp-contract=off -fsanitize=thread -I"$SRC")
echo 'int main(void) { return 0; }' >probe.c
cc "${flags[@]}" probe.c -o probe && ./probe 2>/dev/null || { echo "this system cannot run the thread sanitizer"; exit 77; }
find "$SRC/runtime" "$SRC/tests/runtime/support" -name '*.c' ! -path '*/mpi/*' ! -path '*/device/cuda/*' | while read -r src; do
  o=$(tr / _ <<<"${src#"$SRC/"}").o
  [ "$o" -nt "$src" ] || echo "$src" "$o"
done | xargs -r -P 2 -n 2 sh -c 'cc '"${flags[*]}"' -c "$0" -o "$1"' || fail "cannot compile the runtime"
export TSAN_OPTIONS=halt_on_error=1
for test in cpu_parallel training comm_collectives flight slices; do
  cc "${flags[@]}" "$SRC/tests/runtime/$test.c" ./*.o -lm -lpthread -ldl -o "$test"
  "./$test" 3 >log.txt 2>&1 || { tail -n 40 log.txt; fail "$test"; }
done
