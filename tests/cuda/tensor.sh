# Products by emulated tensor cores are right in all four orders of threads, and each planted mistake shows in some order: a
# missing wait, a missing barrier, matrices that are not transposed, three wrong layouts of fragments.
source=$(dirname "$0")
command -v c++ >/dev/null || { echo "no C++ compiler"; exit 77; }
fails() { # fault; prints the orders in which it shows
  c++ -std=c++17 -O1 -g -Wall -Wextra -Werror -Wno-unknown-pragmas -ffp-contract=off -I "$source/../.." -DFAULT="$1" \
    -o program "$source/tensor.cc" || exit 1
  for order in 0 1 2 3; do
    DT_ORDER=$order ./program >out."$order" 2>&1 || printf ' %s' "$order"
  done
}
failed=$(fails 0) || exit 1
[ -z "$failed" ] || { echo "wrong in order$failed:"; cat out.?; exit 1; }
for fault in 1 2 3 4 5 6; do
  failed=$(fails $fault) || exit 1
  [ -n "$failed" ] || { echo "fault $fault is caught in no order"; exit 1; }
  echo "fault $fault is caught in order$failed"
done
