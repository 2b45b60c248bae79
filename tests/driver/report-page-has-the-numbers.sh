# --report html is one page with the numbers of --report json, the schedule drawn and names escaped.
. "$(dirname "$0")/../support/lib.sh"
size=(-D layers=4 -D dim=32 -D heads=4 -D vocab=64 -D context=16 -D length=16)
size+=(-D train.batch=10 -D train.microbatch=2)
name='a <b onload="x">&'\''c.dt'
cp "$SRC/examples/gpt2.dt" "$name"
cat >compare.py <<'PY'
import html.parser, json, re, sys

class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.at, self.text, self.value, self.pieces, self.tags = None, {}, {}, 0, set()
        self.rows, self.table = [], None
    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.add(tag)
        assert not {"src", "href", "onload"} & attrs.keys(), attrs
        self.pieces += tag == "rect" and attrs.get("class") in ("F", "B", "W")
        self.at = attrs.get("id")
        if tag == "data":
            self.value[self.at] = float(attrs["value"])
            if self.table == "communication": self.rows[-1].append(float(attrs["value"]))
            self.at = self.at or "unnamed"
        if tag == "table": self.table = self.at
        if tag == "tr" and self.table == "communication": self.rows.append([])
    def handle_data(self, data):
        if self.at: self.text[self.at] = self.text.get(self.at, "") + data
        if self.rows and self.table == "communication" and not self.at and data.strip():
            self.rows[-1].append(data.strip())
    def handle_endtag(self, tag):
        self.at = None
        if tag == "table": self.table = None

text = open("page.html").read()
page, want = Page(), json.load(open("report.json"))
page.feed(text)
page.close()
assert "script" not in page.tags and "b" not in page.tags and "http" not in text, page.tags
assert "a &#60;b onload=&#34;x&#34;&#62;&#38;&#39;c.dt" in text
# The number that people read is the value, rounded, with its unit.
def shown(text):
    n, unit = re.fullmatch(r"([\d,.]+)\s*(.*)", text.strip()).groups()
    factor = {"%": 0.01}.get(unit)
    if factor is None:
        step = 1024 if unit[1:2] == "i" else 1000
        factor = step ** " kMGTPE".upper().index(unit[0].upper()) if unit and unit[0] in "kKMGTPE" else 1
    return float(n.replace(",", "")) * factor
numbers = list(want.items()) + [("memory-" + k, v) for k, v in want["memory"].items()]
for key, value in numbers + [("bound-" + k, v) for k, v in want["memory_bound"].items() if v]:
    if key in ("model", "target", "precision", "plan_proved", "memory", "memory_bound", "communication"): continue
    assert page.value[key] == value, (key, page.value[key], value)
    error = abs(shown(page.text[key]) - value)
    assert error <= 0.006 * abs(value) or (key == "bubble" and error <= 0.0006), (key, page.text[key], value)
assert page.text["precision"].strip() == want["precision"]
assert page.text["plan_proved"].strip() == ("yes" if want["plan_proved"] else "no")
rows = [tuple(r[:4]) for r in page.rows[1:]]
assert rows == [(r["axis"], r["what"], r["count"], r["bytes"]) for r in want["communication"]], rows
assert page.pieces == int(sys.argv[1]), page.pieces
PY
page() { # PIECES OPTIONS
  local pieces=$1
  shift
  expect 0 "$DTC" "$name" "${size[@]}" "$@" --report=json -o report.json
  [ ! -s out.txt ] || fail "a report for -o went to stdout"
  expect 0 "$DTC" "$name" "${size[@]}" "$@" --report html
  mv out.txt page.html
  python3 compare.py "$pieces"
}
page 0
page 0 --dp 2 --tp 2 --zero 3
page $((2 * 2 * 5)) --pp 2
page $((3 * 2 * 3)) --pp 2 --schedule zb --dp 2 --zero 1
page $((2 * 4 * 5)) --pp 2 --schedule interleaved:2 --tp 2
# Large numbers have units.
expect 0 "$DTC" "$SRC/examples/gpt2.dt" --report html
says '>3\.[0-9]*&#160;TFLOP<' out.txt
says '>124&#160;M<' out.txt
says '>124,439,808<' out.txt
# Of very many pieces it draws the first.
expect 0 "$DTC" "$name" "${size[@]}" --pp 2 --global-batch 40000 --report html
says "Drawn is the first 7\.[0-9]*% of the step" out.txt
[ "$(grep -c '<rect class="[FB]"' out.txt)" -lt 7000 ] || fail "too many pieces are drawn"
