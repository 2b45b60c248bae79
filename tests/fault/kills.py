#!/usr/bin/env python3
"""Kills a rank (SIGKILL) at random moments of a run that saves, and goes on from what is left.

    tests/fault/kills.py --build build [--count 50] [--seed N] [--mpi] [--stop] [--emulate]

The small GPT-2 of these runs is cut in several ways (pp, tp, cp, dp, ZeRO 3); moments are drawn from start to
some steps later, a third of them while a checkpoint is being written. Each time: all processes end, the status is
69, the survivors say which rank was lost and what they waited in, and the newest checkpoint is whole and is
read by one rank. In the end each layout's losses, over all its interrupted runs, are those of a run that nobody
stopped, bit for bit. --mpi: under mpirun, where it is the launcher that ends the others: all are
gone, the launcher or a rank names the lost one (MPICH's mpirun: a process), and the newest checkpoint is whole.
--stop: SIGSTOP instead, once steps are under way and, under --ranks, at the start or in the first step: all others
name the rank, with the operation that they wait in, after --timeout and little more.
--emulate: programs for GPUs, whose kernels run on the CPU.
"""
import argparse
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SIZE = ["vocab=97", "context=16", "length=16", "layers=4", "heads=2", "dim=32", "batch=8", "microbatch=2", "warmup=0",
        "steps=100000"]
LAYOUTS = [  # options of dtc, ranks
    (["--pp", "2", "--zero", "3"], 4),
    (["--tp", "2", "--zero", "3"], 4),
    (["--zero", "3", "--gather", "once"], 3),
    (["--tp", "2", "--pp", "2", "--schedule", "interleaved:2"], 4),
    (["--cp", "2", "--pp", "2", "--schedule", "zb", "--zero", "2"], 4),
    (["--tp", "2", "--in-flight", "2"], 4),
    (["--tp", "2", "--pp", "2", "--zero", "3"], 8),
]
PATIENCE = 60  # seconds for all to be gone: far less than --timeout, which must not be what ends them
SILENT = 5     # --timeout where a rank is stopped; a rank that is alive is given up after six times that
EARLY = 1.5    # the same for stops before the first step is done: a rank may be silent for six times that


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", required=True)
    p.add_argument("--count", type=int, default=50)
    p.add_argument("--seed", type=int, default=None)
    p.add_argument("--mpi", action="store_true")
    p.add_argument("--stop", action="store_true")
    p.add_argument("--emulate", action="store_true")
    return p.parse_args()


class Failed(Exception):
    pass


def require(condition, *what):
    if not condition:
        raise Failed(" ".join(map(str, what)))


def pause(seconds):
    """In short sleeps: time for which this machine has stopped everything does not count."""
    while seconds > 0:
        step = min(seconds, 0.05)
        time.sleep(step)
        seconds -= step


def wait_until(done, seconds):
    while not done() and seconds > 0:
        time.sleep(0.02)
        seconds -= 0.02
    return done()


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            return [int(x) for x in f.read().split()]
    except OSError:
        return []


def ranks_of_launcher(program):
    """Process of each rank, by what mpirun put into its environment."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.path.realpath(f"/proc/{pid}/exe") != os.path.abspath(program):
                continue
            text = open(f"/proc/{pid}/environ", "rb").read().decode(errors="replace")
        except OSError:
            continue
        m = re.search(r"(?:^|\0)(?:OMPI_COMM_WORLD_RANK|PMI_RANK)=(\d+)", text)
        if m:
            found[int(m.group(1))] = int(pid)
    return found


def lines(log):
    try:
        with open(log) as f:
            return [json.loads(line) for line in f if line.endswith("\n")]
    except OSError:
        return []


def records(log):
    """Those of steps, of all runs in the file."""
    return [r for r in lines(log) if "loss" in r]


def records_of_last(log):
    """Of the last run that began at step 0: one that has no checkpoint to go on from appends to the log."""
    every = lines(log)
    begins = [i for i, r in enumerate(every) if "run" in r and r["step"] == 0]
    return [r for r in every[begins[-1] if begins else 0:] if "loss" in r]


def newest(folder):
    steps = [int(n[5:]) for n in (os.listdir(folder) if os.path.isdir(folder) else []) if re.fullmatch(r"step-\d+", n)]
    return max(steps, default=-1)


class Layout:
    def __init__(self, build, number, more):
        self.number = number
        flags, self.ranks = LAYOUTS[number]
        self.flags = flags + more
        self.name = " ".join(self.flags)
        self.program = f"./train-{number}"
        self.ck, self.log = f"ck-{number}", f"log-{number}.jsonl"
        compile_model(build, self.flags, self.program)
        self.kills = 0
        begin = time.time()
        check(self.command(12, "timed", "timed.jsonl"))
        self.stretch = min(time.time() - begin, 20)  # of starting and twelve steps with six checkpoints
        shutil.rmtree("timed")

    def command(self, steps, ck, log, ranks=True, timeout=300):
        return [self.program, *(["--ranks", str(self.ranks)] if ranks else []), "--threads", "1", "--quiet", "--eval-every", "0",
                "--steps", str(steps), "--resume", ck, "--save", ck, "--save-every", "2", "--keep", "2", "--log", log,
                "--timeout", str(timeout)]


def compile_model(build, flags, out):
    command = [f"{build}/bin/dtc", f"{ROOT}/examples/gpt2.dt", "--precision", "fp64", *flags, "-o", out]
    for d in SIZE:
        command += ["-D", d]
    check(command)


def check(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    require(done.returncode == 0, "exit status", done.returncode, "of", " ".join(command), "\n" + done.stdout)
    return done.stdout


def unfinished(ck):
    """Checkpoints that are being written, or were when their writers were killed, with the numbers of their folders."""
    found = set()
    for name in os.listdir(ck) if os.path.isdir(ck) else []:
        try:
            if name.endswith(".tmp"):
                found.add((name, os.stat(f"{ck}/{name}").st_ino))
        except OSError:
            pass
    return found


def moment(rng, layout, left):
    """Waits for one; returns in words which. `left`: by an earlier run."""
    if rng.random() < 1 / 3:
        for _ in range(4000):
            if unfinished(layout.ck) - left:
                break
            time.sleep(0.005)
        ms = rng.randrange(40)
        time.sleep(ms / 1000)
        return f"{ms} ms into a checkpoint"
    seconds = rng.random() * 2 * layout.stretch
    pause(seconds)
    return f"after {seconds:.2f} s"


def whole(layout):
    """The newest checkpoint is read by one rank, without going back to the one before."""
    text = check(["./one", "--quiet", "--eval-every", "0", "--resume", layout.ck, "--steps", "0", "--export", "one.st"])
    require("going back" not in text, text)


def told(text, victim, ranks, started):
    """What the survivors say, and its parent."""
    # How it ended is told where the parent says so within a second.
    lost = rf"rank {victim} was lost( \(killed by signal 9, Killed\))?"
    if not started:  # not all have met
        require(re.search(rf"rank {victim} (was lost|was ended by signal 9)", text), text)
        return
    for r in range(ranks):
        if r != victim:
            require(re.search(rf"^train: rank {r}: error: {lost}: it was last seen .*; this rank waited (in [a-z_]+ .*"
                              rf"\([0-9]+ bytes .*over [a-z0-9, ]+: ranks |for nothing, and was at )", text, re.M),
                    f"rank {r} does not say that rank {victim} was lost:\n{text}")


def kill_one(rng, layout):
    before, old = len(records(layout.log)), unfinished(layout.ck)
    with open("err.txt", "w") as err:
        parent = subprocess.Popen(layout.command(10**6, layout.ck, layout.log), stdout=err, stderr=err)
    wait_until(lambda: len(children(parent.pid)) == layout.ranks or parent.poll() is not None, 60)
    ranks = children(parent.pid)
    require(len(ranks) == layout.ranks, "it did not start:", open("err.txt").read())
    when = moment(rng, layout, old)
    # Records past the checkpoint that the run went on from are removed at its start.
    started = len(records(layout.log)) > before
    victim = rng.randrange(layout.ranks)
    os.kill(ranks[victim], signal.SIGKILL)
    gone = wait_until(lambda: parent.poll() is not None, PATIENCE)
    left = [r for r in ranks if not wait_until(lambda: not alive(r), 5)]
    if not gone:
        parent.kill()
    text = open("err.txt").read()
    where = f"{layout.name}: rank {victim} killed {when}"
    try:
        require(gone and not left, "not all are gone:", left, text)
        require(parent.returncode == 69, "exit status", parent.returncode, text)
        told(text, victim, layout.ranks, started)
        if newest(layout.ck) >= 0:
            whole(layout)
    except Failed as e:
        raise Failed(f"{where}: {e}")
    layout.kills += 1
    was = "while saving" if unfinished(layout.ck) - old else ""
    print(f"{where}; newest checkpoint: step {newest(layout.ck)} {was}", flush=True)
    return bool(was)


def same_as_unbroken(layout):
    """Over all interruptions: the log is that of one run."""
    last = max(newest(layout.ck), 0) + 3
    check(layout.command(last, layout.ck, layout.log))
    check(layout.command(last, f"whole-{layout.number}", "whole.jsonl"))
    keep = ("step", "loss", "grad_norm", "lr")
    got, want = ([[r[k] for k in keep] for r in records_of_last(f)] for f in (layout.log, "whole.jsonl"))
    require(len(want) == last, len(want), "records of", last)
    require(got == want, f"{layout.name}: after {layout.kills} kills the log differs from that of an unbroken run:",
            [x for x in zip(got, want) if x[0] != x[1]][:2], len(got), len(want))
    print(f"{layout.name}: {last} steps in {layout.kills + 1} runs have the bits of one run", flush=True)
    os.remove("whole.jsonl")


MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_btl": "self,vader",
       "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_mpi_yield_when_idle": "1"}


def stop_one(rng, layout, mpi):
    """Under --ranks where mpi is None, else under that mpirun, over MPI."""
    before = [f"mpirun.{mpi}", "-n", str(layout.ranks)] if mpi else []
    for old in (layout.ck, layout.log):
        shutil.rmtree(old, ignore_errors=True) if os.path.isdir(old) else os.path.exists(old) and os.remove(old)
    with open("err.txt", "w") as err:
        run = subprocess.Popen(before + layout.command(10**6, layout.ck, layout.log, not mpi, SILENT), stdout=err, stderr=err,
                               env=dict(os.environ, **MPI, DT_COMM="mpi" if mpi else ""), stdin=subprocess.DEVNULL)
    wait_until(lambda: len(records(layout.log)) >= 3 or run.poll() is not None, 60)
    ranks = ranks_of_launcher(layout.program) if mpi else dict(enumerate(children(run.pid)))
    require(len(ranks) == layout.ranks, "it did not start:", open("err.txt").read())
    pause(rng.random() * layout.stretch / 4)
    victim = rng.randrange(layout.ranks)
    where = f"{mpi or '--ranks'}, {layout.name}: rank {victim} stopped"
    os.kill(ranks[victim], signal.SIGSTOP)
    gone = wait_until(lambda: run.poll() is not None, 4 * SILENT)
    left = [r for r in ranks.values() if not wait_until(lambda: not alive(r), 5)]
    for pid in left + ([] if gone else [run.pid]):
        os.kill(pid, signal.SIGKILL)
    text = open("err.txt").read()
    require(gone and not left, where, ": not all are gone after", 4 * SILENT, "s:", left, text)
    require(mpi or run.returncode == 69, where, ": exit status", run.returncode, text)
    for r in set(ranks) - {victim}:
        require(re.search(rf"^train: rank {r}: error: rank {victim} has been silent for more than {SILENT} s, .*; this rank "
                          rf"waited in [a-z_]+ of .*\([0-9]+ bytes .*over [a-z0-9, ]+: ranks .*\), step [0-9]+", text, re.M),
                where, f": rank {r} does not say what it waited in:\n", text)
    print(f"{where}: named by the {layout.ranks - 1} others", flush=True)


def stop_early(rng, layout):
    """A moment after all ranks of --ranks exist: while they meet, prepare or are in the first step."""
    for old in (layout.ck, layout.log):
        shutil.rmtree(old, ignore_errors=True) if os.path.isdir(old) else os.path.exists(old) and os.remove(old)
    with open("err.txt", "w") as err:
        run = subprocess.Popen(layout.command(10**6, layout.ck, layout.log, True, EARLY), stdout=err, stderr=err,
                               stdin=subprocess.DEVNULL)
    wait_until(lambda: len(children(run.pid)) == layout.ranks or run.poll() is not None, 60)
    ranks = children(run.pid)
    require(len(ranks) == layout.ranks, "it did not start:", open("err.txt").read())
    ms = rng.randrange(30)
    time.sleep(ms / 1000)
    victim = rng.randrange(layout.ranks)
    where = f"--ranks, {layout.name}: rank {victim} stopped {ms} ms after all were there"
    os.kill(ranks[victim], signal.SIGSTOP)
    gone = wait_until(lambda: run.poll() is not None, 6 * EARLY + 4 * SILENT)
    left = [r for r in ranks if not wait_until(lambda: not alive(r), 5)]
    for pid in left + ([] if gone else [run.pid]):
        os.kill(pid, signal.SIGKILL)
    text = open("err.txt").read()
    require(gone and not left, where, ": not all are gone:", left, text)
    require(run.returncode == 69, where, ": exit status", run.returncode, text)
    for r in range(layout.ranks):
        if r != victim:
            require(re.search(rf"^train: rank {r}: error: rank {victim} has been silent for more than ({6 * EARLY:g}|{EARLY:g}) s, .*; "
                              rf"this rank waited (in|for nothing)", text, re.M), where, f": not what rank {r} says:\n", text)
    print(f"{where}: named by the {layout.ranks - 1} others", flush=True)


def kill_under_mpi(rng, mpi, layout, comm):
    before, old = len(records(layout.log)), unfinished(layout.ck)
    with open("err.txt", "w") as err:
        run = subprocess.Popen([f"mpirun.{mpi}", "-n", str(layout.ranks), *layout.command(10**6, layout.ck, layout.log, False)],
                               stdout=err, stderr=err, env=dict(os.environ, **MPI, DT_COMM=comm), stdin=subprocess.DEVNULL)
    found = {}

    def come():
        found.update(ranks_of_launcher(layout.program))
        return len(found) == layout.ranks or run.poll() is not None

    wait_until(come, 60)
    require(len(found) == layout.ranks, "it did not start:", open("err.txt").read())
    when = moment(rng, layout, old)
    victim = rng.randrange(layout.ranks)
    os.kill(found[victim], signal.SIGKILL)
    gone = wait_until(lambda: run.poll() is not None, PATIENCE)
    left = [r for r in found.values() if not wait_until(lambda: not alive(r), 5)]
    if not gone:
        run.kill()
    text = open("err.txt").read()
    where = f"{mpi}{' over MPI' if comm else ''}, {layout.name}: rank {victim} killed {when}"
    require(gone and not left, where, ": not all are gone:", left, text)
    # MPICH's mpirun names a process, not a rank, and kills the others at once by the same signal: it is the first in the
    # order of ranks that it names, and none of the others has the time to speak. In its MPI_Init the others fail first.
    # Of a process that has not come to MPI_Init Open MPI's says only that there was one. UCX, under MPICH, aborts a rank
    # that was just reading from the lost process, which it names.
    ours = re.search(rf"^train: rank \d+: error: rank {victim} (was lost|has been silent)", text, re.M)
    theirs = re.search(rf"process rank {victim} with PID .* exited on signal 9", text) if mpi == "openmpi" else \
        re.search(rf"PID ({'|'.join(map(str, found.values()))}) RUNNING AT [\s\S]*EXIT CODE: 9\b|Fatal error in internal_Init|"
                  rf"process_vm_readv\(pid={found[victim]} .*No such process", text)
    if mpi == "openmpi" and len(records(layout.log)) == before:
        theirs = theirs or "1 process returned\na non-zero exit code" in text
    require(run.returncode != 0 and (ours or theirs), where, ": nobody names the rank", text)
    if newest(layout.ck) >= 0:
        whole(layout)
    who = " and ".join(name for name, said in (("a rank", ours), ("mpirun", theirs)) if said)
    print(f"{where}: {who} says so; newest checkpoint: step {newest(layout.ck)}", flush=True)


def main():
    o = options()
    build = os.path.abspath(o.build)
    seed = o.seed if o.seed is not None else random.SystemRandom().randrange(10**6)
    print(f"seed {seed}", flush=True)
    rng = random.Random(seed)
    here = tempfile.mkdtemp(prefix="kills-")
    os.chdir(here)
    with open("train.bin", "wb") as f:
        f.write(struct.pack("<3000H", *(rng.randrange(97) for _ in range(3000))))
    compile_model(build, [], "./one")
    numbers = list(range(len(LAYOUTS)))
    rng.shuffle(numbers)
    failed = 0
    try:
        layouts = [Layout(build, n, ["--target", "cuda", "--emulate"] if o.emulate else []) for n in numbers[:min(len(numbers), o.count)]]
        installed = [m for m in ("openmpi", "mpich") if shutil.which(f"mpirun.{m}")] if o.mpi else []
        if o.mpi and not installed:
            print("no MPI here")
        elif o.stop:
            for i in range(o.count):
                for mpi in installed or [None]:
                    stop_one(rng, layouts[i % len(layouts)], mpi)
                if not o.mpi:
                    stop_early(rng, layouts[i % len(layouts)])
        elif o.mpi:
            for i in range(o.count):
                for mpi in installed:
                    kill_under_mpi(rng, mpi, layouts[i % len(layouts)], "mpi" if i % 2 == 0 else "")
        else:
            kept = sum(kill_one(rng, layouts[i % len(layouts)]) for i in range(o.count))
            for layout in layouts:
                same_as_unbroken(layout)
            print(f"seed {seed}: {o.count} kills, {kept} of them while a checkpoint was written")
    except Failed as e:
        print(f"FAIL (seed {seed}): {e}")
        failed = 1
    shutil.rmtree(here, ignore_errors=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
