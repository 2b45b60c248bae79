# A plan for nested stacks of several kinds of attention, which has too many states for all of them to be tried. The limit
# is far above what it takes (8 s), and far below what trying all would (many minutes). That it is not proved to be a least
# one is said, by a warning and in reports; of a plan that is, nothing is.
. "$(dirname "$0")/../support/lib.sh"
model=$SRC/tests/driver/models/nested-attention.dt
said="the plan for these ranks was not proved to be the least"
(ulimit -t 60 && "$DTC" "$model" --cp 2 --report json >report.json 2>err.txt) || fail "no plan for --cp 2"
says '"plan_proved":false' report.json
says "warning: --cp 2: $said" err.txt
(ulimit -t 60 && "$DTC" "$model" --tp 2 --cp 2 --report >report.txt 2>err.txt) || fail "no plan for --tp 2 --cp 2"
says "warning: --tp 2 --cp 2: $said" err.txt
says "^plan over tp, cp  *not proved least$" report.txt
(ulimit -t 60 && "$DTC" "$model" --cp 2 --report html >report.html 2>err.txt) || fail "no report for --cp 2"
says 'id="plan_proved">no$' report.html
expect 0 "$DTC" "$SRC/examples/llama.dt" --tp 2 --cp 2 --cp-attention alltoall --report
says "^plan over tp, cp  *proved least$" out.txt
[ ! -s err.txt ] || fail "a warning about a plan that was proved"
