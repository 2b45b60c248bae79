# A program for a GPU is built where there is none, needs the C library alone, and says what is missing when it starts.
. "$(dirname "$0")/../support/lib.sh"
PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin:$BUILD/cuda/bin # where scripts/install-cuda finds or puts it
command -v nvcc >/dev/null || { echo "no nvcc"; exit 77; }
command -v nvidia-smi >/dev/null && { echo "there is a GPU: bench/gpu and tests/gpu run on it"; exit 77; }
python3 "$SRC/examples/data/make_arrays.py" mlp . 100

expect 0 "$DTC" "$SRC/examples/mlp.dt" --target cuda --arch sm_80,sm_90a --save-temps temps -o train
ldd train >libraries.txt
! grep -vE 'linux-vdso|libc\.so|libm\.so|ld-linux|lib(a|ub)san|libstdc\+\+|libgcc_s' libraries.txt || fail "it needs other libraries"
expect 71 ./train --steps 1
says "error: this program runs on an NVIDIA GPU, and its driver is not there: libcuda.so.1" err.txt
expect 0 ./train --help
expect 0 ./train --info
strings -a train >strings.txt 2>/dev/null || tr -c '[:print:]' '\n' <train >strings.txt
says "sm_80,sm_90a" strings.txt
expect 0 make -C temps -B # the Makefile makes the same program
expect 71 temps/train --steps 1

# An older driver, or one without some function.
echo 'int unused;' | cc -shared -fPIC -x c -o libcuda.so.1 -
LD_LIBRARY_PATH=. expect 71 ./train --steps 1
says "driver is too old: libcuda.so.1 has no cuInit; CUDA 12.4 or newer" err.txt
{ echo 'typedef int R;'
  grep -oE 'X\(cu[A-Za-z0-9_]+' "$SRC/runtime/device/cuda/driver.h" | sed 's/X(//' |
    grep -v cuDriverGetVersion | sed 's/.*/R &(void) { return 0; }/'
  echo 'R cuDriverGetVersion(int *v) { *v = 12020; return 0; }'
} | cc -shared -fPIC -x c -o libcuda.so.1 -
LD_LIBRARY_PATH=. expect 71 ./train --steps 1
says "driver is of CUDA 12.2; 12.4 or newer is needed" err.txt

expect 3 env PATH=/usr/bin:/bin CUDA_HOME=/nowhere CC=false "$DTC" "$SRC/examples/mlp.dt" --target cuda -o none
expect 2 "$DTC" "$SRC/examples/mlp.dt" --target cuda --arch sm_90b
says "arch sm_90b: unknown processor" err.txt
