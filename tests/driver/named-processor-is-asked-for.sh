# A program for a named processor, or for that of the machine that compiled it, refuses to run on a lesser one. For a level it
# gives the same bits on any that will do.
. "$(dirname "$0")/../support/lib.sh"
grep -qw avx2 /proc/cpuinfo || exit 77
python3 "$SRC/examples/data/make_arrays.py" mlp . 100
"$DTC" "$SRC/examples/mlp.dt" --arch x86-64-v3 -o train
expect 78 env DTC_CPU_LEVEL=1 ./train --steps 1
says "this processor is not an x86-64-v3, for which the program was compiled" err.txt
expect 0 ./train --steps 2 --quiet --export best.safetensors
expect 0 env DTC_CPU_LEVEL=3 ./train --steps 2 --quiet --export v3.safetensors
same best.safetensors v3.safetensors
"$DTC" "$SRC/examples/mlp.dt" --arch x86-64 -o train
expect 0 env DTC_CPU_LEVEL=1 ./train --steps 2 --quiet --export v1.safetensors
expect 0 ./train --steps 2 --quiet --export any.safetensors
same v1.safetensors any.safetensors

"$DTC" "$SRC/examples/mlp.dt" -o train
expect 78 env DTC_CPU_LEVEL=1 ./train --steps 1
says "compiled for another processor, and this one lacks .*avx2.*; compile it with --arch x86-64 for any" err.txt
expect 78 env DTC_CPU_LEVEL=2 ./train --steps 1
says "lacks avx, " err.txt
expect 0 ./train --steps 2 --quiet
"$DTC" "$SRC/examples/mlp.dt" --arch sandybridge -o train
expect 78 env DTC_CPU_LEVEL=2 ./train --steps 1
says "lacks avx; compile" err.txt
expect 0 env DTC_CPU_LEVEL=3 ./train --steps 2 --quiet

# Of processors that multiply pairs of bf16, a program with such products asks for them.
features() {
  "$DTC" "$SRC/examples/mlp.dt" --arch "$@" --emit c | tr -d '"\n' | grep -o 'device_features = *[a-z0-9 -]*' | tr -s ' '
}
features sapphirerapids --precision bf16 >names.txt
says "avx512bf16 avx512fp16 avxvnni amx-bf16" names.txt
features sapphirerapids >names.txt
says "avx512bf16 avx512fp16 avxvnni$" names.txt
features znver4 --precision bf16 >names.txt
says "avx512bf16$" names.txt
"$DTC" "$SRC/examples/mlp.dt" --arch sapphirerapids --precision bf16 -o train
expect 78 env DTC_CPU_LEVEL=4 ./train --steps 1
says "lacks .*amx-bf16" err.txt

# Where this processor has them, a program for a level uses none of them, and one for this machine does.
"$DTC" "$SRC/examples/mlp.dt" --arch x86-64-v3 --precision bf16 -o train
expect 0 ./train --info
says '"products":"float"' out.txt
"$DTC" "$SRC/examples/mlp.dt" --precision fp32 -o train
expect 0 ./train --info
says '"products":"own"' out.txt
"$DTC" "$SRC/examples/mlp.dt" --arch znver4 --precision bf16 -o train
expect 0 ./train --info
says '"products":"vector"' out.txt
"$DTC" "$SRC/examples/mlp.dt" --precision bf16 -o train
expect 0 env DT_GEMM_BF16=float ./train --info
says '"products":"float"' out.txt

# The environment may ask for others, of a processor that has them.
"$DTC" "$SRC/examples/mlp.dt" --arch x86-64-v3 --precision bf16 -o train
expect 78 env DTC_CPU_LEVEL=4 DT_GEMM_BF16=vector ./train --steps 1
says "DT_GEMM_BF16=vector: this processor has no such instructions, or its kernel does not allow them" err.txt
if grep -qw avx512_bf16 /proc/cpuinfo; then
  expect 0 ./train --steps 2 --quiet --threads 1 --export float.safetensors
  for threads in 1 2; do
    expect 0 env DT_GEMM_BF16=vector ./train --steps 2 --quiet --threads $threads --export pairs$threads.safetensors
  done
  same pairs1.safetensors pairs2.safetensors
  if cmp -s float.safetensors pairs1.safetensors; then fail "products by pairs of bf16 round as those in float"; fi
fi
