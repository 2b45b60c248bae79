# With --offload optimizer, in slices of 4096 bytes, losses and checkpoints have the same bits as without, in drawn layouts
# and precisions and for each example; runs go on from one another's checkpoints. tests/layouts/offload.py alone takes more.
. "$(dirname "$0")/../support/lib.sh"
python3 "$SRC/tests/layouts/offload.py" --dtc "$DTC" --count "${LAYOUTS:-1}" --seed "${SEED:-1}"
# Tied weights on two stages: their update is the last.
python3 "$SRC/tests/layouts/offload.py" --dtc "$DTC" --model gpt2 --precision bf16 --layout "pp=2 zero=2 micro=1 ranks=4"
export DT_OFFLOAD_SLICE=4096

# run NAME EXAMPLE "OPTIONS OF DTC" ARGUMENTS...: in memory and in a file; on a file system without direct I/O too.
run() {
  local name=$1 example=$2 options=$3
  shift 3
  for kind in plain offload; do
    local where=()
    [ $kind = plain ] || where=(--offload-dir .)
    [ $kind = plain ] || options="$options --offload optimizer"
    "$DTC" "$example" $options -o train
    rm -rf "$name.$kind.ck" "$name.$kind.jsonl"
    ./train --quiet --steps 4 --eval-every 0 --log "$name.$kind.jsonl" --save "$name.$kind.ck" "$@" "${where[@]}"
    losses "$name.$kind.jsonl" >"$name.$kind.txt"
  done
  same "$name.plain.txt" "$name.offload.txt"
  same "$name.plain.ck/step-00000004/part-00000.safetensors" "$name.offload.ck/step-00000004/part-00000.safetensors"
  if [ -w /dev/shm ]; then
    ./train --quiet --steps 4 --eval-every 0 --export "$name.shm.st" "$@" --offload-dir /dev/shm 2>err.txt
    [ "$(stat -fc %T /dev/shm)" != tmpfs ] || says "^train: --offload-dir /dev/shm is in memory" err.txt
    ./train --quiet --steps 0 --eval-every 0 --resume "$name.plain.ck" --export "$name.want.st" "$@" --offload-dir .
    same "$name.want.st" "$name.shm.st"
  fi
}
run chargpt "$SRC/examples/chargpt.dt" "${SMALL_CHARGPT[*]}" --data "$SRC/doc/ir.md"
python3 - "$SRC" <<'END'
import random, struct, sys
sys.path.insert(0, sys.argv[1] + "/tests/layouts")
import equality as eq
r = random.Random(1)
eq.npy("x.npy", "<f4", (80, 100), struct.pack("<8000f", *(r.gauss(0, 1) for _ in range(8000))))
eq.npy("y.npy", "<i4", (80,), struct.pack("<80i", *(r.randrange(10) for _ in range(80))))
eq.npy("weight.npy", "<f4", (80,), struct.pack("<80f", *(1e4 if i == 20 else 1 for i in range(80))))
END
run mlp "$SRC/examples/mlp.dt" "-D hidden=37" --data x=x.npy,y=y.npy

# A stage without parameters has no file.
cat >tail.dt <<'M'
use nn
layer Mix(dim) {
  fc = nn.Linear(dim, dim)
  forward(x[b, dim]) { return x + nn.gelu(fc(x)) }
}
model Tail(dim = 100) {
  blocks = stack 1 of Mix(dim)
  loss(x[b, dim], y[b]: int) {
    z = nn.gelu(nn.gelu(blocks(x)))
    return mean(b, dim: square(z[b, dim] - 0.1 * real(y[b])))
  }
}
train Tail {
  data = arrays(x = "x.npy", y = "y.npy")
  batch = 8
  microbatch = 2
  steps = 4
}
M
run tail tail.dt "--pp 2" --ranks 2

# In fp16 a step is skipped, which visits no state.
cat >weighted.dt <<'M'
use nn
model Weighted(inputs = 100, hidden = 37, classes = 10) {
  up = nn.Linear(inputs, hidden)
  down = nn.Linear(hidden, classes)
  loss(x[b, inputs], y[b]: int, weight[b]) {
    logits = down(nn.gelu(up(x)))
    lse[b] = log(sum(c: exp(logits[b, c])))
    return mean(b: weight[b] * (lse[b] - logits[b, y[b]]))
  }
}
train Weighted {
  data = arrays(x = "x.npy", y = "y.npy", weight = "weight.npy")
  batch = 8
  steps = 8
  optimizer = adamw(lr = 0.01)
  precision = fp16
}
M
run skips weighted.dt "" --no-shuffle
[ "$(grep -c '"skipped":true' skips.offload.jsonl)" -ge 1 ] || fail "no step was skipped"
