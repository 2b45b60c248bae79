# Models with an intrinsic function `own`, and data for them, for tests of what bodies mean. After lib.sh.
python3 - <<'PY'
import random, struct
r = random.Random(1)
for name in ("tokens", "targets"):
    head = "{'descr': '<i4', 'fortran_order': False, 'shape': (24, 8), }"
    head += " " * (63 - (10 + len(head)) % 64) + "\n"
    with open(name + ".npy", "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode())
        f.write(struct.pack("<192i", *(r.randrange(16) for _ in range(192))))
PY
product='sum(e: q[b, t, g, r, e] * k[b, s, g, e])'

# Prints a model. Variables: scale; scores; largest, lse, output: the rest of the body; formals, actuals: of more
# arguments; declare, make: parameters and statements for these.
own_attention() {
  cat <<DT
intrinsic fn own(q[b, t, g, r, e], k[b, s, g, e], v[b, s, g, e]${formals:-}) {
  scale = ${scale:-3.0}
  z[b, g, r, t, s] = ${scores:-where(s <= t, $product * scale, -inf)}
  m[b, g, r, t]    = ${largest:-max(s: stop_gradient(z[b, g, r, t, s]))}
  lse[b, g, r, t]  = ${lse:-log(sum(s: exp(z[b, g, r, t, s] - m[b, g, r, t]))) + m[b, g, r, t]}
  o[b, t, g, r, e] = ${output:-sum(s: exp(z[b, g, r, t, s] - lse[b, g, r, t]) * v[b, s, g, e])}
  return o, lse
}
model M(words = 16, len = 8, dim = 8, heads = 2) {
  param table[words, dim] = normal(0.7)
  param wq[dim | heads, 4] = normal(0.4)
  param wk[dim | heads, 4] = normal(0.4)
  param wv[dim | heads, 4] = normal(0.4)
  param out[heads, 4 | dim] = normal(0.4)
  ${declare:-}
  loss(tokens[b, len]: int, targets[b, len]: int) {
    x[b, t, d] = table[tokens[b, t], d]
    q[b, t, h, r < 1, e] = sum(d: x[b, t, d] * wq[d, h, e])
    k[b, t, h, e] = sum(d: x[b, t, d] * wk[d, h, e])
    v[b, t, h, e] = sum(d: x[b, t, d] * wv[d, h, e])
    ${make:-}
    o, lse = own(q, k, v${actuals:-})
    y[b, t, d] = x[b, t, d] + sum(h, e: o[b, t, h, 0, e] * out[h, e, d])
    l[b, t, c] = sum(d: y[b, t, d] * table[c, d])
    p[b, t] = log(sum(c: exp(l[b, t, c]))) - l[b, t, targets[b, t]]
    return mean(b, t: p[b, t])
  }
}
train M {
  data = arrays(tokens = "tokens.npy", targets = "targets.npy")
  batch = 6
  microbatch = 3
  optimizer = sgd(lr = 1.0)
  precision = fp64
}
DT
}
interpreted() { # OPTIONS...: compares model.dt with the losses in `plain`
  "$DTC" model.dt "$@" --interpret --steps 3 >log.jsonl
  losses log.jsonl >got
  near plain got 1e-11
}
compiled() { # RANKS OPTIONS...
  "$DTC" model.dt "${@:2}" -o train
  ./train --ranks "$1" --steps 3 --log log.jsonl --quiet
  losses log.jsonl >got
  near plain got 1e-11
}
