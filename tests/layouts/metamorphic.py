#!/usr/bin/env python3
"""Changes models in ways that must not change what they mean, and compares one step in fp64: the loss and every gradient.

    tests/layouts/metamorphic.py --dtc build/bin/dtc                       # 50 random models and every example
    tests/layouts/metamorphic.py --dtc build/bin/dtc --models 2 --examples mlp chargpt --seed 7
    tests/layouts/metamorphic.py --dtc build/bin/dtc --models 0 --examples gpt2 --kinds pad scale
    tests/layouts/metamorphic.py --dtc build/bin/dtc --model 17 --seed 5   # model 17 of the seed's alone

Each kind is a function of KINDS. What it does:
  permute       the samples come in another order
  duplicate     each sample comes twice; losses are means
  microbatches  the batch is cut up
  rename        layers, functions, parameters and values get other names: the same bits
  reorder       declarations, fields and statements that commute come in another order
  transpose     two dimensions of a parameter change places, in its declaration and its uses
  pad           a hidden dimension gets more places, and weights of zero lead out of them
  scale         twice the loss: gradients are doubled, to the bit
  verify        dtc --verify-run compares the model with the interpreter
Some changed models run on two ranks. A model that a kind cannot be applied to is counted as skipped; in a run of 50
models or more it is an error if a kind was never applied. equality.py has the criterion (1e-11). A model
is drawn again whose step is not finite, or makes too much of rounding: a unit in the last place of its weights
moves it by a quarter of what is allowed.
"""

import argparse
import ast
import json
import math
import os
import random
import re
import shutil
import struct
import sys
import tempfile

import equality as eq
import models

ROUNDING = 0.25
SIZES = {  # -D options, data arguments: (shape of a sample, integers below, or None for reals)
    "mlp": (["inputs=7", "hidden=9", "classes=5"], {"x": ((7,), None), "y": ((), 5)}),
    "classifier": (
        ["vocab=11", "length=6", "layers=2", "heads=2", "dim=8", "classes=5"],
        {"tokens": ((6,), 11), "labels": ((), 5)},
    ),
    "chargpt": (
        ["vocab=13", "context=7", "layers=2", "heads=2", "dim=8"],
        {"tokens": ((6,), 13), "targets": ((6,), 13)},
    ),
    "gpt2": (
        ["vocab=13", "context=7", "layers=2", "heads=2", "dim=8"],
        {"tokens": ((6,), 13), "targets": ((6,), 13)},
    ),
    "llama": (
        ["vocab=13", "layers=2", "heads=4", "kv_heads=2", "dim=16", "hidden=10"],
        {"tokens": ((6,), 13), "targets": ((6,), 13)},
    ),
}
LAYOUTS = [["--tp", "2"], ["--pp", "2"], ["--zero", "2"], ["--zero", "3"]]  # of two ranks


class Skip(Exception):
    """The change cannot be made to this model."""


class Redraw(Exception):
    pass


# ---- files


class Array:
    """Samples: their type and shape, and the bytes of each."""

    def __init__(self, descr, shape, rows):
        self.descr, self.shape, self.rows = descr, tuple(shape), rows

    def write(self, path):
        eq.npy(path, self.descr, (len(self.rows), *self.shape), b"".join(self.rows))


def read_array(path, rows):
    with open(path, "rb") as f:
        data = f.read()
    n = struct.unpack("<H", data[8:10])[0]
    head = ast.literal_eval(data[10 : 10 + n].decode())
    raw, shape = data[10 + n :], head["shape"]
    each = len(raw) // shape[0]
    return Array(head["descr"], shape[1:], [raw[i * each : (i + 1) * each] for i in range(rows)])


def read_weights(path):
    """Name to (shape, elements) of fp64 tensors."""
    with open(path, "rb") as f:
        data = f.read()
    n = struct.unpack("<Q", data[:8])[0]
    out = {}
    for name, t in json.loads(data[8 : 8 + n]).items():
        if name == "__metadata__":
            continue
        a, b = (8 + n + x for x in t["data_offsets"])
        out[name] = (tuple(t["shape"]), struct.unpack(f"<{(b - a) // 8}d", data[a:b]))
    return out


def write_weights(path, weights):
    head, at = {}, 0
    for name, (shape, v) in weights.items():
        head[name] = {"dtype": "F64", "shape": list(shape), "data_offsets": [at, at + 8 * len(v)]}
        at += 8 * len(v)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, v in weights.values():
            f.write(struct.pack(f"<{len(v)}d", *v))


# ---- models


class Subject:
    """A model: its text, -D options, samples, and what is known of it."""

    def __init__(self, name, text, defines, data, local=False, mean=True):
        self.name, self.text, self.defines, self.data = name, text, defines, data
        self.local, self.mean = local, mean
        self.random = re.search(r"random\(|nn\.Dropout|dropout = 0*\.?0*[1-9]", text) is not None
        self.batch = len(next(iter(data.values())).rows)

    def like(self, **fields):
        s = Subject(self.name, self.text, self.defines, self.data, self.local, self.mean)
        for k, v in fields.items():
            setattr(s, k, v)
        s.batch = len(next(iter(s.data.values())).rows)
        return s


def example(name, seed):
    """An example, small, with data from arrays."""
    defines, arguments = SIZES[name]
    r, batch = random.Random(f"{seed} {name}"), 6
    with open(f"{eq.ROOT}/examples/{name}.dt") as f:
        text = re.sub(r"#.*", "", f.read())
    data = {}
    for key, (shape, top) in arguments.items():
        n = math.prod(shape)
        rows = [
            (
                struct.pack(f"<{n}d", *(r.gauss(0, 1) for _ in range(n)))
                if top is None
                else struct.pack(f"<{n}i", *(r.randrange(top) for _ in range(n)))
            )
            for _ in range(batch)
        ]
        data[key] = Array("<f8" if top is None else "<i4", shape, rows)
    files = ", ".join(f'{k} = "{k}.npy"' for k in data)
    text = re.sub(r"data( *)= (tokens|bytes|arrays)\(.*\)", f"data = arrays({files})", text)
    text = re.sub(r"val( *)= .*\n", "", text)
    text = re.sub(r"eval_every.*\n", "", text)
    for key, (shape, _) in arguments.items():
        if len(shape) == 1 and shape[0] == 6 and name != "classifier":
            text = re.sub(rf"\b{key}\[b, \w+\]: int", f"{key}[b, 6]: int", text)
    return Subject(name, re.sub(r"\bT\b", "6", text), defines, data)


def drawn(seed, number, attempt, folder):
    spec = dict(models.draw(random.Random(f"{seed} {number} {attempt}")), asked=None)
    text = models.source(spec, False)
    models.write_data(spec, folder, random.Random(spec["seed"]))
    names = re.search(r"arrays\((.*)\)", text).group(1)
    data = {
        n: read_array(f"{folder}/{n}.npy", spec["batch"])
        for n in re.findall(r"(\w+) = \"", names)
    }
    means = spec["loss"] != "balanced" and spec.get("ending") not in ("where", "number")
    return Subject(f"model {number}", text, [], data, spec["local"], means)


class Bench:
    """Compiles and runs subjects in a folder."""

    def __init__(self, dtc, folder):
        self.dtc, self.runner, self.folder = dtc, eq.Runner(dtc, folder), folder

    def write(self, s):
        with open(f"{self.folder}/model.dt", "w") as f:
            f.write(s.text)
        for name, a in s.data.items():
            a.write(f"{self.folder}/{name}.npy")

    def options(self, s, micro=0):
        batch = f"batch={s.batch}"
        out = ["model.dt", "--precision", "fp64"]
        for d in [*s.defines, batch, f"microbatch={micro or s.batch}"]:
            out += ["-D", d]
        return out

    def build(self, s, micro, layout):
        text, status = self.runner.run(
            [self.dtc, *self.options(s, micro), *layout, "-o", "train"]
        )
        if status in (1, 2) and layout and eq.refusal(text):
            raise eq.Refused(text)
        if status:
            raise eq.Failed(f"dtc's exit status {status}: {text.strip()}")

    def step(self, fill, ranks=1):
        """Weights by fill(name, shape) of the program's own; the loss, norm and gradients of one step."""
        common = ["./train", "--ranks", str(ranks), "--threads", "1", "--quiet"]
        if fill:
            self.runner.must([*common, "--steps", "0", "--export", "start"])
            start = read_weights(f"{self.folder}/start")
            write_weights(
                f"{self.folder}/init", {k: (shape, fill(k, shape)) for k, (shape, _) in start.items()}
            )
        text, status = self.runner.run(
            [*common, "--steps", "1", "--no-shuffle", "--init", "init", "--export-gradient", "g", "--log", "log"]
        )
        if status == 79:
            raise Redraw("not finite")
        if status:
            raise eq.Failed(f"exit status {status}: {text.strip()}")
        with open(f"{self.folder}/log") as f:
            record = next(r for r in map(json.loads, f) if "loss" in r)
        os.remove(f"{self.folder}/log")
        return record["loss"], read_weights(f"{self.folder}/g")


def compare(base, got, factor=1.0, exact=False):
    """The largest difference, in units of what is allowed (exact: 0 or infinity), and of what."""
    (loss, grads), (loss2, grads2) = base, got
    worst = (abs(loss * factor - loss2) / max(abs(loss * factor), 1e-300) / eq.BOUND, "loss")
    if exact:
        worst = (0.0 if loss * factor == loss2 else math.inf, "loss")
    if grads.keys() != grads2.keys():
        raise eq.Failed(f"other parameters: {sorted(grads.keys() ^ grads2.keys())[:4]}")
    total = sum(len(v) for _, v in grads.values())
    size = factor * math.sqrt(sum(x * x for _, v in grads.values() for x in v))
    for name, (shape, v) in grads.items():
        shape2, w = grads2[name]
        if shape != shape2:
            raise eq.Failed(f"{name} has shape {shape2}, not {shape}")
        v = [factor * x for x in v]
        same = all(x == y for x, y in zip(v, w))
        d = 0.0 if same else math.inf if exact else eq.frobenius(v, w, size, total)
        if not d <= worst[0]:
            worst = (d, f"gradient of {name}")
    return worst


# ---- changes: of a subject to (subject, fill, back, more): how the new one's weights come from the old, how its gradients
# become those of the old, and {factor, exact, micro}


class Change:
    def __init__(self, subject, micro=0, factor=1.0, exact=False, name=None, fill=None, back=None):
        self.subject, self.micro, self.factor, self.exact = subject, micro, factor, exact
        self.name = name or (lambda n: n)  # of the new one's parameter: the old one's
        self.fill = fill or (lambda n, shape, old: old[1])
        self.back = back or (lambda n, new, old: new)


def permute(s, r):
    if s.random:
        raise Skip()
    order = list(range(s.batch))
    r.shuffle(order)
    data = {k: Array(a.descr, a.shape, [a.rows[i] for i in order]) for k, a in s.data.items()}
    return Change(s.like(data=data))


def duplicate(s, r):
    if s.random or not s.mean:
        raise Skip()
    data = {k: Array(a.descr, a.shape, a.rows * 2) for k, a in s.data.items()}
    return Change(s.like(data=data))


def microbatches(s, r):
    if s.local:
        raise Skip()
    return Change(s, micro=r.randrange(1, s.batch))


RESERVED = set(
    """use layer model fn param forward loss sample train return stack of if else where sum mean max min argmax and or not
    int real bool true false local metric data batch normal uniform zeros ones const decay shard group inf nan pi exp log
    sqrt rsqrt sin cos tanh erf abs floor pow square sigmoid random stop_gradient training concat slice pad cumsum topk
    transpose reshape init weight bias nn val tp cp none intrinsic logits optimizer schedule seed steps precision fp32""".split()
)


def own_names(s):
    """Names that the model declares: layers, functions, fields, parameters, values. Not sizes, nor what the train block and
    the files of data know."""
    head, train = re.split(r"^train ", s.text, flags=re.M)
    sizes = set(re.findall(r"\w+", " ".join(re.findall(r"^model \w+\(([^)]*)\)", head, re.M))))
    names = set(re.findall(r"^(?:layer|fn) (\w+)", head, re.M)) | set(re.findall(r"param (\w+)\[", head))
    names |= set(re.findall(r"^\s+(\w+)(?:\[[^=]*\])? *\+?= ", head, re.M))
    for group in re.findall(r"^\s+(\w+(?:, \w+)+) = ", head, re.M):
        names |= set(group.split(", "))
    given = set(re.findall(r"[(,]\s*(\w+) = ", head))  # named arguments
    return names - sizes - RESERVED - given - set(re.findall(r"\w+", train)) - set(s.data)


def rename(s, r):
    names = {n: f"{r.choice('qzk')}{n}_{i}" for i, n in enumerate(sorted(own_names(s)))}
    head, train = re.split(r"^train ", s.text, flags=re.M)
    # What follows a dot is a layer's own: of the standard library's it keeps its name.
    head = re.sub(r"(?<![\w.])[A-Za-z_]\w*", lambda m: names.get(m.group(), m.group()), head)
    old = {v: k for k, v in names.items()}
    return Change(
        s.like(text=head + "train " + train),
        exact=True,
        name=lambda n: ".".join(old.get(x, x) for x in n.split(".")),
    )


def declarations(text):
    """Top-level pieces of a model's text."""
    return [p for p in re.split(r"^(?=layer |fn |model |train |use )", text, flags=re.M) if p.strip()]


def shuffled_fields(lines, r):
    """Runs of parameters and sublayers in another order; constants stay where they are."""
    out, run = [], []

    def flush():
        r.shuffle(run)
        out.extend(run)
        run.clear()

    for line in lines:
        field = re.match(r"  (param \w+\[.*|\w+ *= .*\(.*\).*)$", line)
        if field and line.count("(") == line.count(")"):
            run.append(line)
        else:
            flush()
            out.append(line)
    flush()
    return out


def commuted(lines, r):
    """Neighbouring statements change places where neither mentions what the other defines."""
    out = list(lines)
    for _ in range(2):
        for i in range(len(out) - 1):
            pair = [re.match(r"    (\w+(?:, \w+)*)(\[.*?\])? = ", l) for l in out[i : i + 2]]
            if not all(pair) or any(l.count("(") != l.count(")") for l in out[i : i + 2]):
                continue
            defined = [set(m.group(1).split(", ")) for m in pair]
            words = [set(re.findall(r"\w+", l)) for l in out[i : i + 2]]
            if not defined[0] & words[1] and not defined[1] & words[0] and r.random() < 0.7:
                out[i : i + 2] = out[i + 1], out[i]
    return out


def reorder(s, r):
    if s.random:  # the places of random numbers are counted as they come
        raise Skip()
    parts = declarations(s.text)
    parts = [
        "\n".join(commuted(shuffled_fields(p.split("\n"), r), r)) if not p.startswith("train") else p
        for p in parts
    ]
    free = [i for i, p in enumerate(parts) if p.startswith(("layer", "fn"))]
    order = list(free)
    r.shuffle(order)
    moved = list(parts)
    for i, j in zip(free, order):
        moved[i] = parts[j]
    text = "\n".join(p.rstrip("\n") + "\n" for p in moved)
    if text == s.text:
        raise Skip()
    return Change(s.like(text=text))


def split_top(text):
    """The parts of a list between commas and bars that stand in no bracket, and the separators."""
    parts, seps, depth, at = [], [], 0, 0
    for i, c in enumerate(text):
        depth += c in "([" and 1 or c in ")]" and -1
        if c in ",|" and depth == 0:
            parts.append(text[at:i].strip())
            seps.append(c)
            at = i + 1
    return parts + [text[at:].strip()], seps


def closing(text, at):
    depth = 0
    for i in range(at, len(text)):
        depth += text[i] == "[" and 1 or text[i] == "]" and -1
        if depth == 0:
            return i
    raise Skip()


def swap_subscripts(text, name):
    """Swaps the first two subscripts of every `name[...]`, the declaration's too."""
    out, at = [], 0
    for m in re.finditer(rf"(?<![\w.]){name}\[", text):
        end = closing(text, m.end() - 1)
        inside = text[m.end() : end]
        parts, seps = split_top(inside)
        if len(parts) < 2 or name in inside or "..." in inside:
            raise Skip()
        parts[:2] = parts[1], parts[0]
        joined = parts[0] + "".join(f" {c} {p}" if c == "|" else f", {p}" for c, p in zip(seps, parts[1:]))
        out.append(text[at : m.end()] + joined)
        at = end
    return "".join(out) + text[at:]


def transposed(shape, v):
    """The first two dimensions changed."""
    a, b, rest = shape[0], shape[1], math.prod(shape[2:])
    return [v[(i * b + j) * rest + k] for j in range(b) for i in range(a) for k in range(rest)]


def owner(parts, parameter):
    """The layer that declares a parameter of this dotted name; None where it is the standard library's."""
    by_name = {re.match(r"\w+ (\w+)", p).group(1): p for p in parts if p.startswith(("layer", "model"))}
    at = next(n for n, p in by_name.items() if p.startswith("model"))
    for field in [x for x in parameter.split(".") if not x.isdigit()][:-1]:
        made = re.search(rf"^  {field} *= (?:stack .* of )?([\w.]+)\(", by_name[at], re.M)
        at = made.group(1) if made else None
        if at not in by_name:
            return None
    return at


def transpose(s, r):
    parts, found = declarations(s.text), []
    for i, p in enumerate(parts):
        for m in re.finditer(r"param (\w+)\[([^\]]*)\]", p):
            bare = re.search(rf"(?<![\w.]){m.group(1)}(?![\w\[])", p)
            if len(split_top(m.group(2))[0]) > 1 and not bare and p.startswith("layer"):
                found.append((i, m.group(1), re.match(r"layer (\w+)", p).group(1)))
    r.shuffle(found)
    for i, name, layer in found:
        fields = set(re.findall(rf"(\w+) = (?:stack .* of )?{layer}\(", s.text))
        if any(re.search(rf"\b{f}\.{name}\b", s.text) for f in fields):
            continue
        try:
            changed = parts[:i] + [swap_subscripts(parts[i], name)] + parts[i + 1 :]
        except Skip:
            continue

        def of_it(n, layer=layer, name=name):
            return n.endswith(f".{name}") and owner(parts, n) == layer

        return Change(
            s.like(text="".join(changed)),
            fill=lambda n, shape, old: transposed(old[0], old[1]) if of_it(n) else old[1],
            back=lambda n, new, old: (old[0], transposed(new[0], new[1])) if of_it(n) else new,
        )
    raise Skip()


def places(shape, within):
    """For each element of an array of `shape`: its number in one of `within`, or None outside."""
    for flat in range(math.prod(shape)):
        at, inside, number = [], True, 0
        for e in reversed(shape):
            at.append(flat % e)
            flat //= e
        for i, e in zip(reversed(at), within):
            inside &= i < e
            number = number * e + i
        yield number if inside else None


def pad(s, r):
    more = r.randrange(1, 4)
    if s.name in ("mlp", "llama"):
        defines = [
            f"hidden={int(d.split('=')[1]) + more}" if d.startswith("hidden=") else d for d in s.defines
        ]
        changed = s.like(defines=defines)
    else:
        parts = [
            (m.group(), m.group(1)) for m in re.finditer(r"enter = Map\(dim, (\d+)\)", s.text)
        ]
        if not parts:
            raise Skip()
        text = re.sub(r"(enter|gate) = Map\(dim, (\d+)\)(?=[^{]*leave = )",
                      lambda m: f"{m.group(1)} = Map(dim, {int(m.group(2)) + more})", s.text)
        text = re.sub(r"leave = Map\((\d+), dim", lambda m: f"leave = Map({int(m.group(1)) + more}, dim", text)
        text = re.sub(r"(gate = Map\(dim, )(\d+)\)(\n  forward\(.*\n    h = enter)",
                      lambda m: f"{m.group(1)}{int(m.group(2)) + more}){m.group(3)}", text)
        changed = s.like(text=text)

    def fill(n, shape, old):
        out_of = re.search(r"\b(leave|fc2|down|w2)\b", n)
        return [
            old[1][k] if k is not None else 0.0 if out_of else r.gauss(0, 1) for k in places(shape, old[0])
        ]

    def back(n, new, old):
        out = [0.0] * math.prod(old[0])
        for x, k in zip(new[1], places(new[0], old[0])):
            if k is not None:
                out[k] = x
        return old[0], out

    return Change(changed, fill=fill, back=back)


def scale(s, r):
    at = s.text.rindex("return ", 0, re.search(r"^train ", s.text, re.M).start())
    end = s.text.index("\n", at)
    text = s.text[:at] + f"return 2.0 * ({s.text[at + 7:end].strip()})" + s.text[end:]
    return Change(s.like(text=text), factor=2.0, exact=True)


KINDS = {
    f.__name__: f
    for f in (permute, duplicate, microbatches, rename, reorder, transpose, pad, scale)
}


# ---- running


def measure(bench, s, r):
    """The subject's own weights and step; Redraw where it makes too much of rounding."""
    bench.write(s)
    bench.build(s, 0, [])
    weights = {}

    def fill(name, shape):
        return weights[name][1]

    bench.runner.must(["./train", "--steps", "0", "--quiet", "--export", "start"])
    for name, (shape, v) in read_weights(f"{bench.folder}/start").items():
        weights[name] = (shape, [x + r.uniform(-0.05, 0.05) for x in v])
    base = bench.step(fill)
    kept = dict(weights)
    for name, (shape, v) in kept.items():
        weights[name] = (shape, [math.nextafter(x, r.choice([-math.inf, math.inf])) for x in v])
    moved = compare(base, bench.step(fill))[0]
    if not moved <= ROUNDING:
        raise Redraw("rounding")
    return kept, base


def apply(bench, s, kind, r, weights, base):
    """Makes the change, runs a step of it, and compares; what it was run with."""
    change = KINDS[kind](s, r)
    layout = r.choice(LAYOUTS) if r.random() < 0.3 and not (s.local or change.exact) else []
    bench.write(change.subject)
    try:
        bench.build(change.subject, change.micro, layout)
    except eq.Refused:
        layout = []
        bench.build(change.subject, change.micro, layout)
    loss, grads = bench.step(
        lambda n, shape: change.fill(n, shape, weights[change.name(n)]), 2 if layout else 1
    )
    back = {change.name(n): change.back(n, g, weights[change.name(n)]) for n, g in grads.items()}
    worst = compare(base, (loss, back), change.factor, change.exact)
    if not worst[0] <= 1:
        raise eq.Failed(f"{worst[1]} is {worst[0]:.3g} times as far off as allowed")
    return worst[0]


def verify(bench, s):
    bench.write(s)
    files = ",".join(f"{n}={n}.npy" for n in s.data)
    bench.runner.must([bench.dtc, *bench.options(s), "--verify-run", "--data", files])


def run(o, make, name, again, tally):
    folder = tempfile.mkdtemp(prefix="metamorphic-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    bench, failed = Bench(o.dtc, folder), 0
    for attempt in range(20):
        s, r = make(attempt, folder), random.Random(f"{o.seed} {name} {attempt}")
        try:
            weights, base = measure(bench, s, r)
            break
        except Redraw as e:
            tally.redrawn[str(e)] = tally.redrawn.get(str(e), 0) + 1
        except eq.Failed as e:
            print(f"FAIL {name}: {e}\n  again: {again}\n{s.text}", flush=True)
            return 1
    else:
        print(f"FAIL {name}: 20 draws in a row were of no use")
        return 1
    for kind in o.kinds:
        bench.runner.log, r = [], random.Random(f"{o.seed} {name} {kind}")
        try:
            if kind == "verify":
                verify(bench, s)
                worst = 0.0
            else:
                worst = apply(bench, s, kind, r, weights, base)
            tally.applied[kind] = tally.applied.get(kind, 0) + 1
            tally.worst = max(tally.worst, worst)
        except Skip:
            tally.skipped[kind] = tally.skipped.get(kind, 0) + 1
        except (eq.Failed, Redraw) as e:
            failed += 1
            with open(f"{folder}/model.dt") as f:
                text = f.read()
            print(f"FAIL {name}, {kind}: {e}\n  again: {again} --kinds {kind}", *bench.runner.log, text, sep="\n    ", flush=True)
    if o.keep:
        print(f"{name}: {folder}")
    else:
        shutil.rmtree(folder)
    return failed


class Tally:
    def __init__(self):
        self.applied, self.skipped, self.redrawn, self.worst = {}, {}, {}, 0.0


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = [*KINDS, "verify"]
    p.add_argument("--dtc", required=True)
    p.add_argument("--models", type=int, default=50, help="random ones")
    p.add_argument("--model", type=int, help="this one of the seed's models alone")
    p.add_argument("--examples", nargs="*", default=list(SIZES), choices=list(SIZES))
    p.add_argument("--kinds", nargs="+", default=every, choices=every)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--keep", action="store_true", help="keep the folders")
    o = p.parse_args()
    o.dtc = os.path.abspath(o.dtc)
    tally, failed = Tally(), 0
    me = f"tests/layouts/metamorphic.py --dtc {o.dtc} --seed {o.seed}"
    for name in o.examples if o.model is None else []:
        again = f"{me} --models 0 --examples {name}"
        failed += run(o, lambda attempt, folder: example(name, o.seed + attempt), name, again, tally)
    numbers = range(o.models) if o.model is None else [o.model]
    for n in numbers:
        again = f"{me} --model {n}"
        failed += run(o, lambda attempt, folder: drawn(o.seed, n, attempt, folder), f"model {n}", again, tally)
    for kind in o.kinds:
        print(f"{kind}: applied {tally.applied.get(kind, 0)}, skipped {tally.skipped.get(kind, 0)}")
    sweep = o.model is None and o.models >= 50
    never = [k for k in o.kinds if not tally.applied.get(k)] if sweep else []
    redrawn = ", ".join(f"{n} {why}" for why, n in sorted(tally.redrawn.items())) or "none"
    print(f"seed {o.seed}: {failed} failed; drawn again: {redrawn}; the largest difference is {tally.worst:.3g} of what is allowed")
    if never:
        print("never applied:", *never)
    sys.exit(1 if failed or never else 0)


if __name__ == "__main__":
    main()
