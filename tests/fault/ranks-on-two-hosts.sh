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

  # One that is killed ends all, soon; somebody says so.
  start=$(date +%s)
  on_hosts $mpi 4 "$BUILD/tests/rt_comm_collectives" killed 5 1 >out.txt 2>&1 && fail "a rank was killed and nobody noticed"
  [ $(($(date +%s) - start)) -lt 30 ] || fail "it took too long"
  [ -s out.txt ] || fail "nobody said anything"
done
[ $found -eq 1 ] || { echo "no MPI here"; exit 77; }
