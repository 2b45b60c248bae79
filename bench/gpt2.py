#!/usr/bin/env python3
"""dtc against PyTorch on one GPT-2 124M training step on this machine's CPU.

    bench/gpt2.py --dtc build/bin/dtc [--length 64 256 1024] [--threads 2]

Both train in fp32 with AdamW, on equal shapes and threads. They run in turn, several rounds each,
so that a busy moment meets both. Printed for each length: the medians, their ratio, the share of
the processor's limit, and the floor: the step's matrix products alone (those of attention, its
causal half, told apart), and 28 bytes a parameter at the bandwidth of a copy. Nothing else should
run meanwhile.

The bar is the fastest PyTorch at hand, tuned: an OpenMP BLAS told of AVX-512, jemalloc that keeps
its pages, AdamW as it is fastest. Where it is not installed, --install makes a virtual environment
of the newest one: $DTC_BENCH_TORCH, or ~/.cache/dtc/torch. --deb DIR adds Debian's, unpacked in DIR
(apt-get download python3-torch and what it depends on, libopenblas0-openmp among it; then
dpkg -x FILE DIR for each).
"""
import argparse
import glob
import json
import os
import random
import statistics
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
PARAMETERS, LAYERS, DIM = 124_439_808, 12, 768
ENVIRONMENT = os.environ.get("DTC_BENCH_TORCH", os.path.expanduser("~/.cache/dtc/torch"))


def parse():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--dtc", help="the compiler; without it only PyTorch and the floor are timed")
    p.add_argument("--length", type=int, nargs="+", default=[64, 256, 1024])
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--rounds", type=int, default=3, help="times that each program is started")
    p.add_argument("--steps", type=int, default=6, help="timed steps of a round")
    p.add_argument("--install", action="store_true", help="install PyTorch where it is missing")
    p.add_argument("--deb", metavar="DIR", help="Debian's PyTorch as well, unpacked in DIR")
    p.add_argument("--json", metavar="FILE", help="write all numbers there")
    return p.parse_args()


def run(command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, **options)
    if done.returncode:
        sys.exit(f"failed with status {done.returncode}: {' '.join(command)}")
    return done.stdout


def tuned_environment(threads, extra):
    env = dict(os.environ, OMP_NUM_THREADS=str(threads), OPENBLAS_CORETYPE="SkylakeX",
               ATEN_CPU_CAPABILITY="avx512", **extra)
    jemalloc = glob.glob("/usr/lib/*/libjemalloc.so.2")
    if jemalloc:
        env["LD_PRELOAD"] = jemalloc[0]
        env["MALLOC_CONF"] = "dirty_decay_ms:-1,muzzy_decay_ms:-1,thp:always"
    else:
        print("warning: no jemalloc: PyTorch will be slower than it can be", file=sys.stderr)
    return env


def torch_variants(args):
    """Name -> (command, environment) of each PyTorch to time."""
    script, found = os.path.join(HERE, "gpt2_torch.py"), {}
    python = os.path.join(ENVIRONMENT, "bin", "python")
    if args.install and not os.path.exists(python):
        run([sys.executable, "-m", "venv", ENVIRONMENT])
        run([python, "-m", "pip", "install", "-q", "torch", "numpy"])
    if os.path.exists(python):
        found["PyTorch"] = ([python, script], tuned_environment(args.threads, {}))
    if args.deb:
        lib = os.path.join(args.deb, "usr/lib/x86_64-linux-gnu")
        paths = [os.path.join(lib, "openblas-openmp"), lib, os.path.join(args.deb, "usr/lib"),
                 os.path.join(args.deb, "lib/x86_64-linux-gnu")]
        env = tuned_environment(args.threads, {
            "LD_LIBRARY_PATH": ":".join(paths),
            "PYTHONPATH": os.path.join(args.deb, "usr/lib/python3/dist-packages")})
        found["PyTorch (Debian)"] = (["/usr/bin/python3", script, "--optimizer", "loop"], env)
    if not found:
        sys.exit("no PyTorch: run with --install, or set DTC_BENCH_TORCH")
    return found


def write_corpus(path, tokens):
    """Random tokens in llm.c's format: the work of a step does not depend on their values."""
    rng = random.Random(1)
    with open(path, "wb") as f:
        f.write(struct.pack("<256i", 20240520, 1, tokens, *([0] * 253)))
        f.write(struct.pack(f"<{tokens}H", *(rng.randrange(50257) for _ in range(tokens))))


def build_floor(args, folder):
    """With dtc's runtime and matrix library; from the sources, our own kernel, without dtc."""
    out, libs = os.path.join(folder, "floor"), []
    source = [os.path.join(HERE, "floor.c")]
    if args.dtc:
        runtime = os.path.join(os.path.dirname(os.path.realpath(args.dtc)), "..", "lib", "dtc")
        source.append(os.path.join(runtime, "libdtc_rt.a"))
        with open(os.path.join(runtime, "libs.txt")) as f:
            libs = f.read().split()
    else:
        source.append(os.path.join(ROOT, "runtime", "parallel.c"))
        source += [f for f in glob.glob(os.path.join(ROOT, "runtime", "cpu", "*.c"))
                   if os.path.basename(f) != "attention.c"]  # floor.c has it in itself
    run(["cc", "-std=gnu17", "-O2", "-ffp-contract=off", "-I" + ROOT, *source, "-o", out,
         *libs, "-lm", "-lpthread"])
    return out


def build_train(args, length, folder):
    out = os.path.join(folder, f"train-{length}")
    run([args.dtc, os.path.join(ROOT, "examples", "gpt2.dt"),
         "-D", f"length={length}", "-D", f"context={length}", "-D", f"batch={args.batch}",
         "-D", f"microbatch={args.batch}", "-o", out])
    return out


WARMUP = 3


def time_dtc(train, args, folder):
    """Seconds of every timed step, and peak resident MiB."""
    log, corpus = os.path.join(folder, "log.jsonl"), os.path.join(folder, "corpus.bin")
    if os.path.exists(log):
        os.remove(log)
    command = [train, "--data", corpus, "--steps", str(WARMUP + args.steps), "--log", log,
               "--threads", str(args.threads), "--quiet"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"failed: {' '.join(command)}")
    with open(log) as f:
        records = [json.loads(line) for line in f]
    seconds = [r["seconds"] for r in records if "seconds" in r]
    return seconds[WARMUP:], usage.ru_maxrss / 1024


def time_torch(variant, args, length):
    command, env = variant
    out = run(command + ["--length", str(length), "--batch", str(args.batch),
                         "--threads", str(args.threads), "--steps", str(args.steps),
                         "--warmup", str(WARMUP)], env=env)
    result = json.loads(out)
    return result["seconds"], result["peak_mib"]


def measure(args, length, variants, folder):
    """Name -> {"median", "peak_mib", "seconds"}; rounds go through the programs in turn."""
    programs = {name: (lambda v=v: time_torch(v, args, length)) for name, v in variants.items()}
    if args.dtc:
        train = build_train(args, length, folder)
        programs = {"dtc": lambda: time_dtc(train, args, folder), **programs}
    results = {name: {"seconds": [], "peak_mib": 0} for name in programs}
    for _ in range(args.rounds):
        for name, program in programs.items():
            seconds, peak = program()
            results[name]["seconds"] += seconds
            results[name]["peak_mib"] = max(results[name]["peak_mib"], peak)
    for r in results.values():
        r["median"] = statistics.median(r["seconds"])
    return results


def report(args, length, results, floor):
    tokens = args.batch * length
    flops = tokens * (6 * PARAMETERS + 12 * LAYERS * DIM * length)
    limit = floor["peak_gflops"] * 1e9
    print(f"\nB={args.batch} T={length}, {args.threads} threads, "
          f"limit {floor['peak_gflops']:.0f} GFLOP/s, copy {floor['copy_gbs']:.1f} GB/s")
    print(f"  {'':<18}{'s/step':>9}{'tokens/s':>10}{'GFLOP/s':>9}{'of limit':>9}"
          f"{'peak MiB':>10}{'spread':>14}")
    for name, r in results.items():
        rate = flops / r["median"]
        print(f"  {name:<18}{r['median']:9.4f}{tokens / r['median']:10.1f}{rate * 1e-9:9.1f}"
              f"{rate / limit:9.1%}{r['peak_mib']:10.0f}"
              f"{min(r['seconds']):8.3f}-{max(r['seconds']):.3f}")
    print(f"  {'floor':<18}{floor['floor_seconds']:9.4f}   "
          f"products {floor['products_seconds']:.4f}, "
          f"of attention {floor['attention_products_seconds']:.4f}, "
          f"update {floor['update_seconds']:.4f} "
          f"(all of dtc's attention: {floor['attention_seconds']:.4f})")
    if "dtc" in results:
        peers = ((n, r) for n, r in results.items() if n != "dtc")
        name, bar = min(peers, key=lambda x: x[1]["median"])
        mine = results["dtc"]["median"]
        without = floor["floor_seconds"] - floor["attention_products_seconds"]
        print(f"  dtc takes {mine / bar['median']:.3f} of the time of {name}, "
              f"{mine / floor['floor_seconds']:.3f} of the floor, "
              f"{mine / without:.3f} of it without attention's products")


def main():
    args = parse()
    variants, everything = torch_variants(args), {}
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"warning: the machine is busy (load {load:.2f})", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        tokens = args.batch * max(args.length) * 4 + 1
        write_corpus(os.path.join(folder, "corpus.bin"), tokens)
        floor_program = build_floor(args, folder)
        for length in args.length:
            shape = [str(args.batch), str(length), str(args.threads)]
            floor = json.loads(run([floor_program, *shape]))
            results = measure(args, length, variants, folder)
            report(args, length, results, floor)
            everything[length] = {"floor": floor, **results}
    if args.json:
        with open(args.json, "w") as f:
            json.dump(everything, f, indent=1)


if __name__ == "__main__":
    main()
