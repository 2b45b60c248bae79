# nvcc compiles attention's kernels of every kind, at the sizes that need most registers, without a warning and without
# spilled registers, and those of float without arithmetic in double. By default for one architecture;
# CUDA_TEST_ARCHS="80 90a 100 120" for those.
. "$(dirname "$0")/../support/lib.sh"
PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin:$BUILD/cuda/bin # where scripts/install-cuda finds or puts it
command -v nvcc >/dev/null || { echo "no nvcc"; exit 77; }
known=$(nvcc --list-gpu-arch)
flags=()
for arch in ${CUDA_TEST_ARCHS:-80}; do
  grep -q "compute_${arch%a}" <<<"$known" || continue # older toolkits lack the newest
  flags+=(-gencode "arch=compute_$arch,code=sm_$arch")
done
source=$SRC/tests/cuda/attention.cu
nvcc -std=c++17 -fmad=false -I "$SRC" --Werror all-warnings -Xptxas -v "${flags[@]}" -fatbin -o attention.fatbin "$source" \
  >log.txt 2>&1 || { cat log.txt; fail "does not compile"; }
! grep "bytes spill" log.txt | grep -v " 0 bytes spill stores, 0 bytes spill loads" || fail "spills registers"
says "registers" log.txt
nvcc -std=c++17 -fmad=false -I "$SRC" -DFLOATS_ALONE -arch=compute_80 -ptx -o floats.ptx "$source"
! grep -n '\.f64' floats.ptx || fail "double in kernels of float"
