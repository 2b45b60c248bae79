# The program of `dtc examples/gpt2.dt --tp 2 --pp 2 --zero 3` as 2 x 4 ranks under mpirun on two 'hosts' has the losses of
# one rank, and the bits of `--ranks 8`; with Open MPI, and with MPICH. Needs root, or skips.
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/support/hosts.sh"
. "$(dirname "$0")/../support/card.sh"
card_programs
rm -f ranks-*
found=0
for mpi in openmpi mpich; do
  command -v mpirun.$mpi >/dev/null && [ -e "$BUILD/lib/dtc/dtc-$mpi.so" ] || continue
  found=1
  for precision in fp64 fp32; do
    name=$mpi-$precision
    [ -e ranks-$precision.st ] || ./train-$precision "${OPTIONS[@]}" --ranks 8 --export ranks-$precision.st
    before=$(came)
    on_hosts $mpi 4 "$PWD/train-$precision" --data "$PWD/train.bin" "${OPTIONS[@]}" --log "$PWD/$name.jsonl" \
      --export "$PWD/$name.st" >$name.out 2>&1 || { cat $name.out; fail "$name"; }
    # At the least: the parameters of half of the model, gathered in each of 4 steps.
    [ $(($(came) - before)) -gt 400000 ] || fail "$name: only $(($(came) - before)) bytes went over the link"
    against_one_rank $name $precision
    same ranks-$precision.st $name.st
  done
done
[ $found -eq 1 ] || { echo "no MPI here"; exit 77; }
