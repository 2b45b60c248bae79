# Shared by the fault tests: the training program of a hand-written model (tests/runtime/fake_train.c), its data, and
# an empty folder to work in.
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
BUILD=$(cd "$BUILD" && pwd)
TRAIN=$BUILD/tests/rt_fake_train
export FAKE=arrays
export ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0
unset RANK WORLD_SIZE SLURM_STEP_NUM_TASKS OMPI_COMM_WORLD_SIZE PMI_SIZE
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
cd "$WORK"

train() { "$TRAIN" --quiet "$@"; }

# npy FILE DESCR SHAPE STRUCT-FORMAT: numbers from stdin.
npy() {
  python3 -c 'import struct, sys
path, descr, shape, form = sys.argv[1:5]
numbers = [float(x) if form in "fd" else int(x) for x in sys.stdin.read().split()]
head = "{\x27descr\x27: \x27%s\x27, \x27fortran_order\x27: False, \x27shape\x27: %s, }" % (descr, shape)
head += " " * (-(len(head) + 11) % 64) + "\n"
with open(path, "wb") as f:
  f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode())
  f.write(struct.pack("<%d%s" % (len(numbers), form), *numbers))' "$@"
}

fake_data() {
  python3 -c 'import random
r = random.Random(4)
for i in range(300): print(r.gauss(0, 1))' | npy x.npy "<f4" "(50, 6)" f
  python3 -c 'for i in range(50): print(i * 7 % 10)' | npy y.npy "<i4" "(50,)" i
  tokens train.bin 401 16
}
