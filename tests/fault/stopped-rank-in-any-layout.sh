# A rank of some layout that is stopped by SIGSTOP is named by all others, with the operation that they wait in: under
# --ranks, and over MPI, where it takes no longer. STOPS=5 is all of the layouts of tests/fault/kills.py.
. "$(dirname "$0")/../support/lib.sh"
unset RANK WORLD_SIZE SLURM_PROCID OMPI_COMM_WORLD_SIZE PMI_SIZE
kills() { python3 "$SRC/tests/fault/kills.py" --build "$BUILD" --stop ${SEED:+--seed "$SEED"} "$@"; }
kills --count "${STOPS:-2}"
kills --mpi --count "${STOPS:-1}"
