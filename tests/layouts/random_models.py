#!/usr/bin/env python3
"""Trains random models in fp64 in drawn layouts and compares each with one rank.

    tests/layouts/random_models.py --dtc build/bin/dtc  # 200 models x 10 layouts
    tests/layouts/random_models.py --dtc build/bin/dtc --models 2000 --layouts 3 --jobs 2  # four hours of processor time
    tests/layouts/random_models.py --dtc build/bin/dtc --models 3 --layouts 3 --seed 5
    tests/layouts/random_models.py --dtc build/bin/dtc --model 17 --seed 5  # model 17 of the seed's alone
    tests/layouts/random_models.py --dtc build/bin/dtc --found --models 0  # what failed once, and must not again

models.py draws them, equality.py has the criterion. For most models dtc's limits are lowered in the
layouts (DTC_LIMITS), so that they take the paths of large models; the run on one rank has the
default limits, but for the level of optimisation. A model is drawn again that comes within 1e-6 of a kink in its three steps, whose
loss is not finite, or that makes too much of rounding: its weights moved by one unit in their last
place, four times at random, move one rank's run by over a quarter of what a layout may differ. All are counted. Layouts that dtc refuses are counted by what it says, and others taken.
Some models are compiled for another processor; the first loss of some in 16 or 32 bits must be within a
tenth of that in fp64; and of some, the sources that --save-temps leaves are built and run, too.
A failure is reduced, by taking parts of the model away and degrees of the layout down, and printed
with the command that repeats it. A pair of (axis, zero, schedule, kind of microbatch count) or a
corner that no layout had is an error of a run of 50 models or more.
"""

import argparse
import concurrent.futures
import copy
import glob
import json
import math
import os
import random
import re
import shutil
import struct
import sys
import tempfile
import time

import equality as eq
import models


def arguments():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--dtc", required=True)
    p.add_argument("--models", type=int, default=200)
    p.add_argument("--layouts", type=int, default=10, help="of each model")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--ranks", type=int, nargs="+", default=eq.RANKS)
    p.add_argument("--model", type=int, help="this one of the seed's models alone")
    p.add_argument("--spec", help="a model as a failure prints it, with --layout")
    p.add_argument("--layout", help="a layout as a failure prints it")
    p.add_argument("--found", action="store_true", help="the cases of tests/layouts/found first")
    p.add_argument("--jobs", type=int, default=1)
    p.add_argument("--cuda", action="store_true", help="layouts are CUDA programs whose kernels run on the CPU")
    p.add_argument(
        "--seconds", type=float, default=float("inf"), help="begin no model after so long"
    )
    p.add_argument("--tries", type=int, default=60, help="most runs to reduce a failure")
    p.add_argument("--keep", action="store_true", help="keep the folder")
    return p.parse_args()


ROUNDING = 0.25  # of what is allowed
COARSE = 0.1  # of the loss, in less than 64 bits
MOVES = 4  # of the weights, to see what a model makes of rounding
MORE_MOVES, NOT_MUCH = 16, 3  # where a layout differs by no more times what is allowed


class Redraw(Exception):
    pass


def next_to(source, out, rng):
    """Writes the fp64 tensors of a file, each element moved to the next number up or down."""
    with open(source, "rb") as f:
        data = f.read()
    head = 8 + struct.unpack("<Q", data[:8])[0]
    count = (len(data) - head) // 8
    moved = [
        math.nextafter(x, rng.choice([-math.inf, math.inf]))
        for x in struct.unpack(f"<{count}d", data[head:])
    ]
    with open(out, "wb") as f:
        f.write(data[:head] + struct.pack(f"<{count}d", *moved))


class Case:
    """A spec with its files, and its runs on one rank."""

    def __init__(self, runner, spec):
        self.runner, self.spec, self.base = runner, spec, {}
        runner.limits = spec.get("one_rank", "")
        for kinks in (False, True):
            with open(self.path("near" if kinks else "model"), "w") as f:
                f.write(models.source(spec, kinks))
        models.write_data(spec, runner.folder, random.Random(spec["seed"]))
        few = ["targets"] if spec["few"] and spec["loss"] not in models.REAL else []
        heads = [p["heads"] for b in spec["blocks"] for p in b["parts"] if "heads" in p]
        self.model = self.named("model", few, min(heads, default=0))
        self.near = self.named("near", few, 0)

    def path(self, name):
        return f"{self.runner.folder}/{models.file_name(self.spec) if name == 'model' else name}.dt"

    def named(self, name, few, heads, target=()):
        return eq.Model(
            name,
            self.path(name),
            batch=self.spec["batch"],
            few=few,
            local=self.spec["local"],
            heads=heads,
            clip=self.spec["clip"],
            took=models.took(self.spec),
            options=target or (["--arch", self.spec["arch"]] if self.spec.get("arch") and not self.runner.target else []),
            val=bool(self.spec.get("val")),
            arguments=["--no-shuffle"] if few else [],
        )

    def base_of(self, l):
        """One rank's run; statistics of a microbatch are those of equal microbatches."""
        micro = self.micro_of(l)
        if micro not in self.base:
            try:
                base = self.runner.train(self.near, dict(eq.ONE, micro=micro), "base")
            except eq.Failed as e:
                if "exit status 79" in str(e):
                    raise Redraw("not finite")
                raise
            if any(r.get("near", 0) for r in base[0]):
                raise Redraw("kink")
            if self.makes_of_rounding(base, micro) > ROUNDING:
                raise Redraw("rounding")
            self.base[micro] = base
        return self.base[micro]

    def micro_of(self, l):
        return l["micro"] if self.spec["local"] else self.spec["batch"]

    def makes_of_rounding(self, base, micro, moves=MOVES):
        """How far the last places of the weights move one rank's run, in units of what is allowed.

        One move may show little of it by chance: of seven of a model, one came to 0.19, the others to
        1.1 and more.
        """
        folder, worst = self.runner.folder, 0.0
        self.runner.must(
            ["./train-base", "--steps", "0", "--quiet", "--export", "start.safetensors"]
        )
        for move in range(moves):
            rng = random.Random(f"{self.spec['seed']} {move}")
            next_to(f"{folder}/start.safetensors", f"{folder}/moved.safetensors", rng)
            moved = self.runner.train(
                self.near, dict(eq.ONE, micro=micro), "base", ["--init", "moved.safetensors"]
            )
            worst = max(worst, eq.compare(base, moved, self.model.clip, self.model.took)[0])
            if worst > ROUNDING:
                break
        return worst

    def rebuild(self, l):
        """The sources that dtc leaves make a program that does the same in its first steps, to the bit."""
        runner, losses = self.runner, []
        runner.built = {}
        runner.compile(self.model, l, "train-left", ["--save-temps", "left", *runner.target])
        runner.must(["make", "-s", "-C", "left"])
        for program in ("./train-left", "left/train"):
            runner.must(
                [program, "--ranks", str(l["ranks"]), "--threads", "1", "--steps", "2", "--eval-every", "0"]
                + ["--log", "left.jsonl", "--quiet", *self.model.arguments]
            )
            with open(f"{runner.folder}/left.jsonl") as f:
                losses.append([r["loss"] for r in map(json.loads, f) if "loss" in r][-2:])
        if losses[0] != losses[1]:
            raise eq.Failed(f"built from sources that dtc left its losses are {losses[1]}, not {losses[0]}")

    def places(self, l):
        """Each statement in the text of kernels names its place in the source, but for those of the update."""
        runner = self.runner
        runner.compile(self.model, l, "kernels.txt", ["--emit", "kernels"])
        with open(f"{runner.folder}/kernels.txt") as f:
            text = f.read()
        for function in re.split(r"^(?=\S+: \d+ kernel)", text, flags=re.M):
            if function.startswith("update:"):
                continue
            # A long statement goes on in lines of greater indentation.
            for stmt in re.findall(r"^      \S.* \+?= .*(?:\n          .*)*", function, flags=re.M):
                if not re.search(r"# [^#]*:\d+$| = 0$", stmt):  # zeros that others add to have none
                    raise eq.Failed(f"no place in the text of kernels: {stmt}")
        runner.compile(self.model, l, "kernels.ll", ["--emit", "llvm"])
        with open(f"{runner.folder}/kernels.ll") as f:
            llvm = f.read()
        for name in re.findall(r"^  loops (\S+):", text, flags=re.M):
            if f"@kernel.{name}(" not in llvm:
                raise eq.Failed(f"kernel {name} is not in the text of LLVM")

    def coarse(self, l):
        """How far the first loss of a program of 16 or 32 bits is off, in units of what is allowed: 10%."""
        runner = self.runner
        wide = self.spec.get("wide_residual") and self.spec["half"] != "fp32"
        try:
            extra = runner.target + ["-D", "residual=fp32"] * bool(wide)
            runner.compile(self.model, l, "train-coarse", extra, self.spec["half"])
        except eq.Failed as e:
            if not wide or "has no residual stream" not in str(e):
                raise
            runner.compile(self.model, l, "train-coarse", runner.target, self.spec["half"])
        runner.must(
            ["./train-coarse", "--ranks", str(l["ranks"]), "--threads", "1", "--steps", "2", "--eval-every", "0"]
            + ["--log", "coarse.jsonl", "--quiet", *self.model.arguments]
        )
        with open(f"{runner.folder}/coarse.jsonl") as f:
            loss = [r["loss"] for r in map(json.loads, f) if "loss" in r][-2]  # logs are added to
        want = self.base_of(l)[0][0]["loss"]
        off = abs(loss - want) / (COARSE * max(1, abs(want)))
        if not off <= 1:
            raise eq.Failed(f"in {self.spec['half']} the first loss is {loss}, not {want}")
        return off

    def same_bits(self, l):
        """Recomputation gives the losses and the states of the same layout without it, to the bit.

        Where stages share layers that run twice, they must be cut alike: each stage adds up its part of the gradients.
        """
        self.runner.limits = self.spec.get("limits", "")
        try:
            again, plain = (
                self.runner.train(self.model, x, name) for x, name in ((l, "again"), (dict(l, checkpoint="none"), "plain"))
            )
        finally:
            self.runner.limits = self.spec.get("one_rank", "")
        losses = [[(r["loss"], r["grad_norm"]) for r in run[0]] for run in (again, plain)]
        if losses[0] != losses[1] or again[1] != plain[1]:
            if l["pp"] > 1 and self.cut(l) != self.cut(dict(l, checkpoint="none")):
                return
            raise eq.Failed(f"--checkpoint {l['checkpoint']} gives other bits than none: {losses}")

    def cut(self, l):
        """What each stage of a pipeline holds."""
        self.runner.limits = self.spec.get("limits", "")
        try:
            l = self.runner.checkpoint(self.model, l, "fp64")
            text = self.runner.ask(self.model, l, "fp64", ["--dump-after", "pipeline", "--emit", "c"])
        finally:
            self.runner.limits = self.spec.get("one_rank", "")
        return re.findall(r"^chunk \d+ holds .*", text, flags=re.M)

    def differs_on_cuda(self, l):
        """Compares the CUDA program, emulated, with the CPU's on one rank; by its first loss in less than 64 bits. It has
        one rank, too, or two where the layout has a ring."""
        one, ring = dict(eq.ONE, micro=l["micro"]), l["attention"] == "ring"
        if ring:
            one |= {"cp": 2, "ranks": 2, "attention": "ring"}
        cpu, self.model = self.model, self.named("model", self.model.few, 0, ["--target", "cuda", "--emulate"])
        try:
            self.differs(one)
            if self.spec.get("half") and not ring:
                self.coarse(one)
            if self.spec.get("sources"):
                self.rebuild(one)
        except eq.Failed as e:
            raise eq.Failed(f"as a CUDA program {e}")
        finally:
            self.model = cpu

    def differs(self, l):
        """Compares with one rank; limits are lowered for the layout alone."""
        base = self.base_of(l)
        self.runner.limits = self.spec.get("limits", "")
        try:
            return eq.differs(self.runner, self.model, base, l)
        except eq.Failed as e:
            failed = e
        finally:
            self.runner.limits = self.spec.get("one_rank", "")
        # A few moves may have shown too little of what the model makes of rounding.
        if failed.times < NOT_MUCH:
            if self.makes_of_rounding(base, self.micro_of(l), MORE_MOVES) > ROUNDING:
                raise Redraw("rounding")
        raise failed


# ---- reducing


def smaller_specs(spec):
    """Specs with less in them."""
    for n, block in enumerate(spec["blocks"]):

        def changed(**fields):
            s = copy.deepcopy(spec)
            s["blocks"][n].update(fields)
            return s

        if len(spec["blocks"]) > 1:
            s = copy.deepcopy(spec)
            del s["blocks"][n]
            yield s
        for k in range(len(block["parts"])):
            if len(block["parts"]) > 1:
                yield changed(parts=block["parts"][:k] + block["parts"][k + 1 :])
            if block["parts"][k]["normed"]:
                yield changed(
                    parts=[
                        dict(p, normed=p["normed"] and i != k) for i, p in enumerate(block["parts"])
                    ]
                )
        for name in ("twice", "aux", "number", "nest"):
            if block[name]:
                yield changed(**{name: 0 if name == "nest" else False})
        if block["count"] > 1:
            yield changed(count=1)
        if block["count"]:
            yield changed(count=0, nest=0)
    limits = spec.get("limits", "").split(",")
    if limits != [""]:
        half = len(limits) // 2
        for fewer in [[], limits[:half], limits[half:]] if half else [[]]:
            yield dict(copy.deepcopy(spec), limits=",".join(fewer))
    for name in ("memory", "last_norm", "metric", "drawn", "ends", "few", "optimizer", "ending", "asked", "names", "arch", "val", "skips", "bare"):
        if spec.get(name):
            yield {k: v for k, v in copy.deepcopy(spec).items() if k != name} | (
                {name: False} if isinstance(spec[name], bool) else {}
            )
    for name, least in (("positions", "none"), ("clip", 0.0), ("decay", 0.0), ("pool", "mean")):
        if spec[name] != least:
            yield dict(copy.deepcopy(spec), **{name: least})


def smaller_layouts(l):
    """Layouts with less in them, of the same or fewer ranks."""
    for axis in ("tp", "pp", "cp"):
        if l[axis] > 1:
            for d in (1, 2):
                if d < l[axis] and l[axis] % d == 0:
                    yield dict(
                        l,
                        **{axis: d, "ranks": l["ranks"] * d // l[axis], "group": 0},
                        sequence=l["sequence"] and (axis != "tp" or d > 1),
                        attention="gather" if axis == "cp" and d == 1 else l["attention"],
                    )
    dp = eq.data_ranks(l)
    if dp > 1:
        yield dict(l, ranks=l["ranks"] // dp, group=0)
    if l["zero"]:
        yield dict(l, zero=0, gather="each", group=0)
    for name in ("sequence", "attention", "accumulate", "gather", "group", "schedule", "checkpoint"):
        if l[name] != eq.ONE[name]:
            yield dict(l, **{name: eq.ONE[name]})


def fails(runner, spec, l):
    """What a failure says, or None."""
    try:
        runner.built = {}
        case = Case(runner, spec)
        case.base_of(l)
        try:
            case.differs(l)
            if l["checkpoint"] != "none" and not runner.target:  # on a GPU sums of recomputed kernels may have another order
                case.same_bits(l)
        except eq.Failed as e:
            return str(e)
    except (eq.Failed, eq.Refused, Redraw):
        pass
    return None


def reduce(runner, spec, l, tries):
    """A smaller failure, and what it says."""
    said, more = None, True
    while more:
        more = False
        for s, m in [(spec, x) for x in smaller_layouts(l)] + [(x, l) for x in smaller_specs(spec)]:
            tries -= 1
            if tries < 0:
                return spec, l, said
            text = fails(runner, s, m)
            if text:
                spec, l, said, more = s, m, text, True
                break
    return spec, l, said


# ---- one model


def report(runner, spec, l, tries, dtc):
    """What to print of a failure."""
    runner.log.clear()
    s, m, said = reduce(runner, spec, l, tries)
    cuda = "--cuda " if eq.Runner.target else ""
    again = f"tests/layouts/random_models.py --dtc {dtc} {cuda}--layout \"{eq.tell(m)}\" --spec '{json.dumps(s)}'"
    return (
        f"  reduced: {said or 'no smaller one fails'}\n  layout: {eq.tell(m)}\n  again: {again}\n"
        + models.source(s, False)
    )


def draw_case(runner, seed, number):
    """The first draw that is not near a kink; how many were drawn again, by why."""
    redrawn = {}
    for attempt in range(50):
        spec = models.draw(random.Random(f"{seed} {number} {attempt}"))
        case = Case(runner, spec)
        runner.built = {}
        try:
            case.base_of(dict(eq.ONE, micro=2))
            return case, redrawn
        except Redraw as e:
            redrawn[str(e)] = redrawn.get(str(e), 0) + 1
    raise eq.Failed("50 draws in a row were near a kink")


def attends(spec):
    return any("attention" in p["part"] or p["part"] == "sinks" for b in spec["blocks"] for p in b["parts"])


def aims(spec):
    """Whether a layout does to attention, or to stacks, what others do not: half of the draws are of those."""
    parts = [p for b in spec["blocks"] for p in b["parts"]]
    grouped = [p for p in parts if p.get("which") == "grouped" or p["part"] == "sinks"]
    groups = any(1 < p["kv"] < p["heads"] for p in grouped)
    nested = spec["memory"] and any(b["count"] and b["nest"] for b in spec["blocks"])
    turns = attends(spec)

    def aimed(l):
        return (
            (groups and l["tp"] % 4 == 0)
            or (turns and l["attention"] == "ring")
            or (nested and l["schedule"] == "zb")
        )

    return aimed


def run_model(dtc, folder, seed, number, ranks, layouts, tries):
    """Results of one model: (layout, what, rest) each, and what was drawn again."""
    runner, out, ran = eq.Runner(dtc, tempfile.mkdtemp(prefix="model-", dir=folder)), [], 0
    try:
        case, redrawn = draw_case(runner, seed, number)
    except (eq.Failed, eq.Refused) as e:
        return None, [(eq.ONE, "failed", f"{e}\n    " + "\n    ".join(runner.log))], {}
    legal = [
        l
        for l in eq.layouts(
            case.model.batch, ranks, ("tp", "pp", "cp") if case.spec["sequence"] else ("tp", "pp")
        )
        if l["ranks"] > 1 or l["zero"] or l["micro"] != case.model.batch
    ]
    if case.spec["single"]:  # microbatches of one sample, where they are as many as others
        batch = case.model.batch
        legal = [
            dict(l, micro=1) if eq.kind(dict(l, micro=1), batch) == eq.kind(l, batch) else l
            for l in legal
        ]
    r, seen, tried = random.Random(f"{seed} {number} layouts"), set(), 0
    aimed, again = aims(case.spec), random.Random(f"{seed} {number} recomputation")
    while legal and ran < layouts and tried < 20 * layouts:
        tried += 1
        some = [l for l in legal if aimed(l)] if r.random() < 0.5 else []
        l = max(
            r.sample(some or legal, min(30, len(some or legal))),
            key=lambda x: len(eq.pairs(x, case.model.batch) - seen),
        )
        l = dict(l, checkpoint=again.choice(["none", "full", "selective", "auto"]))
        runner.log = []
        try:
            out.append((l, "passed", case.differs(l)))
            if l["checkpoint"] != "none" and not runner.target:  # on a GPU sums of recomputed kernels may have another order
                case.same_bits(l)
            if case.spec.get("sources") and ran == 0:
                case.rebuild(l)
                case.places(l)
            if case.spec.get("half") and l["attention"] != "ring":
                case.coarse(l)
            if case.spec.get("cuda") and ran == 0 and not runner.target:
                rings = [x for x in legal if x["attention"] == "ring"] if attends(case.spec) else []
                case.differs_on_cuda(again.choice(rings) if rings and again.random() < 0.5 else l)
            seen |= eq.pairs(l, case.model.batch)
            ran += 1
        except eq.Refused as e:
            out.append((l, "refused", str(e)))
            seen |= eq.pairs(l, case.model.batch)
        except Redraw as e:
            redrawn[str(e)] = redrawn.get(str(e), 0) + 1
            # Statistics over `local` make too much of rounding at every microbatch of this size.
            legal = [x for x in legal if x["micro"] != l["micro"]]
        except eq.Failed as e:
            said = f"{e}\n    " + "\n    ".join(runner.log)
            out.append(
                (l, "failed", f"{eq.tell(l)}\n  {said}\n{report(runner, case.spec, l, tries, dtc)}")
            )
            break
    if ran < layouts and (tried == 20 * layouts or not legal):
        few = f"only {ran} of {layouts} layouts ran, of {tried} that were tried"
        out.append((eq.ONE, "failed", few))
    shutil.rmtree(runner.folder)
    return case.model, out, redrawn


def run_found(o, folder, totals):
    """Models and layouts that failed once: `{"layout": ..., "spec": ...}` in files named by what is so."""
    for path in sorted(glob.glob(f"{os.path.dirname(os.path.abspath(__file__))}/found/*.json")):
        with open(path) as f:
            saved = json.load(f)
        name, l, case = os.path.basename(path)[:-5], eq.parse(saved["layout"]), None
        os.mkdir(f"{folder}/{name}")
        runner = eq.Runner(o.dtc, f"{folder}/{name}")
        try:
            case = Case(runner, saved["spec"])
            result = (l, "passed", case.differs(l))
            if l["checkpoint"] != "none":
                case.same_bits(l)
        except (eq.Failed, eq.Refused, Redraw) as e:
            result = (l, "failed", f"{type(e).__name__}: {e}\n    " + "\n    ".join(runner.log))
        totals.take(name, case and case.model, [result], {})


class Totals:
    def __init__(self):
        self.counts, self.refused, self.redrawn = {"passed": 0, "refused": 0, "failed": 0}, {}, {}
        self.worst, self.coverage, self.models = (0.0, "nothing"), eq.Coverage(), 0

    def take(self, number, model, results, redrawn):
        self.models += 1
        for why, n in redrawn.items():
            self.redrawn[why] = self.redrawn.get(why, 0) + n
        for l, what, rest in results:
            self.counts[what] += 1
            if what == "passed":
                self.coverage.ran(l, model, bool(model.few))
                self.worst = max(self.worst, rest)
            elif what == "refused":
                self.coverage.refuse(l, model)
                self.refused[rest] = self.refused.get(rest, 0) + 1
            else:
                print(f"FAIL model {number}: {rest}", flush=True)
        if self.models % 25 == 0:
            print(f"{self.models} models: {self.counts}", flush=True)


def run_all(o, folder, totals):
    end = time.time() + o.seconds
    with concurrent.futures.ProcessPoolExecutor(o.jobs) as pool:
        waiting = {}

        def collect(done):
            for f in done:
                totals.take(waiting.pop(f), *f.result())

        for number in [o.model] if o.model is not None else range(o.models):
            if time.time() > end:
                break
            waiting[
                pool.submit(run_model, o.dtc, folder, o.seed, number, o.ranks, o.layouts, o.tries)
            ] = number
            if len(waiting) > o.jobs:
                collect(concurrent.futures.wait(waiting, return_when="FIRST_COMPLETED")[0])
        collect(list(concurrent.futures.as_completed(waiting)))


def run_one(o, folder):
    """The model and layout that a failure printed."""
    case = Case(eq.Runner(o.dtc, folder), json.loads(o.spec))
    try:
        l = eq.parse(o.layout)
        d, what = case.differs(l)
        if l["checkpoint"] != "none":
            case.same_bits(l)
        if case.spec.get("cuda"):
            case.differs_on_cuda(l)
        print(f"passes: the largest difference is {d:.3g} of what is allowed ({what})")
        return 0
    except (eq.Failed, eq.Refused, Redraw) as e:
        print(f"{type(e).__name__}: {e}", *case.runner.log, f"in {folder}", sep="\n  ")
        return 1


def host_code_unoptimised(folder):
    """The programs' C code calls kernels, and is run for three steps: to optimise it takes longer."""
    with open(f"{folder}/cc", "w") as f:
        f.write(f'#!/bin/sh\nexec {os.environ.get("CC", "cc")} "$@" -O0\n')
    os.chmod(f"{folder}/cc", 0o755)
    os.environ["CC"] = f"{folder}/cc"


def main():
    o = arguments()
    o.dtc = os.path.abspath(o.dtc)
    if o.cuda:
        eq.Runner.target = eq.CUDA
    folder = tempfile.mkdtemp(
        prefix="models-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    )
    totals = Totals()
    host_code_unoptimised(folder)
    try:
        if o.spec:
            o.keep |= bool(run_one(o, folder))
            sys.exit(1 if o.keep else 0)
        for batch in (4, 5, 6, 7, 8, 12):
            for l in eq.layouts(batch, o.ranks):
                totals.coverage.expect(l, eq.Model("", "", batch=batch))
        if o.found:
            run_found(o, folder, totals)
        run_all(o, folder, totals)
    finally:
        if not o.keep:
            shutil.rmtree(folder)
    totals.coverage.table()
    for what, n in sorted(totals.refused.items()):
        print(f"refused, {what}: {n}")
    c, missed = totals.counts, []
    if o.model is None and o.models >= 50:
        missed = [f"{a[1]} x {b[1]}" for a, b in totals.coverage.missed()]
        missed += [corner for corner in eq.CORNERS if corner not in totals.coverage.corners]
    again = ", ".join(f"{n} {why}" for why, n in sorted(totals.redrawn.items())) or "none"
    print(
        f"seed {o.seed}: {totals.models} models, {c['passed']} layouts passed, {c['failed']} failed, {c['refused']} refused; drawn "
        f"again: {again}; the largest difference is {totals.worst[0]:.3g} of what is allowed ({totals.worst[1]})"
    )
    if missed:
        print("not met:", *missed, sep="\n  ")
    sys.exit(1 if c["failed"] or not c["passed"] or missed else 0)


if __name__ == "__main__":
    main()
