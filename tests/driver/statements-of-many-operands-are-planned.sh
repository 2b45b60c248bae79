# A plan for ranks is found in little memory where a statement reads many values, each of which could be at hand whole too.
. "$(dirname "$0")/../support/lib.sh"
python3 - <<'END'
n = 40
values = "\n".join(f"    v{i}[b, t, d] = tanh({i + 1}.0 * x[b, t, d])" for i in range(n))
total = " + ".join(f"v{i}[b, t, d]" for i in range(n))
open("many.dt", "w").write(f"""use nn

layer Many(dim, len) {{
  before = nn.LayerNorm(dim)
  after = nn.LayerNorm(dim)
  forward(y[b, len, dim]) {{
    x = before(y)
{values}
    h[b, t, d] = 0.03 * ({total})
    return after(h)
  }}
}}

model M(dim = 8, len = 3) {{
  first = nn.Linear(dim, dim)
  layers = stack i < 3 of Many(dim, len)
  loss(given[b, len, dim]) {{
    x = layers(layers(first(given)))
    return mean(b, t, d: square(x[b, t, d]))
  }}
}}

train M {{ data = arrays(given = "given.npy"); batch = 4; optimizer = sgd(lr = 0.01); steps = 1 }}
""")
END
for layout in "--tp 2" "--tp 2 --sequence-parallel" "--tp 2 --pp 2"; do
  (ulimit -v 1500000 && timeout 60 "$DTC" many.dt $layout --dump-after pipeline) >out.txt 2>err.txt || fail "$layout: $(cat err.txt)"
done
