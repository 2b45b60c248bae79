#!/usr/bin/env python3
"""Recomputation changes no bit: examples in drawn layouts, with each choice of --checkpoint.

    tests/layouts/recompute.py --dtc build/bin/dtc                         # 2 layouts of each example
    tests/layouts/recompute.py --dtc build/bin/dtc --count 40 --ranks 8    # 40 of eight ranks each
    tests/layouts/recompute.py --dtc build/bin/dtc --model gpt2 --layout "tp=2 zero=1 micro=2 ranks=4"

Three steps in a drawn precision: losses, gradient norms and weights are those of --checkpoint none, to the last bit. Recomputation
never takes more memory for what layers save, and costs operations where it saves any; auto gets half of what lies between none and
full. Layouts that dtc refuses are counted.
"""

import argparse
import json
import os
import random
import shutil
import sys
import tempfile

import equality as eq
import layouts as ly

MODES = ["none", "full", "selective", "auto"]


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


def trained(runner, model, l, precision, mode):
    """Losses and gradient norms, and the bytes of the weights."""
    log, weights = f"{runner.folder}/log.jsonl", f"{runner.folder}/weights.safetensors"
    for old in (log, weights):
        if os.path.exists(old):
            os.remove(old)
    runner.built = {}
    runner.compile(model, dict(l, checkpoint=mode), "train-mode", (), precision)
    runner.must(
        ["./train-mode", *ly.data_of(model, False), *model.arguments, "--ranks", str(l["ranks"]), "--threads", "1"]
        + ["--steps", str(eq.STEPS), "--eval-every", "0", "--log", log, "--export", weights, "--quiet"]
    )
    with open(log) as f:
        records = [(r["loss"], r["grad_norm"]) for r in map(json.loads, f) if "loss" in r]
    with open(weights, "rb") as f:
        return records, f.read()


def check(runner, model, l, precision):
    report = {m: runner.report(model, l, m, precision) for m in ("none", "full", "selective")}
    total = {m: r["memory"]["total"] for m, r in report.items()}
    budget = (total["none"] + total["full"]) // 2
    choices = {m: m for m in MODES} | {"auto": f"auto:{budget}"}
    if total["full"] < total["none"]:
        report["auto"] = runner.report(model, l, choices["auto"], precision)
        if report["auto"]["memory"]["total"] > budget:
            raise eq.Failed(f"auto:{budget} needs {report['auto']['memory']['total']} bytes")
    else:
        del choices["auto"]
    for mode, r in report.items():
        again = r.get("recomputation", {"saved": 0, "saved_without": 0, "flops": 0, "total_without": total["none"]})
        if again["saved"] > again["saved_without"] or again["flops"] < 0 or again["total_without"] != total["none"]:
            raise eq.Failed(f"--checkpoint {mode}: {again}")
    want = trained(runner, model, l, precision, "none")
    for mode, option in choices.items():
        if mode != "none" and trained(runner, model, l, precision, option) != want:
            raise eq.Failed(f"--checkpoint {option} --precision {precision} gives other bits than none")


def main():
    o = arguments()
    o.dtc = os.path.abspath(o.dtc)
    folder = tempfile.mkdtemp(prefix="recompute-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    counts, rng = {"passed": 0, "refused": 0, "failed": 0}, random.Random(o.seed)
    ly.write_data(folder, random.Random(o.seed))
    every = [l for l in eq.layouts(ly.BATCH, o.ranks)]
    for name in o.model:
        model, runner, left = ly.model_of(name, folder), eq.Runner(o.dtc, folder), o.count
        while left:
            l = eq.parse(o.layout) if o.layout else rng.choice(every)
            precision = rng.choice(o.precision)
            left = left - 1 if not o.layout else 0
            runner.log = []
            try:
                check(runner, model, l, precision)
                counts["passed"] += 1
            except eq.Refused:
                counts["refused"] += 1
                left += not o.layout
            except eq.Failed as e:
                counts["failed"] += 1
                said = "\n    ".join([str(e), *runner.log])
                print(
                    f"FAIL {name}: {said}\n  again: tests/layouts/recompute.py --dtc {o.dtc} --model {name} "
                    f'--precision {precision} --layout "{eq.tell(l)}"',
                    flush=True,
                )
    shutil.rmtree(folder)
    print(f"seed {o.seed}: {counts['passed']} passed, {counts['failed']} failed, {counts['refused']} refused")
    sys.exit(1 if counts["failed"] or not counts["passed"] else 0)


if __name__ == "__main__":
    main()
