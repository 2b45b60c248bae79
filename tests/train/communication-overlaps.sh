# Ranks compute while their data travels. In a model of 16 layers that sleep 10 ms forward and as much backward,
# every operation takes 7 ms more than it has to (or MS, and layers in proportion): the step grows by less than 40% of
# the sum.
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/../fault/support/fake.sh"
fake_data
export MS=${MS:-7} FAKE=layers
export FAKE_DELAY=$((MS * 10000 / 7))
run() { rm -f "$2.jsonl"; DT_COMM_DELAY_MS=$1 FAKE_ZERO=$stage train --ranks 2 --threads 1 --steps 4 --log "$2.jsonl" --profile "$2.json"; }
for stage in 0 1 2 3; do
  overlaps=false
  for attempt in 1 2 3; do # on a machine with other work
    run 0 plain
    run $MS delayed
    python3 -c 'import json, os, sys
ms = int(os.environ["MS"])
plain, delayed = (min(json.loads(l)["seconds"] for l in open(f) if "loss" in l) for f in ("plain.jsonl", "delayed.jsonl"))
events = json.load(open("delayed.json"))["traceEvents"]
ops = sum(e.get("tid") == 1 and e["ph"] == "X" and e["pid"] == 0 for e in events) / 4
part = (delayed - plain) / (ops * ms * 1e-3)
print("ZeRO %s: %.3f s a step, %.0f operations of %d ms: it grows by %.0f%% of their sum" % (
  sys.argv[1], plain, ops, ms, 100 * part))
sys.exit(part >= 0.4)' $stage && overlaps=true && break
  done
  $overlaps || fail "the step waits for what could travel while it computes"
done
