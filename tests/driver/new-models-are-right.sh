# `dtc new` writes a model that is laid out, passes --check and trains on the data that its first lines describe.
. "$(dirname "$0")/../support/lib.sh"
rm -rf work
mkdir work
cd work
text 4000 >text.txt
expect 0 "$DTC" new tiny-gpt
says 'dtc tiny-gpt.dt -o train' out.txt
says '^model TinyGpt\(' tiny-gpt.dt
for e in chargpt classifier gpt2 llama mlp; do
  expect 0 "$DTC" new "my_$e.dt" --from $e
  says "^train My_$e " my_$e.dt
done
expect 0 "$DTC" fmt --check ./*.dt
[ "$(find . -name '*.dt' | wc -l)" -eq 6 ] || fail "six models were asked for"
for m in *.dt; do
  expect 0 "$DTC" "$m" --check
  [ ! -s err.txt ] || { cat err.txt; fail "$m has warnings"; }
  ! grep -nE '\b(NAME|PATH|DATA|EXAMPLE)\b' "$m" || fail "$m: a word was left"
done
# The commands of the head comment, with fewer steps.
commands() { sed -nE 's/^#     (python3 .*|\.\/train.*)/\1/p' "$1" | sed 's/^\.\/train.*/& --steps 2 --quiet/'; }
try() { # MODEL OPTIONS...
  local m=$1
  shift
  "$DTC" $m "$@" -o train
  commands $m | grep -v corpus.bin >do.sh
  says '^./train' do.sh
  bash -e do.sh >do.txt 2>&1 || { cat do.sh do.txt; fail "what $m says does not work"; }
}
try tiny-gpt.dt "${SMALL_CHARGPT[@]}"
try my_mlp.dt
try my_gpt2.dt "${SMALL_GPT2[@]}" -D vocab=256
# What is refused.
expect 1 "$DTC" new tiny-gpt
says 'exists already' err.txt
expect 2 "$DTC" new
expect 2 "$DTC" new x --from gpt3
says 'the examples are' err.txt
expect 2 "$DTC" new '3d'
says 'is not a name for a model' err.txt
expect 2 "$DTC" new 'a$b'
expect 1 "$DTC" new missing/folder/m
says 'No such file' err.txt
