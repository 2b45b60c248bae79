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
