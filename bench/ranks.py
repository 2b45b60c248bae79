#!/usr/bin/env python3
"""Several ranks against one with as many threads, on one GPT-2 124M training step.

    bench/ranks.py --dtc build/bin/dtc [--length 64] [--batch 4] [--rounds 3] [--steps 6]
                   [--layout dp dp-zero1 tp pp ...] [--ranks 2] [--delay 20]

All train in fp32 with AdamW on the same global batch; one rank has N threads, N ranks have one
each. They run in turn, several rounds each, so that a busy moment meets all of them. Printed: the
median seconds a step, tokens/s, and those as a share of the one rank's, by medians of the
ratios within rounds. Nothing else should run meanwhile.

With --delay MS every layout also runs with MS milliseconds added to each exchange, which use
no processor: printed is how much longer a step takes, as a share of the sum of what was added on
rank 0, that is how much of the exchanges is not beside computation.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

import gpt2

# Name -> (options of dtc, whether the batch is shared out, microbatches of a rank's part)
LAYOUTS = {
    "one": ([], False, 1),
    "dp": ([], True, 1),
    "dp-zero1": (["--zero", "1"], True, 1),
    "dp-zero2": (["--zero", "2"], True, 1),
    "dp-zero3": (["--zero", "3"], True, 1),
    "tp": (["--tp", "{n}"], False, 1),
    "tp-halves": (["--tp", "{n}"], False, 2),
    "tp-in-flight": (["--tp", "{n}", "--in-flight", "2"], False, 2),
    "cp": (["--cp", "{n}"], False, 1),
    "cp-halves": (["--cp", "{n}"], False, 2),
    "cp-in-flight": (["--cp", "{n}", "--in-flight", "2"], False, 2),
    "pp": (["--pp", "{n}"], False, 4),
    "pp-gpipe": (["--pp", "{n}", "--schedule", "gpipe"], False, 4),
    "pp-interleaved": (["--pp", "{n}", "--schedule", "interleaved:2"], False, 4),
    "pp-zb": (["--pp", "{n}", "--schedule", "zb"], False, 4),
}
WARMUP = 2


def parse():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--dtc", required=True)
    p.add_argument("--length", type=int, default=64)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--rounds", type=int, default=3, help="times that each program is started")
    p.add_argument("--steps", type=int, default=6, help="timed steps of a round")
    p.add_argument("--layout", nargs="+", default=["dp", "dp-zero1", "tp", "pp"],
                   choices=[name for name in LAYOUTS if name != "one"])
    p.add_argument("--keep", metavar="DIR", help="programs are built there, or taken from there")
    p.add_argument("--delay", type=int, help="milliseconds added to each exchange")
    p.add_argument("--micro", type=int, default=1, help="times as many microbatches")
    p.add_argument("--profile", metavar="DIR", help="write a profile of each layout's last round")
    return p.parse_args()


def build(args, name, folder):
    options, shared, cuts = LAYOUTS[name]
    out = os.path.join(folder, f"train-{name}-{args.length}-{args.batch}-{args.micro}")
    micro = args.batch // (args.ranks if shared else 1) // (cuts * args.micro)
    if os.path.exists(out):
        return out
    gpt2.run([args.dtc, os.path.join(gpt2.ROOT, "examples", "gpt2.dt"),
              "-D", f"length={args.length}", "-D", f"context={args.length}",
              "-D", f"batch={args.batch}", "-D", f"microbatch={max(micro, 1)}",
              *(x.format(n=args.ranks) for x in options), "-o", out])
    return out


def time_steps(args, name, train, folder, delay=0):
    """Seconds of every timed step, and with a delay how many exchanges one has."""
    log = os.path.join(folder, "log.jsonl")
    if os.path.exists(log):
        os.remove(log)
    n, threads = (1, args.ranks) if name == "one" else (args.ranks, 1)
    command = [train, "--data", os.path.join(folder, "corpus.bin"), "--log", log, "--quiet",
               "--steps", str(WARMUP + args.steps), "--threads", str(threads), "--eval-every", "0"]
    command += ["--ranks", str(n)] if n > 1 else []
    profile = os.path.join(args.profile or folder, f"{name}.json")
    command += ["--profile", profile] if args.profile or delay else []
    env = dict(os.environ, DT_COMM_DELAY_MS=str(delay))
    if subprocess.run(command, stdout=subprocess.DEVNULL, env=env).returncode:
        sys.exit(f"failed: {' '.join(command)}")
    with open(log) as f:
        seconds = [r["seconds"] for r in map(json.loads, f) if "seconds" in r][WARMUP:]
    return (seconds, exchanges(profile, WARMUP + args.steps - 1)) if delay else seconds


def exchanges(profile, step):
    with open(profile) as f:
        events = json.load(f)["traceEvents"]
    mine = (e for e in events if e["pid"] == 0 and e.get("tid") in (1, 3) and e["ph"] == "X")
    return sum(e["args"]["step"] == step for e in mine)


def measure_delay(args, names, programs, folder):
    print(f"B={args.batch} T={args.length}, {args.ranks} ranks, {args.delay} ms more an exchange")
    print(f"  {'':<15}{'s/step':>9}{'delayed':>9}{'exchanges':>10}{'of added':>9}")
    for name in names:
        plain, delayed = [], []
        for _ in range(args.rounds):
            plain += time_steps(args, name, programs[name], folder)
            seconds, count = time_steps(args, name, programs[name], folder, args.delay)
            delayed += seconds
        a, b = statistics.median(plain), statistics.median(delayed)
        share = (b - a) / (count * args.delay * 1e-3)
        print(f"  {name:<15}{a:9.4f}{b:9.4f}{count:10}{share:9.1%}", flush=True)


def report(args, took):
    tokens = args.batch * args.length
    one = [statistics.median(s) for s in took["one"]]
    print(f"B={args.batch} T={args.length}, 1 rank of {args.ranks} threads, {args.ranks} of 1")
    print(f"  {'':<15}{'s/step':>9}{'least':>9}{'tokens/s':>10}{'of one':>9}")
    for name, rounds in took.items():
        everything = [x for s in rounds for x in s]
        ratio = statistics.median(o / statistics.median(s) for o, s in zip(one, rounds))
        median = statistics.median(everything)
        print(f"  {name:<15}{median:9.4f}{min(everything):9.4f}{tokens / median:10.1f}{ratio:9.3f}")


def main():
    args = parse()
    names = ["one", *args.layout]
    took = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        gpt2.write_corpus(os.path.join(folder, "corpus.bin"), args.batch * args.length * 12 + 1)
        kept = args.keep or folder
        os.makedirs(kept, exist_ok=True)
        programs = {name: build(args, name, kept) for name in names}
        if args.delay:
            measure_delay(args, names[1:], programs, folder)
            return
        for _ in range(args.rounds):
            for name in names:
                took[name].append(time_steps(args, name, programs[name], folder))
    report(args, took)


if __name__ == "__main__":
    main()
