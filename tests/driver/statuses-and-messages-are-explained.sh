# dtc explain has every exit status and no message that nothing prints; documents and help agree with it.
. "$(dirname "$0")/../support/lib.sh"
expect 0 "$DTC" explain
cp out.txt list.txt
"$DTC" explain --markdown | diff -u "$SRC/doc/errors.md" - ||
  fail "doc/errors.md is out of date: dtc explain --markdown >doc/errors.md"
# Statuses of the table in runtime/base/error.h: one meaning everywhere.
text 2000 >text.txt
"$DTC" "$SRC/examples/chargpt.dt" "${SMALL_CHARGPT[@]}" -o train
./train --help | sed -n '/^Exit status/,$p' | tr '\n' ' ' >help.txt
n=0
while read -r number meaning; do
  grep -qF "  $(printf %-6s "$number") $meaning" list.txt || fail "no status $number: $meaning"
  grep -qF "| $number | $meaning |" "$SRC/doc/training.md" || fail "doc/training.md lacks: $number, $meaning"
  grep -qF "$number $meaning" help.txt || fail "./train --help lacks: $number $meaning"
  expect 0 "$DTC" explain "$number"
  n=$((n + 1))
done < <(sed -nE 's/^  X\([A-Z_]+, ([0-9]+), "(.*)"\).*/\1 \2/p' "$SRC/runtime/base/error.h")
[ $n -ge 13 ] || fail "only $n statuses were found"
for status in 1 2 3 70; do expect 0 "$DTC" explain $status; done
# Each part of a message is printed by some program.
cat >signs.py <<'PY'
import pathlib, re, sys
src = pathlib.Path(sys.argv[1])
text = "\n".join(p.read_text() for d in ("driver", "frontend", "ir", "passes", "codegen", "runtime")
                 for p in sorted((src / d).rglob("*.[chyl]")) if "explanations" not in p.name)
text = re.sub(r'"\s*"', "", text) # a string over several lines
signs = [m.group(1) for m in re.finditer(r"^  (\S.*?)  +\S", open("list.txt").read().split("that hold:\n")[1], re.M)]
assert len(signs) > 20, signs
for s in signs:
    varies = r"'?%[-.*0-9]*l*[a-zA-Z]'?"
    assert re.search(varies.join(map(re.escape, s.split("*"))), text), f"no message has '{s}'"
PY
python3 signs.py "$SRC"

# A message as it was printed, part of one, and one that is unknown.
printf 'model M(d = 4) {\n  loss(x[b, d]) {\n    y[b, i < 4] = x[b, i + 1]\n    return mean(b, i: y[b, i])\n  }\n}\n' >m.dt
expect 1 "$DTC" m.dt --check
message=$(sed -n '1s/.*error: //p' err.txt)
expect 0 "$DTC" explain "$message"
says '^"cannot prove that subscript", from dtc: a subscript may be out of range\.$' out.txt
says '    -> where\(t - 1 >= 0, x\[b, t - 1\], 0\.0\)' out.txt
mv out.txt want.txt
expect 0 "$DTC" explain $message # several words
same out.txt want.txt
expect 0 "$DTC" explain "train: error: text.txt: token 77 is 50000; 'tokens' takes 0 to 255"
says 'the vocabulary is too small' out.txt
expect 0 "$DTC" explain PLUG-IN
says 'MPI' out.txt
expect 0 "$DTC" explain 137
says '^Exit status 128\+N' out.txt
expect 1 "$DTC" explain 'no such [* message'
says "nothing is known about 'no such \[\* message'; \`dtc explain\` lists all" err.txt
expect 1 "$DTC" explain 99
expect 2 "$DTC" explain --all
# Nothing is wider than a terminal.
{ for n in 0 1 2 3 64 65 66 69 70 71 73 74 75 76 78 79 126 127 137; do "$DTC" explain $n; done; cat list.txt; } >all.txt
[ "$(awk '{ if (length > n) n = length } END { print n }' all.txt)" -le 80 ] || fail "lines of $(wc -L <all.txt) characters"
