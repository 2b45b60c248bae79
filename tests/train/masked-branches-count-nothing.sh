# What `where` does not take may be infinite, NaN, a division by zero or out of range: losses, norms of
# gradients and, by the steps after them, weights of compiled programs are those of the interpreter.
. "$(dirname "$0")/../support/lib.sh"
python3 - <<'PY'
import struct, random
r = random.Random(4)
def write(name, shape, kind, values):
    header = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (kind, tuple(shape))
    header += " " * (63 - (10 + len(header)) % 64) + "\n"
    with open(name, "wb") as f:
        f.write(b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header.encode())
        f.write(struct.pack("<%d%s" % (len(values), "f" if kind == "<f4" else "i"), *values))
n, t, d = 12, 128, 8
write("x.npy", (n, t, d), "<f4", [r.gauss(0, 1) for _ in range(n * t * d)])
# A third of these are 0, and one in nine below 0.
write("z.npy", (n, 16), "<f4", [r.choice([0.0, 1.5, r.gauss(0.5, 0.5)]) for _ in range(n * 16)])
write("k.npy", (n, 16), "<i4", [r.randrange(-3, 12) for _ in range(n * 16)])
PY
# The decay of state-space models, RWKV and gated linear attention, in its quadratic form.
cat >decay.dt <<'DT'
model M(T = 128, D = 8) {
  param wa[D] = normal(1)
  param wq[D | D] = normal(0.5)
  param wk[D | D] = normal(0.5)
  param wv[D | D] = normal(0.5)
  loss(x[b, T, D]) {
    a[b, t] = -4.0 * sigmoid(sum(d: x[b, t, d] * wa[d]))
    cum[b, t < T] = sum(s: where(s <= t, a[b, s], 0.0))
    q[b, t, c] = sum(d: x[b, t, d] * wq[d, c])
    k[b, t, c] = sum(d: x[b, t, d] * wk[d, c])
    v[b, t, c] = sum(d: x[b, t, d] * wv[d, c])
    w[b, t, s] = where(s <= t, exp(cum[b, t] - cum[b, s]) * sum(c: q[b, t, c] * k[b, s, c]), 0.0)
    y[b, t, d] = sum(s: w[b, t, s] * v[b, s, d])
    u[b, t, d] = sum(s: where(s < t, exp(cum[b, t] - cum[b, s]) * v[b, s, d] * q[b, t, d], 0.0))
    return mean(b, t, d: square(y[b, t, d] - x[b, t, d])) + mean(b, t, d: square(u[b, t, d]))
  }
}
train M { data = arrays(x = "x.npy"); optimizer = sgd(lr = 0.01) }
DT
# Positions past a sample's length hold infinities and NaN, in a product of matrices too.
cat >length.dt <<'DT'
model M(T = 128, D = 8) {
  param wq[D | D] = normal(0.5)
  param wv[D | D] = normal(0.5)
  loss(x[b, T, D]) {
    n[b] = 20 + int(abs(x[b, 0, 0])) % 3
    far[t < T] = where(t < 23, 0.0, where(t % 2 == 0, inf, log(real(0 - t))))
    q[b, t, c] = sum(d: x[b, t, d] * wq[d, c])
    v[b, t, c] = sum(d: x[b, t, d] * wv[d, c])
    r[b, t, c] = where(t < n[b], v[b, t, c], far[t])
    w[b, t, s] = where(s <= t and t < n[b], sum(c: q[b, t, c] * q[b, s, c]), 0.0) +
      where(s <= t and s < n[b], 0.1 * sum(c: q[b, t, c] * r[b, s, c]), 0.0)
    y[b, t, d] = sum(s: where(s <= t and s < n[b], w[b, t, s] * r[b, s, d], 0.0))
    e[b, d] = max(t: where(t < n[b], r[b, t, d] + far[t], -inf))
    return mean(b, t, d: square(y[b, t, d])) + mean(b, d: e[b, d])
  }
}
train M { data = arrays(x = "x.npy"); optimizer = sgd(lr = 0.001) }
DT
cat >singular.dt <<'DT'
model M(D = 16) {
  param w[D] = uniform(0.5, 1.5)
  param table[9, D] = normal(1)
  param pick[D] = normal(1)
  loss(z[b, D], k[b, D]: int) {
    h[b, d] = z[b, d] * w[d]
    a[b, d] = where(h[b, d] > 0.0, log(h[b, d]), 0.0)
    p[b, d] = where(h[b, d] > 0.0, sqrt(h[b, d]) + pow(h[b, d], 0.3), 1.0)
    q[b, d] = where(h[b, d] == 0.0, 0.5, w[d] / h[b, d] + h[b, d] / h[b, d])
    n[b, d] = where(k[b, d] == 0, 0, (7 // k[b, d]) % 9)
    g[b, d] = where(k[b, d] >= 0 and k[b, d] < 9, where(h[b, d] > 0.0, table[k[b, d], d] / h[b, d], 0.0), 0.25)
    f[b, d] = table[n[b, d], d] * a[b, d]
    acc[b, i < 9, d] = 0.0 * z[b, d]
    acc[b, n[b, d], d] += where(h[b, d] > 0.1, w[d] / h[b, d], 0.0)
    i[b] = argmax(d: where(h[b, d] > 0.0, log(h[b, d]), -inf))
    m[b] = max(d: where(h[b, d] > 0.0, 1.0 / h[b, d], -1.0))
    s[b] = sum(d: where(h[b, d] > 0.0, g[b, d] * log(h[b, d]) * pick[d], 0.0))
    l = local(b: sum(b, d: where(h[b, d] > 0.0, log(h[b, d]) * pick[d], 0.0)))
    return mean(b: m[b] + s[b] + pick[i[b]]) + mean(b, d: a[b, d] + p[b, d] + q[b, d] + f[b, d]) +
      0.01 * l + mean(b, i, d: acc[b, i, d] * acc[b, i, d])
  }
}
train M { data = arrays(z = "z.npy", k = "k.npy"); optimizer = sgd(lr = 0.001) }
DT
# A sum over the other samples of a microbatch: what stands under `c != b` may read one of the two alone.
cat >pairs.dt <<'DT'
model M(D = 16) {
  param w[D | D] = normal(0.5)
  loss(z[b, D], k[b, D]: int) {
    u[b, d] = sum(e: z[b, e] * w[e, d])
    r[b] = local(c: sum(c: where(c != b, sum(d: u[c, d] * z[c, d]) * z[b, 0], 0.0)))
    s[b] = local(c: sum(c: where(c != b and sum(d: u[b, d] * z[b, d]) > 0.1, sum(d: z[c, d]), 0.0)))
    t[b] = local(c: sum(c: where(c < b, log(1.0 + sum(d: square(u[b, d]))) * z[c, 1], 0.0)))
    best[b] = local(c: sum(c: where(c != b and sum(d: u[b, d] * z[c, d]) > sum(d: u[b, d] * z[b, d]), 1.0, 0.0)))
    return mean(b: r[b] + s[b] * t[b] + best[b] * u[b, 0])
  }
}
train M { data = arrays(z = "z.npy", k = "k.npy"); optimizer = sgd(lr = 0.001) }
DT
# check FILE PRECISION TOLERANCE OPTIONS
check() {
  echo "$1 $2 ${*:4}"
  "$DTC" "$1" --precision "$2" "${@:4}" -o train
  rm -f log.jsonl
  ./train --steps 3 --log log.jsonl --quiet
  "$DTC" "$1" --precision "$2" "${@:4}" --interpret --steps 3 >oracle.jsonl
  python3 - "$3" <<'PY'
import json, math, sys
a, b = ([r for r in map(json.loads, open(f)) if "loss" in r] for f in ("log.jsonl", "oracle.jsonl"))
assert len(a) == len(b) == 3, (len(a), len(b))
for x, y in zip(a, b):
    for k in ("loss", "grad_norm"):
        ok = math.isfinite(y[k]) and abs(x[k] - y[k]) <= float(sys.argv[1]) * abs(y[k])
        assert ok, "step %d: %s %.17g, interpreter %.17g" % (x["step"], k, x[k], y[k])
PY
}
for file in decay length singular; do
  check $file.dt fp32 1e-4 -D batch=4
  check $file.dt fp64 1e-11 -D batch=5 -D microbatch=2
done
check pairs.dt fp64 1e-11 -D batch=8 -D microbatch=8
check pairs.dt fp64 1e-11 -D batch=8 -D microbatch=3
# Of each sample with itself alone there is none.
"$DTC" pairs.dt -D batch=8 -D microbatch=1 -o train
./train --steps 1 --log alone.jsonl --quiet
[ "$(losses alone.jsonl)" = 0 ] || fail "samples alone have a loss"
# A rank without samples has statistics of nothing: 0, and a logarithm of that.
cat >idle.dt <<'DT'
model M(D = 16) {
  param w[D] = uniform(0.5, 1.0)
  loss(z[b, D]) {
    top = local(b: max(b: abs(z[b, 0]) * w[0] + 1.0))
    return mean(b, d: square(z[b, d] * w[d])) + log(top)
  }
}
train M { data = arrays(z = "z.npy"); optimizer = sgd(lr = 0.01); batch = 3; microbatch = 1 }
DT
"$DTC" idle.dt --precision fp64 -o train
./train --steps 2 --log one.jsonl --quiet
./train --steps 2 --ranks 2 --log two.jsonl --quiet
losses one.jsonl >one.txt
losses two.jsonl >two.txt
near one.txt two.txt 1e-12
