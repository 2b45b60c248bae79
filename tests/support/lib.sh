# Shared by the shell tests: `. "$(dirname "$0")/../support/lib.sh"` with the build folder as $1.
set -euo pipefail
BUILD=$1
SRC=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
DTC=$BUILD/bin/dtc
export DT_EMULATE_FLAGS=${DT_EMULATE_FLAGS--Werror} # emitted kernels compile without warnings

fail() {
  echo "FAIL: $*" >&2
  exit 1
}

# expect STATUS COMMAND...: runs it, output to out.txt and err.txt.
expect() {
  local want=$1 got=0
  shift
  "$@" >out.txt 2>err.txt || got=$?
  [ "$got" -eq "$want" ] || {
    cat out.txt err.txt >&2
    fail "exit status $got, expected $want: $*"
  }
}

# says PATTERN FILE: the file holds a line that matches.
says() { grep -qE -- "$1" "$2" || { cat "$2" >&2; fail "no '$1' in $2"; }; }

same() { cmp "$1" "$2" || fail "$1 and $2 differ"; }

# records LOG: those of steps and validations of its last run.
records() {
  python3 -c 'import json, sys
out = []
for line in open(sys.argv[1]):
  r = json.loads(line)
  if "checkpoint" in r: continue
  if "run" not in r: out.append(line)
  elif r["step"] == 0: out = []
sys.stdout.writelines(out)' "$1"
}

# losses LOG: one loss a line.
losses() {
  records "$1" | python3 -c 'import json, sys
for line in sys.stdin:
  r = json.loads(line)
  if "loss" in r: print(repr(r["loss"]))'
}

# near A B TOLERANCE: files of one number a line, relative difference at most TOLERANCE.
near() {
  python3 -c 'import sys
a, b = ([float(x) for x in open(f)] for f in sys.argv[1:3])
tol = float(sys.argv[3])
assert a and len(a) == len(b), "%d and %d numbers" % (len(a), len(b))
worst = max(abs(x - y) / max(abs(x), abs(y), 1e-300) for x, y in zip(a, b))
print("%s %s: largest relative difference %.3g" % (sys.argv[1], sys.argv[2], worst))
assert worst <= tol, "more than %g" % tol' "$@"
}

# A text of N bytes that a model can learn something from.
text() {
  python3 -c 'import random, sys
r = random.Random(3)
words = ["the", "loss", "of", "a", "model", "falls", "when", "data", "is", "read", "and", "learnt"]
out = ""
while len(out) < int(sys.argv[1]): out += r.choice(words) + r.choice([" ", " ", " ", ".\n"])
sys.stdout.write(out[:int(sys.argv[1])])' "$1"
}

SMALL_CHARGPT=(-D layers=2 -D heads=2 -D dim=32 -D context=16 -D length=16 -D batch=8)
SMALL_GPT2=(-D vocab=97 -D context=16 -D layers=2 -D heads=2 -D dim=32 -D length=16 -D batch=4 -D microbatch=2)
SMALL_LLAMA=(-D vocab=97 -D layers=2 -D heads=4 -D kv_heads=2 -D dim=32 -D hidden=48 -D length=16 -D batch=4 -D microbatch=2)

# tokens FILE COUNT VOCAB: little-endian uint16.
tokens() {
  python3 -c 'import random, struct, sys
r = random.Random(5)
n, v = int(sys.argv[2]), int(sys.argv[3])
t, out = 0, []
for _ in range(n):
  t = (t * 5 + r.randrange(3)) % v
  out.append(t)
open(sys.argv[1], "wb").write(struct.pack("<%dH" % n, *out))' "$@"
}

# expert_layer: a layer whose dispatch to experts scatters by a computed subscript.
expert_layer() {
  cat <<'DT'
use nn
layer Expert(dim, experts) {
  gate = nn.Linear(dim, experts, init = normal(0.5))
  param w[experts, dim | dim] = normal(0.5)
  forward(x[b, t, dim]) {
    z = gate(x)
    a = nn.softmax(z)
    best[b, t] = argmax(e: z[b, t, e])
    top[b, t] = max(e: a[b, t, e])
    h[c < b, e < experts, d < dim] = 0.0
    h[c, best[c, q], d] += x[c, q, d] * top[c, q]
    y[b, e, o] = sum(i: h[b, e, i] * w[e, i, o])
    return r[b, t, d] = x[b, t, d] + tanh(y[b, best[b, t], d])
  }
}
DT
}

# two_ranks STATUS COMMAND...: runs the command as rank 0 and as rank 1, to err0.txt and err1.txt. Each ends with the status.
two_ranks() {
  local want=$1 port=$((20000 + RANDOM % 20000)) got rank pid=()
  shift
  for rank in 0 1; do
    RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$@" 2>err$rank.txt &
    pid+=($!)
  done
  for rank in 0 1; do
    got=0
    wait "${pid[$rank]}" || got=$?
    [ $got -eq "$want" ] || { cat err*.txt; fail "rank $rank: exit status $got, expected $want: $*"; }
  done
}
