#!/usr/bin/env python3
"""Trains examples in fp64 in many layouts and compares each with one rank.

    tests/layouts/layouts.py --dtc build/bin/dtc [--count 40] [--seed 1] [--all] [--ranks 1 2 3 4 6 8]

A layout is (tp, pp, cp, zero, accumulate, gather, schedule, microbatch, ranks); the rest of the
ranks are data-parallel. --all takes every legal one in turn, otherwise --count are drawn, those
first that cover a pair (axis, zero, schedule, kind of microbatch count) not met so far. Three
steps of AdamW with eps 1e-4 are compared with one rank's:
  loss, gradient norm    1e-11, relative
  the first gradient, moments, roots of second moments
                         Frobenius 1e-11 * max(its norm, gradient norm * sqrt(n / N))
  weights                1e-11 * max(largest weight, learning rate)
A coverage table and the worst differences are printed; any failure prints its commands.
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
STEPS, RATE, BATCH = 3, 1e-2, 12
TRAIN = ["lr=1e-2", "warmup=0", "steps=10", "eps=1e-4", f"batch={BATCH}"]
MODELS = {  # sizes are small, odd in places, and leave room for four stages
    "gpt2": ["vocab=50", "context=16", "layers=4", "heads=4", "dim=16", "length=16"],
    "llama": ["vocab=48", "layers=4", "heads=4", "kv_heads=2", "dim=16", "hidden=24", "length=16"],
    "classifier": ["vocab=40", "length=16", "layers=4", "heads=2", "dim=16", "classes=5"],
}
SCHEDULES = ["gpipe", "1f1b", "interleaved:2", "zb"]
FIELDS = ["tp", "pp", "cp", "zero", "accumulate", "gather", "schedule", "group", "micro", "ranks"]


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--dtc", required=True)
    p.add_argument("--count", type=int, default=40, help="layouts drawn for each model")
    p.add_argument("--all", action="store_true", help="every legal layout")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--model", nargs="+", default=list(MODELS), choices=list(MODELS))
    p.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 3, 4, 6, 8])
    p.add_argument("--axes", nargs="*", default=["tp", "pp", "cp"], help="axes that may exceed 1")
    p.add_argument("--keep", action="store_true", help="keep the folder of a failure")
    return p.parse_args()


def legal(o):
    """Every layout, as a dict of FIELDS."""
    degree = {a: ([1, 2, 3, 4] if a in o.axes else [1]) for a in ("tp", "pp", "cp")}
    degree["cp"] = [c for c in degree["cp"] if 16 % (2 * c) == 0]
    for tp, pp, cp, world, zero in itertools.product(degree["tp"], degree["pp"], degree["cp"], o.ranks, range(4)):
        if world % (tp * pp * cp):
            continue
        data = world // (tp * pp)  # ranks that share a parameter: (cp, dp)
        for accumulate in ["once", "each"]:
            if zero >= 2 and accumulate == "once":
                continue
            for schedule in SCHEDULES if pp > 1 else ["1f1b"]:
                if schedule == "interleaved:2" and pp * 2 > 4:
                    continue
                for micro in [1, 2, 5, 12]:
                    for group in [0] + ([2] if zero and data % 2 == 0 and data > 2 else []):
                        for gather in ["each", "once"] if zero == 3 else ["each"]:
                            yield dict(zip(FIELDS, (tp, pp, cp, zero, accumulate, gather, schedule, group, micro, world)))


def kind(l):
    """How the microbatches of a rank compare with the stages."""
    dp = l["ranks"] // (l["tp"] * l["pp"] * l["cp"])
    total = -(-BATCH // l["micro"])
    mine = -(-total // dp)
    if total < dp:
        return "idle ranks"
    if mine < l["pp"]:
        return "fewer than stages"
    if BATCH % l["micro"] or total % dp:
        return "remainder"
    return "even"


def pairs(l):
    dp = l["ranks"] // (l["tp"] * l["pp"] * l["cp"])
    axes = [a for a in ("tp", "pp", "cp") if l[a] > 1] + (["dp"] if dp > 1 else [])
    facts = axes + [f"zero {l['zero']}", kind(l)] + ([l["schedule"]] if l["pp"] > 1 else [])
    return set(itertools.combinations(sorted(facts), 2))


def draw(layouts, count, rng):
    """Layouts in an order that meets new pairs as early as a sample of candidates allows."""
    left, seen, out = list(layouts), set(), []
    rng.shuffle(left)
    while left and len(out) < count:
        some = range(min(200, len(left)))
        best = max(some, key=lambda i: len(pairs(left[i]) - seen))
        seen |= pairs(left[best])
        out.append(left.pop(best))
    return out


def write_data(folder, rng):
    state, tokens = 0, []
    for _ in range(16 * 60 + 1):
        state = (state * 5 + rng.randrange(3)) % 40
        tokens.append(state)
    with open(f"{folder}/tokens.bin", "wb") as f:
        f.write(struct.pack(f"<{len(tokens)}H", *tokens))
    for name, shape, top in (("tokens", (40, 16), 40), ("labels", (40,), 5)):
        head = f"{{'descr': '<i4', 'fortran_order': False, 'shape': {shape}, }}"
        head += " " * (-(len(head) + 11) % 64) + "\n"
        n = math.prod(shape)
        with open(f"{folder}/{name}.npy", "wb") as f:
            f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode())
            f.write(struct.pack(f"<{n}i", *(rng.randrange(top) for _ in range(n))))


def tensors(path):
    """All tensors of a checkpoint's parts: 'params/name' or 'moment0/name' to a list of floats."""
    out = {}
    for part in sorted(glob.glob(f"{path}/*.safetensors")):
        data = open(part, "rb").read()
        n = struct.unpack("<Q", data[:8])[0]
        for name, t in json.loads(data[8:8 + n]).items():
            if name == "__metadata__":
                continue
            a, b = (8 + n + x for x in t["data_offsets"])
            assert t["dtype"] == "F64", (name, t["dtype"])
            out[name if "/" in name else f"params/{name}"] = struct.unpack(f"<{(b - a) // 8}d", data[a:b])
    return out


class Failed(Exception):
    pass


class Runner:
    def __init__(self, o, folder):
        self.o, self.folder, self.programs, self.log = o, folder, {}, []

    def run(self, command):
        self.log.append(" ".join(command))
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.folder)
        if done.returncode:
            raise Failed(f"exit status {done.returncode}: {done.stdout.strip()}")

    def compile(self, model, l):
        key = (model,) + tuple(l[f] for f in FIELDS[:-1])
        if key not in self.programs:
            out = f"train-{len(self.programs)}"
            command = [self.o.dtc, f"{ROOT}/examples/{model}.dt", "--precision", "fp64", "-o", out]
            for d in MODELS[model] + TRAIN + [f"microbatch={l['micro']}"]:
                command += ["-D", d]
            for axis in ("tp", "pp", "cp"):
                if l[axis] > 1:
                    command += [f"--{axis}", str(l[axis])]
            if l["ranks"] > 1:
                command += ["--zero", str(l["zero"]), "--accumulate", l["accumulate"]]
                if l["zero"] == 3:
                    command += ["--gather", l["gather"]]
                if l["group"]:
                    command += ["--zero-group", str(l["group"])]
            if l["pp"] > 1:
                command += ["--schedule", l["schedule"]]
            self.run(command)
            self.programs[key] = out
        return f"./{self.programs[key]}"

    def train(self, model, l, name):
        """Runs STEPS steps; the log's records, and the state after the first and the last step, as
        one rank writes it."""
        program = self.compile(model, l)
        data = [] if model == "classifier" else ["--data", "tokens.bin"]
        for old in glob.glob(f"{self.folder}/{name}*"):
            (shutil.rmtree if os.path.isdir(old) else os.remove)(old)
        self.run([program, *data, "--ranks", str(l["ranks"]), "--threads", "1", "--steps", str(STEPS), "--eval-every", "0",
                  "--save", name, "--save-every", "1", "--keep", "0", "--log", f"{name}.jsonl", "--quiet"])
        records = [json.loads(line) for line in open(f"{self.folder}/{name}.jsonl")]
        one = self.compile(model, ONE)
        states = []
        for step in (1, STEPS):
            at = f"{name}/step-{step:08d}"
            if l["ranks"] > 1:  # read back in the other layout: by one rank
                self.run([one, *data, "--resume", at, "--steps", str(step), "--save", f"{name}.{step}", "--eval-every", "0", "--quiet"])
                at = f"{name}.{step}/step-{step:08d}"
            states.append(tensors(f"{self.folder}/{at}"))
        return [r for r in records if "loss" in r], states


ONE = dict(zip(FIELDS, (1, 1, 1, 0, "once", "each", "1f1b", 0, 12, 1)))


def norm(v):
    return math.sqrt(math.fsum(x * x for x in v))


def compare(base, got):
    """The largest difference, in units of what is allowed, and of which quantity."""
    worst = (0.0, "nothing")
    (logs, states), (logs2, states2) = base, got
    if len(logs) != STEPS or len(logs2) != STEPS:
        raise Failed(f"{len(logs)} and {len(logs2)} records")
    for a, b in zip(logs, logs2):
        for what in ("loss", "grad_norm"):
            d = abs(a[what] - b[what]) / max(abs(a[what]), 1e-300) / 1e-11
            worst = max(worst, (d, f"{what} of step {a['step']}"))
    for which, (s, t) in enumerate(zip(states, states2)):
        if s.keys() != t.keys():
            raise Failed(f"other tensors: {sorted(s.keys() ^ t.keys())[:4]}")
        total = sum(len(v) for k, v in s.items() if k.startswith("params"))
        g = logs[0 if which == 0 else -1]["grad_norm"]
        for key, v in s.items():
            w = t[key]
            if len(v) != len(w):
                raise Failed(f"{key} has {len(w)} elements, not {len(v)}")
            if key.startswith("params"):
                d = max(abs(x - y) for x, y in zip(v, w)) / max(max(map(abs, v)), RATE)
            else:
                if key.startswith("moment1"):
                    v, w = [math.sqrt(x) for x in v], [math.sqrt(x) for x in w]
                d = norm([x - y for x, y in zip(v, w)]) / max(norm(v), g * math.sqrt(len(v) / total))
            worst = max(worst, (d / 1e-11, f"{key} after step {1 if which == 0 else STEPS}"))
    return worst


def tell(l):
    return " ".join(f"{f}={l[f]}" for f in FIELDS)


def check(runner, model, base, l):
    runner.log = []
    try:
        worst = compare(base, runner.train(model, l, "other"))
        if not worst[0] <= 1:
            raise Failed(f"{worst[1]} is {worst[0]:.3g} times as far as allowed")
        return worst
    except Failed as e:
        print(f"FAIL {model}: {tell(l)}\n  {e}\n  in {runner.folder}:", *runner.log, sep="\n    ", flush=True)
        return None


def main():
    o = options()
    o.dtc = os.path.abspath(o.dtc)
    rng = random.Random(o.seed)
    folder = tempfile.mkdtemp(prefix="layouts-")
    write_data(folder, rng)
    runner, seen, failed, done, worst = Runner(o, folder), {}, 0, 0, (0.0, "nothing")
    for model in o.model:
        base = runner.train(model, ONE, "base")
        every = list(legal(o))
        for l in every if o.all else draw(every, o.count, rng):
            result = check(runner, model, base, l)
            done += 1
            failed += result is None
            worst = max(worst, result or worst)
            for pair in pairs(l):
                seen[pair] = seen.get(pair, 0) + 1
    for pair, n in sorted(seen.items()):
        print(f"{pair[0]:>18} x {pair[1]:<18} {n}")
    print(f"seed {o.seed}: {done} layouts, {failed} failed; the largest difference is {worst[0]:.3g} of what is allowed ({worst[1]})")
    if not (failed and o.keep):
        shutil.rmtree(folder)
    sys.exit(1 if failed or not done else 0)


if __name__ == "__main__":
    main()
