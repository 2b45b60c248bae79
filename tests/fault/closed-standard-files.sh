# A program whose standard files are closed, as some daemons start theirs, writes what it prints into none
# of its own files.
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/support/fake.sh"
fake_data
try() { # STATUS, then with every standard file closed; what the training program does not print is in LOG
  local want=$1 got=0
  shift
  "$@" <&- >&- 2>&- || got=$?
  [ "$got" -eq "$want" ] || fail "exit status $got, expected $want: $*"
}
logged() {
  [ "$(losses "$1" | wc -l)" = "$2" ] || fail "$1 has $(losses "$1" | wc -l) steps, expected $2"
}
rm -rf log? ck?
expect 0 train --steps 3 --export expected
for ranks in 1 2; do
  try 0 "$TRAIN" --steps 3 --ranks $ranks --log log$ranks --save ck$ranks --export weights$ranks
  logged log$ranks 3
  try 0 "$TRAIN" --steps 3 --ranks $ranks --log log$ranks --resume ck$ranks --export again$ranks
  same weights$ranks again$ranks
done
same expected weights1
try 66 "$TRAIN" --data missing --log log3
try 74 "$TRAIN" --info
if "$TRAIN" --steps 3 --data missing 2>&-; then fail "missing data go unnoticed"; fi
printf 'model M { param w[2] = ones\n loss(x[b, 2]) { return mean(b: sum(i: x[b, i] * w[i])) } }\n' >m.dt
printf 'train M { data = arrays(x = "x.npy") }\n' >>m.dt
try 0 "$DTC" m.dt --emit c --time -o kept.c
expect 0 "$DTC" m.dt --emit c -o expected.c
same expected.c kept.c
try 3 "$DTC" m.dt --emit c
try 1 "$DTC" missing.dt --check
