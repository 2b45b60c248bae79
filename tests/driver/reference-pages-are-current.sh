# doc/nn.md is what stdlib/nn.dt says now, and the gallery names every example, by commands that dtc accepts.
. "$(dirname "$0")/../support/lib.sh"
cd "$SRC"
awk -f scripts/nn-page.awk stdlib/nn.dt stdlib/nn.dt | diff -u doc/nn.md - ||
  fail "doc/nn.md is out of date: awk -f scripts/nn-page.awk stdlib/nn.dt stdlib/nn.dt >doc/nn.md"
[ "$(grep -c '^### ' doc/nn.md)" -eq "$(grep -cE '^(intrinsic )?(layer|fn) ' stdlib/nn.dt)" ] || fail "a definition is missing"
for e in examples/*.dt; do
  says "\(\.\./$e\)" doc/examples.md
  says "^    dtc $e -o train$" doc/examples.md
done
cd - >/dev/null
# Each command of these pages that compiles or reports.
n=0
while read -r line; do
  line=${line%% && ./train*}
  read -r -a word <<<"${line%%#*}"
  [ "${word[*]: -2:1}" != -o ] || word=("${word[@]:1:${#word[@]}-3}" --check)
  [ "${word[0]}" != dtc ] || word=("${word[@]:1}")
  word[0]=$SRC/${word[0]}
  expect 0 "$DTC" "${word[@]}"
  n=$((n + 1))
done < <(grep -hE '^    dtc examples' "$SRC/doc/examples.md" "$SRC/doc/parallel.md")
[ $n -ge 11 ] || fail "only $n commands were found"
