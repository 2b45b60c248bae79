#!/usr/bin/env python3
"""Trains examples as CUDA programs whose kernels run on the CPU, in drawn layouts, and compares them with the CPU target.

    tests/layouts/targets.py --dtc build/bin/dtc                   # 40 layouts; about ten minutes
    tests/layouts/targets.py --dtc build/bin/dtc --count 4 --seed 2
    tests/layouts/targets.py --dtc build/bin/dtc --model gpt2 --precision fp32 --layout "tp=2 cp=2 micro=2 ranks=4"

layouts.py says what a layout is, and has the models. Each layout is compiled for both targets, in fp32, bf16 or fp16.

1. The gradients of the first step. In fp32 each tensor is that of the CPU target on the same layout, and of one rank, to
   2e-5 of the tensor's norm, which counts as a twentieth of the gradient's root mean square at least. In 16 bits the
   bounds are those of sixteen_bits.py.
2. Each target saves after that step and the other one goes on, to step 3; so does one rank from the checkpoint of the CUDA
   program. Losses, gradient norms and the validation loss are those of one rank that was never stopped: to 2e-5 in fp32,
   to a rounding of 16 bits else (gradient norms: eight). In fp32 the text that a model of tokens then writes is the same.
3. Where state can be cut, one layout in four runs in ZeRO 0, 1, 2 and 3, which give the same bits.

The order of threads and of the driver's streams is drawn for each layout, and each run watches its memory.
"""

import json
import math
import os
import shutil
import sys

import equality as eq
import layouts as lay
import sixteen_bits as sixteen

BOUND, TYPICAL = 2e-5, 0.05
STEPS = 3


class Bench(sixteen.Bench):
    def __init__(self, o, folder):
        super().__init__(o, folder)
        self.all_zero = bool(o.layout)  # compare ZeRO 0 to 3 in each layout
        self.straight = {}  # (model, precision) to the results of one rank without a stop
        self.worst = (0.0, "nothing")  # error in parts of what is allowed
        for name in ("tokens", "labels"):
            shutil.copy(f"{folder}/every/{name}.npy", f"{folder}/every/{name}_val.npy")

    def program(self, model, l, precision, reduce, target, name):
        self.runner.precision = precision
        self.compile(model, l, reduce, name, target)

    def train(self, model, name, ranks, steps, *more):
        """Runs a program: its records without times, and what it wrote on stdout."""
        log = f"{self.folder}/log.jsonl"
        if os.path.exists(log):
            os.remove(log)
        text = self.runner.must(
            [f"./{name}", *model.arguments, *lay.data_of(model, False), "--ranks", str(ranks), "--threads", "1",
             "--steps", str(steps), "--log", log, "--timeout", "900", "--quiet", *more]
        )
        with open(log) as f:
            return [r for r in map(json.loads, f) if "run" not in r], text

    def first_step(self, model, name, l):
        """The gradient of the first step, after which a checkpoint is saved in NAME.ck."""
        shutil.rmtree(f"{self.folder}/{name}.ck", ignore_errors=True)
        records, _ = self.train(model, name, l["ranks"], 1, "--eval-every", "0", "--save", f"{name}.ck",
                                "--export-gradient", "gradient.st")
        if len(records) != 1 or records[0].get("skipped"):
            raise eq.Failed(f"no gradient: {records}")
        return sixteen.read(f"{self.folder}/gradient.st")

    def rest(self, model, name, ranks, *more):
        """Losses and norms of the steps after the first, the validation loss, and a text."""
        tokens = not model.few
        val = ["--val", model.arguments[-1] if tokens else f"{self.folder}/every", "--eval-every", str(STEPS)]
        sample = ["--sample", "8", "--temperature", "0.8"] if tokens else []
        records, text = self.train(model, name, ranks, STEPS, *val, *sample, *more)
        steps = [r for r in records if "loss" in r and r["step"] > 1]
        return ([r["loss"] for r in steps] + [r["val_loss"] for r in records if "val_loss" in r],
                [r["grad_norm"] for r in steps], text)

    def unbroken(self, model, precision):
        key = (model.name, precision)
        if key not in self.straight:
            self.program(model, dict(eq.ONE, micro=lay.BATCH), precision, "fp32", [], "one")
            self.straight[key] = self.rest(model, "one", 1)
        return self.straight[key]

    def reference(self, model, precision):
        self.runner.target = []
        return super().reference(model, precision)

    def check(self, model, l, precision, reduce, turn):
        self.runner.environment = dict(eq.emulated(l), DT_MEMORY_CHECK="memory")
        worst = max(gradients(self, model, l, precision, reduce), resumed(self, model, l, precision, reduce))
        self.runner.target = eq.CUDA
        compared = (self.all_zero or turn % 4 == 3) and self.stages(model, l, precision, reduce)
        self.worst = max(self.worst, worst)
        return compared


def apart(got, want):
    """The largest difference of two gradients in parts of a tensor's norm, and of which tensor."""
    if got.keys() != want.keys():
        raise eq.Failed(f"other tensors: {sorted(got.keys() ^ want.keys())[:4]}")
    every = [x for v in want.values() for x in v]
    typical = eq.norm(every) / math.sqrt(len(every))
    worst = (0.0, "nothing")
    for name, v in want.items():
        d = math.dist(got[name], v) / max(eq.norm(v), TYPICAL * typical * math.sqrt(len(v)))
        worst = max(worst, (math.inf if d != d else d, name))
    return worst


def close(got, want, bound, what):
    """The largest difference, in units of what is allowed."""
    if len(got) != len(want):
        raise eq.Failed(f"{what}: {got}, and {want} of one rank")
    worst = max(abs(a - b) / abs(b) / bound for a, b in zip(got, want))
    if not worst <= 1:
        raise eq.Failed(f"{what}: {got}, and {want} of one rank: {worst:.3g} times as far off as allowed")
    return worst


def gradients(bench, model, l, precision, reduce):
    """The largest error in parts of what is allowed, and of which tensor."""
    grad = {}
    for name, target in (("cuda", eq.CUDA), ("cpu", [])):
        bench.program(model, l, precision, reduce, target, name)
        grad[name] = bench.first_step(model, name, l)
    if precision != "fp32":
        return max(bench.bounds(grad["cuda"], model, precision, reduce))
    worst = (0.0, "nothing")
    for other, want in (("the CPU target", grad["cpu"]), ("one rank", bench.reference(model, precision))):
        d, name = apart(grad["cuda"], want)
        if d > BOUND:
            raise eq.Failed(f"the gradient of {name} differs from that of {other} by {d:.3g} of its norm")
        worst = max(worst, (d / BOUND, name))
    return worst


def resumed(bench, model, l, precision, reduce):
    """Goes on from each target's checkpoint; the largest difference in parts of what is allowed."""
    losses, norms, text = bench.unbroken(model, precision)
    bound = BOUND if precision == "fp32" else sixteen.UNIT[precision]
    if reduce == "bf16":
        bound = max(bound, sixteen.UNIT["bf16"])
    bench.program(model, dict(eq.ONE, micro=lay.BATCH), precision, "fp32", [], "one")
    worst = (0.0, "nothing")
    for name, ranks, saved in (("cuda", l["ranks"], "cpu"), ("cpu", l["ranks"], "cuda"), ("one", 1, "cuda")):
        got = bench.rest(model, name, ranks, "--resume", f"{saved}.ck")
        what = f"`{name}` from the checkpoint of `{saved}`"
        worst = max(worst, (close(got[0], losses, bound, f"losses of {what}"), "losses"),
                    (close(got[1], norms, bound * (1 if bound == BOUND else 8), f"gradient norms of {what}"), "norms"))
        if bound == BOUND and got[2] != text:
            raise eq.Failed(f"{what} writes {got[2]!r}, and one rank {text!r}")
    return worst


def main():
    o = sixteen.arguments(__doc__, ["fp32", "bf16", "fp32", "fp16"])
    bench, passed, failed, cut, text = sixteen.sweep(o, "targets", Bench)
    print(f"{text}; the largest error is {bench.worst[0]:.2g} of what is allowed ({bench.worst[1]})")
    sys.exit(1 if failed or not passed or (not o.layout and (passed < o.count or (not cut and o.count > 3))) else 0)


if __name__ == "__main__":
    main()
