#!/usr/bin/env python3
"""Checks what is equal to the last bit, in drawn layouts or all of them.

    tests/layouts/bits.py --dtc build/bin/dtc [--count 8] [--seed 1] [--all]

- A model that is linear, of small integers (weights, embeddings, targets; dropout of 1/2, whose
  scale is 2): loss, norm, gradients (the momentum) and weights after a step are those of one rank
  in any layout. No rounding hides there what a layout does: a mask that fell on another element, a
  term that is missing or is added twice.
- Initial weights are those of one rank, in any layout.
- The same run twice, and on another number of threads, is the same run.
- A pipeline is the same run as none, this model having no parameter on two stages.
- Two microbatches in flight are the same run as one after the other, this model having no parameter
  with two uses.
- ZeRO 0, 1, 2 and 3 are the same run, at equal ranks, microbatches, group and accumulation, on any
  mesh.
"""

import argparse
import glob
import json
import os
import random
import shutil
import struct
import sys
import tempfile

import equality as eq

BATCH = 8  # a power of two, as is the number of positions: means are exact
LINEAR = """use nn

layer Mix(dim, hidden) {
  param up[dim | hidden] = normal(1.0)
  param down[hidden | dim] = normal(1.0)
  param shift[dim] = zeros
  drop = nn.Dropout(0.5)
  forward(x[b, len, dim]) {
    h[b, t, i] = sum(d: x[b, t, d] * up[d, i])
    y[b, t, d] = sum(i: h[b, t, i] * down[i, d]) + shift[d]
    z = drop(y)
    return r[b, t < len, d] = x[b, t, d] + z[b, t, d] - sum(s: where(s < t and t - s < 3, x[b, s, d], 0.0))
  }
}

model Linear(words = 7, len = 4, dim = 6, hidden = 5, layers = 4) {
  wte    = nn.Embedding(words, dim)
  blocks = stack layers of Mix(dim, hidden)
  head   = nn.Linear(dim, words)
  loss(tokens[b, len]: int, goals[b, len, words]) {
    logits = head(blocks(wte(tokens)))
    return mean(b: sum(t, c: logits[b, t, c] * goals[b, t, c]))
  }
}

train Linear {
  data = arrays(tokens = "tokens.npy", goals = "goals.npy")
  batch = 8
  steps = 2
  optimizer = sgd(lr = 0.0009765625, momentum = 0.5)
  precision = fp64
}
"""


def arguments():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--dtc", required=True)
    p.add_argument("--count", type=int, default=8, help="layouts drawn for each check")
    p.add_argument("--all", action="store_true", help="every mesh")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--ranks", type=int, nargs="+", default=eq.RANKS)
    p.add_argument("--layout", help="this one, as a failure prints it")
    return p.parse_args()


def write_weights(path, template, rng):
    """Small integers for every tensor of a file of weights."""
    with open(template, "rb") as f:
        data = f.read()
    n = struct.unpack("<Q", data[:8])[0]
    head = {k: v for k, v in json.loads(data[8 : 8 + n]).items() if k != "__metadata__"}
    raw, out = b"", {}
    for name, t in head.items():
        count = 1
        for e in t["shape"]:
            count *= e
        out[name] = {
            "dtype": "F64",
            "shape": t["shape"],
            "data_offsets": [len(raw), len(raw) + 8 * count],
        }
        raw += struct.pack(f"<{count}d", *(rng.choice([-1, 0, 1]) for _ in range(count)))
    text = json.dumps(out).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + raw)


class Bits:
    def __init__(self, o, folder):
        self.runner, self.folder, self.rng = eq.Runner(o.dtc, folder), folder, random.Random(o.seed)
        with open(f"{folder}/linear.dt", "w") as f:
            f.write(LINEAR)
        n = 2 * BATCH
        eq.npy(
            f"{folder}/tokens.npy",
            "<i4",
            (n, 4),
            struct.pack(f"<{4 * n}i", *(self.rng.randrange(7) for _ in range(4 * n))),
        )
        eq.npy(
            f"{folder}/goals.npy",
            "<f8",
            (n, 4, 7),
            struct.pack(f"<{28 * n}d", *(self.rng.randrange(-2, 3) for _ in range(28 * n))),
        )
        self.model = eq.Model("linear", f"{folder}/linear.dt", batch=BATCH)
        self.one = dict(eq.ONE, micro=BATCH)
        self.runner.compile(self.model, self.one, "one")
        self.runner.must(["./one", "--steps", "0", "--export", "drawn.st", "--quiet"])
        write_weights(f"{folder}/small.st", f"{folder}/drawn.st", self.rng)

    def run(self, l, name, steps=2, init=False, threads=1):
        """The log's numbers, and all tensors, as bytes."""
        for old in glob.glob(f"{self.folder}/{name}.*"):
            (shutil.rmtree if os.path.isdir(old) else os.remove)(old)
        self.runner.compile(self.model, l, "program")
        self.runner.must(
            [
                "./program",
                *(["--init", "small.st"] if init else []),
                "--ranks",
                str(l["ranks"]),
                "--threads",
                str(threads),
                "--steps",
                str(steps),
                "--eval-every",
                "0",
                "--log",
                f"{name}.jsonl",
                "--save",
                f"{name}.ck",
                "--quiet",
                "--timeout",
                "900",
                *(["--export", f"{name}.st"] if not steps else []),
            ]
        )
        if not steps:
            with open(f"{self.folder}/{name}.st", "rb") as f:
                return {"initial weights": f.read()}
        with open(f"{self.folder}/{name}.jsonl") as f:
            out = {
                f"{k} of step {r['step']}": repr(r[k])
                for r in map(json.loads, f)
                if "loss" in r
                for k in ("loss", "grad_norm")
            }
        for key, v in eq.tensors(f"{self.folder}/{name}.ck/step-{steps:08d}").items():
            out[key] = struct.pack(f"<{len(v)}d", *v)
        return out


def same(a, b):
    if a.keys() != b.keys():
        raise eq.Failed(f"other tensors: {sorted(a.keys() ^ b.keys())[:4]}")
    off = [k for k in a if a[k] != b[k]]
    if off:
        raise eq.Failed(
            f"differ: {', '.join(off[:6])}" + (f" and {len(off) - 6} more" if len(off) > 6 else "")
        )


def integers(bits, l):
    if not hasattr(bits, "base"):
        bits.base = bits.run(bits.one, "base", steps=1, init=True)
        largest = max(
            abs(float(v)) for k, v in bits.base.items() if k.startswith(("loss", "grad_norm"))
        )
        if not 1 < largest < 1e9:
            raise eq.Failed(f"loss or norm of {largest}: no exact sums")
    same(bits.base, bits.run(l, "other", steps=1, init=True))


def initial(bits, l):
    if not hasattr(bits, "first"):
        bits.first = bits.run(bits.one, "first", steps=0)
    same(bits.first, bits.run(l, "other", steps=0))


def twice(bits, l):
    a = bits.run(l, "again")
    same(a, bits.run(l, "other"))
    same(a, bits.run(l, "other", threads=2))


def stages(bits, l):
    base = None
    for zero in range(4):
        got = bits.run(dict(l, zero=zero, gather="each", flight=1), "other")
        base = base or got
        same(base, got)


def pipelines(bits, l):
    if l["pp"] > 1:
        same(
            bits.run(dict(l, pp=1, schedule="1f1b", ranks=l["ranks"] // l["pp"]), "base"),
            bits.run(l, "other"),
        )


def flight(bits, l):
    """With microbatches of two sizes: one is the last one and alone, or is half padding."""
    if not eq.takes_turns(l):
        raise eq.Refused("in flight")
    for micro in (1, 3):
        pair = [bits.run(dict(l, micro=micro, flight=n), f"flight{n}") for n in (1, 2)]
        same(*pair)


CHECKS = {
    "integers on linear models": integers,
    "initial weights": initial,
    "twice and on other threads": twice,
    "stages of ZeRO": stages,
    "pipelines": pipelines,
    "microbatches in flight": flight,
}


def chosen(o, rng, name):
    """Layouts for a check: of each mesh and schedule one, or so many drawn."""
    if o.layout:
        return [eq.parse(o.layout)]
    by_mesh = {}
    for l in eq.layouts(BATCH, o.ranks):
        if l["attention"] != "gather" and not o.all:  # refused where a model has no heads
            continue
        if name == "microbatches in flight" and not (l["flight"] == 2):
            continue
        if l["ranks"] > 1 and (l["pp"] > 1 or name != "pipelines"):
            by_mesh.setdefault(
                tuple(l[k] for k in ("tp", "pp", "cp", "attention", "sequence", "ranks", "schedule")), []
            ).append(l)
    some = [rng.choice(v) for v in by_mesh.values()]
    return (
        some
        if o.all
        else rng.sample(
            some, min(o.count if CHECKS[name] == integers else max(1, o.count // 3), len(some))
        )
    )


def main():
    o = arguments()
    o.dtc = os.path.abspath(o.dtc)
    folder = tempfile.mkdtemp(
        prefix="bits-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    )
    failed = 0
    try:
        bits = Bits(o, folder)
        for name, check in CHECKS.items():
            counts = {"passed": 0, "refused": 0, "failed": 0}
            for l in chosen(o, random.Random(f"{o.seed} {name}"), name):
                bits.runner.log = []
                try:
                    check(bits, l)
                    counts["passed"] += 1
                except eq.Refused:
                    counts["refused"] += 1
                except eq.Failed as e:
                    counts["failed"] += 1
                    print(
                        f"FAIL {name}: {eq.tell(l)}\n  {e}",
                        *bits.runner.log,
                        sep="\n    ",
                        flush=True,
                    )
            failed += counts["failed"] + (not counts["passed"])
            print(
                f"{name}: {counts['passed']} layouts passed, {counts['failed']} failed, {counts['refused']} refused",
                flush=True,
            )
    finally:
        shutil.rmtree(folder)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
