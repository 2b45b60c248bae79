# --memory looks at a rank of the layout that is asked for, and names one that fits: what it names then
# compiles under the same limit.
. "$(dirname "$0")/../support/lib.sh"
size=(-D vocab=4096 -D context=32 -D length=32 -D layers=4 -D heads=4 -D dim=128 -D batch=16 -D microbatch=4)
dtc() { "$DTC" "$SRC/examples/gpt2.dt" "${size[@]}" -o train "$@"; }
# total OPTIONS...: bytes that the report says
total() {
  "$DTC" "$SRC/examples/gpt2.dt" "${size[@]}" --report=json "$@" |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["memory"]["total"])'
}

one=$(total) four=$(total --zero 3 --dp 4)
[ "$four" -lt "$one" ] || fail "ZeRO 3 on four ranks needs $four bytes, one rank $one"
expect 0 dtc --memory "$one"
expect 1 dtc --memory $((one - 1))
says "needs $one bytes of memory, more than --memory $((one - 1))" err.txt
says "microbatch = 3 would fit" err.txt
expect 0 dtc --memory $((one - 1)) -D microbatch=3

expect 0 dtc --memory "$four" --zero 3 --dp 4
expect 1 dtc --memory $((four - 1)) --zero 3 --dp 4
says "needs $four bytes of memory a rank, ZeRO 3 over 4 data-parallel ranks" err.txt

# A stage that is enough on as many ranks; it names its bytes.
cut=$(total --zero 1 --dp 4)
expect 1 dtc --memory "$cut" --zero 0 --dp 4
says "zero 1 would fit: $cut bytes" err.txt
expect 0 dtc --memory "$cut" --zero 1 --dp 4

# Ranks that are enough: what is named does, half as many do not.
limit=$(total --zero 3 --dp 4 -D microbatch=1)
expect 1 dtc --memory "$limit" -D microbatch=1 --zero 3
read -r zero dp < <(sed -n 's/.*--zero \([0-9]\) --dp \([0-9]*\) would fit.*/\1 \2/p' err.txt)
[ "$zero" = 3 ] && [ "${dp:-0}" -gt 1 ] || fail "no layout is named: $(cat err.txt)"
expect 0 dtc --memory "$limit" -D microbatch=1 --zero 3 --dp "$dp"
expect 1 dtc --memory "$limit" -D microbatch=1 --zero 3 --dp $((dp / 2))

# One microbatch at a time.
alone=$(total --tp 2)
expect 1 dtc --memory "$alone" --tp 2 --in-flight 2
says "in-flight 1 would fit: $alone bytes" err.txt
expect 0 dtc --memory "$alone" --tp 2 --in-flight 1

# The optimizer's state in a file.
away=$(total --offload optimizer -D microbatch=1)
expect 1 dtc --memory "$away" -D microbatch=1
says "offload optimizer would fit: $away bytes, and [0-9]+ in a file" err.txt
expect 0 dtc --memory "$away" -D microbatch=1 --offload optimizer
expect 1 dtc --memory $((away - 1)) -D microbatch=1 --offload optimizer
# The copy of the state that --save-every writes behind the steps comes on top; with it the same launch takes what was said.
snapshot() {
  "$DTC" "$SRC/examples/gpt2.dt" "${size[@]}" --report=json "$@" |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["memory"]["snapshot"])'
}
more=$(snapshot)
expect 0 dtc --memory $((one + more))
! grep -q save err.txt || { cat err.txt; fail "it fits, and is said not to"; }
expect 0 dtc --memory $((one + more - 1))
says "a run with --save-every needs $((one + more)) bytes, more than --memory $((one + more - 1)): $more of them for the snapshot .*--save-sync needs none" err.txt
info() { ./train --info "$@" | python3 -c 'import json, sys; m = json.load(sys.stdin)["memory"]; print(m["snapshot"], m["total"])'; }
[ "$(info --save ck --save-every 10)" = "$more $((one + more))" ] || fail "--info: $(info --save ck --save-every 10)"
for options in "" "--save ck" "--save ck --save-every 10 --save-sync"; do
  [ "$(info $options)" = "0 $one" ] || fail "--info $options: $(info $options)"
done

expect 1 dtc --memory 1000
says "parameters, gradients and optimizer state alone take" err.txt
