# Ranks of two MPIs exchange the same as over shared memory; one that is lost ends all. Each rank takes its own
# machine to be another's (DT_COMM=mpi), as on several.
. "$(dirname "$0")/../support/lib.sh"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_btl=self,vader
found=0
for mpi in openmpi mpich; do
  command -v mpirun.$mpi >/dev/null && [ -e "$BUILD/lib/dtc/dtc-$mpi.so" ] || continue
  found=1
  # Not told otherwise: the same launcher, over shared memory.
  for way in mpi ""; do
    DT_COMM=$way timeout 600 mpirun.$mpi -n 4 "$BUILD/tests/rt_comm_collectives" launched 2 1 1 >out.txt 2>&1 ||
      { tail -n 20 out.txt; fail "$mpi, DT_COMM=$way"; }
    [ "$(grep -c 'of 4 is content' out.txt)" -eq 4 ] || { cat out.txt; fail "not 4 ranks, DT_COMM=$way"; }
  done

  # A stopped rank: all others give it up, by name, after --timeout and not much more, and mpirun ends it.
  DT_COMM=mpi timeout 600 mpirun.$mpi -n 4 "$BUILD/tests/rt_comm_collectives" stopped 1 8 >out.txt 2>&1 &
  pid=$!
  # In sleeps, which do not count while this machine has stopped everything.
  for i in $(seq 400); do
    kill -0 $pid 2>/dev/null || break
    sleep 0.1
  done
  kill -0 $pid 2>/dev/null && { kill $pid; fail "$mpi: a stopped rank is not found in 40 s"; }
  wait $pid && fail "$mpi: a rank was stopped, and the status is 0"
  for r in 0 2 3; do
    says "^train: rank $r: error: rank 1 has been silent for more than 8 s.*; this rank waited in barrier .*, step 2" out.txt
  done
done
[ $found -eq 1 ] || { echo "no MPI here"; exit 77; }
