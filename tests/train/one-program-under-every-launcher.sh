# The same program, tp 2 x pp 2 x dp 2 with ZeRO 3, has the losses and gradient norms of one rank whoever starts its
# eight ranks on this machine: itself, torchrun, Slurm, Open MPI or MPICH; and the same bits under all of them.
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/../support/card.sh"
card_programs
for precision in fp64 fp32; do
  ./train-$precision "${OPTIONS[@]}" --ranks 8 --log ranks-$precision.jsonl --export ranks-$precision.st
  against_one_rank ranks-$precision $precision
done

# Eight processes with what a launcher sets; the port and the job's number are this test's own.
torchrun() { echo RANK=$1 WORLD_SIZE=8 LOCAL_RANK=$1 LOCAL_WORLD_SIZE=8 MASTER_ADDR=localhost MASTER_PORT=29500 \
  TORCHELASTIC_RUN_ID=$$ OMP_NUM_THREADS=1; }
by_hand() { echo RANK=$1 WORLD_SIZE=8 MASTER_ADDR=127.0.0.1 MASTER_PORT=$$; }
slurm() { echo SLURM_JOB_ID=$$ SLURM_STEP_ID=0 SLURM_PROCID=$1 SLURM_LOCALID=$1 SLURM_NODEID=0 SLURM_NTASKS=8 \
  SLURM_NNODES=1 "SLURM_TASKS_PER_NODE=8"; }
for launcher in torchrun by_hand slurm; do
  pids=()
  for rank in 0 1 2 3 4 5 6 7; do
    # shellcheck disable=SC2046
    env $($launcher $rank) ./train-fp64 "${OPTIONS[@]}" --log $launcher.jsonl --export $launcher.st 2>$launcher.$rank.txt &
    pids+=($!)
  done
  for rank in 0 1 2 3 4 5 6 7; do
    wait "${pids[$rank]}" || { cat $launcher.*.txt; fail "$launcher, rank $rank: exit status $?"; }
  done
  against_one_rank $launcher fp64
  same ranks-fp64.st $launcher.st
done

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
for mpi in openmpi mpich; do
  command -v mpirun.$mpi >/dev/null || continue
  timeout 500 mpirun.$mpi -n 8 ./train-fp64 "${OPTIONS[@]}" --log $mpi.jsonl --export $mpi.st >$mpi.out 2>&1 ||
    { cat $mpi.out; fail "mpirun.$mpi: exit status $?"; }
  against_one_rank $mpi fp64
  same ranks-fp64.st $mpi.st
done
