# The kernels of tests/cuda/programs and of attention under the address sanitizer read and write nothing beside their buffers, in shared
# memory neither; a reading that is off by one is reported.
. "$(dirname "$0")/../support/lib.sh"
command -v c++ >/dev/null || { echo "no C++ compiler"; exit 77; }
library=$(cc -print-file-name=libasan.so)
[ -e "$library" ] || { echo "no libasan.so"; exit 77; }
export DT_SANITIZE=1 ASAN_OPTIONS=detect_leaks=0
ldd "$BUILD/tests/cuda_programs_test" | grep -q libasan || export LD_PRELOAD=$library

for program in columns classifier-in-place rows-in-blocks-and-warps neighbours rows-that-others-name; do
  "$BUILD/tests/cuda_programs_test" "$SRC/tests/cuda/programs/$program.ir" >out.txt 2>&1 || { cat out.txt; fail "$program"; }
done
for form in bf16 fp16_window places; do
  "$BUILD/tests/cuda_attention_test" $form >out.txt 2>&1 || { cat out.txt; fail "attention: $form"; }
done
DT_OFF_BY_ONE=1 "$BUILD/tests/cuda_programs_test" "$SRC/tests/cuda/programs/columns.ir" >out.txt 2>&1 && fail "off by one, but no report"
says "AddressSanitizer: heap-buffer-overflow" out.txt
