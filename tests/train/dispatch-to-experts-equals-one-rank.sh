# A dispatch to experts scatters by a computed subscript. In a stack that runs twice, and in microbatches of one sample,
# its layer is written for each layout of its arguments: the copies share no subscripts. So ranks compute what one does.
. "$(dirname "$0")/../support/lib.sh"
{
  expert_layer
  cat <<'DT'
model M(dim = 8, len = 4, words = 16, experts = 4) {
  wte = nn.Embedding(words, dim, init = normal(0.7))
  blocks = stack 2 of Expert(dim, experts)
  head = nn.Linear(dim, words, init = normal(0.5))
  loss(tokens[b, len]: int, targets[b, len]: int) {
    x = wte(tokens)
    x = blocks(x)
    x = blocks(x)
    return nn.cross_entropy(head(x), targets)
  }
}
train M {
  data = arrays(tokens = "tokens.npy", targets = "targets.npy")
  batch = 8
  steps = 3
  optimizer = adamw(lr = 1e-2, eps = 1e-4)
  precision = fp64
}
DT
} >model.dt
python3 - <<'PY'
import random, struct
r = random.Random(1)
for name in ("tokens", "targets"):
    head = "{'descr': '<i4', 'fortran_order': False, 'shape': (24, 4), }"
    head += " " * (63 - (10 + len(head)) % 64) + "\n"
    with open(name + ".npy", "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode())
        f.write(struct.pack("<96i", *(r.randrange(16) for _ in range(96))))
PY
"$DTC" model.dt --interpret --steps 3 >oracle.jsonl
losses oracle.jsonl >oracle
equal() { # RANKS OPTIONS...
  for micro in 8 1; do
    "$DTC" model.dt -D microbatch=$micro "${@:2}" -o train
    ./train --ranks "$1" --log log.jsonl --quiet
    losses log.jsonl >got
    near oracle got 1e-12
  done
}
equal 1
equal 2 --tp 2
equal 2 --cp 2
equal 4 --tp 2 --cp 2
equal 4 --tp 2 --pp 2 --sequence-parallel
