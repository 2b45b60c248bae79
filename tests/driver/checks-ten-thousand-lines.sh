# Checking is quick however long a model is, also where every line binds the same name. The limit is
# one of processor time, so that a busy machine does not matter.
. "$(dirname "$0")/../support/lib.sh"
python3 - >lines.dt <<'END'
print("model M() {\n  param w[3] = zeros\n  loss(x[b, 3]) {\n    y = x")
for _ in range(10000): print("    y[b, d] = y[b, d] * 1.0001 + w[d]")
print("    return mean(b, d: y[b, d])\n  }\n}")
END
(ulimit -t 60; expect 0 "$DTC" lines.dt --check)
