# Before the first step ranks go through what they will say to one another and compare it. A program whose emitted code has a fault on
# one rank, or on one stage, ends there, and both ranks, their operations and the lines are named: a reduction left out, two swapped,
# one of another size, over another group; a stage that waits for what nobody sends.
. "$(dirname "$0")/../support/lib.sh"
unset RANK WORLD_SIZE SLURM_STEP_NUM_TASKS OMPI_COMM_WORLD_SIZE PMI_SIZE
cat >model.dt <<'M'
use nn
layer Block(dim) {
  ln = nn.LayerNorm(dim)
  mlp = nn.MLP(dim, 2 * dim)
  forward(x[b, t, dim]) {
    return x + mlp(ln(x))
  }
}
model Small(vocab = 32, dim = 16) {
  wte = nn.Embedding(vocab, dim)
  blocks = stack 4 of Block(dim)
  loss(tokens[b, t]: int, targets[b, t]: int) {
    n = blocks(wte(tokens))
    logits[b, t, v] = sum(d: n[b, t, d] * wte.weight[v, d])
    return nn.cross_entropy(logits, targets)
  }
}
train Small {
  data = tokens("train.bin", length = 8)
  batch = 8
  microbatch = 2
  optimizer = adamw(lr = 1e-2)
}
M
python3 -c 'import sys; sys.stdout.buffer.write(bytes(k * 7 % 32 if k % 2 == 0 else 0 for k in range(1800)))' >train.bin
# The compiler's C compiler, which edits what it is given.
cat >plant.sh <<'P'
#!/bin/bash
for a in "$@"; do
  case $a in
  *.c)
    cp "$a" before.c
    [ -z "$PLANT" ] || sed -i -E "$PLANT" "$a"
    [ -z "$PLANT" ] || ! cmp -s before.c "$a" || { echo "nothing was planted" >&2; exit 1; }
    ;;
  esac
done
exec cc "$@" -O0 -w
P
chmod +x plant.sh
export PLANT=""
# planted STATUS SED PATTERN...: what the ranks say.
planted() {
  local status=$1 pattern
  PLANT=$2 CC=$PWD/plant.sh "$DTC" model.dt --tp 2 --pp 2 --zero 2 -o train
  shift 2
  expect "$status" ./train --ranks 8 --threads 1 --steps 2 --quiet
  for pattern in "$@"; do says "$pattern" err.txt; done
  [ "$status" -eq 0 ] || [ "$(grep -c "operation\|fit together" err.txt)" -eq 1 ] || { cat err.txt; fail "said twice"; }
}
planted 0 ""
# Ranks are numbered tp, then dp, then pp: 0 and 2 share a shard of the first stage.
REDUCE='dt_layer_reduce\(call, 0, layer\);'
planted 76 "s/$REDUCE/if (dt_world.rank != 2 || layer != 1) &/" "ranks 0 and 2 would exchange different operations" \
  "on rank 0, reduce_scatter of blocks, layer 1 \([0-9]+ bytes over .*: ranks 0 2\), microbatch 0, model.dt:13" \
  "on rank 2, reduce_scatter of blocks, layer 0 "
planted 76 "s/$REDUCE/dt_layer_reduce(call, 0, dt_world.rank == 2 ? 1 - layer : layer);/" "ranks 0 and 2 would exchange different operations" \
  "on rank 0, reduce_scatter of blocks, layer 1 .*; on rank 2, reduce_scatter of blocks, layer 0 "
planted 76 's/(DT_MAX, result_m, \w+, )8/\1dt_world.rank == 5 ? 4 : 8/;s/(DT_MAX, result_m, [^,]*, )16/\1dt_world.rank == 5 ? 8 : 16/' \
  "ranks 4 and 5 would exchange different operations" "on rank 4, all_reduce of result.m.max \(64 bytes over tp: ranks 4 5\)" "on rank 5, .*\(32 bytes" "model.dt:15"
WAIT='dt_wait(dt_recv(dt_group(1u << DT_AXIS_PP), 1, DT_TYPE_I32, call->frame, 1, (DtNote){"nothing", -1, "model.dt:1"}));'
planted 70 "s/^static void chunk0_forward\\(const DtCall \\*call\\) \\{/& $WAIT/" "ranks wait for one another in a circle" \
  "rank 0, the wait for recv of nothing \(4 bytes from rank 4 over pp" "rank 4, the wait for recv of activations" "model.dt:1(,|;|$)"
SEND='dt_wait(dt_send(dt_group(1u << DT_AXIS_PP), 1, DT_TYPE_I32, call->frame, 1, (DtNote){"nothing", -1, "model.dt:2"}));'
planted 70 "s/^static void chunk0_forward\\(const DtCall \\*call\\) \\{/& $SEND/" "two ranks differ in their next operation" \
  "rank 0, send of nothing \(4 bytes to rank 4 over pp.*model.dt:2" "rank 4, recv of activations"
