# Each deliberate fault of tests/mutation still fits the sources, so that the list can be run at any time. One that does
# not is written anew for the lines as they are now.
. "$(dirname "$0")/../support/lib.sh"
expect 0 python3 "$SRC/tests/mutation/mutate.py" --check
[ "$(grep -c '^== ' "$SRC/tests/mutation/faults.txt")" -ge 30 ] || fail "fewer than 30 faults"
