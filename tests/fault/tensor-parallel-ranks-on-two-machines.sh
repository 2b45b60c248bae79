# Where ranks that share the products of a layer are on different machines, one rank says so when they start; and not where
# each machine has whole groups. Ranks distinguish machines by their names. Needs root, or skips.
. "$(dirname "$0")/../support/lib.sh"
unshare --uts true 2>/dev/null || { echo "no right to rename a host"; exit 77; }
command -v mpirun.openmpi >/dev/null && [ -e "$BUILD/lib/dtc/dtc-openmpi.so" ] || { echo "no Open MPI here"; exit 77; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_btl=self,vader DT_COMM=mpi
tokens train.bin 2000 97
expect 0 "$DTC" "$SRC/examples/gpt2.dt" "${SMALL_GPT2[@]}" --tp 2 -o train
# Host NAMES[rank] for each of 4 ranks.
run() {
  cat >rank <<END
#!/bin/bash
names=($*)
exec unshare --uts bash -c "hostname \${names[\$OMPI_COMM_WORLD_RANK]}; exec ./train --data train.bin --steps 1 --threads 1 --quiet"
END
  chmod +x rank
  expect 0 timeout 200 mpirun.openmpi -n 4 ./rank
}
run a a b b
! grep -q "different machines" err.txt || fail "groups are within machines: $(cat err.txt)"
run a b b a
says "^train: ranks 0 and 1 share the products of each layer \(tp 2\) and are on different machines" err.txt
[ "$(grep -c "different machines" err.txt)" = 1 ] || fail "it is said more than once"
