# Some drawn kills of tests/fault/kills.py; KILLS=50 for more, SEED= for the same again.
. "$(dirname "$0")/../support/lib.sh"
unset RANK WORLD_SIZE SLURM_PROCID OMPI_COMM_WORLD_SIZE PMI_SIZE
python3 "$SRC/tests/fault/kills.py" --build "$BUILD" --count "${KILLS:-3}" ${SEED:+--seed "$SEED"}
