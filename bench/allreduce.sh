#!/bin/sh
# The all-reduce of ranks on one machine beside Open MPI's and MPICH's, in turn, so that other load meets all
# of them alike.
#     bench/allreduce.sh BUILD [RANKS [MEGABYTES [ROUNDS [TURNS]]]]
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:?usage: bench/allreduce.sh BUILD [RANKS [MEGABYTES [ROUNDS [TURNS]]]]}
ranks=${2:-2} megabytes=${3:-64} rounds=${4:-21} turns=${5:-3}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cc -O2 -I"$root" "$root/bench/allreduce.c" "$build/lib/dtc/libdtc_rt.a" -lm -lpthread \
  $(cat "$build/lib/dtc/libs.txt") -o "$out/dtc"
for mpi in openmpi mpich; do
  command -v mpicc.$mpi >/dev/null && mpicc.$mpi -O2 -DBENCH_MPI "$root/bench/allreduce.c" -o "$out/$mpi"
done
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
for turn in $(seq "$turns"); do
  "$out/dtc" "$ranks" "$megabytes" "$rounds"
  [ ! -x "$out/openmpi" ] || mpirun.openmpi -n "$ranks" "$out/openmpi" "$ranks" "$megabytes" "$rounds" | sed 's/MPI/Open MPI/'
  [ ! -x "$out/mpich" ] || mpirun.mpich -n "$ranks" "$out/mpich" "$ranks" "$megabytes" "$rounds" | sed 's/MPI/MPICH/'
done
