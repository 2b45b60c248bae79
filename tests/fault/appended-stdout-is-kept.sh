# A log or another output that goes to where standard output goes already, a file that is appended to, is added to it and
# does not cut it off.
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/support/fake.sh"
fake_data
kept() { # FILE RECORDS
  [ "$(head -n 1 "$1")" = before ] || fail "$1 has lost what was in it"
  [ "$(grep -c '"loss"' "$1")" -eq "$2" ] || { cat "$1"; fail "$1 does not hold $2 records"; }
}
for name in /dev/stdout /dev/fd/1 /proc/self/fd/1 f; do
  echo before >f
  train --steps 3 --log $name >>f
  kept f 3
  train --steps 3 --log $name >>f
  kept f 6
done
rm -rf ck
train --steps 2 --save ck
echo before >f
train --steps 4 --resume ck --log /dev/stdout >>f # a log of its own would lose what is no record
kept f 2
echo before >f
train --steps 3 --log /dev/fd/3 3>>f
kept f 3
echo before >f
train --steps 3 --log /dev/stderr 2>>f
kept f 3
train --steps 3 --export w.safetensors
echo before >f
train --steps 3 --export /dev/stdout >>f
tail -c +8 f | cmp - w.safetensors || fail 'the export is not behind what was there'
[ ! -e /dev/stdout.tmp ] || fail 'a temporary file in /dev'
train --steps 3 --log /dev/stdout | grep -c '"loss"' >n.txt
[ "$(cat n.txt)" -eq 3 ] || fail 'a pipe'
expect 74 train --steps 3 --log /dev/full
