#include "runtime/control.h"

#include "runtime/comm/comm_op.h"

static void run(DtOp op) {
  op.control = true;
  dt_wait(dt_op_begin(&op));
}

void dt_control_reduce(const DtGroup *g, DtType type, DtReduce op, void *v, int64_t count, DtNote note) {
  run((DtOp){.kind = DT_OP_ALL_REDUCE, .type = type, .reduce = op, .g = g, .in = v, .out = v, .count = count,
             .note = note});
}

void dt_control_gather(const DtGroup *g, DtType type, const void *mine, void *all, int64_t count, DtNote note) {
  run((DtOp){.kind = DT_OP_ALL_GATHER, .type = type, .g = g, .in = mine, .out = all, .count = count * g->n,
             .note = note});
}

void dt_control_broadcast(const DtGroup *g, DtType type, int root, void *data, int64_t count, DtNote note) {
  run((DtOp){.kind = DT_OP_BROADCAST, .type = type, .peer = root, .g = g, .in = data, .out = data, .count = count,
             .note = note});
}

void dt_control_send(const DtGroup *g, int to, DtType type, const void *data, int64_t count, DtNote note) {
  run((DtOp){.kind = DT_OP_SEND, .type = type, .peer = to, .g = g, .in = data, .count = count, .note = note});
}

void dt_control_receive(const DtGroup *g, int from, DtType type, void *data, int64_t count, DtNote note) {
  run((DtOp){.kind = DT_OP_RECV, .type = type, .peer = from, .g = g, .out = data, .count = count, .note = note});
}

void dt_barrier(const DtGroup *g) {
  if (g->n > 1) run((DtOp){.kind = DT_OP_BARRIER, .type = DT_TYPE_I32, .g = g, .note = {.layer = -1}});
}

int dt_agree(int status) {
  int32_t v = status ? status : INT32_MAX;
  DtNote note = {"status", -1, NULL};
  dt_control_reduce(dt_group(DT_ALL_AXES), DT_TYPE_I32, DT_MIN, &v, 1, note);
  return v == INT32_MAX ? 0 : v;
}
