# Reports, --info and the regions of running ranks say the same bytes of CUDA programs, and each region is used as planned;
# and reports say where the ranks run. tests/layouts/memory.py --cuda draws more.
. "$(dirname "$0")/../support/lib.sh"
command -v c++ >/dev/null || { echo "no C++ compiler"; exit 77; }
python3 "$SRC/tests/layouts/memory.py" --dtc "$DTC" --cuda --count "${LAYOUTS:-3}" --seed "${SEED:-2}" --model gpt2 >out.txt ||
  { cat out.txt >&2; fail "a rank used other memory than planned"; }
says "[1-9][0-9]* held ZeRO 3's pieces" out.txt
report() { expect 0 "$DTC" "$SRC/examples/gpt2.dt" "${SMALL_GPT2[@]}" --target cuda --report "$@"; }
report --tp 2 --dp 2
says ", 2 ranks \(tp 2\) on GPUs, each with 2 data-parallel ranks, ZeRO 0" out.txt
report --dp 4 --zero 2
says ", 4 data-parallel ranks on GPUs, ZeRO 2 over 4 owners" out.txt
report
says ", one rank on a GPU$" out.txt
# What one GPU of 34 MB takes: the scratch of cuBLASLt counts.
expect 1 "$DTC" "$SRC/examples/gpt2.dt" "${SMALL_GPT2[@]}" --target cuda --emulate --memory 32M -o train
