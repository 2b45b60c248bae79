# --log adds a run to a log that is there, never in its place; each run begins with a record that says what runs, where and
# on which data, and every record has its time. --resume cuts the last run alone, and a file that is no log is left as it is.
. "$(dirname "$0")/../support/lib.sh"
rm -rf ck log.jsonl
text 4000 >"text \"a\" 漢"
"$DTC" "$SRC/examples/chargpt.dt" "${SMALL_CHARGPT[@]}" --zero 1 -o train
run() { ./train --data "text \"a\" 漢" --quiet --log "${LOG:-log.jsonl}" "$@"; }
run --steps 5 --seed 7
run --steps 4 --save ck --ranks 2 --threads 1
run --steps 6 --ranks 2 --threads 1
run --steps 7 --resume ck
cat >check.py <<'PY'
import datetime, json, os, platform, sys
log = [json.loads(l) for l in open("log.jsonl", encoding="utf-8")]
times = [datetime.datetime.strptime(r["time"], "%Y-%m-%dT%H:%M:%S.%f%z") for r in log]
assert times == sorted(times) and abs(times[-1].timestamp() - os.stat("log.jsonl").st_mtime) < 60, times
# The third run is cut at step 4, which the fourth goes on from.
got = ["run" if "run" in r else r["step"] for r in log]
assert got == ["run", 1, 2, 3, 4, 5, "run", 1, 2, 3, 4, "run", 1, 2, 3, 4, "run", 5, 6, 7], got
assert [r["step"] for r in log if "run" in r] == [0, 0, 0, 4]
first, second, _, last = (r["run"] for r in log if "run" in r)
assert first["program"] == "CharGPT" and len(first["build"]) == 16 and first["precision"] == "fp32"
assert first["parameters"] > 1000 and first["build"] == last["build"]
assert first["command"][:2] == ["./train", "--data"] and first["command"][2] == 'text "a" 漢'
assert first["options"]["seed"] == 7 and first["options"]["batch"] == 8 and first["options"]["shuffle"] is True
assert last["options"]["resume"] == "ck" and first["options"]["resume"] is None
layout = second["layout"]
assert (layout["ranks"], layout["dp"], layout["tp"], layout["zero"]) == (2, 2, 1, 1) and layout["threads"] == 1
assert first["data"]["train"] == {"files": ['text "a" 漢'], "samples": 249}, first["data"]
machine = first["machine"]
assert machine["host"] == platform.node() and machine["folder"] == os.getcwd() and machine["memory_bytes"] > 1 << 20
assert machine["system"].startswith("Linux ") and machine["processors"] >= 1
PY
python3 check.py
expect 0 "$DTC" plot log.jsonl
says "loss of the last of 3 runs, last" out.txt
# A line that a crash cut off goes, and a name that is no text does no harm.
printf '{"step":8,"lo' >>log.jsonl
cp "text \"a\" 漢" $'text\xff'
./train --data $'text\xff' --quiet --log log.jsonl --steps 1
python3 -c 'import json
log = [json.loads(l) for l in open("log.jsonl", encoding="utf-8")]
assert [r["step"] for r in log[-3:]] == [7, 0, 1] and log[-2]["run"]["data"]["train"]["files"] == ["text\ufffd"]'
# What is no log is no place for one.
cp check.py kept.py
LOG=check.py expect 73 run --steps 1
says "cannot add to check.py: it exists and is not a log" err.txt
LOG=check.py expect 73 run --steps 7 --resume ck
same check.py kept.py
