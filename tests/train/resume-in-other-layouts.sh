# A run that goes on from a checkpoint in another layout has the losses, moments and weights of one rank that was never
# stopped: drawn pairs of ten layouts. tests/layouts/resume.py --all takes all of them.
. "$(dirname "$0")/../support/lib.sh"
unset RANK WORLD_SIZE SLURM_PROCID OMPI_COMM_WORLD_SIZE PMI_SIZE
python3 "$SRC/tests/layouts/resume.py" --dtc "$DTC" --count "${PAIRS:-4}" --seed "${SEED:-1}"
