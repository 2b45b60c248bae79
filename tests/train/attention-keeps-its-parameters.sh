# Attention with a scale, a window, a cap, biases and sinks is recognised from its body, and kernels, tp, a gather of
# keys, a ring and an exchange of heads compute what the body says: losses and, through three large steps, gradients are
# those of the front end's module in fp64.
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/support/own_attention.sh"
everywhere() { # PARAMETERS: of model.dt, as the IR shows them
  "$DTC" model.dt --interpret=source --steps 3 >log.jsonl
  losses log.jsonl >plain
  "$DTC" model.dt --dump-after inline --check >inlined.ir 2>&1
  grep -qF "intrinsic attention($1)" inlined.ir || fail "not recognised: $1"
  compiled 1
  "$DTC" model.dt --emit c -o train.c
  [ "$(grep -c "^static const DtAttention" train.c)" -eq 3 ] || fail "no kernel for $1"
  compiled 2 --tp 2
  compiled 2 --cp 2
  compiled 2 --cp 2 --cp-attention ring
  compiled 2 --cp 2 --cp-attention alltoall
  interpreted --cp 2 --cp-attention ring
}
with_sink='log(sum(s: exp(z[b, g, r, t, s] - m[b, g, r, t])) + exp(SINK - m[b, g, r, t])) + m[b, g, r, t]'
scores="where(s <= t and t - s < 4, $product * scale, -inf)" own_attention >model.dt
everywhere "scale 3.0, causal 0, window 4"
scale=0.7 scores="where(abs(t - s) < 3, 2.0 * tanh($product * scale / 2.0) - 0.2 * abs(real(s - t)), -inf)" \
  lse=${with_sink/SINK/0.5} own_attention >model.dt
everywhere "scale 0.7, cap 2.0, causal 2, window 3, bias -0.2, apart, sink 0.5"
scale=0.7 formals=", sink[g, r], slope[g, r]" actuals=", sinks, slopes" declare="param sinks[heads, 1] = normal(0.9)" \
  make="slopes[h < heads, r < 1] = pow(0.5, 8.0 * real(h + 1) / heads)" lse=${with_sink/SINK/sink[g, r]} \
  largest='max(max(s: stop_gradient(z[b, g, r, t, s])), stop_gradient(sink[g, r]))' \
  scores="where(s <= t and t - s < 5, 1.5 * tanh($product * scale / 1.5) + stop_gradient(slope[g, r]) * real(s - t), -inf)" \
  own_attention >model.dt
everywhere "scale 0.7, cap 1.5, causal 0, window 5, bias 1.0, slopes 4, sinks 3"
