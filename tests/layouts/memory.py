#!/usr/bin/env python3
"""Trains examples in many layouts and compares the memory that each rank used with its plan.

    tests/layouts/memory.py --dtc build/bin/dtc [--count 34] [--seed 1] [--threads 3] [--model gpt2] [--ranks 4 8]

So many layouts of each model are drawn as layouts.py does it, those first that meet new pairs of
(axis, zero, schedule, kind of microbatch count). With DT_MEMORY_CHECK every region of a rank begins
as a pattern, and the runtime tells how far each was written. Checked, for each layout:
  of every stage, the most that any rank used of a region is the plan's bytes, but for what aligns
  its end (under 64 bytes); no rank used more; for the buffers that files are gathered in,
  and where data is staged for other ranks, the plan is a bound
  on one thread some rank asks for the scratch that was planned, to the byte; no thread uses more
  than it asked for
  with --offload no region holds moments, and the file that report and program name has their bytes
  regions add up to what `dtc --report --dp N` and `train --info --ranks N` say of the stage that
  needs most
  with --zero 3 a rank has, of parameters, gradients and moments, the sum over units of
  ceil(n / owners) elements, counted here from the model's tensors
  loss and norm are the same bits as without the pattern: nothing is read that was not written
"""
import argparse
import glob
import itertools
import json
import os
import random
import shutil
import sys
import tempfile

import equality as eq
import layouts

ALIGNMENT = 64
# What a file's chunks need depends on how they fall on the ranks' pieces; slots of the exchange take
# turns; a block of attention uses less of its scratch where there are few queries.
BOUNDS = ["collected", "exchange", "scratch", "staging"]
AWAY = []  # --offload: options of dtc


def arguments():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--dtc", required=True)
    p.add_argument("--count", type=int, default=34, help="layouts drawn for each model")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--model", nargs="+", default=list(layouts.SIZES), choices=list(layouts.SIZES))
    p.add_argument("--ranks", type=int, nargs="+", default=eq.RANKS)
    p.add_argument("--threads", type=int, help="of a rank; else 3 in every third layout, and 1")
    p.add_argument("--layout", help="this one, as a failure prints it")
    p.add_argument("--axes", nargs="*", default=["tp", "pp", "cp"], help="axes that may exceed 1")
    p.add_argument("--cuda", action="store_true", help="CUDA programs whose kernels run on the CPU")
    p.add_argument("--offload", action="store_true", help="the optimizer's state is in files")
    p.add_argument("--keep", action="store_true", help="keep the folder")
    return p.parse_args()


def train(runner, model, l, name, check, threads):
    """The log's losses and norms of two steps with a validation and a checkpoint after each, the first behind the second."""
    for old in glob.glob(f"{glob.escape(runner.folder)}/{name}.*"):
        (shutil.rmtree if os.path.isdir(old) else os.remove)(old)
    command = ["./train-memory", *model.arguments, "--ranks", str(l["ranks"]),
               "--threads", str(threads), "--steps", "2", "--eval-every", "2", "--save", f"{name}.ck", "--save-every", "1",
               "--log", f"{name}.jsonl", "--quiet", *(["--offload-dir", runner.folder] if AWAY else [])]
    runner.must((["env", f"DT_MEMORY_CHECK={name}.used"] if check else []) + command)
    with open(f"{runner.folder}/{name}.jsonl") as f:
        return [(r["loss"], r["grad_norm"]) for r in map(json.loads, f) if "loss" in r]


def regions(runner, name, ranks):
    """(stage, region) -> (planned, most used); bytes that each rank planned; threads' scratch."""
    out, totals, scratch = {}, [], []
    for rank in range(ranks):
        with open(f"{runner.folder}/{name}.used.{rank}") as f:
            told = json.load(f)
        names = []
        for r in told["regions"]:
            names.append(r["name"])
            key = told["stage"], f"{r['name']} {names.count(r['name'])}"
            planned, used = out.get(key, (r["planned"], 0))
            if planned != r["planned"]:
                raise eq.Failed(f"rank {rank} planned {r['planned']} bytes of {key}, not {planned}")
            out[key] = planned, max(used, r["used"])
        totals.append(sum(r["planned"] for r in told["regions"]))
        scratch += [r for r in told["regions"] if r["name"] == "scratch"]
    return out, totals, scratch


def check_use(used, alignment):
    wrong = []
    for (stage, name), (planned, most) in sorted(used.items()):
        exact = name.split()[0] not in BOUNDS
        if most > planned or (exact and planned - most >= alignment):
            wrong.append(f"stage {stage} used {most} of {planned} bytes of {name}")
    if wrong:
        raise eq.Failed("\n  ".join(wrong))


def check_scratch(runner, scratch, threads, ranks):
    if runner.target:  # a device has one, and all of it is planned
        if len(scratch) != ranks or any(r["used"] != r["planned"] for r in scratch):
            raise eq.Failed(f"a device's scratch is one of {scratch}")
        return
    if len(scratch) != threads * ranks:
        raise eq.Failed(f"scratch of {len(scratch)} threads, not of {threads} on {ranks} ranks")
    for r in scratch:
        if not r["used"] <= r["asked"] <= r["most"] < r["planned"]:
            raise eq.Failed(f"a thread's scratch is {r}")
    if threads == 1 and max(r["asked"] for r in scratch) != scratch[0]["most"]:
        raise eq.Failed(f"more scratch is planned than any thread asks for: {scratch}")


def json_of(text):
    """The object in a program's output, which notes may come before."""
    if "{" not in text:
        raise eq.Failed(f"no JSON in: {text}")
    return json.loads(text[text.index("{"):])


def check_plan(runner, model, l, totals, threads):
    """Returns what the program says of itself."""
    dp = eq.data_ranks(l)
    info = json_of(runner.must(["./train-memory", "--info", "--ranks", str(l["ranks"]),
                                "--threads", str(threads), "--save", "any", "--save-every", "1"]))
    command = [runner.dtc, model.path, "--precision", "fp64", *eq.options(l), "--dp", str(dp),
               *runner.target, *AWAY, "--report=json"]
    for d in model.defines + [f"microbatch={l['micro']}"]:
        command += ["-D", d]
    report = json_of(runner.must(command))
    # The report counts one thread.
    more = 0 if runner.target else (threads - 1) * report["memory"]["scratch"]
    more += report["memory"]["snapshot"]
    said = [report["memory"]["total"] + more, info["memory"]["total"], max(totals)]
    if len(set(said)) > 1:
        raise eq.Failed("the report says {} bytes, the program {}, its regions have {}".format(*said))
    files = report["memory"]["file"], info["memory"]["levels"]["file"]
    if files[0] != files[1] or bool(files[0]) != bool(AWAY):
        raise eq.Failed("the report has a file of {} bytes, the program one of {}".format(*files))
    return info


def pieces(info, owners):
    """Elements of the largest piece of each unit (a layer, or a tensor outside stacks), added up."""
    stacks, out = {}, 0
    for t in info["tensors"]:
        n = 1
        for x in t["shape"]:
            n *= x
        if "*" not in t["name"]:
            out += -(-n // owners)
            continue
        stack = t["name"].split(".*")[0], t["shape"][0]
        # Each begins at a multiple of 16.
        stacks[stack] = stacks.get(stack, 0) + -(-n // t["shape"][0] // 16) * 16
    return out + sum(count * -(-layer // owners) for (_, count), layer in stacks.items())


def check_pieces(info, used, l):
    """Whether ZeRO 3's pieces were seen; without tp and pp the model's tensors are a rank's."""
    owners = l["group"] or l["ranks"]
    if l["zero"] != 3 or l["tp"] > 1 or l["pp"] > 1 or owners == 1:
        return False
    want = 8 * pieces(info, owners)
    sums = ["sums 1"] if l["accumulate"] == "each" else []  # else they are whole until the last
    for name in ["parameters 1", *([] if AWAY else ["moments 1", "moments 2"]), *sums]:
        if used[0, name][0] != want:
            raise eq.Failed(f"{used[0, name][0]} bytes of {name}, not {want}: of each unit "
                            f"ceil(n / {owners})")
    return True


def check(runner, model, l, threads):
    runner.compile(model, l, "train-memory", [*runner.target, *AWAY])
    plain = train(runner, model, l, "plain", False, threads)
    seen = train(runner, model, l, "seen", True, threads)
    if seen != plain or len(plain) != 2:
        raise eq.Failed(f"what was never written is read: {plain} became {seen}")
    used, totals, scratch = regions(runner, "seen", l["ranks"])
    if AWAY and any("moments" in name or "masters" in name for _, name in used):
        raise eq.Failed("moments are in memory")
    check_use(used, ALIGNMENT * (4 if runner.target else 1))  # where storage in a frame begins
    check_scratch(runner, scratch, threads, l["ranks"])
    return check_pieces(check_plan(runner, model, l, totals, threads), used, l)


def with_data(model, folder):
    """The same, with arguments that name training and validation data."""
    if not model.arguments:
        arrays = ",".join(f"{a}={folder}/every/{a}.npy" for a in ("tokens", "labels"))
        model.arguments = ["--data", arrays]
    model.arguments += ["--val", model.arguments[-1]]
    return model


def drawn(o, rng):
    """One that holds ZeRO 3's pieces on the most ranks, then those drawn."""
    if o.layout:
        return [eq.parse(o.layout)]
    builds = layouts.order(eq.layouts(layouts.BATCH, o.ranks, o.axes), rng, layouts.BATCH)
    first = eq.parse(f"zero=3 accumulate=each micro=2 ranks={max(o.ranks)}")
    return itertools.chain([first], (rng.choice(b) for b in builds))


def main():
    o = arguments()
    rng, folder = random.Random(o.seed), tempfile.mkdtemp(prefix="memory-")
    layouts.write_data(folder, rng)
    if o.offload:
        AWAY.extend(["--offload", "optimizer"])
    if o.cuda:
        eq.Runner.target = eq.CUDA
    runner, done, failed, refused, shown = eq.Runner(os.path.abspath(o.dtc), folder), 0, 0, 0, 0
    for name in o.model:
        model, left = with_data(layouts.model_of(name, folder), folder), o.count
        for l in drawn(o, rng):
            if not left:
                break
            runner.log = []
            try:
                shown += check(runner, model, l, o.threads or (3 if done % 3 == 1 else 1))
            except eq.Refused:
                refused += 1
                continue
            except eq.Failed as e:
                failed += 1
                print(f"FAIL {name}: {eq.tell(l)}\n  {e}", *runner.log, sep="\n    ", flush=True)
            left -= 1
            done += 1
    print(f"seed {o.seed}: {done} layouts, {failed} failed, {refused} others are refused; "
          f"{shown} held ZeRO 3's pieces")
    if o.keep:
        print(folder)
    else:
        shutil.rmtree(folder)
    sys.exit(1 if failed or not done else 0)


if __name__ == "__main__":
    main()
