# Examples with each --checkpoint, in drawn layouts and precisions: losses and weights are those of none to the last bit.
# tests/layouts/recompute.py alone takes more.
. "$(dirname "$0")/../support/lib.sh"
python3 "$SRC/tests/layouts/recompute.py" --dtc "$DTC" --count "${LAYOUTS:-1}" --seed "${SEED:-1}"

# A layer's dropout is drawn again, and a stack in a stack runs again.
cat >nest.dt <<'END'
use nn
layer Inner(dim) {
  ln   = nn.RMSNorm(dim)
  fc   = nn.Linear(dim, dim)
  drop = nn.Dropout(0.25)
  forward(x[b, dim]) { return x + drop(nn.gelu(fc(ln(x)))) }
}
layer Outer(dim) {
  ln    = nn.LayerNorm(dim)
  inner = stack 2 of Inner(dim)
  forward(x[b, dim]) { return inner(ln(x)) }
}
model Nest(dim = 24) {
  blocks = stack 3 of Outer(dim)
  loss(x[b, dim], y[b, dim]) {
    h = blocks(x)
    return mean(b, dim: square(h[b, dim] - y[b, dim]))
  }
}
train Nest {
  data       = arrays(x = "x.npy", y = "y.npy")
  batch      = 12
  microbatch = 5
}
END
python3 - "$SRC" <<'END'
import random, struct, sys
sys.path.insert(0, sys.argv[1] + "/tests/layouts")
import equality as eq
r = random.Random(1)
for name in "xy":
  eq.npy(name + ".npy", "<f4", (40, 24), struct.pack("<960f", *(r.gauss(0, 1) for _ in range(960))))
END
for mode in none full selective auto:100M; do
  "$DTC" nest.dt --checkpoint $mode -o train
  rm -f log.jsonl
  ./train --steps 3 --log log.jsonl --export "${mode%:*}.safetensors" --quiet
  losses log.jsonl >"${mode%:*}.txt"
  same none.txt "${mode%:*}.txt"
  same none.safetensors "${mode%:*}.safetensors"
done

# On a GPU the order of a sum depends on the kernel that it is in, and what runs again may be in another one.
for mode in none full selective; do
  "$DTC" "$SRC/examples/chargpt.dt" "${SMALL_CHARGPT[@]}" --target cuda --emulate --checkpoint $mode -o train
  rm -f log.jsonl
  ./train --data "$SRC/doc/ir.md" --steps 3 --log log.jsonl --quiet
  losses log.jsonl >"cuda-$mode.txt"
  near cuda-none.txt "cuda-$mode.txt" 1e-5
done
