# A rank of an emulated program is killed, and one is stopped, at a drawn moment, as in tests/fault; KILLS=50 for more.
. "$(dirname "$0")/../support/lib.sh"
command -v c++ >/dev/null || { echo "no C++ compiler"; exit 77; }
unset RANK WORLD_SIZE SLURM_PROCID OMPI_COMM_WORLD_SIZE PMI_SIZE
for how in "" --stop; do
  python3 "$SRC/tests/fault/kills.py" --build "$BUILD" --emulate $how --count "${KILLS:-1}" ${SEED:+--seed "$SEED"}
done
