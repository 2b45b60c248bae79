# With --in-flight 2 a model without a parameter of two uses trains to the same bits, whether microbatches come in
# pairs, one is left over, or there is one alone; on any number of threads. Exchanges of the two take turns, and the
# profile has a row for each.
. "$(dirname "$0")/../support/lib.sh"
tokens train.bin 3000 97
run() { # NAME RANKS OPTIONS...
  ./"train-$1" --data train.bin --val train.bin --eval-every "${EVAL_EVERY:-3}" --eval-samples 7 --ranks "$2" --steps 3 --quiet \
    --log "$1.jsonl" --export "$1.safetensors" "${@:3}"
}
numbers() { # the log but for times
  records "$1" | python3 -c 'import json, sys
for line in sys.stdin:
  r = json.loads(line)
  print({k: r[k] for k in ("step", "loss", "grad_norm", "val_loss") if k in r})'
}
equal() { # RANKS OPTIONS...
  for n in 1 2; do
    "$DTC" "$SRC/examples/llama.dt" "${SMALL_LLAMA[@]}" --in-flight $n "${@:2}" -o train-$n
  done
  for batch in 10 3; do # 5 microbatches of a world; 2, of which the last is half padding
    run 1 "$1" --batch $batch --threads 1
    run 2 "$1" --batch $batch --threads $((batch == 10 ? 3 : 1))
    same 1.safetensors 2.safetensors
    diff <(numbers 1.jsonl) <(numbers 2.jsonl) || fail "${*:2}: a batch of $batch is another in flight"
  done
}
equal 2 --tp 2
equal 4 --tp 2 --sequence-parallel --zero 1
equal 2 --cp 2 --cp-attention ring

"$DTC" "$SRC/examples/llama.dt" "${SMALL_LLAMA[@]}" --tp 2 --in-flight 2 -o train-2
EVAL_EVERY=0 run 2 2 --threads 1 --batch 4 --profile profile.json
python3 - <<'P'
import json
events = json.load(open("profile.json"))["traceEvents"]
for rank in range(2):
    mine = [e for e in events if e["pid"] == rank]
    for row in (0, 2):  # begin and end match
        stack = []
        for e in (e for e in mine if e.get("tid") == row and e["ph"] in "BE"):
            if e["ph"] == "B":
                stack.append(e["name"])
            else:
                assert stack.pop() == e["name"], e
        assert not stack, stack
    second = [e["name"] for e in mine if e.get("tid") == 2 and e["ph"] == "B"]
    assert second.count("step") == 3 and len(second) > 30, len(second)
    ops = [e for e in mine if e["ph"] == "X" and e["args"]["step"] == 2 and e["args"]["microbatch"] >= 0]
    ops = [e for e in ops if e["args"]["axes"] == "tp"]
    order = [e["args"]["microbatch"] for e in sorted(ops, key=lambda e: e["ts"])]
    turns = sum(x != y for x, y in zip(order, order[1:]))
    assert order.count(0) == order.count(1) > 8, order
    assert turns >= 0.7 * len(order), order  # between two waits a microbatch may post two
P
