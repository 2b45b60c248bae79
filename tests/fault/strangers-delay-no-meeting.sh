# Ranks that a launcher started on one machine meet over a socket in a folder that their user alone may enter. Who comes
# there and is silent, or says something else, delays nobody; a folder that others may enter is not used; a socket that a
# killed rank 0 has left is no obstacle; and no name is taken that another user could take first.
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/support/fake.sh"
fake_data
mkdir -m 700 run
mkdir -m 755 open
mkdir -m 700 temporary
export XDG_RUNTIME_DIR=$PWD/run TMPDIR=$PWD/temporary WORLD_SIZE=3 MASTER_PORT=$$

OPTIONS=(--quiet --threads 1 --timeout 5 --steps 2)
rank() { RANK=$1 "$TRAIN" "${OPTIONS[@]}"; }
start() { RANK=$1 exec "$TRAIN" "${OPTIONS[@]}" 2>err$1.txt; } # &

# Waits for rank 0's socket, and prints its name.
socket() {
  for i in $(seq 200); do
    ls "$1"/dtc-* 2>/dev/null && return
    sleep 0.05
  done
  fail "no socket in $1"
}

meet() { # the folder that the socket is in; more ranks than 0 come when the strangers are there
  start 0 &
  local first=$! others=()
  local name=$(socket "$1")
  python3 -c 'import socket, sys, time
all = []
for k in range(70):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.connect(sys.argv[1])
    if k % 7 == 6: s.send(b"GET / HTTP/1.1" if k % 2 else b"")
    all.append(s)
open("ready", "w").close()
time.sleep(60)' "$name" &
  local stranger=$!
  until [ -e ready ]; do sleep 0.05; done
  ! grep '@dtc' /proc/net/unix || fail 'a name in the abstract namespace is taken'
  local began=$SECONDS
  for r in 1 2; do start $r & others+=($!); done
  for p in $first "${others[@]}"; do wait $p || { cat err?.txt; fail 'the ranks did not meet'; }; done
  [ $((SECONDS - began)) -lt 8 ] || fail "silent strangers cost $((SECONDS - began)) s"
  kill $stranger
  wait $stranger || true
  rm -f ready
  [ -z "$(ls "$1")" ] || fail "$1 is not empty after the run"
}
meet run

# A rank 0 that is killed leaves its socket; the next takes the name. A second job of that name is refused.
start 0 &
first=$!
socket run >/dev/null
expect 78 rank 0
says 'another job with the same name' err.txt
kill -KILL $first
wait $first || true
[ -n "$(ls run)" ] || fail 'nothing is left to test'
meet run

# Without a session's folder, or with one that others may enter, it is in the user's own of temporary files.
export XDG_RUNTIME_DIR=$PWD/open
meet "$TMPDIR/dtc-$(id -u)"
[ -z "$(ls open)" ] || fail 'a folder that others may enter was used'

# A link is not followed to a folder of somebody's choice.
unset XDG_RUNTIME_DIR
rm -r "$TMPDIR/dtc-$(id -u)"
ln -s "$PWD/run" "$TMPDIR/dtc-$(id -u)"
start 0 &
first=$!
sleep 0.5
[ -z "$(ls run)" ] || fail 'a link was followed'
kill $first
wait $first || true

# A rank 0 that has no memory to share does not leave the others waiting.
start 1 &
second=$!
status=0
(ulimit -f 0 && rank 0) 2>&1 | cat >err0.txt || status=$?
[ $status -eq 71 ] || { cat err0.txt; fail "rank 0: exit status $status"; }
began=$SECONDS status=0
wait $second || status=$?
[ $status -eq 69 ] || { cat err1.txt; fail "rank 1: exit status $status"; }
[ $((SECONDS - began)) -lt 8 ] || fail 'rank 1 waits for a rank 0 that ended'
