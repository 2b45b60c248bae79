# Ranks whose devices exchange arrays, by NCCL's stand-in: all operations, with sums in the order of members the CPU's bits;
# lost, stopped and late ranks, and members that differ, as over the host's transports; and planted errors are noticed.
. "$(dirname "$0")/../support/lib.sh"
command -v c++ >/dev/null || { echo "no C++ compiler"; exit 77; }
c++ -std=c++17 -ffp-contract=off -fno-exceptions -fno-rtti -Wall -Wextra -Wno-unknown-pragmas -O1 -I "$SRC" -c "$SRC/tests/cuda/links.cc" -o image.o
program() {
  cc -std=gnu17 -O1 -Wall -Wextra -I "$SRC" -I "$SRC/tests/runtime" -I "$SRC/tests/runtime/support" "$SRC/tests/runtime/$1.c" \
    "$SRC"/tests/runtime/support/*.c image.o "$BUILD/lib/dtc/libdtc_rt_emulate.a" -lm -lpthread -ldl -o "$1"
}
program comm_collectives
program comm_faults
EXACT=1 expect 0 ./comm_collectives 6
DT_EMULATE_SEED=2 expect 0 ./comm_collectives 4
expect 0 ./comm_faults

# Ranks that meet over MPI.
if command -v mpirun.openmpi >/dev/null && [ -e "$BUILD/lib/dtc/dtc-openmpi.so" ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
  DT_COMM=mpi DT_MPI_PLUGIN=$BUILD/lib/dtc/dtc-openmpi.so expect 0 mpirun.openmpi -n 4 ./comm_collectives launched 2 1 1
  [ "$(grep -c "is content" out.txt)" = 4 ] || fail "a rank over MPI is not content"
fi

# Without waits for events results are wrong.
DT_EMULATE_DROP_WAIT=0 expect 1 ./comm_collectives 2
says "all_reduce over tp.*wrong at" err.txt
DT_EMULATE_NCCL_VERSION=21805 expect 1 ./comm_collectives 2
says "NCCL 2.18.5, which is too old; 2.19 or newer is needed" err.txt
