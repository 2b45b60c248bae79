# The same under Open MPI's and MPICH's mpirun, over MPI and over shared memory.
. "$(dirname "$0")/../support/lib.sh"
unset RANK WORLD_SIZE SLURM_PROCID OMPI_COMM_WORLD_SIZE PMI_SIZE
command -v mpirun.openmpi >/dev/null || command -v mpirun.mpich >/dev/null || { echo "no MPI here"; exit 77; }
python3 "$SRC/tests/fault/kills.py" --build "$BUILD" --mpi --count "${KILLS:-2}" ${SEED:+--seed "$SEED"}
