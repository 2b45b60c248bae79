# 2 x 4 ranks on two 'hosts': network namespaces with a virtual link between them, so that data really goes over
# MPI and the network. Needs root, or skips.
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/support/hosts.sh"
found=0
for mpi in openmpi mpich; do
  command -v mpirun.$mpi >/dev/null && [ -e "$BUILD/lib/dtc/dtc-$mpi.so" ] || continue
  found=1
  before=$(came)
  on_hosts $mpi 4 "$BUILD/tests/rt_comm_collectives" launched 2 1 2 >out.txt 2>&1 || { tail -n 20 out.txt; fail "$mpi"; }
  [ "$(grep -c 'of 8 is content' out.txt)" -eq 8 ] || { cat out.txt; fail "not 8 ranks"; }
  [ $(($(came) - before)) -gt 10000000 ] || fail "$mpi: only $(($(came) - before)) bytes went over the link"

  # One that is killed ends all, on both hosts, soon (--timeout is a minute); somebody says so. One that is stopped is
  # named by all others.
  for how in killed stopped; do
    timeout=$([ $how = killed ] && echo 60 || echo 2)
    on_hosts $mpi 4 "$BUILD/tests/rt_comm_collectives" $how 5 $timeout >out.txt 2>&1 &
    pid=$!
    for i in $(seq 600); do
      kill -0 $pid 2>/dev/null || break
      sleep 0.05
    done
    kill -0 $pid 2>/dev/null && { cat out.txt; kill $pid; fail "$mpi, $how: it does not end"; }
    wait $pid && fail "$mpi: a rank was $how, and the status is 0"
    for i in $(seq 200); do
      [ -n "$(ip netns pids "${hosts[0]}")$(ip netns pids "${hosts[1]}")" ] || break
      sleep 0.05
    done
    for h in "${hosts[@]}"; do [ -z "$(ip netns pids $h)" ] || fail "$mpi, $how: processes are left"; done
    [ -s out.txt ] || fail "$mpi, $how: nobody said anything"
    [ $how = stopped ] || continue
    for r in 0 1 2 3 4 6 7; do
      says "^train: rank $r: error: rank 5 has been silent for more than 2 s.*; this rank waited in barrier .*, step 2" out.txt
    done
  done
done
[ $found -eq 1 ] || { echo "no MPI here"; exit 77; }
