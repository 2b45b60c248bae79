# Each bug that other frameworks have shipped in this place would make one of these checks fail. A check compares every gradient,
# moment and weight, the loss and the norm of three steps with those of one rank in double precision (tests/layouts/layouts.py), or bits.
#
# | the bug                                                     | the check here  | and, of the same                          |
# |-------------------------------------------------------------|-----------------|-------------------------------------------|
# | the loss is divided by a rank's own count of valid targets  | few             | ranks-agree-with-one                      |
# | a replicated parameter's gradient is not reduced            | norms           | layouts-equal-one-rank, planted-faults    |
# | a sum is divided by the wrong group's size                  | groups          | layouts-equal-one-rank, planted-faults    |
# | gradients are doubled per microbatch, or only the last kept | microbatches    | microbatches-do-not-change-the-result     |
# | ZeRO 0 and 1 diverge                                        | stages          | zero-stages-give-the-same-bits            |
# | shards are counted twice in the gradient's norm             | norm            | layouts-equal-one-rank                    |
# | a buffer is used again while an exchange reads or fills it  | delayed         | layers-are-gathered-ahead                 |
# | rotary angles and the causal mask begin at 0 on each rank   | positions       | sequence-is-exchanged-for-heads           |
# | a tied embedding's gradients are not summed over stages     | tied            | pipeline-equals-one-rank                  |
# | the loss agrees, the gradient's norm does not               | all: FIELDS     | random-models-equal-one-rank              |
# | replicas drift apart                                        | stages, delayed | layouts-give-the-same-bits                |
# | positions past the sequence are stepped but not reduced     | short           |                                           |
# | a count of elements is taken for bytes                      | all, in doubles | memory-is-what-was-planned                |
# | a file's offset is cut to 32 bits                           |                 | runtime/large_files                       |
# | each rank rounds its 16-bit replica by draws of its own     | none: the CPU target has no 16-bit numbers, and no draws but   |
# |                                                             | the model's, of global indices (dropout-equals-interpreter)    |
. "$(dirname "$0")/../support/lib.sh"

# like WHAT MODEL LAYOUT...: as one rank
like() {
  for layout in "${@:3}"; do
    python3 "$SRC/tests/layouts/layouts.py" --dtc "$DTC" --model "$2" --layout "$layout" >out.txt 2>&1 || {
      cat out.txt >&2
      fail "$1: $2, $layout"
    }
  done
}
like norms gpt2 "tp=2 sequence=True micro=4 ranks=2"
like groups gpt2 "tp=2 cp=2 zero=1 group=2 micro=3 ranks=8"
like microbatches gpt2 "zero=2 accumulate=each micro=2 ranks=2" "pp=2 accumulate=each micro=2 ranks=2"
like norm gpt2 "tp=2 zero=2 accumulate=each micro=4 ranks=4"
like positions llama "cp=2 micro=4 ranks=2"
like tied gpt2 "pp=2 micro=4 ranks=2"

# All that a run leaves behind.
tokens train.bin 3000 97
run() { # NAME PROGRAM RANKS OPTIONS...
  "./$2" --quiet --threads 1 --steps 3 --ranks "$3" --export "$1.st" --log log.jsonl "${@:4}"
  records log.jsonl | python3 -c 'import json, sys
for line in sys.stdin: print([json.loads(line)[k] for k in ("loss", "grad_norm")])' >"$1.log"
}
alike() {
  same "$2.st" "$3.st" || fail "$1"
  same "$2.log" "$3.log" || fail "$1"
}

# Targets that count lie in the first samples of a batch: other ranks have none, and their own count is zero.
python3 - <<'P'
import struct
head = lambda d, s: (lambda h: b"\x93NUMPY\x01\x00" + struct.pack("<H", len(h)) + h)(
    (str({"descr": d, "fortran_order": False, "shape": s}) + " " * 40 + "\n").encode())
open("x.npy", "wb").write(head("<i4", (8, 6)) + struct.pack("<48i", *[i * 7 % 11 for i in range(48)]))
open("y.npy", "wb").write(head("<i4", (8, 6)) + struct.pack("<48i", *[i * 5 % 11 if i < 9 else -1 for i in range(48)]))
P
cat >few.dt <<'M'
use nn
model Few(vocab = 11, t = 6, dim = 8) {
  wte = nn.Embedding(vocab, dim)
  attn = nn.CausalSelfAttention(dim, 2)
  param scale[dim] = normal(1.0, 0.3)                # its gradient is no part of a sum over the sequence: whole on cp
  loss(x[b, t]: int, y[b, t]: int) {
    h = attn(wte(x))
    logits[b, t, v] = sum(d: h[b, t, d] * wte.weight[v, d])
    return nn.cross_entropy(logits, y) + 0.1 * sum(d: scale[d] * scale[d])
  }
}
train Few {
  data = arrays(x = "x.npy", y = "y.npy")
  batch = 8
  microbatch = 2
  steps = 3
  optimizer = adamw(lr = 1e-2, eps = 1e-4)
  precision = fp64
}
M
numbers() { tr -d '[]' <"$1" | tr ',' '\n'; }
"$DTC" few.dt -o few1
run one few1 1 --no-shuffle
numbers one.log >one.txt
for options in "" "--zero 2" "--cp 2" "--tp 2"; do
  # shellcheck disable=SC2086
  "$DTC" few.dt $options -o few2
  run few few2 2 --no-shuffle
  numbers few.log >few.txt
  near one.txt few.txt 1e-11 >/dev/null || fail "few: $options"
done

# Positions past the sequence: of 16 there are 10 that are trained. A decayed one must be stepped alike everywhere.
SIZE=("${SMALL_GPT2[@]}" -D length=10 -D batch=8 -D warmup=0 -D lr=1e-2)
for stage in 0 1 2 3; do
  "$DTC" "$SRC/examples/gpt2.dt" "${SIZE[@]}" --zero $stage --accumulate each -o z$stage
  run z$stage z$stage 2
  alike "stages, short: ZeRO $stage" z0 z$stage
done
"$DTC" "$SRC/examples/gpt2.dt" "${SIZE[@]}" --precision fp64 -o one
"$DTC" "$SRC/examples/gpt2.dt" "${SIZE[@]}" --precision fp64 --zero 1 -o two
run one one 1
run two two 2
numbers one.log >one.txt
numbers two.log >two.txt
near one.txt two.txt 1e-11 >/dev/null || fail "short: loss and norm"

# Exchanges that begin late find what they are to send, and fill what nobody uses any more.
for options in "--zero 3" "--zero 2 --accumulate each" "--zero 1" "--tp 2 --sequence-parallel" "--cp 2" "--pp 2 --schedule 1f1b"; do
  # shellcheck disable=SC2086
  "$DTC" "$SRC/examples/gpt2.dt" "${SMALL_GPT2[@]}" -D batch=8 -D warmup=0 -D lr=1e-2 $options -o late
  run soon late 2
  DT_COMM_DELAY_MS=2 run later late 2
  alike "delayed: $options" soon later
done
