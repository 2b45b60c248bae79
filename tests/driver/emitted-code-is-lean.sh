# What the emitted code of GPT-2 124M must not do: hold logits and their gradient at once, write zeros to gradients that
# a product stores, copy what a stack saves, repeat a layer's code, take more memory than its peer (PyTorch 1.13: 3,936 MiB
# at batch 4, length 256).
. "$(dirname "$0")/../support/lib.sh"
size=(-D batch=4 -D microbatch=4 -D length=256 -D context=256)
"$DTC" "$SRC/examples/gpt2.dt" "${size[@]}" --emit c -o train.c
place() { grep -oE "^  float \*$1 = \(float \*\)\(frame[ +0-9]*\)" train.c | grep -oE "\(frame.*" | tail -1; }
[ -n "$(place logits)" ] || fail "no logits"
[ "$(place logits)" = "$(place d_logits)" ] || fail "the gradient of the logits has storage of its own"
grep -q 'dt_device_zero(grad_wte_weight\|dt_device_zero(grad_blocks_mlp_fc_weight' train.c && fail "zeros to a gradient that a product stores"
grep -q 'dt_matmul(.*grad_wte_weight, beta)' train.c || fail "no product for the embedding's gradient"
grep -qE 'dt_launch\([A-Za-z_0-9]*(saved|merged)' train.c && fail "a copy of what is saved"
"$DTC" "$SRC/examples/gpt2.dt" "${size[@]}" -D layers=96 --emit c -o deep.c
# A few reductions are cut differently where there is more to reduce.
[ "$(wc -l <deep.c)" -le $(($(wc -l <train.c) * 11 / 10)) ] || fail "code grows with depth"
"$DTC" "$SRC/examples/gpt2.dt" "${size[@]}" --report=json >report.json
python3 -c 'import json
b = json.load(open("report.json"))["memory"]["total"]
print("%.0f MiB" % (b / 2**20))
assert b < 3936 * 2**20'
# It is read: on one rank no line is wider than 100 columns (but a long name's row in the table of values), and no place
# is one on this machine.
for form in c kernels; do
  for cut in "" "--tp 2 --pp 2 --zero 3"; do
    "$DTC" "$SRC/examples/gpt2.dt" "${size[@]}" $cut --emit $form -o text
    [ -n "$cut" ] || awk 'length > 100 && !/ kernels [0-9]/ { print; wide = 1 } END { exit wide }' text || fail "--emit $form is wide"
    grep -q 'nn.dt:[0-9]' text || fail "--emit $form $cut does not say where it comes from"
    grep -nE "[^a-z]/[a-z]+/[a-z]" text && fail "--emit $form $cut names a file of this machine"
  done
done
# Where heads alone are cut, packed queries, keys and values are read where they are.
"$DTC" "$SRC/examples/gpt2.dt" "${size[@]}" --tp 2 --emit c -o cut.c
grep -qE '^DT_KERNEL\(.*_(qg|k|v)\);' cut.c && fail "copies of queries, keys or values"
grep -q 'dt_attend(' cut.c || fail "no attention"
