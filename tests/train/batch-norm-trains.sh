# A model with batch norms learns, in uneven microbatches; its bits do not depend on the threads, nor its losses on
# how many ranks share the microbatches.
. "$(dirname "$0")/../support/lib.sh"
python3 "$SRC/examples/data/make_arrays.py" mlp . 2000
cat >model.dt <<'DT'
use nn
model M(inputs = 100, hidden = 64, classes = 10) {
  fc1 = nn.Linear(inputs, hidden)
  norm = nn.BatchNorm(hidden)
  fc2 = nn.Linear(hidden, classes)
  loss(x[b, inputs], y[b]: int) {
    logits = fc2(nn.relu(norm(fc1(x))))
    best[b] = argmax(c: logits[b, c])
    right[b] = where(best[b] == y[b], 1.0, 0.0)
    return nn.cross_entropy(logits, y)
  }
}
train M {
  data = arrays(x = "x.npy", y = "y.npy")
  val = arrays(x = "x_val.npy", y = "y_val.npy")
  batch = 50
  microbatch = 32
  optimizer = adamw(lr = 1e-2)
  metric accuracy = mean(b: right[b])
}
DT
"$DTC" model.dt -o train
for threads in 1 2; do
  ./train --steps 100 --eval-every 100 --threads $threads --log $threads.jsonl --export $threads.safetensors --quiet
done
same 1.safetensors 2.safetensors
# Statistics are a microbatch's, on whichever rank it is; the third rank has nothing but padding.
for ranks in 1 3; do
  ./train --ranks $ranks --threads 1 --steps 5 --log ranks.$ranks.jsonl --quiet
  losses ranks.$ranks.jsonl >losses.$ranks
done
near losses.1 losses.3 1e-5
python3 - <<'PY'
import json
last = [r for r in map(json.loads, open("1.jsonl")) if "val_loss" in r][-1]
print(last)
assert last["val_accuracy"] >= 0.9
PY
