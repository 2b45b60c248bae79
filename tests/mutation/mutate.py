#!/usr/bin/env python3
"""Do the tests notice? Puts each deliberate fault of faults.txt into a copy of the sources, builds, and runs the tests
of scripts/check, quick ones first, until one fails.

    mutate.py [NAME...]     all faults, or these; --work DIR keeps the copy and its build (default build-mutation)
    mutate.py --check       only whether each fault still fits the sources; scripts/check does that

A line a fault: `caught by TEST`, or `NOT CAUGHT`: then write the test that catches it, or show that the fault changes
nothing and replace it. Exit status 0: all were caught. The sources as they are must pass: that is tested first, unless
--trust is given.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
# Parts of long tests, which find most faults in a fraction of the time: a target, and the command.
PROBES = [
    ("passes_text_test", "tests/passes_text_test"),
    ("passes_batch_test", "tests/passes_batch_test"),
    ("passes_localise_test", "tests/passes_localise_test"),
    ("passes_pipeline_test", "tests/passes_pipeline_test"),
    ("passes_adjoint_test", "tests/passes_adjoint_test"),
    ("ir_ranks_test", "tests/ir_ranks_test"),
    ("codegen_gemm_test", "tests/codegen_gemm_test"),
    ("rt_pack", "tests/rt_pack"),
    ("codegen_storage_test", "tests/codegen_storage_test"),
    ("gradient_gradient_test", "tests/gradient_gradient_test gated_decay packed_heads nested_stacks running_sums "
     "convolution_and_groups self_attention cross_entropy_ignore heads embedding"),
    ("random_random_test", "tests/random_random_test --count 100 --shrink 0 --jobs 1"),
]
# Targets to build (None: all), and the tests. What no pass and no kernel can change is not run.
STAGES = [
    (["kernels_cases_test", "codegen_programs_test", "language_meaning_test", "gradient_gradient_test", "dtc",
      "ir_ranks_test", "ir_stages_test"],
     r"^(kernels/cases_test|codegen/.*|language/meaning_test|ir/(ranks|stages)_test|gradient/.*)$"),
    (["random_random_test"], r"^random/random_test$"),
    (None, r"^(train/(compiled-equals-interpreter|microbatches-do-not|batch-norm|dropout|zero-stages-give|bugs-of)"
           r"|passes/(shard|context)_test)"),
    (None, r"^language/run$"),
    (None, r"^(layouts|oracle|passes|train|driver)/(?!.*fast)"),
]


class Fault:
    def __init__(self, name, path):
        self.name, self.path, self.old, self.new = name, path, [], []

    def apply(self, text):
        """The text with the fault in it, or None: the lines are not there, or more than once."""
        lines, n = text.split("\n"), len(self.old)
        want = [line.strip() for line in self.old]
        at = [i for i in range(len(lines) - n + 1) if [x.strip() for x in lines[i : i + n]] == want]
        if len(at) != 1:
            return None
        return "\n".join(lines[: at[0]] + self.new + lines[at[0] + n :])


def read_faults(path):
    faults = []
    with open(path, encoding="utf-8") as f:
        for line in f.read().split("\n"):
            if line.startswith("== "):
                faults.append(Fault(*line[3:].split()))
            elif faults and line[:1] in ("-", "+"):
                (faults[-1].old if line[0] == "-" else faults[-1].new).append(line[1:])
    return faults


def source(fault, root=ROOT):
    with open(os.path.join(root, fault.path), encoding="utf-8") as f:
        return f.read()


def check(faults):
    bad = len({f.name for f in faults}) - len(faults)
    if bad:
        print("two faults have one name")
    for f in faults:
        if not f.old or f.apply(source(f)) in (None, source(f)):
            print("%s: its lines are not in %s, or more than once: write it anew" % (f.name, f.path))
            bad += 1
    return 1 if bad else 0


def copy_sources(to):
    """Files that git tracks, as they are here; only those that differ are written, for the build's sake."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    for name in names.decode().split("\0"):
        here, there = os.path.join(ROOT, name), os.path.join(to, name)
        if not name or not os.path.isfile(here):
            continue
        os.makedirs(os.path.dirname(there), exist_ok=True)
        with open(here, "rb") as f:
            data = f.read()
        if os.path.exists(there) and open(there, "rb").read() == data:
            continue
        shutil.copy(here, there)


class Build:
    def __init__(self, work, limit, jobs):
        self.tree, self.build = os.path.join(work, "tree"), os.path.join(work, "build")
        self.limit, self.jobs = limit, jobs

    def configure(self):
        copy_sources(self.tree)
        launcher = ["-DCMAKE_C_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
        os.environ["DTC_VERIFY"] = "1"  # as the debug build does after each pass
        env = dict(os.environ)
        env.pop("CMAKE_C_COMPILER_LAUNCHER", None)
        subprocess.run(["cmake", "-S", self.tree, "-B", self.build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"] +
                       launcher, check=True, stdout=subprocess.DEVNULL, env=env)

    def make(self, targets):
        """None, or what the compiler said."""
        r = subprocess.run(["ninja", "-C", self.build, "-j", str(self.jobs)] + (targets or []), capture_output=True,
                           text=True)
        return None if r.returncode == 0 else r.stdout[-2000:] + r.stderr[-2000:]

    def test(self, regex, left):
        """The tests that failed, or [] where all passed; None where time ran out."""
        cmd = ["ctest", "--test-dir", self.build, "-R", regex, "-j", str(self.jobs), "--timeout", "1500",
               "--stop-on-failure"]
        try:
            r = subprocess.run(cmd, capture_output=True, text=True, timeout=max(left, 1))
        except subprocess.TimeoutExpired:
            return None
        failed = re.findall(r"^\s*\d+ - (\S+) \((?!Skipped|Disabled|Not Run)", r.stdout, re.M)
        return failed or ([] if r.returncode == 0 else ["ctest"])

    def probe(self, left):
        """The first of PROBES that fails, or None."""
        for target, command in PROBES:
            said = self.make([target])
            if said:
                return "DOES NOT COMPILE\n" + said
            try:
                r = subprocess.run(command.split(), cwd=self.build, capture_output=True, timeout=left)
            except subprocess.TimeoutExpired:
                return "caught by %s, which does not end" % target
            if r.returncode:
                return "caught by " + target
        return None

    def verdict(self):
        start = time.monotonic()
        found = self.probe(self.limit)
        if found or self.only_probe:
            return found or "not caught by the quick parts"
        for targets, regex in STAGES:
            said = self.make(targets)
            if said:
                return "DOES NOT COMPILE\n" + said
            failed = self.test(regex, self.limit - (time.monotonic() - start))
            if failed is None:
                return "NOT CAUGHT within %d s" % self.limit
            if failed:
                return "caught by " + failed[0]
        return "NOT CAUGHT"


def run(faults, args):
    b = Build(os.path.realpath(args.work), args.limit, args.jobs)
    b.only_probe = args.probe
    b.configure()
    if not args.trust:
        verdict = b.verdict()
        if verdict.lower()[:10] != "not caught":
            print("the sources as they are: " + verdict)
            return 1
    missed = 0
    for f in faults:
        start, place = time.monotonic(), os.path.join(b.tree, f.path)
        text = source(f, b.tree)
        with open(place, "w", encoding="utf-8") as out:
            out.write(f.apply(text))
        verdict = b.verdict()
        with open(place, "w", encoding="utf-8") as out:
            out.write(text)
        missed += not verdict.startswith("caught")
        print("%-48s %-28s %s (%.0f s)" % (f.name, f.path, verdict, time.monotonic() - start), flush=True)
    print("%d faults, %d not caught" % (len(faults), missed))
    return 1 if missed else 0


def main():
    p = argparse.ArgumentParser(description="Puts deliberate faults into dtc and sees which test catches each.")
    p.add_argument("name", nargs="*")
    p.add_argument("--check", action="store_true", help="only whether the faults fit the sources")
    p.add_argument("--trust", action="store_true", help="do not test the sources as they are first")
    p.add_argument("--work", default=os.path.join(ROOT, "build-mutation"), help="folder of the copy and its build")
    p.add_argument("--probe", action="store_true", help="only the quick parts of tests")
    p.add_argument("--limit", type=float, default=1200, help="seconds a fault (default 1200)")
    p.add_argument("--jobs", type=int, default=os.cpu_count())
    args = p.parse_args()
    faults = read_faults(os.path.join(ROOT, "tests", "mutation", "faults.txt"))
    unknown = set(args.name) - {f.name for f in faults}
    if unknown:
        p.error("no fault " + ", ".join(sorted(unknown)))
    status = check(faults)
    if args.check or status:
        sys.exit(status)
    sys.exit(run([f for f in faults if not args.name or f.name in args.name], args))


if __name__ == "__main__":
    main()
