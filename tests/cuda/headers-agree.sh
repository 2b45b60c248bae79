# The driver's, cuBLASLt's and NCCL's prototypes, types and constants that the runtime states are those of the toolkit's headers.
. "$(dirname "$0")/../support/lib.sh"
include=${CUDA_HOME:-/usr/local/cuda}/include
[ -e "$include/cuda.h" ] && [ -e "$include/cublasLt.h" ] && [ -e "$include/nccl.h" ] || { echo "no headers of a CUDA toolkit"; exit 77; }
sources=("$SRC/tests/cuda/headers.c" -std=gnu17 -I "$SRC")
cc "${sources[@]}" -I "$include" -o theirs || fail "prototypes differ from the toolkit's"
cc "${sources[@]}" -DOWN -o own
./theirs >theirs.txt
./own >own.txt
same theirs.txt own.txt
[ "$(wc -l <own.txt)" -ge 70 ] || fail "too few constants were compared"
sed 's/cuEventQuery, (CUevent event)/cuEventQuery, (CUstream event)/' "$SRC/runtime/device/cuda/driver.h" >driver.h
mkdir -p runtime/device/cuda && mv driver.h runtime/device/cuda && cp "$SRC/runtime/device/cuda/blas.h" "$SRC/runtime/device/cuda/nccl.h" runtime/device/cuda
! cc "$SRC/tests/cuda/headers.c" -std=gnu17 -I . -I "$SRC" -I "$include" -o faulty 2>err.txt || fail "another prototype is not noticed"
