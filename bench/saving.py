#!/usr/bin/env python3
"""The cost of checkpoints for the steps: without --save, behind the steps, and with --save-sync.

    bench/saving.py --dtc build/bin/dtc [--model examples/chargpt.dt] [--every 10] [--rounds 5] [--folder DIR]

Runs of one program take turns, so that a busy moment meets all three. Each is cut into blocks of --every steps, each with one
checkpoint; a block lasts from the record of its first step to that of the next block's first one, by the log's times, so that the
copy of the state, waits and the writer's share of the processors are in it. Printed: medians of all blocks and their quartiles;
the medians, over rounds, of the cost for a step against the run without --save of the same round, in time and in processor time
of the whole process (which a busy machine changes less, and which bounds the cost for steps that use all processors); and of
checkpoints the median of the time in which the steps stood still. Before each run the disk is synchronised. DIR, where
checkpoints go, is on the disk to measure (default: a temporary folder).
"""
import argparse
import datetime
import json
import os
import random
import statistics
import subprocess
import tempfile

WAYS = {"without --save": [], "behind the steps": ["--save", "ck"], "--save-sync": ["--save", "ck", "--save-sync"]}


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--dtc", required=True)
    p.add_argument("--model", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "../examples/chargpt.dt"))
    p.add_argument("-D", action="append", default=[], dest="defines")
    p.add_argument("--every", type=int, default=10)
    p.add_argument("--blocks", type=int, default=12, help="of a run; the first is not counted")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--folder")
    return p.parse_args()


def blocks(log, every):
    """Seconds of each block but the first; those in which steps stood still for each checkpoint but the last."""
    with open(log) as f:
        records = list(map(json.loads, f))
    at = {r["step"]: datetime.datetime.strptime(r["time"], "%Y-%m-%dT%H:%M:%S.%f%z").timestamp()
          for r in records if "loss" in r}
    firsts = [s for s in sorted(at) if s % every == 1][1:]
    return [at[b] - at[a] for a, b in zip(firsts, firsts[1:])], [r["blocked_seconds"] for r in records if "checkpoint" in r][:-1]


def run(o, folder, way):
    subprocess.run(["rm", "-rf", f"{folder}/ck", f"{folder}/log.jsonl"], check=True)
    os.sync()
    save = WAYS[way] + (["--save-every", str(o.every), "--keep", "2"] if WAYS[way] else [])
    process = subprocess.Popen(["./train", "--quiet", "--data", "text.txt", "--threads", str(o.threads), "--steps", str(o.every * o.blocks + 1),
                                "--eval-every", "0", "--log", "log.jsonl", *save], cwd=folder)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{way}: the run failed")
    return *blocks(f"{folder}/log.jsonl", o.every), (used.ru_utime + used.ru_stime) / (o.every * o.blocks + 1)


def main():
    o = parse()
    with tempfile.TemporaryDirectory(dir=o.folder) as folder:
        with open(f"{folder}/text.txt", "wb") as f:
            f.write(bytes(random.Random(1).choices(b"etaoin shrdlu\n", k=1 << 20)))
        command = [o.dtc, o.model, "-o", f"{folder}/train"]
        subprocess.run(command + [x for d in o.defines for x in ("-D", d)], check=True)
        every, cost, cpu, still = ({w: [] for w in WAYS} for _ in range(4))
        for number in range(o.rounds):
            for w in list(WAYS)[:: 1 if number % 2 == 0 else -1]:
                got, stood, used = run(o, folder, w)
                every[w] += got
                still[w] += stood
                cost[w].append(statistics.median(got))
                cpu[w].append(used)
            print(f"round {number + 1}:", *(f"{w} {1e3 * cost[w][-1] / o.every:.2f} ms ({1e3 * cpu[w][-1]:.2f} of processors)," for w in WAYS),
                  flush=True)
        for w in WAYS:
            low, median, high = (1e3 * q / o.every for q in statistics.quantiles(every[w], n=4))
            more, used = (statistics.median(c / b - 1 for c, b in zip(of[w], of["without --save"])) for of in (cost, cpu))
            print(f"{w:18} {median:8.2f} ms a step (quartiles {low:.2f}, {high:.2f}; {len(every[w])} blocks of {o.every}), "
                  f"{100 * more:+.2f}% by rounds, {100 * used:+.2f}% of processor time"
                  + (f"; stood still {1e3 * statistics.median(still[w]):.2f} ms a checkpoint" if still[w] else ""))


if __name__ == "__main__":
    main()
