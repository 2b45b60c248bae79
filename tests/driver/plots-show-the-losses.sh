# dtc plot draws the losses of a log: a point where each is, with axes that say how much.
. "$(dirname "$0")/../support/lib.sh"
python3 - <<'PY'
import json
with open("a.jsonl", "w") as f:
    f.write('{"run":{"program":"M"}}\n')
    for s in range(1, 101):
        f.write(json.dumps({"step": s, "loss": 5 - 0.04 * s, "lr": 1e-3}) + "\n")
        if s % 50 == 0: f.write(json.dumps({"step": s, "val_loss": 4.0}) + "\n")
    f.write('{"step":101,"lo') # still being written
with open("b.jsonl", "w") as f:
    for s in range(1, 51): f.write(json.dumps({"step": s, "loss": None if s == 7 else 2.0}) + "\n")
PY
export LC_ALL=C
expect 0 "$DTC" plot a.jsonl --width 62 --height 25
[ ! -s err.txt ] || { cat err.txt; fail "the line that is cut off is reported"; }
cat >want.py <<'PY'
rows = [l[12:].rstrip("\n") for l in open("out.txt") if l[11:12] == "|"]
assert len(rows) == 20, len(rows)
# A straight line falls from the upper left to the lower right, in a field of 50 by 20.
for x in range(50):
    at = [y for y in range(20) if rows[y].ljust(50)[x] == "."]
    assert at and min(abs(y - x * 19 / 49) for y in at) <= 1, (x, at)
marks = [(y, x) for y in range(20) for x, c in enumerate(rows[y]) if c == "x"]
assert marks == [(5, 24), (5, 49)], marks # 4 of 1 to 4.96; steps 50 and 100 of 1 to 100
PY
python3 want.py
says '^      4.96 \|' out.txt
says '^         1 \|' out.txt
says '^ +step 1 +100$' out.txt
says 'loss, last 1$' out.txt
says 'val_loss, last 4$' out.txt
expect 0 "$DTC" plot a.jsonl b.jsonl
says 'loss of b.jsonl, last 2$' out.txt
[ "$(awk '{ if (length > n) n = length } END { print n }' out.txt)" -le 80 ] || fail "wider than a terminal"
expect 0 "$DTC" plot --key lr a.jsonl
says 'lr, last 0.001' out.txt
LC_ALL=C.UTF-8 expect 0 "$DTC" plot a.jsonl
LC_ALL=C.UTF-8 python3 -c 'import sys
assert sum("\u2800" < c < "\u2900" for c in open("out.txt", encoding="utf-8").read()) > 20'
expect 1 "$DTC" plot --key speed a.jsonl
says "no record has a number 'speed'" err.txt
echo 'not JSON' >bad.jsonl
expect 1 "$DTC" plot bad.jsonl
says 'bad.jsonl:1: this is not a record' err.txt
expect 1 "$DTC" plot missing.jsonl
expect 2 "$DTC" plot
expect 2 "$DTC" plot a.jsonl --width x
# A log as a program writes it.
text 2000 >text.txt
"$DTC" "$SRC/examples/chargpt.dt" "${SMALL_CHARGPT[@]}" -o train
rm -f log.jsonl # of an earlier run of this test: a log is appended to
./train --data text.txt --val text.txt --eval-every 2 --steps 4 --log log.jsonl --quiet
expect 0 "$DTC" plot log.jsonl
says 'val_loss, last' out.txt
