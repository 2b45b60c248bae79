# Kernels written by hand are right in all four orders of threads, and each planted mistake is caught: by a wrong
# number or a report in some order, or by the address sanitizer.
build=$1
source=$(dirname "$0")
command -v c++ >/dev/null || { echo "no C++ compiler"; exit 77; }
compile() { # fault, program, flags
  c++ -std=c++17 -O1 -g -Wall -Wextra -Werror -Wno-unknown-pragmas -ffp-contract=off -I "$source/../.." -DFAULT="$1" "${@:3}" \
    -o "$2" "$source/emulate.cc" || exit 1
}
orders() { # program; prints the orders in which it fails
  for order in 0 1 2 3; do
    DT_ORDER=$order ASAN_OPTIONS=detect_leaks=0 "$1" >out."$order" 2>&1 || printf ' %s' "$order"
  done
}
sanitize="-fsanitize=address -fsanitize-sections=dt_shared"

compile 0 right
compile 0 right_checked $sanitize
for program in right right_checked; do
  failed=$(orders ./$program)
  [ -z "$failed" ] || { echo "$program fails in order$failed:"; cat out.?; exit 1; }
done

for fault in 2 4 5 6; do
  compile $fault faulty
  failed=$(orders ./faulty)
  [ -n "$failed" ] || { echo "fault $fault is caught in no order"; exit 1; }
  echo "fault $fault is caught in order$failed"
done
grep -q "threads of a block wait at\|all threads wait" out.? || { echo "fault 6 has no report:"; cat out.?; exit 1; }

for fault in 1 3; do
  compile $fault faulty $sanitize
  failed=$(orders ./faulty)
  grep -q "ERROR: AddressSanitizer" out.? || { echo "the sanitizer does not see fault $fault"; cat out.?; exit 1; }
  echo "fault $fault is caught by the sanitizer"
done
