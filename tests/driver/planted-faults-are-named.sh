# Faults planted in the text of a program that is cut over ranks are refused by name: the function, the statement or both ranks, the
# axis and the line. Every reduction and every conversion of a small transformer is dropped, doubled, taken over the other axis or along
# another dimension; the loss is divided by what one group alone has counted; gradients are given to the wrong group. Messages of its
# pipeline, and of another with two at a boundary, are swapped, added or reshaped.
. "$(dirname "$0")/../support/lib.sh"
cat >model.dt <<'M'
use nn
layer Block(dim, heads) {
  ln = nn.LayerNorm(dim)
  attn = nn.CausalSelfAttention(dim, heads)
  mlp = nn.MLP(dim, 2 * dim)
  forward(x[b, t, dim]) {
    x = x + attn(ln(x))
    return x + mlp(x)
  }
}
model Small(vocab = 32, dim = 16) {
  wte = nn.Embedding(vocab, dim)
  blocks = stack 2 of Block(dim, heads = 2)
  ln_f = nn.LayerNorm(dim)
  loss(tokens[b, t]: int, targets[b, t]: int) {
    x = wte(tokens)
    n = ln_f(blocks(x))
    logits[b, t, v] = sum(d: n[b, t, d] * wte.weight[v, d])
    return nn.cross_entropy(logits, targets)
  }
}
train Small {
  data = tokens("train.bin", length = 8)
  batch = 8
  microbatch = 2
  optimizer = adamw(lr = 1e-2)
}
M
"$DTC" model.dt --tp 2 --cp 2 --dump-after shard --dump-places --emit c -o unused.c >sharded.ir
"$DTC" model.dt --pp 2 --dump-after pipeline --dump-places --emit c -o unused.c >cut.ir
"$DTC" "$SRC/tests/passes/pipeline/layers.dt" --pp 3 --dump-after pipeline --dump-places --emit c -o unused.c >two.ir
cat >plant.py <<'P'
import re, subprocess, sys
dtc = sys.argv[1]
count = {}
W = r"[\w.$*]+"

def run(lines):
  open("planted.ir", "w").write("\n".join(lines) + "\n")
  r = subprocess.run([dtc, "--run", "", "planted.ir"], capture_output=True, text=True)
  return r.returncode, r.stderr

def planted(kind, lines, *told):
  status, text = run(lines)
  assert status == 1, "%s: exit status %d: %s: planted.ir" % (kind, status, text or "nothing is said")
  for pattern in told:
    assert re.search(pattern, text), "%s: no '%s' in %s" % (kind, pattern, text)
  count[kind] = count.get(kind, 0) + 1

def read(path):
  return [l for l in open(path).read().split("\n") if not l.startswith("# after")]

# The lines [from, to) of the function that line `at` is in.
def body(lines, at):
  start = max(i for i in range(at + 1) if lines[i].startswith("func "))
  return start, next(i for i in range(at, len(lines)) if lines[i] == "}")

def rename(lines, old, new):
  return [re.sub(r"(?<![\w.$*])" + re.escape(old) + r"(?![\w.*])", lambda m: new, l) for l in lines]

PLACE = r"\([^ ]*\.dt:\d+:\d+\)"
text = read("sharded.ir")
assert run(text)[0] == 0
for i, line in enumerate(text):
  m = re.match(r"  (" + W + r")(: [^=]*)? = convert (" + W + r")(.*)$", line)
  if m:
    to, type_, source, place = m.groups()
    start, end = body(text, i)
    # Dropped: who reads what came of it reads what went into it. Where that is another function's to see, it is known by its name.
    if to == "result":
      planted("a conversion dropped", text[:i] + ["  result = " + source + place] + text[i + 1:], "function `", "axis", PLACE)
    if type_:
      after = rename(text[i + 1:end], to, source)
      planted("a conversion dropped", text[:i] + after + text[end:], "function `", "axis", PLACE)
      twice = "  %s.twice%s = convert %s%s" % (to, type_, to, place)
      planted("a conversion doubled", text[:i + 1] + [twice] + rename(text[i + 1:end], to, to + ".twice") + text[end:],
              "the conversion changes nothing: the value is reduced or gathered already", re.escape(to + ".twice"), PLACE)
      if "@cp split" in type_ and "@tp" not in type_:
        other = line.replace("@cp", "@tp")
        planted("over the other axis", text[:i] + [other] + text[i + 1:], "function `", "axis (tp|cp)|one axis", PLACE)
  # The types of what is made: a sum said to be over the other axis, a dimension that is not the one.
  m = re.match(r"  " + W + r"\[(.*?)\]: \w+((?: @\w+ (?:sum|split [\d/]+))+) = ", line)
  other = re.sub(r"@tp sum @cp (split [\d/]+)", r"@tp \1 @cp sum", line, count=1)
  if m and other != line:
    planted("a sum over the wrong axis", text[:i] + [other] + text[i + 1:],
            "function `", "statement `", "axis (tp|cp): ", PLACE)
  s = re.search(r"@(tp|cp) split (\d)(?!/)", m.group(2)) if m else None
  extents = [int(x) for x in re.findall(r"<(\d+)", m.group(1))] if m else []
  if s and len(extents) > 1:
    wrong = "@%s split %d" % (s.group(1), 1 - int(s.group(2)) if int(s.group(2)) < 2 else 0)
    if extents[int(wrong[-1])] % 2 == 0:
      planted("another dimension gathered", text[:i] + [line.replace(s.group(0), wrong, 1)] + text[i + 1:], "function `", PLACE)
  # A rank's own count of valid targets, or a part of it.
  for axis in "tp", "cp":
    if re.match(r"    \$total\.\d+: f32 total", line):
      start = max(k for k in range(i) if text[k].startswith("func "))
      planted("divided by the wrong group", text[:i] + [re.sub(r"(\$total\.\d+: f32 total \d)", r"\1 @%s sum" % axis, line)] + text[i + 1:],
              "axis " + axis + ": ", r"\$total\.\d|partial", PLACE)
  m = re.match(r"  (result\.n): f32 = \$total\.0( @.*)$", line)
  if m:
    start, end = body(text, i)
    own = "sum(b<2, t<8@cp/2: where(targets.split[b, t] >= 0, 1.0, 0.0))" + m.group(2)
    if any(l.startswith("  targets.split:") for l in text[start:i]):
      planted("divided by the wrong group", text[:i] + ["  result.n: f32 @cp sum = " + own] + text[i + 1:],
              "function `", "axis cp: ", "partial", PLACE)
      other = ["  n.part: f32 @cp sum = " + own, "  result.n: f32 @tp sum = convert n.part" + m.group(2)]
      planted("divided by the wrong group", text[:i] + other + text[i + 1:], "function `", "result.n = convert n.part", "a conversion changes one axis", PLACE)
  # A gradient that is a part on each rank said to be whole: nobody would add the parts up.
  m = re.match(r"    inout (\$grad\." + W + r"): f32\[[^]]*\] grad " + W + r"( @tp split \d)? @cp sum", line)
  if m:
    planted("a parameter not reduced", text[:i] + [line.replace(" @cp sum", "", 1)] + text[i + 1:], "function `", "axis cp: ", PLACE)

BOTH = r"rank \d \(stage \d\) sends .* rank \d \(stage \d\) receives"
text = read("two.ir")
assert run(text)[0] == 0
for i, line in enumerate(text):
  # Two sends, two receives, each in the place of the other.
  m = re.match(r"( .*?)(\$(in|out)\.[\w.]+: \w+(?:\[[^]]*\])? (?:received|sent) \d+)( @[\d:+<]+)?,\s*$", line)
  n = re.match(r"( +)(\$(in|out)\.[\w.]+: \w+(?:\[[^]]*\])? (?:received|sent) \d+)( @[\d:+<]+)?$", text[i + 1]) if m else None
  if n and m.group(3) == n.group(3):
    swapped = [m.group(1) + n.group(2) + (n.group(4) or "") + ",", n.group(1) + m.group(2) + (m.group(4) or "")]
    planted("two messages swapped", text[:i] + swapped + text[i + 2:], BOTH, "two ranks differ|two shapes", "layers.dt")
  m = re.search(r"-> \((\$out\.[\w.]+: \w+ sent \d+ @[\d:+<]+), (\$out\.[\w.]+: \w+ sent \d+ @[\d:+<]+)\)", line)
  if m:
    swapped = line.replace(m.group(0), "-> (%s, %s)" % (m.group(2), m.group(1)))
    planted("two messages swapped", text[:i] + [swapped] + text[i + 1:], BOTH, "two ranks differ|two shapes", "layers.dt")

text = read("cut.ir")
assert run(text)[0] == 0
for i, line in enumerate(text):
  m = re.match(r"    (\$in\." + W + r"): (\w+)\[([\d, ]+)\](.*)$", line)
  if m:
    name, type_, shape, rest = m.groups()
    extent = [int(x) for x in shape.split(",")]
    extent[0] += 1
    other = "    %s: %s[%s]%s" % (name, type_, ", ".join(map(str, extent)), rest)
    planted("a receive of another shape", text[:i] + [other] + text[i + 1:], re.escape(name), r"chunk\d\.\w+|Block")
    extra = ["    $in.extra: f32[3] received 99,", line]
    planted("a receive without a send", text[:i] + extra + text[i + 1:], r"rank \d \(stage \d\) sends .* rank \d \(stage \d\) receives",
            "two ranks differ|without a matching send or receive|two shapes", "model.dt")
  m = re.match(r"(.*-> \(.*)(\$out\." + W + r": \w+\[[^]]*\][^,)]*)(.*\{)$", line)
  if m:
    start, end = body(text, i)
    more = m.group(1) + "$out.first.2: f32[2] sent 99" + ", " + m.group(2) + m.group(3)
    made = text[:i] + [more] + text[i + 1:end] + ["  $out.first.2[i<2] = 1.0"] + text[end:]
    planted("a send without a receive", made, r"rank \d \(stage \d\) sends .* rank \d \(stage \d\) receives", "model.dt")
want = {"a conversion dropped": 30, "a conversion doubled": 30, "over the other axis": 10, "a sum over the wrong axis": 5,
        "another dimension gathered": 5, "divided by the wrong group": 4, "a parameter not reduced": 5,
        "two messages swapped": 4, "a receive of another shape": 2, "a receive without a send": 2, "a send without a receive": 1}
for kind, least in want.items():
  print("%-32s %4d" % (kind, count.get(kind, 0)))
  assert count.get(kind, 0) >= least, kind
P
python3 plant.py "$DTC"
