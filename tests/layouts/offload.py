#!/usr/bin/env python3
"""Offloading changes no bit: examples in drawn layouts, with the optimizer's state in memory and in files.

    tests/layouts/offload.py --dtc build/bin/dtc                         # 2 layouts of each example
    tests/layouts/offload.py --dtc build/bin/dtc --count 40 --ranks 8    # 40 of eight ranks each
    tests/layouts/offload.py --dtc build/bin/dtc --model gpt2 --layout "tp=2 zero=1 micro=2 ranks=4"

Three steps in a drawn precision with a checkpoint after each: losses, gradient norms and the checkpoints' tensors are the same bytes
with --offload optimizer, in slices of 4096 bytes, as without. A run with it goes on from a checkpoint of the run without, and the other
way round, and both export the same weights. Layouts that dtc refuses are counted.
"""

import argparse
import glob
import json
import os
import random
import shutil
import sys
import tempfile

import equality as eq
import layouts as ly


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--dtc", required=True)
    p.add_argument("--count", type=int, default=2, help="layouts drawn for each model")
    p.add_argument("--layout", help="this one, as a failure prints it")
    p.add_argument("--precision", nargs="+", default=["fp32", "bf16", "fp16", "fp64"])
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--model", nargs="+", default=list(ly.SIZES), choices=list(ly.SIZES))
    p.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4, 8])
    return p.parse_args()


class Bench:
    def __init__(self, o, folder, name):
        self.runner, self.folder, self.model = eq.Runner(o.dtc, folder), folder, ly.model_of(name, folder)

    def run(self, l, offload, name, steps, *arguments):
        """A run of a program that is compiled; what it leaves is named `name`."""
        for old in glob.glob(f"{self.folder}/{name}.*"):
            (shutil.rmtree if os.path.isdir(old) else os.remove)(old)
        self.runner.environment = {"DT_OFFLOAD_SLICE": "4096"} if offload else {}
        where = ["--offload-dir", self.folder] if offload else []
        self.runner.must(
            ["./train-offload" if offload else "./train-plain", *ly.data_of(self.model, False), *self.model.arguments]
            + ["--ranks", str(l["ranks"]), "--threads", "2" if offload else "1", "--steps", str(steps), "--eval-every", "0"]
            + ["--timeout", "900", "--quiet", *where, *arguments]
        )
        left = glob.glob(f"{self.folder}/dtc-offload*")
        if left:
            raise eq.Failed(f"{left} is left")

    def trained(self, l, offload, name, *arguments):
        self.run(l, offload, name, eq.STEPS, "--log", f"{name}.jsonl", "--save", f"{name}.ck", "--save-every", "1", *arguments)
        with open(f"{self.folder}/{name}.jsonl") as f:
            return [(r["loss"], r["grad_norm"]) for r in map(json.loads, f) if "loss" in r]

    def state(self, name, step):
        """The bytes of a checkpoint's parts."""
        out = {}
        for path in glob.glob(f"{self.folder}/{name}.ck/step-{step:08d}/*.safetensors"):
            with open(path, "rb") as f:
                out[os.path.basename(path)] = f.read()
        return out

    def equal(self, a, b, step, what):
        x, y = self.state(a, step), self.state(b, step)
        if not x or x != y:
            raise eq.Failed(f"{what}: the checkpoints of step {step} differ")

    def check(self, l, precision):
        self.runner.built = {}
        self.runner.compile(self.model, l, "train-plain", (), precision)
        self.runner.compile(self.model, l, "train-offload", ("--offload", "optimizer"), precision)
        if self.trained(l, False, "plain") != self.trained(l, True, "offload"):
            raise eq.Failed("losses or norms differ")
        for step in range(1, eq.STEPS + 1):
            self.equal("plain", "offload", step, "offloaded")
        for offload, of in ((True, "plain"), (False, "offload")):
            self.trained(l, offload, "resumed", "--resume", f"{of}.ck/step-00000001")
            self.equal("plain", "resumed", eq.STEPS, f"resumed {'with' if offload else 'without'} --offload")
        weights = []
        for offload in (False, True):
            self.run(l, offload, "out", 0, "--resume", "plain.ck", "--export", "out.safetensors")
            with open(f"{self.folder}/out.safetensors", "rb") as f:
                weights.append(f.read())
        if weights[0] != weights[1]:
            raise eq.Failed("exported weights differ")


def main():
    o = arguments()
    o.dtc = os.path.abspath(o.dtc)
    folder = tempfile.mkdtemp(prefix="offload-")
    counts, rng = {"passed": 0, "refused": 0, "failed": 0}, random.Random(o.seed)
    ly.write_data(folder, random.Random(o.seed))
    every = [l for l in eq.layouts(ly.BATCH, o.ranks)]
    for name in o.model:
        bench, left = Bench(o, folder, name), o.count
        while left:
            l = eq.parse(o.layout) if o.layout else rng.choice(every)
            precision = rng.choice(o.precision)
            left = left - 1 if not o.layout else 0
            bench.runner.log = []
            try:
                bench.check(l, precision)
                counts["passed"] += 1
            except eq.Refused:
                counts["refused"] += 1
                left += not o.layout
            except eq.Failed as e:
                counts["failed"] += 1
                said = "\n    ".join([str(e), *bench.runner.log])
                print(
                    f"FAIL {name}: {said}\n  again: tests/layouts/offload.py --dtc {o.dtc} --model {name} "
                    f'--precision {precision} --layout "{eq.tell(l)}"',
                    flush=True,
                )
    shutil.rmtree(folder)
    print(f"seed {o.seed}: {counts['passed']} passed, {counts['failed']} failed, {counts['refused']} refused")
    sys.exit(1 if counts["failed"] or not counts["passed"] else 0)


if __name__ == "__main__":
    main()
