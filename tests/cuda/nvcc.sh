# nvcc compiles the kernels of every example without a warning and without spilled registers. By default for one
# architecture (the smallest example for all); CUDA_TEST_ARCHS="80 90a 100 120" for those, which takes a minute.
. "$(dirname "$0")/../support/lib.sh"
PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin:$BUILD/cuda/bin # where scripts/install-cuda finds or puts it
command -v nvcc >/dev/null || { echo "no nvcc"; exit 77; }
known=$(nvcc --list-gpu-arch)

compile() { # example, precision, architectures
  local flags=() arch
  for arch in $3; do
    grep -q "compute_${arch%a}" <<<"$known" || continue # older toolkits lack the newest
    flags+=(-gencode "arch=compute_$arch,code=sm_$arch")
  done
  "$DTC" "$SRC/examples/$1.dt" --precision "$2" --emit cuda >"$1.cu"
  "$DTC" "$SRC/examples/$1.dt" --precision "$2" --emit cuda | cmp - "$1.cu" || fail "$1: other text the second time"
  nvcc -std=c++17 -fmad=false -I "$SRC" --Werror all-warnings -Xptxas -v "${flags[@]}" -fatbin -o "$1.fatbin" "$1.cu" \
    >"$1.log" 2>&1 || { cat "$1.log"; fail "$1 ($2) does not compile"; }
  ! grep "bytes spill" "$1.log" | grep -v " 0 bytes spill stores, 0 bytes spill loads" || fail "$1 spills registers"
  says "registers" "$1.log"
}

compile mlp fp32 "${CUDA_TEST_ARCHS:-80 90a 100 120}"
compile chargpt fp16 "${CUDA_TEST_ARCHS:-80}"
compile classifier fp64 "${CUDA_TEST_ARCHS:-90a}"
compile gpt2 bf16 "${CUDA_TEST_ARCHS:-90a}"
compile llama fp32 "${CUDA_TEST_ARCHS:-120}"

# No arithmetic in double where the program has none.
sed '/arrays.h/d' mlp.cu >program.cu # the runtime's own sum squares in double
nvcc -std=c++17 -fmad=false -I "$SRC" -arch=compute_80 -ptx -o mlp.ptx program.cu
! grep -n '\.f64' mlp.ptx || fail "double in a program of fp32"
