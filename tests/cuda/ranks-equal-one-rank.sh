# Programs of several ranks whose kernels run on the CPU: loss and gradients are those of the CPU target on the same
# layout and of one rank.
. "$(dirname "$0")/../support/lib.sh"
command -v c++ >/dev/null || { echo "no C++ compiler"; exit 77; }
tokens train.bin 2000 97

gradient() { # name, ranks, options of dtc
  expect 0 "$DTC" "$SRC/examples/gpt2.dt" "${SMALL_GPT2[@]}" "${@:3}" -o "$1"
  expect 0 ./"$1" --ranks "$2" --threads 1 --data train.bin --steps 2 --quiet --log "$1.jsonl" --export-gradient "$1.st"
}

gradients_near() { # two files of weights; the largest difference in parts of a tensor's norm
  PYTHONPATH=$SRC/tests/layouts python3 -c 'import math, sys
from sixteen_bits import read
a, b = map(read, sys.argv[1:3])
assert a.keys() == b.keys()
worst, name = max((math.dist(a[k], b[k]) / max(math.hypot(*b[k]), 1e-30), k) for k in b)
print("%s: the gradient of %s differs by %.3g" % (sys.argv[1], name, worst))
assert worst <= float(sys.argv[3])' "$@"
}

equal() { # ranks, options
  gradient cuda "$@" --target cuda --emulate
  gradient cpu "$@"
  for other in cpu one; do
    losses cuda.jsonl >cuda.txt
    losses $other.jsonl >$other.txt
    near cuda.txt $other.txt 2e-5
    gradients_near cuda.st $other.st 2e-5
  done
  rm -f cuda.jsonl cpu.jsonl
}

gradient one 1
equal 2
equal 4 --tp 2 --sequence-parallel --zero 3
equal 4 --pp 2 --cp 2 --cp-attention ring
