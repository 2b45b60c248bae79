# nvcc compiles the kernels of every example without a warning, without spilled registers and without arithmetic in double.
# By default in one precision and for one or two architectures each (the smallest example for all);
# CUDA_TEST_ARCHS="80 90a 100 120" for those, CUDA_TEST_ALL=1 for every precision as well, which takes minutes.
. "$(dirname "$0")/../support/lib.sh"
PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin:$BUILD/cuda/bin # where scripts/install-cuda finds or puts it
command -v nvcc >/dev/null || { echo "no nvcc in PATH, CUDA_HOME or /usr/local/cuda: kernels are not compiled"; exit 77; }
known=$(nvcc --list-gpu-arch)

flags() { # architectures
  local arch
  for arch in $1; do
    grep -q "compute_${arch%a}" <<<"$known" || continue # older toolkits lack the newest
    echo "-gencode arch=compute_$arch,code=sm_$arch"
  done
}

# Running sums are added up in double (as by runtime/device/cpu/scan.h), and the library reduces large arguments of sinf and
# cosf with it; other kernels of the program have no double (the runtime's, dt_*, sum squares in it). The first file is the text that was compiled, the second the PTX.
no_double() {
  awk 'FNR == NR { if (/_kernel\(/) { name = $0; sub(/\(.*/, "", name) } if (/sinf\(|cosf\(|double sum/) may[name] = 1; next }
       /\.entry/ { name = $3; sub(/\(.*/, "", name) }
       /\.f64/ && !(name in may) && name !~ /^dt_/ { print name ": " $0; bad = 1 }
       END { exit bad }' "$1" "$2"
}

compile() { # example, precision, architectures
  "$DTC" "$SRC/examples/$1.dt" --precision "$2" --emit cuda >"$1.cu"
  "$DTC" "$SRC/examples/$1.dt" --precision "$2" --emit cuda | cmp - "$1.cu" || fail "$1: other text the second time"
  # shellcheck disable=SC2046
  nvcc -std=c++17 -fmad=false -I "$SRC" --Werror all-warnings -Xptxas -v $(flags "$3") -fatbin -o "$1.fatbin" "$1.cu" \
    >"$1.log" 2>&1 || { cat "$1.log"; fail "$1 ($2) does not compile"; }
  # In fp64 division and square root are functions, around which ptxas may have no register left for a word.
  local least=0
  [ "$2" != fp64 ] || least=8
  awk -v least=$least '/bytes spill/ && ($5 > least || $9 > least) { print; bad = 1 } END { exit bad }' "$1.log" ||
    fail "$1 ($2) spills registers"
  says "registers" "$1.log"
  [ "$2" = fp64 ] && return
  nvcc -std=c++17 -fmad=false -I "$SRC" -arch=compute_80 -ptx -o "$1.ptx" "$1.cu"
  no_double "$1.cu" "$1.ptx" || fail "$1 ($2) computes in double"
}

if [ "${CUDA_TEST_ALL:-}" ]; then
  for example in chargpt classifier gpt2 llama mlp; do
    for precision in fp32 bf16 fp16 fp64; do compile $example $precision "80 90a 100 120"; done
  done
  exit
fi

# Without CUDA_TEST_ALL each example is compiled in one precision, the smallest for all architectures.
compile mlp fp32 "${CUDA_TEST_ARCHS:-80 90a 100 120}"
compile chargpt fp16 "${CUDA_TEST_ARCHS:-80}"
compile classifier fp64 "${CUDA_TEST_ARCHS:-90a}"
compile gpt2 bf16 "${CUDA_TEST_ARCHS:-90a 100}"
compile llama fp32 "${CUDA_TEST_ARCHS:-120}"
