# On an emulated processor without the instructions that a program was compiled for, it ends with 78 and a message, not in an
# illegal instruction; on one that has them it gives the bits of this machine.
. "$(dirname "$0")/../support/lib.sh"
command -v qemu-x86_64 >/dev/null || exit 77
[ "$(uname -m)" = x86_64 ] || exit 77
python3 "$SRC/examples/data/make_arrays.py" mlp . 100
on() { # PROCESSOR PROGRAM OPTIONS...
  local cpu=$1
  shift
  qemu-x86_64 -cpu "$cpu" "$@" --threads 1
}
level='this processor is not an x86-64-v[34], for which the program was compiled; compile it with --arch x86-64 for any'
lesser=(qemu64 Nehalem SandyBridge)
for precision in fp32 bf16; do
  "$DTC" "$SRC/examples/mlp.dt" --precision $precision -o native
  "$DTC" "$SRC/examples/mlp.dt" --precision $precision --arch x86-64-v3 -o v3
  "$DTC" "$SRC/examples/mlp.dt" --precision $precision --arch x86-64 -o any
  for cpu in "${lesser[@]}"; do
    if grep -qw avx2 /proc/cpuinfo; then
      expect 78 on $cpu ./native --steps 1
      says 'the program was compiled for another processor, and this one lacks .*avx2.*; compile it with --arch x86-64 for any' err.txt
    fi
    expect 78 on $cpu ./v3 --steps 1
    says "$level" err.txt
    expect 78 on $cpu ./v3 --dry-run
    expect 0 on $cpu ./v3 --help
  done
  if grep -qw avx512f /proc/cpuinfo; then
    expect 78 on Haswell ./native --steps 1
    says 'lacks avx512f' err.txt
  fi
  expect 0 ./v3 --steps 2 --quiet --export here.safetensors
  expect 0 on Haswell ./v3 --steps 2 --quiet --export there.safetensors
  same here.safetensors there.safetensors
  for cpu in "${lesser[@]}" Haswell; do expect 0 on $cpu ./any --steps 1 --quiet; done
  lesser=(Nehalem)
done
# dtc itself.
expect 0 qemu-x86_64 -cpu Nehalem "$DTC" --version
expect 0 qemu-x86_64 -cpu Nehalem "$DTC" "$SRC/examples/mlp.dt" --check
