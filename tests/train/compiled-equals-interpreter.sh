# In fp64 the compiled program and the interpreter give the same losses and gradient norms, three
# optimizer steps long, microbatches and a remainder included.
. "$(dirname "$0")/../support/lib.sh"
text 4000 >text.txt
tokens train.bin 4000 97
python3 "$SRC/examples/data/make_arrays.py" mlp . 60
python3 "$SRC/examples/data/make_arrays.py" classifier . 60
cat >statistics.dt <<'DT'
use nn
layer Block(dim) {
  fc = nn.Linear(dim, dim)
  norm = nn.BatchNorm(dim)
  forward(x[b, dim]) { return x + nn.relu(norm(fc(x))) }
}
model M(inputs = 100, classes = 10) {
  blocks = stack 2 of Block(inputs)
  out = nn.Linear(inputs, classes)
  loss(x[b, inputs], y[b]: int) {
    logits = out(blocks(x))
    p = nn.softmax(logits)
    balance = local(b: sum(c: square(mean(b: p[b, c]))))
    place[b] = local(k: sum(k: where(k < b and y[k] == y[b], 1, 0)))
    near[b] = local(k: log(sum(k: exp(sum(c: p[b, c] * p[k, c])))))
    top = local(b: max(b, c: logits[b, c]))
    n[c < classes] = sum(b: where(y[b] == c, 1.0, 0.0))
    late[b] = where(place[b] > 0, near[b] / n[y[b]], 0.0)
    return nn.cross_entropy(logits, y) + 0.1 * balance + mean(b: late[b]) + 0.01 * top
  }
}
train M { data = arrays(x = "x.npy", y = "y.npy"); optimizer = adamw(lr = 1e-2) }
DT
check() {
  local name=$1 data=$2
  shift 2
  echo "$name $*"
  check_file "$SRC/examples/$name.dt" "$data" "$@"
}
check_file() {
  local file=$1 data=$2
  shift 2
  "$DTC" "$file" --precision fp64 "$@" -o train
  rm -f log.jsonl
  ./train ${data:+--data "$data"} --steps 3 --log log.jsonl --quiet
  "$DTC" "$file" --precision fp64 "$@" ${data:+-D data="$data"} --interpret --steps 3 >oracle.jsonl
  python3 - <<'PY'
import json
a = [json.loads(l) for l in open("log.jsonl")]
b = [json.loads(l) for l in open("oracle.jsonl")]
a, b = ([r for r in x if "loss" in r] for x in (a, b))
assert len(a) == len(b) == 3, (len(a), len(b))
for x, y in zip(a, b):
    for k in ("loss", "grad_norm"):
        d = abs(x[k] - y[k]) / abs(y[k])
        assert d < 1e-11, "step %d: %s %.17g, interpreter %.17g" % (x["step"], k, x[k], y[k])
PY
}
check chargpt text.txt "${SMALL_CHARGPT[@]}" -D batch=5 -D microbatch=2
check gpt2 train.bin "${SMALL_GPT2[@]}" -D batch=3 -D microbatch=2
check llama train.bin "${SMALL_LLAMA[@]}"
check mlp "" -D hidden=19 -D batch=7 -D microbatch=4
check_file statistics.dt "" -D batch=11 -D microbatch=4
check classifier "" -D layers=2 -D dim=16 -D heads=2 -D batch=3 -D microbatch=2
# A factor whose index is summed with the third one.
cat >three.dt <<'DT'
model M() {
  param A[4, 30, 3] = normal(1)
  param C[3, 25, 2] = normal(1)
  loss(x[b, 100]) {
    q[b, p, r] = sum(i, j, u: x[b, (i j)] * A[i, p, u] * C[u, j, r])
    return mean(b, p, r: square(q[b, p, r]))
  }
}
train M { data = arrays(x = "x.npy"); batch = 8; optimizer = sgd(lr = 0.0001) }
DT
check_file three.dt ""
# As many metrics as there may be, each its own number.
{
  printf 'model M(inputs = 100, classes = 10) {\n  param w[inputs | classes] = normal(0.1)\n'
  printf '  loss(x[b, inputs], y[b]: int) {\n    s[b] = sum(i, c: x[b, i] * w[i, c]) + 0.1 * real(y[b])\n'
  printf '    return mean(b: square(s[b]))\n  }\n}\ntrain M {\n  data = arrays(x = "x.npy", y = "y.npy")\n'
  for i in $(seq 32); do printf '  metric m%d = mean(b: s[b] + %d.0)\n' "$i" "$i"; done
  printf '}\n'
} >metrics.dt
check_file metrics.dt "" -D batch=5 -D microbatch=2
python3 - <<'PY'
import json
for line in open("log.jsonl"): # of one run
    r = json.loads(line)
    if "loss" not in r: continue
    for i in range(2, 33):
        assert abs(r["m%d" % i] - r["m1"] - (i - 1)) < 1e-9, (i, r)
PY
