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
    DT_COMM=$way timeout 200 mpirun.$mpi -n 4 "$BUILD/tests/rt_comm_collectives" launched 2 1 1 >out.txt 2>&1 ||
      { tail -n 20 out.txt; fail "$mpi, DT_COMM=$way"; }
    [ "$(grep -c 'of 4 is content' out.txt)" -eq 4 ] || { cat out.txt; fail "not 4 ranks, DT_COMM=$way"; }
  done

  # A stopped rank: the others give it up, by name, and mpirun ends it.
  DT_COMM=mpi timeout 60 mpirun.$mpi -n 3 "$BUILD/tests/rt_comm_collectives" stopped 1 >out.txt 2>&1 && fail "$mpi: a rank was stopped"
  says "train: rank [02]: error: nothing came for [0-9.]+ s from or to rank.* 1.*; this rank waited in barrier .*, step 2" out.txt
done
[ $found -eq 1 ] || { echo "no MPI here"; exit 77; }
