# --emit schedule draws each stage's timeline with its bubble: under unit costs that of 1f1b is
# (P - 1) / (M + P - 1) exactly.
. "$(dirname "$0")/../support/lib.sh"
SMALL="-D vocab=97 -D context=8 -D layers=8 -D heads=2 -D dim=16 -D length=8 -D microbatch=2"
draw() { # STAGES SCHEDULE BATCH DP
  # shellcheck disable=SC2086
  expect 0 "$DTC" "$SRC/examples/gpt2.dt" $SMALL --pp "$1" --schedule "$2" --global-batch "$3" --dp "$4" --emit schedule
}
draw 4 1f1b 16 1
says "^unit costs$" out.txt
says "^1f1b: 4 stages, 8 microbatches: bubble 3/11 = 27.27%$" out.txt
says "^stage 0   .F0 F1 F2 F3 F4 \.*B0--- F5 \.*B1--- F6 .*. bubble 27.27%, holds 5$" out.txt
says "^stage 3   .\.*F0 B0--- F1 B1--- .*. bubble 27.27%, holds 1$" out.txt
says "^estimated costs$" out.txt
[ "$(grep -c '^stage' out.txt)" = 8 ] || fail "not four stages twice"
draw 2 1f1b 12 2
says "^1f1b: 2 stages, 3 microbatches: bubble 1/4 = 25.00%$" out.txt
draw 8 1f1b 2 1
says "^1f1b: 8 stages, 1 microbatches: bubble 7/8 = 87.50%$" out.txt
draw 4 zb 16 1
says "^zb: 4 stages, 8 microbatches: bubble 1/9 = 11.11%$" out.txt
says "^zb: 4 stages, 8 microbatches: bubble [0-9]+/[0-9]+ = [12][0-9][.]" out.txt # estimated: stage 3 saves more, and puts off less
draw 2 interleaved:2 8 1
says "^interleaved: 2 stages of 2 chunks, 4 microbatches: bubble 1/9 = 11.11%$" out.txt
