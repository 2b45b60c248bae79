# Over MPI a rank that never gets into MPI_Init holds the others there: they end when a first step's limit has passed,
# and say why. Without that they would wait for ever, and in silence.
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/support/fake.sh"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_btl=self,vader DT_COMM=mpi
fake_data
# As the shell that is to become rank 2 it stops; the others start.
cat >rank <<'R'
[ "${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-}}" != 2 ] || kill -STOP $$
exec "$TRAIN" "$@"
R
export TRAIN
found=0
for mpi in openmpi mpich; do
  command -v mpirun.$mpi >/dev/null && [ -e "$BUILD/lib/dtc/dtc-$mpi.so" ] || continue
  found=1
  timeout -k 5 500 mpirun.$mpi -n 4 bash rank --quiet --steps 3 --threads 1 --timeout 0.25 >out.txt 2>&1 &
  pid=$!
  # In sleeps, which do not count while this machine has stopped everything.
  for i in $(seq 600); do
    kill -0 $pid 2>/dev/null || break
    sleep 0.1
  done
  kill -0 $pid 2>/dev/null && { cat out.txt; kill $pid; fail "$mpi: a rank that does not start is waited for, for 60 s"; }
  wait $pid && fail "$mpi: a rank did not start, and the status is 0"
  says "^train: rank [013]: error: MPI_Init did not return in 1.5 s \(another rank was stopped or did not start\)" out.txt
done
[ $found -eq 1 ] || { echo "no MPI here"; exit 77; }
