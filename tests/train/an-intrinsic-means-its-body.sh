# An intrinsic function whose body is not the standard library's attention computes what it says, compiled and in the
# interpreter, on one rank and with --tp and --cp: the same as the function without the word `intrinsic`. The ring and
# alltoall refuse such a body; one that is attention by another name they take.
. "$(dirname "$0")/../support/lib.sh"
model() { # WORD NAME SCALE SCORES: writes model.dt
  cat <<DT
$1 fn $2(q[b, t, g, r, e], k[b, s, g, e], v[b, s, g, ${5:-e}]) {
  scale = $3
  z[b, g, r, t, s] = $4
  m[b, g, r, t]    = max(s: stop_gradient(z[b, g, r, t, s]))
  lse[b, g, r, t]  = log(sum(s: exp(z[b, g, r, t, s] - m[b, g, r, t]))) + m[b, g, r, t]
  o[b, t, g, r, ${5:-e}] = sum(s: exp(z[b, g, r, t, s] - lse[b, g, r, t]) * v[b, s, g, ${5:-e}])
  return o, lse
}
model M(words = 16, len = 8, dim = 8, heads = 2, wide = ${6:-4}) {
  param table[words, dim] = normal(0.7)
  param wq[dim | heads, 4] = normal(0.4)
  param wk[dim | heads, 4] = normal(0.4)
  param wv[dim | heads, wide] = normal(0.4)
  param out[heads, wide | dim] = normal(0.4)
  loss(tokens[b, len]: int, targets[b, len]: int) {
    x[b, t, d] = table[tokens[b, t], d]
    q[b, t, h, r < 1, e] = sum(d: x[b, t, d] * wq[d, h, e])
    k[b, t, h, e] = sum(d: x[b, t, d] * wk[d, h, e])
    v[b, t, h, e] = sum(d: x[b, t, d] * wv[d, h, e])
    o, lse = $2(q, k, v)
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
interpreted() { # OPTIONS...: compares with the plain function's
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
both_ways() { # ARGUMENTS OF model AFTER ITS WORD
  model "" "$@" >model.dt
  "$DTC" model.dt --interpret --steps 3 >log.jsonl
  losses log.jsonl >plain
  model intrinsic "$@" >model.dt
  interpreted
  compiled 1
  compiled 2 --tp 2
  compiled 2 --cp 2
}
refused() { # DIFFERENCE
  for how in ring alltoall; do
    expect 1 "$DTC" model.dt --cp 2 --cp-attention $how -o train
    says "cp-attention $how cannot cut .attention.: it $1" err.txt
  done
}
other() { # SCALE SCORES: another body, of which everything but the ring is right
  both_ways attention "$@"
  refused "has other scores than"
}
other 3.0 "where(s <= t, $product * scale, -inf)"
other '1.0 / sqrt(e)' "where(s <= t and t - s < 4, $product * scale, -inf)"
other '1.0 / sqrt(e)' "where(s <= t, 2.0 * tanh($product * scale / 2.0), -inf)"
other '1.0 / sqrt(e)' "where(s >= t, $product * scale, -inf)"
other '1.0 / sqrt(e)' "$product * scale - 0.3 * abs(real(t - s))"
both_ways attention '1.0 / sqrt(e)' "where(s <= t, $product * scale, -inf)" f 6
refused "does not take"
for scores in "where(s <= t, $product * scale, -inf)" "$product * scale"; do
  both_ways mine '1.0 / sqrt(e)' "$scores"
  compiled 2 --cp 2 --cp-attention ring
  compiled 2 --cp 2 --cp-attention alltoall
  interpreted --cp 2 --cp-attention ring
  "$DTC" model.dt --emit c -o train.c
  grep -q DtAttention train.c || fail "attention by another name is not recognised"
done
