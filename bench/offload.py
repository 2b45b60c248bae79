#!/usr/bin/env python3
"""A GPT-2 124M training step with the optimizer's state in memory and in a file, against the disk.

    bench/offload.py --build build --dir /mnt/nvme [--precision fp32 bf16] [--length 64] [--threads 2]

Each program is started in turn, several rounds, so that a busy moment meets both. Printed for each precision: the medians of a step, the
part of it in which the update waited for the file, the bytes that a step reads and as many that it writes, the time of these alone
(bench/slices.c, on a file of that size: the floor of the I/O), and what share of the offloaded step that floor is. The most memory that
each had resident stands beside what it reports. Nothing else should run meanwhile.
"""
import argparse
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", required=True, help="a build folder")
    p.add_argument("--dir", required=True, help="a folder on the disk")
    p.add_argument("--precision", nargs="+", default=["fp32", "bf16"])
    p.add_argument("--model", nargs="*", default=[], help="sizes besides GPT-2 124M's: dim=1600 layers=48 heads=25")
    p.add_argument("--length", type=int, default=64)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=5, help="timed steps of a round")
    return p.parse_args()


def run(command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, **options)
    if done.returncode:
        sys.exit(f"failed with status {done.returncode}: {' '.join(command)}")
    return done.stdout


def compile_program(o, folder, precision, away):
    sizes = [f"length={o.length}", f"batch={o.batch}", f"microbatch={o.batch}", *o.model]
    command = [f"{o.build}/bin/dtc", f"{ROOT}/examples/gpt2.dt", "--precision", precision, *(["--offload", "optimizer"] if away else [])]
    command += [x for s in sizes for x in ("-D", s)]
    memory = json.loads(run(command + ["--report=json"]))["memory"]
    run(command + ["-o", f"{folder}/{'away' if away else 'here'}"])
    return memory


def train(o, folder, away):
    """Records of the timed steps."""
    log = f"{folder}/log.jsonl"
    if os.path.exists(log):
        os.remove(log)
    name = "away" if away else "here"
    run([f"{folder}/{name}", "--data", f"{folder}/tokens.bin", "--steps", str(o.steps + 1), "--eval-every", "0", "--quiet", "--log", log]
        + ["--threads", str(o.threads)] + (["--offload-dir", o.dir] if away else []))
    with open(log) as f:
        return [r for r in map(json.loads, f) if "loss" in r][1:]


def floor(o, folder, size, arrays):
    program = f"{folder}/slices"
    run(["cc", "-O2", "-std=gnu17", f"-I{ROOT}", "-o", program, f"{ROOT}/bench/slices.c", f"{o.build}/lib/dtc/libdtc_rt.a", "-lm", "-lpthread",
         "-ldl"])
    return json.loads(run([program, o.dir, str(size >> 20), str(arrays), "5"]))


def main():
    o = parse()
    for precision in o.precision:
        with tempfile.TemporaryDirectory() as folder:
            with open(f"{folder}/tokens.bin", "wb") as f:
                f.write(struct.pack("<20000H", *(i * 7919 % 50257 for i in range(20000))))
            report = {away: compile_program(o, folder, precision, away) for away in (False, True)}
            records = {False: [], True: []}
            for _ in range(o.rounds):
                for away in records:
                    records[away] += train(o, folder, away)
            state, arrays = report[True]["file"], 2 if precision == "fp32" else 3
            disk = floor(o, folder, state, arrays)
            scale = state / disk["bytes"]
            step = {away: statistics.median(r["seconds"] for r in records[away]) for away in records}
            waited = statistics.median(r["offload_exposed_seconds"] for r in records[True])
            both, slices = disk["both"] * scale, disk["slices"] * scale
            print(f"{precision}, batch {o.batch}, length {o.length}, {o.threads} threads, {state / 1e9:.2f} GB of state read and written a step"
                  f"{'' if disk['direct'] else ' (not by direct I/O)'}")
            print(f"  step in memory {step[False]:.3f} s, offloaded {step[True]:.3f} s, of which the update waited {waited:.3f} s")
            print(f"  I/O alone {both:.3f} s ({2 * state / both / 1e9:.2f} GB/s), {100 * both / step[True]:.0f}% of the step; through slices with "
                  f"checksums {slices:.3f} s")
            for away in records:
                most = max(r["memory_bytes"] for r in records[away])
                print(f"  {'offloaded' if away else 'in memory'}: {most / 2**20:.0f} MiB resident, {report[away]['total'] / 2**20:.0f} reported")


if __name__ == "__main__":
    main()
