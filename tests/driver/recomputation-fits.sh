# --checkpoint: full saves a layer's input alone; auto fits ten budgets and never computes more again with more memory.
. "$(dirname "$0")/../support/lib.sh"
GPT2=$SRC/examples/gpt2.dt
"$DTC" "$GPT2" --checkpoint full --dump-after plan --check >full.ir
python3 - full.ir <<'END'
import re, sys
text = open(sys.argv[1]).read()
repeat = re.search(r"  carry blocks(, .*) = repeat layer<12: ", text)
saved = re.findall(r"(\S+)\[layer\]", repeat.group(1))
assert saved == ["blocks.x.saved"], saved
assert "\n  blocks.x.saved: f32[12, 4, 1024, 768]\n" in text
plan = text[text.index("\nkernels step {"):]
assert re.search(r"value blocks.x.saved at \d+  # f32\[12, 4, 1024, 768\]", plan), "no such buffer"
stacked = re.findall(r"value (\S+) at \d+  # \w+\[12, ", plan[:plan.index("\n}")])
assert stacked == ["blocks.x.saved"], stacked
END

report() { "$DTC" "$GPT2" --report=json "$@"; }
report >none.json
report --checkpoint full >full.json
report --checkpoint selective >selective.json
python3 - none.json full.json selective.json >budgets.txt <<'END'
import json, sys
none, full, selective = (json.load(open(f)) for f in sys.argv[1:])
of = lambda r: r["memory"]["total"]
assert of(full) < of(selective) < of(none)
assert full["recomputation"]["saved"] == 12 * 4 * 1024 * 768 * 4
assert full["recomputation"]["flops"] > selective["recomputation"]["flops"] > 0
assert full["recomputation"]["activations_without"] == none["memory"]["activations"]
assert full["recomputation"]["total_without"] == of(none) and "recomputation" not in none
for i in range(10):
  print(of(full) + (of(none) - of(full)) * i // 9)
END
n=0
for budget in $(cat budgets.txt); do
  report --checkpoint "auto:$budget" >"auto$n.json"
  n=$((n + 1))
done
python3 - $(cat budgets.txt) <<'END'
import json, sys
last = (float("inf"), float("inf"))
for i, budget in enumerate(sys.argv[1:]):
  r = json.load(open(f"auto{i}.json"))
  again = r["recomputation"]
  assert r["memory"]["total"] <= int(budget), (i, r["memory"]["total"], budget)
  assert again["cost"] <= last[0] and again["flops"] <= last[1] and again["proved"], (i, again, last)
  last = again["cost"], again["flops"]
assert last == (0, 0), "all is saved where all fits"
END
expect 1 "$DTC" "$GPT2" --report --checkpoint auto:2G
full=$(python3 -c 'import json; print(json.load(open("full.json"))["memory"]["total"])')
says "a rank needs $full bytes of memory with as much recomputed as can be" err.txt
"$DTC" "$GPT2" --report --checkpoint full >full.txt
says "^FLOPs computed again +5\.[0-9]+e\+11 \(16\.[0-9]% more than without\)" full.txt
says "^layers save +150994944 bytes of a microbatch, without recomputation 2419458048" full.txt

# What a stack inside of a layer saves, auto keeps; where that does not fit, full is taken if it does.
cat >nested.dt <<'END'
use nn

layer Inner(dim) {
  p = nn.Linear(dim, dim)
  forward(x[b, dim]) {
    y[b, i] = tanh(p(x)[b, i])
    return y
  }
}

layer Outer(dim) {
  inner = stack j < 4 of Inner(dim)
  forward(x[b, dim]) { return inner(x) }
}

model M(dim = 64) {
  outer = stack i < 3 of Outer(dim)
  loss(x[b, dim]) {
    h = outer(x)
    return mean(b, i: square(h[b, i]))
  }
}

train M { data = arrays(x = "x.npy"); batch = 32; optimizer = sgd(lr = 0.01); steps = 1 }
END
total() { "$DTC" nested.dt --report=json "$@" | python3 -c 'import json, sys; print(json.load(sys.stdin)["memory"]["total"])'; }
none=$(total) full=$(total --checkpoint full)
[ "$full" -lt "$none" ] || fail "full needs $full bytes, none $none"
[ "$(total --checkpoint "auto:$full")" -le "$full" ] || fail "auto does not fit what full needs"
says "not proved least" <("$DTC" nested.dt --report --checkpoint "auto:$full")
expect 1 "$DTC" nested.dt --report --checkpoint "auto:$((full - 1))"
says "a rank needs $full bytes of memory with as much recomputed as can be" err.txt
