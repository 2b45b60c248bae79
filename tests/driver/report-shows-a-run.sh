# --report html draws the losses of a log and sums the times of a profile; frames are drawn at their addresses.
. "$(dirname "$0")/../support/lib.sh"
text 4000 >text.txt
cat >page.py <<'PY'
import html.parser, json, re, sys
class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.svg, self.shapes, self.value, self.rows, self.table, self.cell = None, {}, {}, {}, None, None
        self.titles, self.text = [], ""
    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        assert tag not in ("script", "link", "img") and not {"src", "href"} & attrs.keys(), (tag, attrs)
        if tag == "svg": self.svg = attrs.get("id") or attrs.get("class")
        if self.svg: self.shapes.setdefault(self.svg, []).append((tag, attrs))
        if tag == "table": self.table = attrs.get("id")
        if tag == "tr" and self.table: self.rows.setdefault(self.table, []).append([])
        if tag in ("th", "td") and self.table and self.rows.get(self.table): self.rows[self.table][-1].append("")
        if tag == "title" and self.svg: self.titles.append([self.svg, ""])
        if tag == "data":
            if "id" in attrs: self.value[attrs["id"]] = float(attrs["value"])
            if self.table and self.rows.get(self.table): self.rows[self.table][-1].append(float(attrs["value"]))
    def handle_data(self, data):
        self.text += data
        if self.lasttag == "title" and self.svg and self.titles: self.titles[-1][1] += data
        row = self.table and self.rows.get(self.table)
        if row and row[-1]:
            if isinstance(row[-1][-1], str): row[-1][-1] += data.strip()
    def handle_endtag(self, tag):
        if tag == "svg": self.svg = None
        if tag == "table": self.table = None
text = open("page.html").read()
assert "http" not in text
page = Page()
page.feed(text)
page.close()
PY
cat >curve.py <<'PY'
from page import *
log = [json.loads(l) for l in open(sys.argv[1])]
start = max(i for i, r in enumerate(log) if "run" in r and r["step"] == 0)
loss = [(r["step"], r["loss"]) for r in log[start:] if "loss" in r]
val = [(r["step"], r["val_loss"]) for r in log[start:] if "val_loss" in r]
assert page.value["last_loss"] == loss[-1][1]
if val: assert page.value["last_val_loss"] == val[-1][1]
path = next(a["d"] for t, a in page.shapes["curve"] if t == "path")
points = [tuple(map(float, p.split())) for p in re.split("[ML]", path)[1:]]
circles = [(float(a["cx"]), float(a["cy"])) for t, a in page.shapes["curve"] if t == "circle"]
log_scale = sys.argv[2] == "logarithmic"
assert f"The scale of losses is {sys.argv[2]}" in page.text
import math
y = lambda v: math.log10(v) if log_scale else v
if len(loss) <= 1000: assert len(points) == len(loss), (len(points), len(loss))
assert len(circles) == len(val)
# One pair of straight scales maps all: from two points the others.
known = sorted(loss + val)
def scale(pairs):
    (a, p), (b, q) = min(pairs), max(pairs)
    return lambda v: p + (q - p) * (v - a) / (b - a)
drawn = dict(zip(loss, points)) if len(points) == len(loss) else {}
drawn.update(zip(val, circles))
if drawn:
    fx = scale([(s, p[0]) for (s, v), p in drawn.items()])
    fy = scale([(y(v), p[1]) for (s, v), p in drawn.items()])
    for (s, v), (px, py) in drawn.items():
        assert abs(fx(s) - px) < 0.3 and abs(fy(y(v)) - py) < 0.3, (s, v, px, py)
else: # extremes are kept
    assert len(points) < 4 * 460, len(points)
    ys = [p[1] for p in points]
    assert abs(max(ys) - min(ys) - 300 / 1.08) < 1, (min(ys), max(ys))
PY
cat >times.py <<'PY'
from page import *
trace = json.load(open("trace.json"))
stack, spent = {}, {}
for e in trace["traceEvents"]:
    key = (e["pid"], e["tid"])
    if e["ph"] == "B": stack.setdefault(key, []).append([e["ts"], 0])
    elif e["ph"] == "E":
        began, inside = stack[key].pop()
        all = e["ts"] - began
        n, t = spent.get(e["name"], (0, 0))
        spent[e["name"]] = n + 1, t + (all - inside) * 1e-6
        if stack[key]: stack[key][-1][1] += all
ranks = len(trace["ranks"])
shown = {r[0]: r for r in page.rows["spent"][1:]}
most = sorted(spent.items(), key=lambda x: -x[1][1])[:40]
for name, (n, t) in most:
    row = shown[name]
    assert row[2] == str(n) and abs(row[4] - t / ranks) < 1e-7, (name, n, t, row)
# Lines of the model: each kernel's time is in one of them.
kernels = sum(r[4] for r in shown.values() if r[1] or r[0].startswith("Block_"))
lines = sum(next(x for x in r if isinstance(x, float)) for r in page.rows["lines"][1:])
assert 0.99 * kernels <= lines <= sum(t for n, t in spent.values()) / ranks, (kernels, lines)
assert any("x = x + attn(ln1(x))" in r[0] and "chargpt.dt:13" in r[0] for r in page.rows["lines"]), page.rows["lines"]
rate = [r for r in page.rows["spent"] if r[-3].endswith("FLOP/s")]
assert len(rate) > 10, rate
PY
cat >frames.py <<'PY'
from page import *
stages, activations = int(sys.argv[1]), page.value["memory-activations"]
frames = [s for s in page.shapes if s == "frames"]
pictures = sum(1 for t, a in page.shapes["frames"] if t == "svg")
assert pictures == stages, pictures
blocks = [(float(a["x"]), float(a["y"]), float(a["width"]), float(a["height"])) for t, a in page.shapes["frames"] if a.get("class") == "block"]
assert len(blocks) > 10 * stages, len(blocks)
assert all(x >= 77.9 and x + w <= 978.1 and y >= -0.1 and y + h <= 260.1 for x, y, w, h in blocks), blocks
places = [re.fullmatch(r"(.*), ([\d.]+)\s+(\w*)B at ([\d,]+)", t.strip()) for s, t in page.titles if s == "frames"]
assert all(places), page.titles
end = max(float(p[2]) * {"": 1, "Ki": 1024, "Mi": 2**20, "Gi": 2**30}[p[3]] + int(p[4].replace(",", "")) for p in places)
if stages == 1: assert abs(end - activations) < 0.02 * activations, (end, activations)
PY

model=("$SRC/examples/chargpt.dt" "${SMALL_CHARGPT[@]}" --tp 2)
"$DTC" "${model[@]}" -o train
rm -f log.jsonl
./train --ranks 2 --threads 1 --data text.txt --steps 3 --log log.jsonl --quiet # an earlier run
./train --ranks 2 --threads 1 --data text.txt --val text.txt --eval-every 5 --eval-samples 8 --steps 25 --log log.jsonl --quiet \
  --profile trace.json
expect 0 "$DTC" "${model[@]}" --report html --with-log log.jsonl --with-profile trace.json -o page.html
python3 curve.py log.jsonl linear
says 'log.jsonl, the last of its 2 runs' page.html
python3 times.py
python3 frames.py 1
# Steep losses: logarithmic. Many steps: some points, no peak lost.
python3 - <<'PY'
import json
with open("long.jsonl", "w") as f:
    f.write('{"step":0,"run":{"program":"CharGPT"}}\n')
    for s in range(1, 20001): f.write(json.dumps({"step": s, "loss": 100.0 if s == 7777 else 0.01 if s == 13000 else 1 / s ** 0.3}) + "\n")
with open("steep.jsonl", "w") as f:
    f.write('{"step":0,"run":{"program":"CharGPT"}}\n')
    for s in range(1, 200): f.write(json.dumps({"step": s, "loss": 8 / s}) + "\n")
with open("new.jsonl", "w") as f: f.write('{"step":0,"run":{"program":"CharGPT"}}\n')
with open("other.jsonl", "w") as f: f.write('{"step":0,"run":{"program":"GPT2"}}\n')
PY
for log in long steep; do
  expect 0 "$DTC" "${model[@]}" --report html --with-log $log.jsonl -o page.html
  python3 curve.py $log.jsonl logarithmic
done
expect 0 "$DTC" "${model[@]}" --report html --with-log new.jsonl
says 'new.jsonl, has no loss yet' out.txt
expect 0 "$DTC" "$SRC/examples/chargpt.dt" -D layers=4 -D dim=32 -D context=16 -D length=16 --pp 2 --report html -o page.html
python3 frames.py 2
# A pipeline with all that ranks exchange; two microbatches in flight.
other=("$SRC/examples/chargpt.dt" "${SMALL_CHARGPT[@]}" -D microbatch=2)
for layout in "--pp 2 --schedule zb" "--tp 2 --in-flight 2" "--zero 3"; do
  "$DTC" "${other[@]}" $layout -o train
  ./train --ranks 2 --threads 1 --data text.txt --steps 2 --quiet --profile trace.json
  expect 0 "$DTC" "${other[@]}" $layout --report html --with-profile trace.json -o page.html
  python3 times.py
done
"$DTC" "${model[@]}" -o train
./train --ranks 2 --threads 1 --data text.txt --steps 2 --quiet --profile trace.json

# What is not of this program is refused.
expect 1 "$DTC" "${model[@]}" --report html --with-log other.jsonl
says 'other.jsonl is a log of the model GPT2, and this is CharGPT' err.txt
expect 1 "$DTC" "${model[@]}" --report html --with-log missing.jsonl
expect 1 "$DTC" "$SRC/examples/mlp.dt" --report html --with-profile trace.json
says 'trace.json has the kernel [A-Za-z0-9_]+, which this program has not' err.txt
expect 1 "$DTC" "$SRC/examples/chargpt.dt" "${SMALL_CHARGPT[@]}" --report html --with-profile trace.json # of --tp 2
expect 1 "$DTC" "${model[@]}" --report html --with-profile log.jsonl
echo '{"traceEvents":[{"ph":"E","name":"a","pid":0,"tid":0,"ts":1}],"ranks":[{}],"otherData":{}}' >bad.json
expect 1 "$DTC" "${model[@]}" --report html --with-profile bad.json
says 'bad.json is not a profile' err.txt
expect 2 "$DTC" "${model[@]}" --report json --with-log log.jsonl
says '--with-log is for --report html' err.txt
expect 2 "$DTC" "${model[@]}" --with-profile trace.json
