"""What tests of layouts share: layouts and their legal combinations, running a model in one, and the
criterion.

A layout is a dict of FIELDS. What is not tp, pp or cp of its ranks is data-parallel. The criterion,
for runs of three steps in double precision with AdamW and eps 1e-4:
  loss, gradient norm    1e-11, relative
  each gradient, moment and root of second moment
                         Frobenius 1e-11 * max(its norm, global gradient norm * sqrt(n / N))
  weights                largest difference 1e-11 * max(largest weight, learning rate)
A gradient is what the first moment took in, (m - beta1 m of the step before) / (1 - beta1), or m - beta1 m
with SGD's momentum, before clipping.
"""

import glob
import itertools
import json
import math
import operator
import os
import re
import shutil
import signal
import struct
import subprocess
import zlib

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
STEPS, RATE, BETA1, BOUND = 3, 1e-2, 0.9, 1e-11
RANKS = [1, 2, 3, 4, 6, 8]
COMPILER_KB = 8_000_000  # of addresses, for dtc
SCHEDULES = ["gpipe", "1f1b", "interleaved:2", "zb"]
KINDS = ["even", "remainder", "fewer than stages", "idle ranks"]
FIELDS = [
    "tp",
    "pp",
    "cp",
    "attention",
    "sequence",
    "zero",
    "accumulate",
    "gather",
    "group",
    "schedule",
    "flight",
    "checkpoint",
    "micro",
    "ranks",
]
ONE = dict(
    tp=1,
    pp=1,
    cp=1,
    attention="gather",
    sequence=False,
    zero=0,
    accumulate="once",
    gather="each",
    group=0,
    schedule="1f1b",
    flight=1,
    checkpoint="none",
    micro=0,
    ranks=1,
)

# How dtc refuses a layout: the message names what does not go, and what it would have to go into.
# Any other failure to compile is a failure of the test.
REFUSALS = [
    (
        "nothing to cut",
        r"--(?P<axis>tp|cp) (?P<n>\d+): (nothing|no sequence) of this model can be cut over (?P=n) ranks",
    ),
    ("attention's body", r"--cp-attention (ring|alltoall) cannot cut `\S+`: it "),
    (
        "attention",
        r"--cp-attention (ring|alltoall): (a sequence of \d+ does not divide over \d+ ranks"
        r"|\d+ heads cannot be divided evenly over \d+ ranks|this model has no attention)",
    ),
    ("sequence", r"--sequence-parallel: a sequence of \d+ does not divide over \d+ ranks"),
    ("stages", r"a pipeline of \d+ chunks needs as many statements or layers, \w+ has \d+"),
    (
        "split backward",
        r"schedule zb cannot split this into the gradient of its input and the gradients of its parameters",
    ),
    (
        "asked",
        r"(index '\S+' of '\S+'|dimension \d+ of parameter '\S+') cannot be cut over \d+ ranks of"
        r"|'\S+' cannot be computed whole on each of \d+ ranks of",
    ),
    ("shared layers", r"a pipeline cannot hold `.*` on stages that use different layers of it"),
]


class Failed(Exception):
    times = float("inf")  # how far off, in units of what is allowed; no number was compared: infinite


class Refused(Exception):
    pass


class Model:
    """A model to train: its file, -D options, arguments of the program, samples a step."""

    def __init__(
        self, name, path, defines=(), arguments=(), batch=12, few=(), local=False, heads=0, clip=0.0, took=1 - BETA1,
        options=(), val=False,
    ):
        self.name, self.path, self.defines, self.arguments = (
            name,
            path,
            list(defines),
            list(arguments),
        )
        self.batch, self.few, self.local, self.heads, self.clip = (
            batch,
            list(few),
            local,
            heads,
            clip,
        )
        self.options = list(options)  # of dtc
        self.val = val  # it has data to validate with: after each step
        self.took = took  # the part of a gradient that the first moment takes in


def data_ranks(l):
    return l["ranks"] // (l["tp"] * l["pp"] * l["cp"])


def kind(l, batch):
    """How the microbatches of a rank compare with the batch and the stages."""
    dp = data_ranks(l)
    total = -(-batch // l["micro"])
    mine = -(-total // dp)
    if mine * (dp - 1) >= total:
        return "idle ranks"
    if mine < l["pp"]:
        return "fewer than stages"
    return "remainder" if batch % l["micro"] or total % dp else "even"


def micros(l, batch):
    """A size of microbatches for each kind that the mesh can have."""
    found = {}
    for micro in [2, 5, batch, 1] + list(range(3, batch)):
        if 0 < micro <= batch:
            found.setdefault(kind(dict(l, micro=micro), batch), micro)
    return found.values()


def meshes(ranks, axes):
    for world in ranks:
        divisors = [d for d in range(1, world + 1) if world % d == 0]
        for tp, pp, cp in itertools.product(divisors, repeat=3):
            if world % (tp * pp * cp) == 0 and all(
                a in axes or d == 1 for a, d in (("tp", tp), ("pp", pp), ("cp", cp))
            ):
                yield dict(ONE, tp=tp, pp=pp, cp=cp, ranks=world)


def takes_turns(l):
    """Whether two microbatches may be in flight."""
    return (
        (l["tp"] > 1 or l["cp"] > 1)
        and l["pp"] == 1
        and l["accumulate"] == "once"
        and (l["zero"] < 3 or l["gather"] == "once")
    )


def layouts(batch, ranks=RANKS, axes=("tp", "pp", "cp")):
    """Every layout that the command line allows; dtc may refuse it for the model at hand."""
    for mesh in meshes(ranks, axes):
        holders = mesh["ranks"] // (mesh["tp"] * mesh["pp"])
        groups = [0] + [g for g in range(1, holders) if holders % g == 0]
        for zero, accumulate, micro in itertools.product(
            range(4), ["once", "each"], micros(mesh, batch)
        ):
            for attention, sequence, gather, group, schedule in itertools.product(
                ["gather", "ring", "alltoall"] if mesh["cp"] > 1 else ["gather"],
                [False, True] if mesh["tp"] > 1 else [False],
                ["each", "once"] if zero == 3 else ["each"],
                groups if zero else [0],
                SCHEDULES if mesh["pp"] > 1 else ["1f1b"],
            ):
                l = dict(
                    mesh,
                    zero=zero,
                    accumulate=accumulate,
                    micro=micro,
                    attention=attention,
                    sequence=sequence,
                    gather=gather,
                    group=group,
                    schedule=schedule,
                )
                yield l
                if takes_turns(l):
                    yield dict(l, flight=2)


def stage(l):
    """The ZeRO stage that a launch comes to: 0 where nobody is there to share with."""
    owners = l["group"] or l["ranks"] // (l["tp"] * l["pp"])
    return l["zero"] if owners > 1 else 0


def build_key(l):
    """Layouts of equal key share a program: the data-parallel degree is found at launch."""
    return tuple(l[f] for f in FIELDS[:-1])


def facts(l, batch):
    """What the layout is, by category: pairs of two categories are to be covered."""
    dp = data_ranks(l)
    out = [("axis", a) for a in ("tp", "pp", "cp") if l[a] > 1] + (
        [("axis", "dp")] if dp > 1 else []
    )
    out += [("zero", f"zero {stage(l)}"), ("microbatches", kind(l, batch))]
    return out + ([("schedule", l["schedule"])] if l["pp"] > 1 else [])


def pairs(l, batch):
    return {(a, b) for a, b in itertools.combinations(sorted(facts(l, batch)), 2)}


CORNERS = [
    "accumulate once",
    "accumulate each",
    "sequence-parallel",
    "heads for the sequence",
    "keys in a ring",
    "two microbatches in flight",
    "gather once",
    "group of 1",
    "several groups",
    "fewer microbatches than stages",
    "remainder microbatch",
    "idle ranks",
    "heads fewer than tp",
    "a rank without a valid target",
]


def special(l, model, few):
    """Those of CORNERS that the layout is in; few: its data leave ranks without a valid target."""
    out = [f"accumulate {l['accumulate']}"]
    checks = [
        ("sequence-parallel", l["sequence"]),
        ("heads for the sequence", l["attention"] == "alltoall"),
        ("keys in a ring", l["attention"] == "ring"),
        ("two microbatches in flight", l["flight"] == 2),
        ("gather once", stage(l) == 3 and l["gather"] == "once"),
        ("group of 1", l["zero"] > 0 and l["group"] == 1),
        ("several groups", stage(l) > 0 and l["group"] > 1),
        ("fewer microbatches than stages", kind(l, model.batch) == "fewer than stages"),
        ("remainder microbatch", model.batch % l["micro"] != 0),
        ("idle ranks", kind(l, model.batch) == "idle ranks"),
        ("heads fewer than tp", 0 < model.heads < l["tp"]),
        ("a rank without a valid target", few and data_ranks(l) > 1),
    ]
    return out + [name for name, there in checks if there]


def tell(l):
    return " ".join(f"{f}={l[f]}" for f in FIELDS)


def parse(text):
    """The layout that tell() wrote."""
    l = dict(ONE)
    for word in text.split():
        name, value = word.split("=", 1)
        if name not in FIELDS:
            raise SystemExit(f"no field '{name}' in a layout; there are {' '.join(FIELDS)}")
        l[name] = (
            value == "True" if name == "sequence" else int(value) if value.isdigit() else value
        )
    return l


def options(l):
    """Of dtc, for a layout."""
    out = []
    for axis in ("tp", "pp", "cp"):
        if l[axis] > 1:
            out += [f"--{axis}", str(l[axis])]
    if l["cp"] > 1:
        out += ["--cp-attention", l["attention"]]
    if l["sequence"]:
        out += ["--sequence-parallel"]
    if l["checkpoint"] != "none":
        out += ["--checkpoint", l["checkpoint"]]
    if l["flight"] > 1:
        out += ["--in-flight", str(l["flight"])]
    if l["ranks"] > 1:
        out += ["--zero", str(l["zero"]), "--accumulate", l["accumulate"]]
        out += ["--gather", l["gather"]] if l["zero"] == 3 else []
        out += ["--zero-group", str(l["group"])] if l["group"] else []
    return out + (["--schedule", l["schedule"]] if l["pp"] > 1 else [])


def degree(l):
    """Of dtc, where what it does depends on the data-parallel degree."""
    return ["--dp", str(data_ranks(l))] if data_ranks(l) > 1 else []


def npy(path, descr, shape, raw):
    """Writes an array in NumPy's format."""
    head = str({"descr": descr, "fortran_order": False, "shape": tuple(shape)})
    head += " " * (-(len(head) + 11) % 64) + "\n"
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + raw)


def tensors(path):
    """All tensors of a checkpoint: 'params/name' or 'moment0/name' to its elements."""
    out = {}
    for part in sorted(glob.glob(f"{path}/*.safetensors")):
        with open(part, "rb") as f:
            data = f.read()
        n = struct.unpack("<Q", data[:8])[0]
        for name, t in json.loads(data[8 : 8 + n]).items():
            if name == "__metadata__":
                continue
            a, b = (8 + n + x for x in t["data_offsets"])
            assert t["dtype"] == "F64", (name, t["dtype"])
            key = name if "/" in name else f"params/{name}"
            assert key not in out, f"{key} is written twice"
            out[key] = struct.unpack(f"<{(b - a) // 8}d", data[a:b])
    return out


def refusal(text):
    """The kind of a refusal, None where the message is none."""
    for name, pattern in REFUSALS:
        if re.search(pattern, text):
            return name
    return None


class Runner:
    """Compiles and runs programs in a folder; one for each thread."""

    target = []  # options of dtc for the layouts that are compared; one rank's program is that of the CPU

    def __init__(self, dtc, folder, keep=False):
        self.dtc, self.folder, self.keep = dtc, folder, keep
        self.built, self.log = {}, []
        self.limits = ""  # of dtc
        self.precision = "fp64"
        self.environment = {}  # variables besides
        with open(dtc, "rb") as f:
            self.bounded = b"__asan_init" not in f.read()  # the sanitizer reserves terabytes of addresses

    def run(self, command, wait=1200):
        """Output and exit status. Kills a program that hangs, and its ranks. dtc has COMPILER_KB of memory."""
        variables = dict(self.environment, **{"DTC_LIMITS": self.limits} if self.limits else {})
        self.log.append(" ".join([f"{k}={v}" for k, v in variables.items()] + command))
        bounded = ["sh", "-c", f'ulimit -v {COMPILER_KB}; exec "$@"', "sh"] if command[0] == self.dtc and self.bounded else []
        p = subprocess.Popen(
            bounded + command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd=self.folder,
            start_new_session=True,
            env=dict(os.environ, DTC_VERIFY="1", DTC_LIMITS=self.limits, **self.environment),
        )
        try:
            return p.communicate(timeout=wait)[0], p.returncode
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, signal.SIGKILL)
            raise Failed(f"hangs: {p.communicate()[0].strip()}")

    def must(self, command):
        text, status = self.run(command)
        if status:
            raise Failed(f"exit status {status}: {text.strip()}")
        return text

    def ask(self, model, l, precision, asks, extra=()):
        """The text that dtc prints of the layout with the options `asks`."""
        command = [self.dtc, model.path, "--precision", precision, *asks, *model.options]
        command += [x for d in zip(extra, extra[1:]) if d[0] == "-D" for x in d]
        for d in model.defines + ([f"microbatch={l['micro']}"] if l["micro"] else []):
            command += ["-D", d]
        text, status = self.run(command + options(l) + degree(l))
        if status in (1, 2) and refusal(text):
            raise Refused(refusal(text))
        if status:
            raise Failed(f"dtc's exit status {status}: {text.strip()}")
        return text

    def report(self, model, l, checkpoint, precision, extra=()):
        """What --report=json says of the layout with that recomputation."""
        text = self.ask(model, dict(l, checkpoint=checkpoint), precision, ["--report=json"], extra)
        return json.loads(text[text.index("{\"model\"") :])  # after warnings

    def checkpoint(self, model, l, precision, extra=()):
        """The layout with bytes for --checkpoint auto: half way between none and full, or none where full needs no less."""
        if l["checkpoint"] != "auto":
            return l
        none, full = (self.report(model, l, c, precision, extra)["memory"]["total"] for c in ("none", "full"))
        return dict(l, checkpoint=f"auto:{(none + full) // 2}" if full < none else "none")

    def compile(self, model, l, out, extra=(), precision=None):
        """Writes the program `out`, unless the last one compiled is the same."""
        precision = precision or self.precision
        key = (out, model.name, model.path, build_key(l), tuple(model.options), tuple(extra), precision)
        if self.built.get(out) == key:
            return
        self.built.pop(out, None)
        l = self.checkpoint(model, l, precision, extra)
        command = [self.dtc, model.path, "--precision", precision, "-o", out, *model.options, *extra]
        for d in model.defines + ([f"microbatch={l['micro']}"] if l["micro"] else []):
            command += ["-D", d]
        text, status = self.run(command + options(l) + (degree(l) if "auto" in l["checkpoint"] else []))
        if status in (1, 2) and refusal(text):
            raise Refused(refusal(text))
        if status:
            raise Failed(f"dtc's exit status {status}: {text.strip()}")
        self.built[out] = key

    def train(self, model, l, name, arguments=(), extra=()):
        """Runs STEPS steps: the records of its log, and the tensors after each step."""
        for old in glob.glob(f"{glob.escape(self.folder)}/{name}.*"):
            (shutil.rmtree if os.path.isdir(old) else os.remove)(old)
        self.compile(model, l, f"train-{name}", extra)
        self.must(
            [
                f"./train-{name}",
                *model.arguments,
                *arguments,
                "--ranks",
                str(l["ranks"]),
                "--threads",
                "1",
                "--steps",
                str(STEPS),
                "--eval-every",
                str(int(model.val)),
                "--save",
                f"{name}.ck",
                "--save-every",
                "1",
                "--log",
                f"{name}.jsonl",
                "--timeout",
                "900",
                "--quiet",
            ]
        )
        with open(f"{self.folder}/{name}.jsonl") as f:
            records = steps_of(map(json.loads, f))
        states = [tensors(f"{self.folder}/{name}.ck/step-{s:08d}") for s in range(1, STEPS + 1)]
        return records, states


def steps_of(log):
    """The records of steps; each takes in the validation after it."""
    steps = []
    for r in log:
        if "loss" in r:
            steps.append(r)
        elif "val_loss" in r:
            steps[-1].update((k, v) for k, v in r.items() if k.startswith("val_"))
    return steps


CUDA = ["--target", "cuda", "--emulate"]


def emulated(l):
    """Variables for a layout's emulated program: the order of threads, and that of the driver's streams."""
    number = zlib.crc32(tell(l).encode())
    return {"DT_ORDER": str(number % 4), "DT_EMULATE_SEED": str(number % 1000)}


def norm(v):
    return math.hypot(*v)


def gradients(states, logs, clip, took=1 - BETA1):
    """Of each step, by name: what the first moment took in, before clipping; nothing where there is no moment."""
    before, out = {}, []
    for s, r in zip(states, logs):
        # The step multiplied the gradient by this.
        scale = clip / (r["grad_norm"] + 1e-6) if 0 < clip < r["grad_norm"] else 1.0
        now = {k[8:]: v for k, v in s.items() if k.startswith("moment0/")}
        out.append(
            {
                k: [
                    (m - BETA1 * p) / (took * scale)
                    for m, p in zip(v, before.get(k) or [0.0] * len(v))
                ]
                for k, v in now.items()
            }
        )
        before = now
    return out


def frobenius(v, w, g, total):
    """The difference of two tensors, in units of what is allowed."""
    least = max(norm(v), g * math.sqrt(len(v) / total))
    d = math.dist(v, w)
    return 0.0 if d == 0 else d / max(least, 1e-300) / BOUND


def compare(base, got, clip=0.0, took=1 - BETA1):
    """The largest difference in units of what is allowed, and of which quantity."""
    (logs, states), (logs2, states2) = base, got
    if len(logs) != STEPS or len(logs2) != STEPS:
        raise Failed(f"{len(logs)} and {len(logs2)} records")
    worst = (0.0, "nothing")

    def note(d, what):
        nonlocal worst
        if not d <= worst[0]:  # NaN, too
            worst = (d if d == d else math.inf, what)

    for a, b in zip(logs, logs2):
        if ("val_loss" in a) != ("val_loss" in b):
            raise Failed(f"step {a['step']} has one validation, not two")
        for what in ["loss", "grad_norm"] + ["val_loss"] * ("val_loss" in a):
            if a[what] is None or b[what] is None:
                raise Failed(f"{what} is not finite")
            note(
                abs(a[what] - b[what]) / max(abs(a[what]), 1e-300) / BOUND,
                f"{what} of step {a['step']}",
            )
        for metric in ("right", "drawn", "ends", "val_right", "val_drawn", "val_ends"):
            if metric in b:
                note(
                    abs(a[metric] - b[metric]) / max(abs(a[metric]), 1) / BOUND,
                    f"metric `{metric}` of step {a['step']}",
                )
    for step, (s, t) in enumerate(zip(states, states2)):
        if s.keys() != t.keys():
            raise Failed(f"other tensors: {sorted(s.keys() ^ t.keys())[:4]}")
        total = sum(len(v) for k, v in s.items() if k.startswith("params"))
        for key, v in s.items():
            w = t[key]
            if len(v) != len(w):
                raise Failed(f"{key} has {len(w)} elements, not {len(v)}")
            if v == w:
                continue
            if key.startswith("params"):
                most = max(map(abs, map(operator.sub, v, w)))
                if not math.isfinite(math.dist(v, w)):  # max() may pass over a NaN
                    most = math.inf
                d = most / max(max(map(abs, v)), RATE) / BOUND
            elif key.startswith("moment1"):
                roots = [list(map(math.sqrt, x)) for x in (v, w)]
                d = frobenius(*roots, logs[step]["grad_norm"], total)
            else:
                d = frobenius(v, w, logs[step]["grad_norm"], total)
            note(d, f"{key} after step {step + 1}")
    for step, (g, h) in enumerate(
        zip(gradients(states, logs, clip, took), gradients(states2, logs2, clip, took))
    ):
        total = sum(map(len, g.values()))
        for key, v in g.items():
            note(
                frobenius(v, h[key], logs[step]["grad_norm"], total),
                f"gradient of {key} in step {step + 1}",
            )
    return worst


def differs(runner, model, base, l, arguments=()):
    """Trains in layout l and compares; the largest difference. Failed if it is more than allowed."""
    runner.environment = emulated(l) if runner.target else {}
    got = runner.train(model, l, "other", arguments, runner.target)
    runner.environment = {}
    worst = compare(base, got, model.clip, model.took)
    if not worst[0] <= 1:
        e = Failed(f"{worst[1]} is {worst[0]:.3g} times as far off as allowed")
        e.times = worst[0]
        raise e
    return worst


class Coverage:
    """Pairs that are there to be hit, and those that were."""

    def __init__(self):
        self.there, self.hit, self.refused, self.corners = {}, {}, {}, {}

    def ran(self, l, model, few=False):
        for p in pairs(l, model.batch):
            self.hit[p] = self.hit.get(p, 0) + 1
        for s in special(l, model, few):
            self.corners[s] = self.corners.get(s, 0) + 1

    def expect(self, l, model):
        for p in pairs(l, model.batch):
            self.there[p] = self.there.get(p, 0) + 1

    def refuse(self, l, model):
        for p in pairs(l, model.batch):
            self.refused[p] = self.refused.get(p, 0) + 1

    def missed(self):
        """Pairs with a layout that was not refused, and none that ran."""
        return sorted(
            p for p, n in self.there.items() if not self.hit.get(p) and self.refused.get(p, 0) < n
        )

    def table(self):
        """A line for each fact: how often it was met with each of the others."""
        rows = {}
        for p in sorted(self.there.keys() | self.hit.keys()):
            for (_, a), (_, b) in (p, p[::-1]):
                note = f" ({self.refused[p]} refused)" if self.refused.get(p) else ""
                rows.setdefault(a, []).append(f"{b} {self.hit.get(p, 0)}{note}")
        for name, row in rows.items():
            print(f"  {name} with {', '.join(row)}")
        print("  corners:", ", ".join(f"{name} {n}" for name, n in sorted(self.corners.items())))
