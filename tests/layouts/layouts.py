#!/usr/bin/env python3
"""Trains examples in fp64 in many layouts and compares each with one rank.

    tests/layouts/layouts.py --dtc build/bin/dtc --all            # every legal layout of three examples
    tests/layouts/layouts.py --dtc build/bin/dtc --every          # and every choice within each
    tests/layouts/layouts.py --dtc build/bin/dtc --count 40       # 40 drawn ones of each
    tests/layouts/layouts.py --dtc build/bin/dtc --model gpt2 --layout "tp=2 zero=1 micro=2 ranks=4"

A layout is (tp, pp, cp, sequence-parallel, attention on cp, zero, accumulate, gather, zero-group,
schedule, microbatches in flight, microbatch, ranks): all degrees that divide 1, 2, 3, 4, 6 and 8
ranks, and a microbatch for each kind that their number can be of: even, with a remainder, fewer
than stages, fewer than ranks.
--all runs every (tp, pp, cp, data ranks, zero, accumulate, schedule, microbatch), and draws the rest
for each: attention on cp, sequence-parallel, gather, zero-group, in flight; where the model does not
allow for what was drawn, the layout runs without it. --every runs all of those, too.
equality.py has the criterion. Three steps are run; targets of every other run leave all but one
data rank without a valid one, where the model's data allow for it.

Layouts come in an order that meets every pair of (axis, zero, schedule, kind of microbatch count)
early. A table says how often each was met, and the status is 1 if one that is legal, or a corner,
was not, in --all or --every, or if anything failed. Layouts that dtc refuses are counted, by what it says; any other
message or status is a failure. --seconds N stops after so long, --jobs N runs N at a time, and
--skip N leaves out N programs, a number that the progress of an earlier run printed.
"""

import argparse
import concurrent.futures
import itertools
import os
import random
import shutil
import struct
import sys
import tempfile
import time

import equality as eq

BATCH = 12
TRAIN = [f"lr={eq.RATE}", "warmup=0", "steps=10", "eps=1e-4", f"batch={BATCH}"]
SIZES = {  # small, odd in places, with layers for four stages
    "gpt2": ["vocab=50", "context=16", "layers=4", "heads=4", "dim=16", "length=16"],
    "llama": ["vocab=48", "layers=4", "heads=4", "kv_heads=2", "dim=16", "hidden=24", "length=16"],
    "classifier": ["vocab=40", "length=16", "layers=4", "heads=2", "dim=16", "classes=5"],
}


def arguments():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--dtc", required=True)
    p.add_argument("--count", type=int, default=40, help="layouts drawn for each model")
    p.add_argument("--all", action="store_true", help="every legal layout")
    p.add_argument("--every", action="store_true", help="every choice within each, too")
    p.add_argument("--layout", help="this one, as a failure prints it")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--model", nargs="+", default=list(SIZES), choices=list(SIZES))
    p.add_argument("--ranks", type=int, nargs="+", default=eq.RANKS)
    p.add_argument("--axes", nargs="*", default=["tp", "pp", "cp"], help="axes that may exceed 1")
    p.add_argument("--skip", type=int, default=0, help="programs to leave out at the beginning")
    p.add_argument("--jobs", type=int, default=1)
    p.add_argument("--cuda", action="store_true", help="layouts are CUDA programs whose kernels run on the CPU")
    p.add_argument("--seconds", type=float, default=float("inf"))
    p.add_argument("--sizes", nargs="+", default=[], help="other ones: heads=8 kv_heads=2")
    p.add_argument("--keep", action="store_true", help="keep the folder")
    return p.parse_args()


def write_data(folder, rng):
    state, tokens = 0, []
    for _ in range(16 * 60 + 1):
        state = (state * 5 + rng.randrange(3)) % 40
        tokens.append(state)
    with open(f"{folder}/tokens.bin", "wb") as f:
        f.write(struct.pack(f"<{len(tokens)}H", *tokens))
    tokens, labels = [rng.randrange(40) for _ in range(40 * 16)], [
        rng.randrange(5) for _ in range(40)
    ]
    for name in ("every", "few"):
        os.makedirs(f"{folder}/{name}", exist_ok=True)
        if (
            name == "few"
        ):  # in file order, so that only the first rank of a batch has targets that count
            labels = [y if i % BATCH == 0 else -100 for i, y in enumerate(labels)]
        eq.npy(f"{folder}/{name}/tokens.npy", "<i4", (40, 16), struct.pack("<640i", *tokens))
        eq.npy(f"{folder}/{name}/labels.npy", "<i4", (40,), struct.pack("<40i", *labels))


def resize(models, sizes):
    """Gives models other sizes than those of the list."""
    for name in models:
        all_of_it = dict(d.split("=") for d in SIZES[name] + sizes)
        SIZES[name] = [f"{k}={v}" for k, v in all_of_it.items()]


def model_of(name, folder):
    sizes = dict(d.split("=") for d in SIZES[name])
    arrays = name == "classifier"
    return eq.Model(
        name,
        f"{eq.ROOT}/examples/{name}.dt",
        SIZES[name] + TRAIN,
        [] if arrays else ["--data", f"{folder}/tokens.bin"],
        BATCH,
        ["--no-shuffle", "--data", f"{folder}/few"] if arrays else [],
        heads=int(sizes["heads"]),
        clip=1.0,
    )


def data_of(model, few):
    """Arguments that say which data a run reads; few: with hardly a valid target."""
    if not model.few:
        return []
    return model.few if few else ["--no-shuffle", "--data", model.few[-1][:-3] + "every"]


def order(every, rng, batch):
    """Lists of layouts that share a program, those first that meet new pairs, as far as a sample
    of candidates allows."""
    builds = {}
    for l in every:
        builds.setdefault(eq.build_key(l), []).append(l)
    left, seen, out = list(builds.values()), set(), []
    rng.shuffle(left)
    facts = [set().union(*(eq.pairs(l, batch) for l in b)) for b in left]
    alive, missing = list(range(len(left))), set().union(*facts) if facts else set()
    while missing - seen:
        best = max(rng.sample(alive, min(200, len(alive))), key=lambda i: len(facts[i] - seen))
        seen |= facts[best]
        alive.remove(best)
        out.append(left[best])
    return out + [left[i] for i in alive]


DRAWN = ["attention", "sequence", "gather", "group", "flight"]


def drawn(every, rng):
    """Of layouts that differ in DRAWN alone, one each; as many as can share a program do. In a group
    of one ZeRO comes to nothing: one in twenty of those is taken besides."""
    like, alone = {}, []
    for l in every:
        if eq.stage(l) < l["zero"] and l["group"] == 1:
            alone.append(l)
            continue
        key = tuple(l[f] for f in eq.FIELDS[:-1] if f not in DRAWN)
        like.setdefault(key, {}).setdefault(eq.build_key(l), []).append(l)
    out = []
    for builds in like.values():
        missing = {l["ranks"] for b in builds.values() for l in b}
        while missing:
            met = {k: [l for l in b if l["ranks"] in missing] for k, b in builds.items()}
            most = max(map(len, met.values()))
            chosen = met[rng.choice([k for k, b in met.items() if len(b) == most])]
            missing -= {l["ranks"] for l in chosen}
            out += chosen
    return out + rng.sample(alone, len(alone) // 20)


worker = {}  # of this process: its runner, and the runs on one rank


def start_worker(dtc, folder):
    worker["runner"] = eq.Runner(dtc, tempfile.mkdtemp(prefix="job-", dir=folder))
    worker["base"] = {}


def base_of(model, data):
    key = (model.name, tuple(data))
    if key not in worker["base"]:
        worker["base"][key] = worker["runner"].train(model, dict(eq.ONE, micro=BATCH), "base", data)
    return worker["base"][key]


def plainer(build, refused):
    """Layouts that share a program, without what the refusal is about; none if nothing is left out."""
    if refused not in DRAWN or build[0][refused] == eq.ONE[refused]:
        return []
    return [dict(l, **{refused: eq.ONE[refused]}) for l in build]


def check(model, build, first, again=False):
    """Runs layouts that share a program: (layout, passed, refused or failed, the rest) of each.
    `again`: those refused for a drawn choice are run without it."""
    runner, out = worker["runner"], []
    for i, l in enumerate(build):
        runner.log = []
        try:
            few = bool(model.few) and eq.data_ranks(l) > 1 and (first + i) % 2 == 1
            data = data_of(model, few)
            d = eq.differs(runner, model, base_of(model, data), l, data)
            out.append((l, "passed", (d, few)))
        except eq.Refused as e:
            out += [(rest, "refused", str(e)) for rest in build[i:]]
            plain = plainer(build[i:], str(e)) if again else []
            return out + check(model, plain, first + i, again)
        except eq.Failed as e:
            out.append((l, "failed", f"{e}\n    " + "\n    ".join(runner.log)))
    return out


def plan(o, folder, rng):
    """(model, layouts that share a program), those first that meet new pairs."""
    lists = []
    resize(o.model, o.sizes)
    for name in o.model:
        model = model_of(name, folder)
        if o.layout:
            builds = [[eq.parse(o.layout)]]
        else:
            every = eq.layouts(BATCH, o.ranks, o.axes)
            every = list(every) if o.every or not o.all else drawn(every, rng)
            builds = order(every, rng, BATCH)
            builds = builds if o.all or o.every else [[rng.choice(b)] for b in builds[: o.count]]
        lists.append([(model, b) for b in builds])
    return [x for row in itertools.zip_longest(*lists) for x in row if x]


def sweep(o, folder):
    jobs, coverage = plan(o, folder, random.Random(o.seed)), {m: eq.Coverage() for m in o.model}
    jobs = jobs[o.skip :]
    for model, build in jobs:
        for l in build:
            coverage[model.name].expect(l, model)
    counts, refused, worst, end = (
        {"passed": 0, "refused": 0, "failed": 0},
        {},
        (0.0, "nothing"),
        time.time() + o.seconds,
    )

    there, told, programs = sum(len(b) for _, b in jobs), time.time(), o.skip

    def take(model, results):
        nonlocal worst, told, programs
        programs += 1
        for l, what, rest in results:
            counts[what] += 1
            if what == "passed":
                coverage[model.name].ran(l, model, rest[1])
                worst = max(worst, rest[0])
            elif what == "refused":
                coverage[model.name].refuse(l, model)
                refused[rest] = refused.get(rest, 0) + 1
            else:
                print(
                    f"FAIL {model.name}: {rest}\n  again: tests/layouts/layouts.py --dtc {o.dtc} --model {model.name} "
                    f'{"--cuda " if o.cuda else ""}--layout "{eq.tell(l)}"',
                    flush=True,
                )

        if time.time() > told + 60:
            told = time.time()
            print(f"{sum(counts.values())} of {there}, {programs} programs: {counts}", file=sys.stderr, flush=True)

    with concurrent.futures.ProcessPoolExecutor(
        o.jobs, initializer=start_worker, initargs=(o.dtc, folder)
    ) as pool:
        waiting = {}
        for number, (model, build) in enumerate(jobs):
            if time.time() > end:
                break
            waiting[pool.submit(check, model, build, number, o.all)] = model
            if len(waiting) > 2 * o.jobs:
                for f in concurrent.futures.wait(waiting, return_when="FIRST_COMPLETED")[0]:
                    take(waiting.pop(f), f.result())
        for f in concurrent.futures.as_completed(waiting):
            take(waiting[f], f.result())
    return counts, refused, worst, coverage, there


def main():
    o = arguments()
    o.dtc = os.path.abspath(o.dtc)
    if o.cuda:
        eq.Runner.target = eq.CUDA
    folder = tempfile.mkdtemp(
        prefix="layouts-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    )
    try:
        write_data(folder, random.Random(o.seed))
        counts, refused, worst, coverage, there = sweep(o, folder)
    finally:
        if not o.keep:
            shutil.rmtree(folder)
    missed = []
    for name, c in coverage.items():
        print(f"{name}:")
        c.table()
        missed += [f"{name}: {a[1]} x {b[1]}" for a, b in c.missed()]
    missed += [c for c in eq.CORNERS if not any(c in x.corners for x in coverage.values())]
    for what, n in sorted(refused.items()):
        print(f"refused, {what}: {n}")
    print(
        f"seed {o.seed}: {there} layouts, {counts['passed']} passed, {counts['failed']} failed, {counts['refused']} "
        f"refused; the largest difference is {worst[0]:.3g} of what is allowed ({worst[1]})"
    )
    if (o.all or o.every) and missed:
        print("not met:", *missed, sep="\n  ")
    sys.exit(1 if counts["failed"] or not counts["passed"] or ((o.all or o.every) and missed) else 0)


if __name__ == "__main__":
    main()
