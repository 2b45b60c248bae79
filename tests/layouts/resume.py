#!/usr/bin/env python3
"""Saves under one layout and goes on under another, for pairs of ten layouts.

    tests/layouts/resume.py --dtc build/bin/dtc [--count 5] [--seed 1] [--all]

GPT-2 of a small size in double precision. The first layout trains four steps and saves. The second one reads
that: saved again at once, it is the same tensors, bit for bit; after two more steps losses and gradient norms
are those of one rank that was never stopped, to 1e-11, and so are moments and weights:
  moments, roots of second moments
             Frobenius 1e-11 * max(its norm, gradient norm * sqrt(n / N))
  weights    1e-11 * max(largest weight, learning rate)
--all takes the hundred pairs, otherwise --count are drawn. --grouped: of Llama with 2 heads of keys and values and
8 queries, on more ranks than the former, and fewer layouts.
"""
import argparse
import glob
import itertools
import json
import math
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RATE, SAVED, LAST = 1e-2, 4, 6
SIZE = ["vocab=97", "context=16", "length=16", "layers=4", "heads=2", "dim=32", "batch=7", "microbatch=2", "warmup=0",
        "eps=1e-4", f"lr={RATE}", f"steps={LAST}"]
LAYOUTS = [  # options of dtc, ranks
    ("", 1),
    ("--zero 1", 3),
    ("--zero 2 --accumulate once", 4),
    ("--zero 3 --zero-group 2", 4),
    ("--tp 2 --zero 3", 4),
    ("--cp 2 --zero 1", 4),
    ("--tp 2 --cp 2 --zero 2", 4),
    ("--pp 2 --zero 3 --zero-group 2", 8),
    ("--pp 2 --schedule interleaved:2", 2),
    ("--tp 2 --pp 2 --zero 3", 8),
]
MODEL = "gpt2"
GROUPED = ["vocab=96", "length=16", "layers=4", "heads=8", "kv_heads=2", "dim=32", "hidden=48"]
GROUPED_LAYOUTS = [
    ("--tp 4 --zero 3", 8),
    ("", 1),
    ("--tp 8", 8),
    ("--tp 2 --zero 1", 4),
    ("--tp 4 --pp 2 --zero 1 --sequence-parallel", 8),
    ("--zero 2", 3),
]


class Failed(Exception):
    pass


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise Failed(f"exit status {done.returncode}: {' '.join(command)}\n{done.stdout}")


class Layout:
    def __init__(self, dtc, number):
        self.flags, self.ranks = LAYOUTS[number]
        self.name = f"{self.flags or 'no options'} on {self.ranks}"
        self.program, self.saved = f"./train-{number}", f"saved-{number}"
        command = [dtc, f"{ROOT}/examples/{MODEL}.dt", "--precision", "fp64", *self.flags.split(), "-o", self.program]
        for d in SIZE:
            command += ["-D", d]
        run(command)

    def train(self, steps, *more):
        run([self.program, "--quiet", "--threads", "1", "--eval-every", "0", "--ranks", str(self.ranks), "--steps", str(steps),
             *more])

    def save(self):
        if not os.path.isdir(self.saved):
            self.train(SAVED, "--save", self.saved)
        return self.saved


def tensors(folder, step):
    """Of a checkpoint: name to bytes, type and shape."""
    out = {}
    for part in glob.glob(f"{folder}/step-{step:08d}/part-*.safetensors"):
        data = open(part, "rb").read()
        n = struct.unpack("<Q", data[:8])[0]
        for name, t in json.loads(data[8:8 + n]).items():
            if name == "__metadata__":
                continue
            if name in out:
                raise Failed(f"{name} is there twice")
            a, b = t["data_offsets"]
            out[name] = (data[8 + n + a:8 + n + b], t["dtype"], t["shape"])
    if sum("/" in k for k in out) != 2 * sum("/" not in k for k in out) or not out:
        raise Failed(f"{folder} holds {sorted(out)}")
    return out


def records(log):
    return [r for r in map(json.loads, open(log)) if "loss" in r and r["step"] > SAVED]


def values(raw):
    return struct.unpack(f"<{len(raw) // 8}d", raw)


def norm(v):
    return math.sqrt(math.fsum(x * x for x in v))


def difference(want, got):
    """The largest, in units of what is allowed, and of what."""
    worst = (0.0, "nothing")
    (logs, state), (logs2, state2) = want, got
    if [r["step"] for r in logs] != [r["step"] for r in logs2] or not logs:
        raise Failed(f"{len(logs2)} records after the first steps, expected {len(logs)}")
    for a, b in zip(logs, logs2):
        for what in ("loss", "grad_norm"):
            if b[what] is None or not math.isfinite(b[what]):
                raise Failed(f"{what} of step {b['step']} is not finite")
            worst = max(worst, (abs(a[what] - b[what]) / abs(a[what]) / 1e-11, f"{what} of step {a['step']}"))
    if state.keys() != state2.keys():
        raise Failed(f"other tensors: {sorted(state.keys() ^ state2.keys())[:4]}")
    total = sum(len(v[0]) // 8 for k, v in state.items() if "/" not in k)
    for name in state:
        v, w = values(state[name][0]), values(state2[name][0])
        if not all(map(math.isfinite, w)):  # max() may pass over a NaN
            raise Failed(f"{name} is not finite")
        if "/" not in name:
            d = max(abs(x - y) for x, y in zip(v, w)) / max(max(map(abs, v)), RATE)
        else:
            if name.startswith("moment1"):
                v, w = [math.sqrt(x) for x in v], [math.sqrt(x) for x in w]
            d = norm([x - y for x, y in zip(v, w)]) / max(norm(v), logs[-1]["grad_norm"] * math.sqrt(len(v) / total))
        worst = max(worst, (d / 1e-11, name))
    return worst


def pair(a, b, want):
    """Saves under a, goes on under b."""
    for old in glob.glob("again*") + glob.glob("on*"):
        shutil.rmtree(old) if os.path.isdir(old) else os.remove(old)
    b.train(SAVED, "--resume", a.save(), "--save", "again")
    if tensors(a.saved, SAVED) != tensors("again", SAVED):
        raise Failed("saved again, it has other bits")
    b.train(LAST, "--resume", a.saved, "--save", "on", "--log", "on.jsonl")
    worst = difference(want, (records("on.jsonl"), tensors("on", LAST)))
    if not worst[0] <= 1:
        raise Failed(f"{worst[1]} is {worst[0]:.3g} times as far as allowed")
    return worst


def use_groups():
    global MODEL
    MODEL = "llama"
    given = {d.split("=")[0] for d in GROUPED}
    SIZE[:] = GROUPED + [d for d in SIZE if d.split("=")[0] not in given | {"context"}]
    LAYOUTS[:] = GROUPED_LAYOUTS


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--dtc", required=True)
    p.add_argument("--count", type=int, default=5)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--all", action="store_true")
    p.add_argument("--grouped", action="store_true")
    o = p.parse_args()
    if o.grouped:
        use_groups()
    dtc, rng, here = os.path.abspath(o.dtc), random.Random(o.seed), tempfile.mkdtemp(prefix="resume-")
    os.chdir(here)
    with open("train.bin", "wb") as f:
        f.write(struct.pack("<3000H", *(rng.randrange(96) for _ in range(3000))))
    layouts, failed, most = {}, 0, (0.0, "nothing")

    def layout(number):
        if number not in layouts:
            layouts[number] = Layout(dtc, number)
        return layouts[number]

    alone = next(i for i, l in enumerate(LAYOUTS) if l == ("", 1))
    layout(alone).train(LAST, "--save", "whole", "--log", "whole.jsonl")
    want = (records("whole.jsonl"), tensors("whole", LAST))
    every = list(itertools.product(range(len(LAYOUTS)), repeat=2))
    # Drawn ones have no layout twice on the same side.
    left, right = rng.sample(range(len(LAYOUTS)), len(LAYOUTS)), rng.sample(range(len(LAYOUTS)), len(LAYOUTS))
    drawn = every if o.all else list(zip(left, right))[:o.count]
    for a, b in drawn:
        try:
            worst = pair(layout(a), layout(b), want)
            print(f"{layout(a).name}, then {layout(b).name}: {worst[0]:.3g} of what is allowed ({worst[1]})", flush=True)
            most = max(most, worst)
        except Failed as e:
            failed += 1
            print(f"FAIL {layout(a).name}, then {layout(b).name}: {e}", flush=True)
    print(f"{len(drawn)} pairs, {failed} failed; the largest difference is {most[0]:.3g} of what is allowed ({most[1]})")
    shutil.rmtree(here)
    sys.exit(1 if failed or not drawn else 0)


if __name__ == "__main__":
    main()
