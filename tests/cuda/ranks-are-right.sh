# A step of several ranks as CUDA programs whose kernels run on the CPU is the interpreter's step of the model as written:
# keys in a ring past tensor cores' tiles, two microbatches in flight, scaled losses, experts, dropout.
. "$(dirname "$0")/../support/lib.sh"
command -v c++ >/dev/null || { echo "no C++ compiler"; exit 77; }
tokens train.bin 2000 97
right() { # model and options
  expect 0 "$DTC" "$@" --target cuda --emulate --verify-run
  says "^right: " out.txt
}
gpt2=("$SRC/examples/gpt2.dt" "${SMALL_GPT2[@]}" --data train.bin)
right "${gpt2[@]}" -D length=80 -D context=80 --precision bf16 --cp 2 --cp-attention ring
right "${gpt2[@]}" --precision fp16 --tp 2 --in-flight 2 --sequence-parallel
right "${gpt2[@]}" --precision bf16 --pp 2 --dp 2 --schedule zb --zero 3 --zero-group 1
right "$SRC/examples/llama.dt" "${SMALL_LLAMA[@]}" --data train.bin --precision fp32 --tp 2 --cp 2 --cp-attention alltoall

{
  expert_layer
  cat <<'DT'
model Experts(dim = 8, words = 16, experts = 4) {
  wte = nn.Embedding(words, dim, init = normal(0.7))
  blocks = stack 2 of Expert(dim, experts)
  drop = nn.Dropout(0.2)
  head = nn.Linear(dim, words, init = normal(0.5))
  loss(tokens[b, t]: int, targets[b, t]: int) {
    x = wte(tokens)
    return nn.cross_entropy(head(drop(blocks(x))), targets)
  }
}
train Experts {
  data = tokens("words.bin", length = 4)
  batch = 8
  microbatch = 2
  steps = 3
  optimizer = adamw(lr = 1e-2, eps = 1e-4)
}
DT
} >experts.dt
tokens words.bin 200 16
right experts.dt --precision fp64 --tp 2 --cp 2
right experts.dt --precision fp32 --tp 2 --pp 2
