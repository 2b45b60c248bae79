"""Random small models: a model is drawn as a plain value (JSON), and written as a text of the
language.

    spec = draw(random.Random(seed))
    text = source(spec, kinks=False)

A model is an embedding or a linear map, blocks (alone, in stacks, in stacks of stacks, run twice),
and a loss. A block is a list of parts, each with a residual or not. A part is one of PARTS: a
function of the draws, kept in the spec, that returns what its layer declares and states, and where
its kinks are. With `kinks` the model counts points within 1e-6 of a kink (relu, a maximum's tie, a
condition on data) as the metric `near`: such a draw is no test of rounding, and is drawn again.
"""

import random
import re
import struct

import equality as eq

NEAR = "1e-6"


class Text:
    """A part as it is written; `near` counts points near a kink for each sample."""

    def __init__(self, sequence):
        self.fields, self.lines, self.near, self.result = [], [], [], "y"
        self.function = []  # of the file, that the part calls
        self.at, self.over = ("b, t", "t, ") if sequence else ("b", "")

    def field(self, *lines):
        self.fields += lines

    def line(self, *lines):
        self.lines += [l.replace("@", self.at) for l in lines]

    def kink(self, index, condition, but=""):
        """Points at which `condition` holds are too near; `but` is what is there always."""
        self.near.append(
            f"sum({self.over}{index}: where({condition.replace('@', self.at)}, 1.0, 0.0)){but}"
        )


ACTIVATIONS = {
    "relu": "max({0}, 0.0)",
    "leaky": "where({0} > 0.0, {0}, 0.2 * {0})",
    "abs": "abs({0})",
    "tanh": "tanh({0})",
    "sigmoid": "sigmoid({0})",
    "silu": "nn.silu({0})",
    "gelu": "nn.gelu({0})",
    "gelu_tanh": "nn.gelu_tanh({0})",
    "softplus": "log(1.0 + exp({0}))",
    "erf": "erf({0})",
    "sine": "sin({0})",
    "stopped": "{0} * stop_gradient(tanh({0}))",
    "pow": "pow(1.0 + square({0}), 0.25)",
}
KINKED = ("relu", "leaky", "abs")


def perceptron(p, r, c):
    p.setdefault("hidden", r.choice([3, 4, 6, 7, 8, 16]))
    p.setdefault("act", r.choice(list(ACTIVATIONS)))
    p.setdefault("gated", r.random() < 0.3)
    p.setdefault("bias", r.random() < 0.7)
    t = Text(c["sequence"])
    t.field(
        f"enter = Map(dim, {p['hidden']})",
        f"leave = Map({p['hidden']}, dim, biased = {str(p['bias']).lower()})",
    )
    t.line("h = enter(x)")
    act = ACTIVATIONS[p["act"]].format("h[@, i]")
    if p["gated"]:
        t.field(f"gate = Map(dim, {p['hidden']})")
        t.line("g = gate(x)", f"a[@, i] = {act} * tanh(g[@, i])")
    else:
        t.line(f"a[@, i] = {act}")
    t.line("y = leave(a)")
    if p["act"] in KINKED:
        t.kink("i", f"abs(h[@, i]) < {NEAR}")
    return t


def library(p, r, c):
    p.setdefault(
        "which",
        r.choice(
            [
                "nn.MLP(dim, 2 * dim)",
                "nn.MLP(dim, 6, exact = true, dropout = 0.2)",
                "nn.SwiGLU(dim, 7)",
                "nn.Linear(dim, dim, init = normal(0.4))",
                "nn.Dropout(0.25)",
                "nn.GELU()",
            ]
        ),
    )
    t = Text(c["sequence"])
    t.field(f"inner = {p['which']}")
    t.line("y = inner(x)")
    return t


def norms(p, r, c):
    p.setdefault(
        "which",
        r.choice(
            [
                "nn.LayerNorm(dim)",
                "nn.RMSNorm(dim)",
                "nn.LayerNorm(dim, biased = false)",
                "groups",
                "nn.BatchNorm(dim, eps = 0.1)",
            ]
        ),
    )
    t = Text(c["sequence"])
    if p["which"] != "groups":
        t.field(f"inner = {p['which']}")
        t.line("y = inner(x)")
        c["local"] |= "Batch" in p["which"]
        return t
    t.field("param gain[dim] = normal(0.2, mean = 1.0)")
    t.line(
        "m[@, g] = mean(e: x[@, (g=2 e)])",
        "v[@, g] = mean(e: square(x[@, (g=2 e)] - m[@, g]))",
        "n[@, (g e)] = (x[@, (g=2 e)] - m[@, g]) * rsqrt(v[@, g] + 1e-3)",
        "y[@, d] = n[@, d] * gain[d]",
    )
    return t


def attention(p, r, c):
    heads = [h for h in (1, 2, 3, 4, 6) if c["dim"] % h == 0]
    p.setdefault("heads", r.choice(heads))
    p.setdefault("kv", r.choice([h for h in heads if p["heads"] % h == 0]))
    p.setdefault(
        "which",
        r.choice(
            [
                "causal",
                "full",
                "grouped",
                "encoder",
                "window",
                "alibi",
                "decay",
                "decay_whole",
                "cross" if c["memory"] else "causal",
            ]
        ),
    )
    even = c["dim"] // p["heads"] % 2 == 0
    p.setdefault("theta", r.choice([0.0, 100.0]))
    p.setdefault("dropout", r.choice([0.0, 0.0, 0.2]))
    h, theta, drop = p["heads"], p["theta"] if even else 0.0, p["dropout"]
    t = Text(True)
    kinds = {
        "causal": f"nn.CausalSelfAttention(dim, {h}, theta = {theta}, dropout = {drop})",
        "full": f"nn.SelfAttention(dim, {h}, theta = {theta}, dropout = {drop})",
        "grouped": f"nn.GroupedQueryAttention(dim, {h}, {p['kv']}, theta = {theta}, causal = {str(drop == 0).lower()})",
        "encoder": f"nn.EncoderBlock(dim, {h}, 7, prenorm = {str(drop == 0).lower()}, dropout = {drop})",
    }
    if p["which"] in kinds:
        t.field(f"inner = {kinds[p['which']]}")
        t.line("y = inner(x)")
        return t
    t.field(
        f"heads = {h}",
        *(
            f"{n} = nn.Heads(dim, heads, dim // heads, init = normal(0.5))"
            for n in ("wq", "wk", "wv")
        ),
        "out = Map(dim, dim)",
    )
    if p["which"].startswith("decay"):
        t.field("param wa[dim | heads] = normal(0.5)")
    source = "memory" if p["which"] == "cross" else "x"
    t.line("q = wq(x)", f"k = wk({source})", f"v = wv({source})")
    score = "sum(e: q[b, t, h, e] * k[b, s, h, e]) * 0.7"
    if p["which"] == "window":
        score = f"where(s <= t and t - s < 3, {score}, -inf)"
    if p["which"] == "alibi":
        score = f"where(s <= t, {score} - real((t - s) * (h + 1)) * 0.2, -inf)"
    if p["which"].startswith("decay"):
        # A gated linear recurrence in its quadratic form. Of the first head, what is masked overflows
        # at position 0. The large part is a constant: a factor would enlarge roundings where s = t,
        # whose true gradient of `cum` is 0. It is that of one position: were it of all, the head's
        # whole gradient of `wa` would be 0 but for rounding.
        t.line(
            "gate[b, t, h] = 0.4 * (0.5 + sigmoid(sum(d: x[b, t, d] * wa[d, h])))",
            "a[b, t, h] = -where(h == 0 and t == 1, 800.0 + gate[b, t, h], gate[b, t, h])",
            "cum[b, h, t < len] = sum(s: where(s <= t, a[b, s, h], 0.0))",
        )
        decay = f"exp(cum[b, h, t] - cum[b, h, s]) * {score}"
        if p["which"] == "decay":
            t.line(
                f"w[b, h, t, s] = where(s <= t, {decay}, 0.0)",
                "o[b, t, (h e)] = sum(s: w[b, h, t, s] * v[b, s, h, e])",
            )
        else:
            t.line(
                f"z[b, h, t, s] = {score}",
                f"o[b, t, (h e)] = sum(s: where(s <= t, {decay.replace(score, 'z[b, h, t, s]')} * v[b, s, h, e], 0.0))",
            )
        t.line("y = out(o)")
        return t
    t.line(
        f"z[b, h, t, s] = {score}",
        "a = nn.softmax(z)",
        "o[b, t, (h e)] = sum(s: a[b, h, t, s] * v[b, s, h, e])",
        "y = out(o)",
    )
    return t


def convolution(p, r, c):
    p.setdefault("width", r.choice([2, 3]))
    p.setdefault("dilation", r.choice([1, 1, 2]))
    p.setdefault("which", r.choice(["causal", "full", "centred"]))
    t = Text(True)
    w, s = p["width"], p["dilation"]
    if p["which"] == "full":
        t.field(f"param w[{w}, dim | dim] = normal(0.3)")
        t.line(
            f"y[b, t < len, o] = sum(k, i: where(t - {s} * k >= 0, x[b, t - {s} * k, i], 0.0) * w[k, i, o])"
        )
        return t
    t.field(f"param w[{w} | dim] = normal(0.5)")
    if p["which"] == "causal":
        t.line(
            f"y[b, t < len, d] = sum(k: where(t - {s} * k >= 0, x[b, t - {s} * k, d], 0.0) * w[k, d])"
        )
    else:
        t.line(
            f"y[b, t < len, d] = sum(k: where(t + k - 1 >= 0 and t + k - 1 < len, x[b, t + k - 1, d], 0.0) * w[k, d])"
        )
    return t


def positions(p, r, c):
    """Along the sequence: sums so far, shifts, maxima, halves, numbers of positions."""
    p.setdefault(
        "which",
        r.choice(
            [
                "cumsum",
                "average",
                "shift",
                "max",
                "halves",
                "scale",
                "pool",
                "linear",
                "parity",
                "reverse",
                "flat",
                "flat",
            ]
        ),
    )
    t = Text(True)
    if p["which"] == "cumsum":
        t.line("u = cumsum(x, 1)", "y[b, t, d] = 0.3 * u[b, t, d]")
    elif p["which"] == "average":
        t.line("y[b, t < len, d] = sum(s: where(s <= t, x[b, s, d], 0.0)) / real(t + 1)")
    elif p["which"] == "shift":
        t.field("param mix[dim] = uniform(0.1, 0.9)")
        t.line(
            "u = pad(slice(x, 1, 0, len - 1), 1, 1, 0)",
            "y[b, t, d] = mix[d] * u[b, t, d] + (1.0 - mix[d]) * x[b, t, d]",
        )
    elif p["which"] == "max":
        t.field("param w[dim] = normal(0.5)")
        t.line("m[b, d] = max(t: x[b, t, d])", "y[b, t, d] = m[b, d] * w[d] + 0.5 * x[b, t, d]")
        t.near.append(f"abs(sum(d, t: where(m[b, d] - x[b, t, d] < {NEAR}, 1.0, 0.0)) - real(dim))")
    elif p["which"] == "halves":
        t.field("param w[dim] = normal(0.5)")
        t.line(
            "half[c < b, i < (len + 1) // 2, d < dim] = 0.0",
            "half[c, s // 2, d] += x[c, s, d]",
            "y[b, s < len, d] = half[b, s // 2, d] * w[d]",
        )
    elif p["which"] == "scale":
        t.line("y[b, t, d] = x[b, t, d] * sin(0.5 * real(t) + 0.3 * real(d))")
    elif p["which"] == "pool":
        t.field("param w[dim] = normal(0.5)")
        t.line(
            "z[b, t] = sum(d: x[b, t, d] * w[d])",
            "a = nn.softmax(z)",
            "m[b, d] = sum(t: a[b, t] * x[b, t, d])",
            "y[b, t, d] = m[b, d] * tanh(x[b, t, d])",
        )
    elif p["which"] == "linear":
        t.field("wk = Map(dim, 3)", "wv = Map(dim, 2)", "wq = Map(dim, 3)", "out = Map(2, dim)")
        t.line(
            "k = wk(x)",
            "v = wv(x)",
            "q = wq(x)",
            "kv[b, t, i, j] = tanh(k[b, t, i]) * v[b, t, j]",
            "s = cumsum(kv, 1)",
            "o[b, t, j] = sum(i: q[b, t, i] * s[b, t, i, j]) / real(t + 1)",
            "y = out(o)",
        )
    elif p["which"] == "flat":  # positions of all samples in one dimension
        p.setdefault("rows", r.choice(["b t", "t b", "b t h", "h b t"]))
        p.setdefault("drop", r.random() < 0.5)
        wide, size = ("(h=2 e)", "dim // 2") if "h" in p["rows"] else ("e", "dim")
        t.field(f"param w[{size} | {size}] = normal(0.5)")
        t.line(
            f"flat[({p['rows']}), e] = x[b, t, {wide}]",
            "z[n, o] = sum(e: flat[n, e] * w[e, o])",
            "u[n, o] = " + ("where(random() < 0.7, z[n, o], 0.0)" if p["drop"] else "tanh(z[n, o])"),
            f"y[b, t, {wide.replace('=2', '')}] = 0.5 * x[b, t, {wide}] + u[({p['rows']}), e]",
        )
    elif p["which"] == "parity":
        t.line("y[b, t, d] = where((t + d) % 3 == 0, x[b, t, d], tanh(2.0 * x[b, t, d]))")
    else:
        t.field("param w[dim] = normal(0.5)")
        t.line("y[b, s < len, d] = x[b, len - 1 - s, d] * w[d]")
    return t


def features(p, r, c):
    """Along the features: groups, products, softmax, maxima, the greatest ones, slices."""
    p.setdefault(
        "which",
        r.choice(
            [
                "shuffle",
                "blocks",
                "bilinear",
                "softmax",
                "max",
                "topk",
                "cumsum",
                "halves",
                "experts",
                "codes",
                "mask",
                "scalar",
                "rotate",
                "means",
                "logsoftmax",
                "flags",
                "added",
                "mix" if c["memory"] else "mask",
            ]
        ),
    )
    p.setdefault("half", r.random() < 0.5)
    t, which = Text(c["sequence"]), p["which"]
    if which == "shuffle":
        t.line("y[@, (e h)] = x[@, (h=2 e)]")
    elif which == "blocks":
        t.field("param w[2, dim // 2 | dim // 2] = normal(0.5)")
        t.line("y[@, (h e)] = sum(f: x[@, (h=2 f)] * w[h, f, e])")
    elif which == "bilinear":
        t.field("param w[dim, dim | dim] = normal(0.2)")
        t.line("u[@, d] = tanh(x[@, d])", "y[@, o] = sum(i, j: u[@, i] * u[@, j] * w[i, j, o])")
    elif which == "softmax":
        t.line("y = nn.softmax(x)")
    elif which == "logsoftmax":
        t.line("u = nn.log_softmax(x)", "y[@, d] = 0.5 * u[@, d]")
    elif which == "max":
        t.field("param w[2] = normal(0.7)")
        t.line("m[@, h] = max(e: x[@, (h=2 e)])", "y[@, (h e)] = x[@, (h=2 e)] - w[h] * m[@, h]")
        t.near.append(
            f"abs(sum({t.over}h < 2, e < dim // 2: where(m[{t.at}, h] - x[{t.at}, (h e)] < {NEAR}, 1.0, 0.0)) - "
            f"sum({t.over}h < 2: m[{t.at}, h] * 0.0 + 1.0))"
        )
    elif which == "topk":
        t.line(
            "v, at = topk(x, 2)",
            "y[@, d] = sum(k: where(at[@, k] == d, v[@, k], 0.0)) + 0.1 * x[@, d]",
        )
        t.near += [
            f"sum({t.over}d: where(abs(x[{t.at}, d] - v[{t.at}, {k}]) < {NEAR} and at[{t.at}, {k}] != d, 1.0, 0.0))"
            for k in (0, 1)
        ]
    elif which == "cumsum":
        t.line(f"u = cumsum(x, {2 if c['sequence'] else 1})", "y[@, d] = tanh(u[@, d])")
    elif which == "halves":
        t.line(
            "a[@, i < dim // 2] = x[@, i]",
            "g[@, i < dim // 2] = x[@, i + dim // 2]",
            "u[@, i] = a[@, i] * sigmoid(g[@, i])",
            f"y = concat(u, a, axis = {2 if c['sequence'] else 1})",
        )
    elif which == "experts":
        t.field("gate = Map(dim, 3)", "param w[3, dim | dim] = normal(0.4)")
        t.line(
            "z = gate(x)",
            "a = nn.softmax(z)",
            "y[@, o] = sum(e, i: a[@, e] * x[@, i] * w[e, i, o])",
        )
    elif which == "codes":
        t.field("pick = Map(dim, 5)", "param codes[5 | dim] = normal(0.5)")
        t.line(
            "z = pick(x)",
            "best[@] = argmax(c: z[@, c])",
            "top[@] = max(c: z[@, c])",
            "y[@, d] = codes[best[@], d] + 0.5 * top[@] * x[@, d]",
        )
        t.near.append(
            f"abs(sum({t.over}c: where(top[{t.at}] - z[{t.at}, c] < {NEAR}, 1.0, 0.0)) - "
            + (f"sum(t: 1.0 + 0.0 * top[b, t]))" if c["sequence"] else "1.0)")
        )
    elif which == "mask":
        t.line("y[@, d] = where(d < dim // 2 or d == dim - 1, tanh(x[@, d]), -x[@, d])")
    elif which == "mix":
        t.field("param w[dim] = normal(0.5)")
        t.line("y[@, d] = tanh(x[@, d]) * memory[@, d] + w[d] * memory[@, d]")
    elif which == "flags":
        t.line(
            "f[@, d] = x[@, d] > 0.1",
            "y[@, d] = where(f[@, d] or f[@, dim - 1 - d], tanh(x[@, d]), 0.3 * x[@, d])",
        )
        t.kink("d", f"abs(x[@, d] - 0.1) < {NEAR}")
    elif which == "added":
        t.field("param w[dim | dim] = normal(0.4)")
        t.line("u[@, o] = 0.5 * x[@, o]", "u[@, o] += sum(i: tanh(x[@, i]) * w[i, o])", "y[@, o] = tanh(u[@, o])")
    elif which == "scalar":
        t.line("y[@, d] = bump(x[@, d]) * real(d + 1) / real(dim)")
    elif which == "rotate":
        t.field("param w[dim] = normal(0.5)")
        t.line(
            "y[@, d < dim] = w[d] * where(d + 2 < dim, x[@, d + 2], x[@, dim - 1 - d])"
            if p["half"]
            else "y[@, d < dim] = w[d] * x[@, dim - 1 - d]"
        )
    else:
        t.line(
            "m[@] = mean(d: x[@, d])",
            "s[@] = sum(d: square(x[@, d] - m[@]))",
            "y[@, d] = (x[@, d] - m[@]) / sqrt(1.0 + s[@])",
        )
    return t


def dispatch(p, r, c):
    """To the expert that scores best, through computed subscripts, and back."""
    p.setdefault("experts", r.choice([2, 3, 4]))
    p.setdefault("capacity", r.choice([0, 0, 1, 2]))  # 0: any number of positions
    t, n = Text(c["sequence"]), p["experts"]
    t.field(f"param gate[dim | {n}] = normal(0.5)", f"param w[{n}, dim | dim] = normal(0.4)")
    # Without a sequence, the halves of a sample's features are dispatched.
    if not c["sequence"]:
        t.field(f"param up[dim // 2 | {n}] = normal(0.5)")
        t.line(f"z[b, q, e] = sum(i: x[b, (q=2 i)] * up[i, e])", "v[b, q, i] = x[b, (q=2 i)]")
    else:
        t.line("z[b, q, e] = sum(i: x[b, q, i] * gate[i, e])", "v[b, q, i] = x[b, q, i]")
    t.line(
        "best[b, q] = argmax(e: z[b, q, e])",
        "top[b, q] = max(e: z[b, q, e])",
        "a = nn.softmax(z)",
        "weight[b, q] = max(e: a[b, q, e])",
    )
    size = "dim" if c["sequence"] else "dim // 2"
    if p["capacity"]:
        most = p["capacity"]
        t.line(
            "before[b, q] = sum(u < %s: where(u < q and best[b, u] == best[b, q], 1, 0))"
            % ("len" if c["sequence"] else "2"),
            f"slot[b, q] = min(max(before[b, q], 0), {most - 1})",
            f"kept[b, q] = where(before[b, q] < {most}, weight[b, q], 0.0)",
            f"h[c < b, e < {n}, s < {most}, d < {size}] = 0.0",
            "h[c, best[c, q], slot[c, q], d] += v[c, q, d] * kept[c, q]",
            "y0[b, e, s, d] = sum(i: h[b, e, s, i] * w[e, i, d])",
            "out[b, q, d] = y0[b, best[b, q], slot[b, q], d] * kept[b, q]",
        )
    else:
        t.line(
            f"h[c < b, e < {n}, d < {size}] = 0.0",
            "h[c, best[c, q], d] += v[c, q, d] * weight[c, q]",
            "y0[b, e, d] = sum(i: h[b, e, i] * w[e, i, d])",
            "out[b, q, d] = tanh(y0[b, best[b, q], d])",
        )
    if c["sequence"]:
        t.line("y[b, t, d] = out[b, t, d]")
    else:
        t.fields[1] = f"param w[{n}, dim // 2 | dim // 2] = normal(0.4)"
        t.fields[0] = "param rest[dim] = normal(0.3)"
        t.line("y[b, (q i)] = out[b, q, i]", "y[b, d] = y[b, d] + rest[d] * x[b, d]")
    t.near.append(
        f"abs(sum(q, e: where(top[b, q] - z[b, q, e] < {NEAR}, 1.0, 0.0)) - sum(q: 1.0 + 0.0 * top[b, q]))"
    )
    return t


def noise(p, r, c):
    """Random numbers at several places: on values, on weights, as masks."""
    p.setdefault("which", r.choice(["added", "weights", "mask", "rows", "branch", "two"]))
    t, which = Text(c["sequence"]), p["which"]
    t.field("param w[dim | dim] = normal(0.4)")
    if which == "weights":
        t.line(
            "n[i < dim, o < dim] = w[i, o] + 0.2 * (random() - 0.5)",
            "y[@, o] = sum(i: x[@, i] * n[i, o])",
        )
    elif which == "added":
        t.line("y[@, o] = sum(i: x[@, i] * w[i, o]) + 0.3 * random()")
    elif which == "mask":
        t.line(
            "u[@, i] = where(random() < 0.6, x[@, i], 0.0)", "y[@, o] = sum(i: u[@, i] * w[i, o])"
        )
    elif which == "rows":
        t.line(
            "keep[c < b] = where(random() < 0.7, 1.0, 0.0)",
            "y[@, o] = keep[b] * sum(i: x[@, i] * w[i, o])",
        )
    elif which == "branch":
        t.line(
            "u[@, i] = where(random() < 0.5, tanh(x[@, i]), random() * x[@, i])",
            "y[@, o] = sum(i: u[@, i] * w[i, o])",
        )
    else:
        t.line(
            "g[d < dim] = 0.5 + random()",
            "h[@, o] = sum(i: x[@, i] * w[i, o] * g[i])",
            "y[@, o] = h[@, o] * where(random() < 0.8, 1.25, 0.0)",
        )
    return t


def contraction(p, r, c):
    """Sums of products of three and four tensors."""
    p.setdefault(
        "which", r.choice(["bilinear", "factors", "tucker", "shared", "core", "four", "pairs"])
    )
    p.setdefault("rank", r.choice([2, 3, 5]))
    t, n = Text(c["sequence"]), p["rank"]
    if p["which"] == "bilinear":
        t.field(f"param a[dim | {n}] = normal(0.4)", f"param w[dim, {n} | dim] = normal(0.3)")
        t.line(
            "u[@, j] = sum(i: x[@, i] * a[i, j])",
            "y[@, o] = sum(i, j: tanh(x[@, i]) * tanh(u[@, j]) * w[i, j, o])",
        )
    elif p["which"] == "factors":
        t.field(f"param a[dim | {n}] = normal(0.5)", f"param c[{n} | dim] = normal(0.5)")
        t.line("y[@, o] = sum(i, j: x[@, i] * a[i, j] * c[j, o])")
    elif p["which"] == "tucker":
        t.field(
            f"param a[2, dim | {n}] = normal(0.4)",
            f"param c[{n}, 2 | dim] = normal(0.4)",
            "param s[2] = normal(0.5)",
        )
        t.line("y[@, o] = sum(p, i, j: x[@, i] * a[p, i, j] * c[j, p, o])")
    elif p["which"] == "shared":  # an index of all three that is summed
        t.field(f"param a[dim | {n}] = normal(0.4)", f"param c[dim, {n} | dim] = normal(0.4)")
        t.line("y[@, o] = sum(i, j: tanh(x[@, i]) * a[i, j] * c[i, j, o])")
    elif p["which"] == "core":
        t.field(
            f"param a[2, dim // 2 | {n}] = normal(0.5)",
            f"param c[{n}, 2 | dim // 2] = normal(0.5)",
        )
        t.line("y[@, (h o)] = sum(i, u: x[@, (h=2 i)] * a[h, i, u] * c[u, h, o])")
    elif p["which"] == "four":
        t.field(
            f"param a[dim | {n}] = normal(0.5)",
            f"param s[{n} | 3] = normal(0.6)",
            "param c[3 | dim] = normal(0.5)",
        )
        t.line("y[@, o] = sum(i, j, k: x[@, i] * a[i, j] * s[j, k] * c[k, o])")
    else:  # an index of one factor alone
        t.field(f"param a[dim, {n} | dim] = normal(0.3)", f"param s[{n}] = normal(0.5)")
        t.line("y[@, o] = sum(i, j: x[@, i] * a[i, j, o] * s[j]) / real(dim)")
    return t


def reused(p, r, c):
    """Weights that are used twice, once transposed."""
    p.setdefault("which", r.choice(["again", "transposed", "row", "fixed"]))
    t = Text(c["sequence"])
    if p["which"] == "fixed":  # its backward needs the weight alone
        t.field("param w[dim | dim] = normal(0.5)")
        t.line("y[@, o] = sum(i: x[@, i] * stop_gradient(w[i, o]))")
        return t
    t.field("m = Map(dim, dim)")
    t.line("u = m(x)", "v[@, d] = tanh(u[@, d])")
    if p["which"] == "again":
        t.line("y = m(v)")
    elif p["which"] == "transposed":
        t.line("y[@, i] = sum(o: v[@, o] * m.weight[i, o])")
    else:
        t.line("y[@, o] = v[@, o] * (1.0 + m.weight[0, o]) + m.bias[o]")
    return t


def written_attention(p, r, c):
    """Attention by an intrinsic function with a body that is not the library's: one that kernels know by its parameters
    or (wide values, scores by the weight's parity) one that they do not."""
    heads = [h for h in (1, 2, 3, 4) if c["dim"] % h == 0]
    if "scale" not in p:
        p["cap"] = r.choice(["", "", "0.7", "3.0"])
        p["bias"] = r.choice(["", "", "const", "const", "slopes", "slopes", "learnt"])
        p["sink"] = r.choice(["", "", "0.4", "learnt"])
        p["parity"] = r.random() < 0.05
    p.setdefault("heads", r.choice(heads))
    p.setdefault("wide", r.random() < 0.3)
    p.setdefault("scale", r.choice(["0.3", "1.0 / sqrt(e)"]))
    p.setdefault("window", r.choice([0, 0, 2, 3]))
    p.setdefault("causal", r.random() < 0.7)
    t, h = Text(True), p["heads"]
    wide = c["dim"] // h + (2 if p["wide"] else 0)
    t.field(
        f"heads = {h}",
        "wq = nn.Heads(dim, heads, dim // heads, init = normal(0.5))",
        "wk = nn.Heads(dim, heads, dim // heads, init = normal(0.5))",
        f"wv = nn.Heads(dim, heads, {wide}, init = normal(0.5))",
        f"param mix[heads, {wide} | dim] = normal(0.5)",
    )
    seen = (["s <= t"] if p["causal"] else []) + (
        [f"t - s < {p['window']}", f"s - t < {p['window']}"] if p["window"] else []
    )
    bias, sink, more, given = p.get("bias", ""), p.get("sink", ""), "", ""
    t.line("q = wq(x)", "k = wk(x)", "v = wv(x)", "qg[b, t, h, r < 1, e] = q[b, t, h, e]")
    score = f"sum(e: q[b, t, g, r, e] * k[b, s, g, e]) * ({p['scale']})"
    if p.get("cap"):
        score = f"{p['cap']} * tanh({score} / {p['cap']})"
    if bias == "const":
        score += " - 0.2 * abs(real(t - s))"
    elif bias:
        more, given = ", slope[g, r]", ", slopes"
        slope = "stop_gradient(slope[g, r])" if bias == "slopes" else "slope[g, r]"
        score += f" + {slope} * real(s - t)"
    if bias == "slopes":
        t.line("slopes[h < heads, r < 1] = pow(0.5, 8.0 * real(h + 1) / heads)")
    if bias == "learnt":
        t.field("param slopes[heads, 1] = normal(0.2)")
    if sink == "learnt":
        t.field("param sinks[heads, 1] = normal(0.9)")
        more, given = more + ", sink[g, r]", given + ", sinks"
    if p.get("parity"):
        score += " * where((t - s) % 2 == 0, 1.0, 0.5)"
    t.line(f"o, lse = written(qg, k, v{given})")
    t.line("y[b, t, d] = sum(h, e: o[b, t, h, 0, e] * mix[h, e, d])")
    of_sink = {"": "", "learnt": " + exp(sink[g, r] - m[b, g, r, t])"}.get(
        sink, f" + exp({sink} - m[b, g, r, t])"
    )
    if seen:
        score = f"where({' and '.join(seen)}, {score}, -inf)"
    t.function = [
        f"intrinsic fn written(q[b, t, g, r, e], k[b, s, g, e], v[b, s, g, f]{more}) {{",
        f"  z[b, g, r, t, s] = {score}",
        "  m[b, g, r, t] = max(s: stop_gradient(z[b, g, r, t, s]))",
        f"  lse[b, g, r, t] = log(sum(s: exp(z[b, g, r, t, s] - m[b, g, r, t])){of_sink}) + m[b, g, r, t]",
        "  o[b, t, g, r, f] = sum(s: exp(z[b, g, r, t, s] - lse[b, g, r, t]) * v[b, s, g, f])",
        "  return o, lse",
        "}",
    ]
    return t


def sinks(p, r, c):
    """Groups of heads of attention with learnt sinks; the groups need not divide over the ranks."""
    heads = [h for h in (2, 4, 6) if c["dim"] % h == 0]
    p.setdefault("heads", r.choice(heads))
    p.setdefault("kv", r.choice([h for h in (1, 2, 3) if p["heads"] % h == 0]))
    p.setdefault("window", r.choice([0, 0, 3]))
    t, h, kv = Text(True), p["heads"], p["kv"]
    each, width = h // kv, c["dim"] // h
    t.field(
        f"wq = nn.Heads(dim, {h}, {width}, init = normal(0.5))",
        f"wk = nn.Heads(dim, {kv}, {width}, init = normal(0.5))",
        f"wv = nn.Heads(dim, {kv}, {width}, init = normal(0.5))",
        f"param sinks[{kv}, {each}] = normal(0.9)",
        f"param mix[{kv}, {each}, {width} | dim] = normal(0.5)",
    )
    t.line(
        "q = wq(x)",
        "k = wk(x)",
        "v = wv(x)",
        f"qg[b, t, g, r, e] = q[b, t, (g={kv} r), e]",
        f"o, lse = nn.sink_attention(qg, k, v, sinks, window = {p['window']})",
        "y[b, t, d] = sum(g, r, e: o[b, t, g, r, e] * mix[g, r, e, d])",
    )
    return t


def shared_norm(p, r, c):
    """One norm before a perceptron and after it: one of its gradients is a part on each rank, the other is whole."""
    t = Text(c["sequence"])
    t.field("ln = nn.LayerNorm(dim)", "mlp = nn.MLP(dim, 4 * dim)")
    t.line(
        "n = ln(x)",
        "m = mlp(n)",
        "h[@, d] = x[@, d] + m[@, d]",
        "u = ln(h)",
        "y[@, d] = h[@, d] + tanh(u[@, d])",
    )
    return t


def reversed_flags(p, r, c):
    """Bools of positions, read at the other end of the sequence."""
    t = Text(True)
    t.line(
        "f[b, t] = x[b, t, 0] > 0.1",
        "y[b, t < len, d] = where(f[b, len - 1 - t], tanh(x[b, t, d]), 0.3 * x[b, t, d])",
    )
    t.near.append(f"sum(t: where(abs(x[b, t, 0] - 0.1) < {NEAR}, 1.0, 0.0))")
    return t


def time_major(p, r, c):
    """Random numbers of positions whose samples are not the first index, or are inside of a merged one."""
    p.setdefault("merged", r.random() < 0.5)
    t = Text(True)
    if p["merged"]:
        t.line("m[(t b)] = where(random() < 0.8, 1.25, 0.0) + 0.0 * x[b, t, 0]", "y[b, t, d] = x[b, t, d] * m[(t b)]")
    else:
        t.line("m[t, b] = where(random() < 0.8, 1.25, 0.0) + 0.0 * x[b, t, 0]", "y[b, t, d] = x[b, t, d] * m[t, b]")
    return t


def many_terms(p, r, c):
    """A statement that reads more values than plans list layouts of."""
    t = Text(c["sequence"])
    t.line(*(f"v{k}[@, d] = tanh({k + 1}.0 * x[@, d])" for k in range(34)))
    t.line(f"y[@, d] = 0.03 * ({' + '.join(f'v{k}[@, d]' for k in range(34))})")
    return t


PARTS = {
    "perceptron": perceptron,
    "library": library,
    "norms": norms,
    "features": features,
    "attention": attention,
    "convolution": convolution,
    "positions": positions,
    "written attention": written_attention,
    "dispatch": dispatch,
    "noise": noise,
    "contraction": contraction,
    "reused": reused,
}
# Those that add_more draws.
MORE = {
    "sinks": sinks,
    "shared norm": shared_norm,
    "reversed flags": reversed_flags,
    "time major": time_major,
    "many terms": many_terms,
}
WIDE = ("words", "tied", "smooth", "masked")  # losses with a target for each position
REAL = ("mse", "weighted", "dropped")  # those of real targets
ALONG = ("attention", "convolution", "positions", "written attention")  # for sequences only


# By name; the first moment takes in this part of a gradient.
OPTIMIZERS = {
    "adamw": f"adamw(lr = {eq.RATE}, eps = 1e-4, weight_decay = @)",
    "adam": f"adam(lr = {eq.RATE}, eps = 1e-4, weight_decay = @)",
    "sgd": f"sgd(lr = {eq.RATE}, weight_decay = @)",
    "momentum": f"sgd(lr = {eq.RATE}, momentum = {eq.BETA1}, weight_decay = @)",
    "nesterov": f"sgd(lr = {eq.RATE}, momentum = {eq.BETA1}, nesterov = true, weight_decay = @)",
}


def took(spec):
    return 1 - eq.BETA1 if spec.get("optimizer", "adamw").startswith("adam") else 1.0


# ---- drawing


def draw_block(r, spec):
    names = [n for n in PARTS if spec["sequence"] or n not in ALONG] + (
        ["attention"] * 2 if spec["sequence"] else []
    )
    parts = [
        {"part": r.choice(names), "residual": r.random() < 0.75, "normed": r.random() < 0.5}
        for _ in range(r.choice([1, 1, 2, 2, 3]))
    ]
    for part in parts:  # scores are products: of numbers of any size they would be as steep
        part["normed"] |= "attention" in part["part"]
    if r.random() < 0.06:  # a block that saves nothing for its backward pass
        parts = [{"part": "reused", "which": "fixed", "residual": r.random() < 0.5, "normed": False}]
    return {
        "parts": parts,
        "count": r.choice([0, 1, 2, 2, 3, 4]),
        "nest": r.choice([0, 0, 0, 0, 2]),
        "twice": r.random() < 0.25,
        "aux": r.random() < 0.25,
        "number": r.random() < 0.25,
    }


# Values to which sizes at which the compiler chooses are lowered (ir/limits.h), so that models of a
# few elements take the paths of large ones.
LIMITS = {
    "compare_elements": [1, 3],
    "inline_points": [0],
    "inline_operators": [0, 3],
    "lift_ratio": [1, 2],
    "cut_points": [2, 8],
    "cut_results": [1, 1000000],
    "cut_block": [1, 2, 3],
    "cut_block_most": [2, 5],
    "rows_points": [2, 8],
    "rows_results": [1000000],
    "rows_block": [1, 2],
    "product_side": [1, 2],
    "product_sum": [1, 2],
    "product_work": [1, 16],
    "product_factors": [2, 3],
    "product_loops": [0, 2],
    "scan_extent": [2, 4],
    "kernel_statements": [1, 3],
    "nest_statements": [1, 3],
    "nest_reductions": [1, 2],
    "join_points": [1],
    "join_work": [0],
    "join_elements": [1],
    "join_bytes": [0, 64],
    "lane_tile": [1, 8],
    "reduce_tile": [1, 8],
    "row_bytes": [0, 64],
    "task_ns": [0, 10],
    "share_ns": [0, 10],
    "fill_elements": [1, 5],
    "chain": [2, 3],
    "search_first": [2],
    "search_ways": [9],
    "loop_flops": [1, 100],
    "slow_flops": [1, 1000],
    "byte_flops": [1, 300],
    "sent_flops": [1, 10000],
    "byte_points": [1],
    "byte_traffic": [1],
}


def draw_limits(r):
    """As DTC_LIMITS takes them: many lowered, or some."""
    share = r.choice([0.2, 0.5, 0.9])
    return ",".join(f"{n}={r.choice(v)}" for n, v in LIMITS.items() if r.random() < share)


def draw_effort(r):
    """What compiling may cost; mostly little, because a program is compiled for a run of three steps."""
    return r.choice(["optimise=0,search_states=20000"] * 7 + ["optimise=3"])


def draw(r):
    """A model; its parts hold what they drew."""
    spec = {
        "data": r.choice(["tokens", "tokens", "tokens", "series", "vector", "vector"]),
        "dim": r.choice([4, 6, 6, 8, 8, 12]),
        "len": r.choice([3, 4, 5, 6, 8, 8, 9, 12]),
        "words": r.choice([5, 7, 8, 11, 16, 23]),
        "batch": r.choice([4, 5, 6, 7, 8, 12]),
        "inputs": r.choice([2, 3, 5, 8]),
        "classes": r.choice([2, 3, 5, 8]),
        "memory": r.random() < 0.25,
        "positions": r.choice(["none", "table", "learned", "waves"]),
        "last_norm": r.random() < 0.5,
        "clip": r.choice([0.0, 0.0, 0.5]),
        "decay": r.choice([0.0, 0.1]),
        "optimizer": r.choice(["adamw"] * 5 + list(OPTIMIZERS)),
        "ending": r.choice([None, None, *ENDINGS]),
        "asked": r.choice([None] * 5 + [a for a in ASKED if a != "kept"]),
        "names": r.choice([None, None, None, *NAMES]),
        "arch": r.choice([None] * 6 + ["x86-64", "x86-64-v3"]),
        "sources": r.random() < 0.1,
        "half": r.choice([None] * 6 + ["bf16", "fp16", "fp32"]),
        "metric": r.random() < 0.4,
        "drawn": r.random() < 0.2,
        "ends": r.random() < 0.15,
        "single": r.random() < 0.25,
        "few": r.random() < 0.5,
        "seed": r.randrange(1 << 30),
    }
    spec["sequence"] = spec["data"] != "vector"
    losses = {
        "tokens": ["words", "words", "tied", "tied", "smooth", "classes", "masked", "masked"],
        "series": ["classes", "mse", "weighted", "dropped"],
        "vector": ["classes", "classes", "mse", "weighted", "balanced", "dropped"],
    }
    spec["loss"] = r.choice(losses[spec["data"]])
    spec["pool"] = r.choice(["mean", "first", "last", "max"])
    spec["blocks"] = [draw_block(r, spec) for _ in range(r.choice([1, 1, 2, 2, 3]))]
    limits = draw_limits(r) if r.random() < 0.7 else ""
    spec["one_rank"] = draw_effort(r)
    spec["limits"] = ",".join(x for x in (draw_effort(r), limits) if x)
    source(spec, False, r)  # parts draw what they need
    add_more(spec)
    add_modes(spec)
    return spec


def add_more(spec):
    """Puts a part that the draws above do not have into a quarter of the models, in place of one. Its random numbers are
    separate, so that a seed draws the other models as it did before."""
    r = random.Random(f"more {spec['seed']}")
    if r.random() < 0.75:
        return
    names = [*MORE, "sinks", "grouped heads", "grouped heads"] if spec["sequence"] else ["shared norm", "many terms"]
    part = {"part": r.choice(names), "residual": r.random() < 0.75, "normed": True}
    if part["part"] == "grouped heads":  # fewer groups than ranks, more heads
        part["part"] = "sinks" if spec["dim"] % 4 else "attention"
        part |= {"which": "grouped", "heads": 4, "kv": 2} if part["part"] == "attention" else {}
        spec["asked"] = None  # what says where heads are leaves nothing to choose
    parts = r.choice(spec["blocks"])["parts"]
    parts[r.randrange(len(parts))] = part
    source(spec, False, r)


def add_modes(spec):
    """How else the model is compiled and run, with random numbers of its own as above."""
    r = random.Random(f"modes {spec['seed']}")
    spec["cuda"] = r.random() < 0.25  # compiled for CUDA, too; its kernels run on the CPU
    spec["val"] = r.random() < 0.25  # validated after each step
    spec["wide_residual"] = r.random() < 0.5  # in 16 bits, the residual stream in fp32
    spec["wide_layers"] = r.random() < 0.3  # in 16 bits, products of layers in fp32
    spec["skips"] = r.random() < 0.2  # what blocks make is added up from one to the next
    spec["ends_later"] = r.random() < 0.3  # in validation alone
    spec["ends"] |= spec["ends_later"]
    if r.random() < 0.2:
        spec["limits"] += f",search_combinations={r.choice([1, 2, 4])}"
    if r.random() < 0.12:  # stacks of stacks that all read, and so add to the adjoint of, one value
        spec["memory"] = True
        for b in spec["blocks"]:
            b |= {"count": 2, "nest": 2, "parts": [{"part": "features", "which": "mix", "residual": True, "normed": True, "half": False}]}
    parts = [p for b in spec["blocks"] for p in b["parts"] if "heads" in p]
    if spec["cuda"] and parts and r.random() < 0.5:  # heads that tensor cores take
        spec["dim"], spec["half"] = 16, r.choice(["bf16", "fp16"])
        for p in parts:
            p.update({name: 1 for name in ("heads", "kv") if name in p})
    spec["sources"] |= spec["cuda"] and r.random() < 0.2
    if spec.get("asked") == "whole" and r.random() < 0.5:
        spec["asked"] = "kept"
    if spec["loss"] == "words" and r.random() < 0.2:  # the last stack makes the logits
        spec |= {"bare": True, "words": spec["dim"], "last_norm": False, "skips": False}
        spec["blocks"][-1] |= {"count": 2}
        spec["half"] = spec["half"] or r.choice([None, "bf16", "fp16"])


# ---- writing

MAP = """layer Map(in, out, biased = true) {
@precision  param weight[in | out]@param = normal(0.5)
  param bias[out] = normal(0.2) if biased
  forward(x[..., in]) { return y[..., o] = sum(i: x[..., i] * weight[i, o]) + bias[o]@statement }
}

fn bump(x[...]) { return y[...] = x[...] * exp(-0.5 * x[...] * x[...]) }
"""


# What a model asks of the layout of each Map: of its weight, and of what it computes.
ASKED = {
    "rows": (" shard(in: tp)", ""),
    "columns": (" shard(1: tp)", ""),
    "outputs": ("", " shard(o: tp)"),
    "terms": ("", " shard(i: tp)"),
    "whole": ("", " shard(none: tp)"),
    "both": (" shard(out: tp)", " shard(o: tp)"),
    "kept": (" shard(none: tp)", ""),  # drawn by add_modes
}


def write_map(spec):
    param, statement = ASKED[spec["asked"]] if spec.get("asked") else ("", "")
    wide = "  precision = fp32\n" if spec.get("wide_layers") else ""
    return MAP.replace("@precision", wide).replace("@param", param).replace("@statement", statement)


# Names of the model's last layer and of its file that are something else in C, or hold what C quotes.
NAMES = {
    "prefix": ("dt_world", "model"),
    "type": ("size_t", "why?"),
    "macro": ("CHAR_MAX", 'a "model"'),
    "constant": ("DT_A_", "\u00e9t\u00e9"),
}


def file_name(spec):
    return NAMES[spec["names"]][1] if spec.get("names") else "model"


def write_part(name, part, r, spec, kinks):
    t = {**PARTS, **MORE}[part["part"]](part, r, spec)
    x = "x[b, len, dim]" if spec["sequence"] else "x[b, dim]"
    memory = f", memory[{x[2:]}" if spec["memory"] else ""
    near = kinks and t.near
    body = (
        t.lines
        + ([f"near[b] = {' + '.join(t.near)}"] if near else [])
        + [f"return {t.result}" + (", near" if near else "")]
    )
    size = "dim, len" if spec["sequence"] else "dim"
    fields = "".join(f"  {f}\n" for f in t.fields)
    function = "".join(f"{l}\n" for l in t.function).replace("written(", f"written{name}(")
    t.lines = [l.replace("written(", f"written{name}(") for l in t.lines]
    body = [l.replace("written(", f"written{name}(") for l in body]
    return (
        f"{function}layer {name}({size}) {{\n{fields}  forward({x}{memory}) {{\n"
        + "".join(f"    {l}\n" for l in body)
        + "  }\n}\n",
        bool(t.near),
    )


def write_block(n, block, r, spec, kinks):
    """The layers of a block's parts and its own; whether it counts kinks."""
    out, fields, body, near, aux = [], [], [], [], block["aux"]
    at = "b, t, d" if spec["sequence"] else "b, d"
    memory = ", memory" if spec["memory"] else ""
    size = "dim, len" if spec["sequence"] else "dim"
    if block["number"]:
        fields.append("param gain[dim] = normal(0.1, mean = 0.5)")
        body.append(f"x[{at}] = x[{at}] + gain[d] / real(i + 2)")
    for k, part in enumerate(block["parts"]):
        text, kinked = write_part(f"Part{n}{k}", part, r, spec, kinks)
        out.append(text)
        fields.append(f"p{k} = Part{n}{k}({size})")
        given = "x"
        if part["normed"]:
            fields.append(f"n{k} = nn.LayerNorm(dim)")
            given = f"n{k}(x)"
        near += [f"k{k}[b]"] if kinks and kinked else []
        body.append(f"h{k}{f', k{k}' if kinks and kinked else ''} = p{k}({given}{memory})")
        body.append(f"x = x + h{k}" if part["residual"] else f"x = h{k}")
    over = at[3:]
    body += [f"aux[b] = mean({over}: square(x[{at}]))"] if aux else []
    body += [f"near[b] = {' + '.join(near)}"] if near else []
    body.append("return x" + (", aux" if aux else "") + (", near" if near else ""))
    x = f"[b, {'len, ' if spec['sequence'] else ''}dim]"
    arguments = f"x{x}" + (f", memory{x}" if spec["memory"] else "")
    size += ", i" if block["number"] else ""
    out.append(
        f"layer Block{n}({size}) {{\n"
        + "".join(f"  {f}\n" for f in fields)
        + f"  forward({arguments}) {{\n"
        + "".join(f"    {l}\n" for l in body)
        + "  }\n}\n"
    )
    if block["nest"] and block["count"]:
        more = [name for name, there in (("aux", aux), ("near", near)) if there]
        out.append(
            f"layer Outer{n}({size}) {{\n  inner = stack j < {block['nest']} of Block{n}({size.replace(', i', ', j')})\n"
            f"  forward({arguments}) {{\n    {', '.join(['y'] + more)} = inner(x{memory})\n"
            f"    return {', '.join(['y'] + more)}\n  }}\n}}\n"
        )
    return out, bool(near)


def write_blocks(r, spec, kinks):
    """Texts of layers, fields and statements of the model, terms of the loss, and of `near`."""
    texts, fields, body, aux, near = [], [], [], [], []
    memory = ", memory" if spec["memory"] else ""
    size = "dim, len" if spec["sequence"] else "dim"
    at, all_of = ("b, t, d", "c < b, t < len, d < dim") if spec["sequence"] else ("b, d", "c < b, d < dim")
    skips = [f"skips[{at}] += 0.3 * x[{at}]"] if spec.get("skips") else []
    body += [f"skips[{all_of}] = 0.0"] * len(skips) + skips
    for n, block in enumerate(spec["blocks"]):
        out, kinked = write_block(n, block, r, spec, kinks)
        texts += out
        nested = block["nest"] and block["count"]
        name = f"{'Outer' if nested else 'Block'}{n}({size}{', i' if block['number'] and block['count'] else ', 1' if block['number'] else ''})"
        fields.append(
            f"b{n} = " + (f"stack i < {block['count']} of " if block["count"] else "") + name
        )
        index = ("l, " if block["count"] else "") + ("j, " if nested else "")
        for run in range(2 if block["twice"] else 1):
            results = (
                ["x"]
                + ([f"a{n}{run}"] if block["aux"] else [])
                + ([f"k{n}{run}"] if kinked else [])
            )
            body.append(f"{', '.join(results)} = b{n}(x{memory})")
            total = f"sum({index[:-2]}: {{}}[{index}b])" if index else "{}[b]"
            aux += [total.format(f"a{n}{run}")] if block["aux"] else []
            near += [total.format(f"k{n}{run}")] if kinked else []
            body += skips
    body += [f"x[{at}] = 0.5 * x[{at}] + skips[{at}]"] * len(skips)
    return texts, fields, body, aux, near


def write_start(spec):
    """Fields and statements that make x[b, t, d] or x[b, d] of data, and memory."""
    fields, body, at = [], [], "b, t, d" if spec["sequence"] else "b, d"
    if spec["data"] == "tokens":
        fields.append("wte = nn.Embedding(words, dim, init = normal(0.7))")
        body.append("x = wte(tokens)")
        if spec["positions"] == "table":
            fields.append("wpe = nn.Embedding(len, dim, init = normal(0.3))")
            body.append("x[b, t, d] = x[b, t, d] + wpe.weight[t, d]")
        elif spec["positions"] != "none":
            fields.append(
                "wpe = "
                + (
                    "nn.LearnedPositions(len + 1, dim, init = normal(0.3))"
                    if spec["positions"] == "learned"
                    else "nn.SinusoidalPositions(dim, theta = 50.0)"
                )
            )
            body.append("x = wpe(x)")
    else:
        fields.append("enter = Map(inputs, dim)")
        body.append("x = enter(given)")
    if spec["memory"]:
        fields.append("keep = Map(dim, dim)")
        body += ["memory = keep(x)", f"memory[{at}] = tanh(memory[{at}])"]
    return fields, body


# What is made of the loss: linear in it, with totals of data, conditions on those, and local statistics.
ENDINGS = ("signs", "where", "number", "both", "stopped", "largest")


def write_ending(spec, over):
    """Statements; `over` are the indices of the logits before the last."""
    first = "goals[b, 0]" if spec["loss"] in REAL else f"targets[{over}]"
    sums = "b" if spec["loss"] in REAL else over
    count = f"number = sum({sums}: where({first} > 0{'.0' if spec['loss'] in REAL else ''}, 1, 0))"
    spec["local"] |= spec.get("ending") == "largest"
    return {
        "signs": ["loss = 1.5 * -(-loss * 0.5) + loss / 4.0"],
        "where": [count, "loss = where(number > 1, 0.5 * loss, loss) + where(number > 3, 0.0, 0.25)"],
        "number": [count, "loss = loss * (3.0 / real(number + 2))"],
        "both": ["more = 0.5 * loss", "loss = loss - more * 0.5 + (0.25 - 0.125 * loss)"],
        "stopped": ["loss = loss + 0.5 * loss - stop_gradient(loss)"],
        "largest": [
            f"top[c] = local(b: max({over}: logits[{over}, c]))",
            "loss = loss + 0.1 * mean(c: square(tanh(top[c])))",
        ],
    }.get(spec.get("ending"), [])


def write_loss(spec, aux):
    """Fields, statements, terms near kinks; the last statement returns."""
    fields, body, near, kind = [], [], [], spec["loss"]
    if spec["last_norm"]:
        fields.append("ln = nn.LayerNorm(dim)")
        body.append("x = ln(x)")
    wide = kind in WIDE
    score = "[b, t, c]" if wide else "[b, c]"
    if spec.get("bare"):
        body.append("logits = x")
    elif kind in ("words", "smooth", "masked"):
        fields.append("head = Map(dim, words, biased = false)")
        body.append("logits = head(x)")
    elif kind == "tied":
        body.append("logits[b, t, c] = sum(d: x[b, t, d] * wte.weight[c, d])")
    else:
        pools = {
            "mean": "mean(t: x[b, t, d])",
            "first": "x[b, 0, d]",
            "last": "x[b, len - 1, d]",
            "max": "max(t: x[b, t, d])",
        }
        body.append(f"pooled[b, d] = {pools[spec['pool']]}" if spec["sequence"] else "pooled = x")
        if spec["sequence"] and spec["pool"] == "max":
            near.append(
                f"abs(sum(d, t: where(pooled[b, d] - x[b, t, d] < {NEAR}, 1.0, 0.0)) - real(dim))"
            )
        fields.append("head = Map(dim, classes)")
        body.append("logits = head(pooled)")
    extra = f" + mean(b: 0.1 * ({' + '.join(aux)}))" if aux else ""
    at = score[1:-4]
    if kind == "mse":
        body.append(f"loss = nn.mse(logits, goals){extra}")
    elif kind == "weighted":
        body += [
            "w[b] = abs(goals[b, 0]) + 0.1",
            f"loss = sum(b, c: w[b] * square(tanh(logits[b, c]) - goals[b, c])) / sum(b: w[b]){extra}",
        ]
    elif kind == "balanced":
        body += [
            "count[c < classes] = sum(b: where(targets[b] == c, 1.0, 0.0))",
            "l = nn.log_softmax(logits)",
            f"loss = mean(b: where(targets[b] >= 0, -l[b, targets[b]] / (1.0 + count[targets[b]]), 0.0)){extra}",
        ]
    elif kind == "masked":  # of the tokens, a random part counts
        body += [
            "l = nn.log_softmax(logits)",
            "mask[b, t] = where(random() < 0.5 and targets[b, t] >= 0, 1.0, 0.0)",
            "valid = sum(b, t: mask[b, t]) + 1.0",
            "part[b, t] = where(targets[b, t] >= 0, -mask[b, t] * l[b, t, targets[b, t]], 0.0)",
            f"loss = sum(b, t: part[b, t]) / valid{extra}",
        ]
    elif kind == "dropped":
        body += [
            "mask[b, c] = where(random() < 0.6, 1.0, 0.0) + 0.0 * goals[b, c]",
            "loss = sum(b, c: mask[b, c] * square(tanh(logits[b, c]) - goals[b, c])) / "
            f"(1.0 + sum(b, c: mask[b, c])){extra}",
        ]
    elif kind == "smooth":
        body += [
            "l = nn.log_softmax(logits)",
            "valid = sum(b, t: where(targets[b, t] >= 0, 1.0, 0.0))",
            "part[b, t] = where(targets[b, t] >= 0, -0.9 * l[b, t, targets[b, t]] - 0.1 * mean(c: l[b, t, c]), 0.0)",
            f"loss = sum(b, t: part[b, t]) / valid{extra}",
        ]
    else:
        body.append(f"loss = nn.cross_entropy(logits, targets){extra}")
    body += write_ending(spec, "b, t" if wide else "b")
    if spec.get("drawn"):
        body += ["draws[c < b] = random()"]
    if spec.get("ends") and kind != "tied" and not spec.get("bare"):  # a metric of parameters of the first stage and of the last
        first = "wte" if spec["data"] == "tokens" else "enter"
        ends = f"ends[c < b] = sum(d: {first}.weight[0, d] * head.weight[d, 0])"
        later = ["if training {", "  ends[c < b] = 0.0", "} else {", f"  {ends}", "}"]
        body += later if spec.get("ends_later") else [ends]
    if spec["metric"] and kind not in REAL:
        body += [
            f"best[{at}] = argmax(c: logits[{at}, c])",
            f"right[{at}] = where(best[{at}] == targets[{at}], 1.0, 0.0)",
        ]
    elif spec["metric"]:
        body.append("right[b] = mean(c: abs(logits[b, c]))")
    body.append("return loss")
    return fields, body, near


def data_arguments(spec):
    first = {
        "tokens": "tokens[b, len]: int",
        "series": "given[b, len, inputs]",
        "vector": "given[b, inputs]",
    }[spec["data"]]
    if spec["loss"] in REAL:
        return first, "goals[b, classes]"
    return first, (
        "targets[b, len]: int" if spec["loss"] in WIDE else "targets[b]: int"
    )


def source(spec, kinks, r=None):
    """The text of a model. Parts draw from r what they have not drawn so far."""
    spec["local"], r = False, r or random.Random(0)
    layers, fields, body, aux, near = write_blocks(r, spec, kinks)
    first_fields, first = write_start(spec)
    last_fields, last, near2 = write_loss(spec, aux)
    near += near2
    metrics = []
    if spec["metric"]:
        wide = spec["loss"] in WIDE
        metrics.append(
            "metric right = " + ("mean(b, t: right[b, t])" if wide else "mean(b: right[b])")
        )
    if spec.get("drawn"):
        metrics.append("metric drawn = mean(b: draws[b])")
    if spec.get("ends") and spec["loss"] != "tied" and not spec.get("bare"):
        metrics.append("metric ends = mean(b: ends[b])")
    if kinks and near:
        last.insert(len(last) - 1, f"near[b] = {' + '.join(near)}")
        metrics.append("metric near = mean(b: near[b])")
    if spec.get("names"):
        name = NAMES[spec["names"]][0]
        last_fields, last = (
            [re.sub(r"\bhead\b", name, x) for x in lines] for lines in (last_fields, last)
        )
    a, b = data_arguments(spec)
    sizes = (
        f"dim = {spec['dim']}, len = {spec['len']}, words = {spec['words']}, inputs = {spec['inputs']}, "
        f"classes = {spec['classes']}"
    )
    names = [x.split("[")[0] for x in (a, b)]
    arrays = f'arrays({names[0]} = "{names[0]}.npy", {names[1]} = "{names[1]}.npy")'
    train = [f"data = {arrays}"] + [f"val = {arrays}"] * bool(spec.get("val")) + [
        f"batch = {spec['batch']}",
        "steps = 10",
        "optimizer = " + OPTIMIZERS[spec.get("optimizer", "adamw")].replace("@", str(spec["decay"])),
        f"clip = {spec['clip']}",
        f"seed = {spec['seed'] % 1000}",
    ] + metrics
    return (
        "use nn\n\n"
        + write_map(spec)
        + "\n"
        + "\n".join(layers)
        + f"\nmodel M({sizes}) {{\n"
        + "".join(f"  {f}\n" for f in first_fields + fields + last_fields)
        + f"  loss({a}, {b}) {{\n"
        + "".join(f"    {l}\n" for l in first + body + last)
        + "  }\n}\n\ntrain M {\n"
        + "".join(f"  {l}\n" for l in train)
        + "}\n"
    )


def write_data(spec, folder, r):
    """Arrays for a spec: 3 batches of samples; where `few`, only the first microbatch's targets count."""
    n, batch = 3 * spec["batch"], spec["batch"]
    first, second = (x.split("[")[0] for x in data_arguments(spec))

    def reals(*shape):
        count = 1
        for s in shape:
            count *= s
        return shape, "<f8", struct.pack(f"<{count}d", *(r.gauss(0, 1) for _ in range(count)))

    def ints(top, skip, *shape):
        each = shape[1] if len(shape) > 1 else 1
        values = [
            r.randrange(top) if not (skip and spec["few"] and (i // each) % batch) else -100
            for i in range(shape[0] * each)
        ]
        if skip:
            values = [
                -100 if v >= 0 and i % each and r.random() < 0.2 else v
                for i, v in enumerate(values)
            ]
        return shape, "<i4", struct.pack(f"<{len(values)}i", *values)

    wide = spec["loss"] in WIDE
    made = {
        "tokens": lambda: ints(spec["words"], False, n, spec["len"]),
        "given": lambda: reals(
            *((n, spec["len"], spec["inputs"]) if spec["sequence"] else (n, spec["inputs"]))
        ),
        "goals": lambda: reals(n, spec["classes"]),
        "targets": lambda: (
            ints(spec["words"], True, n, spec["len"]) if wide else ints(spec["classes"], True, n)
        ),
    }
    for name in (first, second):
        shape, descr, raw = made[name]()
        eq.npy(f"{folder}/{name}.npy", descr, shape, raw)
