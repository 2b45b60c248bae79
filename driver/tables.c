#include "driver/tables.h"
#include "runtime/pipeline/pipeline.h"

#include "codegen/target.h"
#include "ir/layout.h"
#include "passes/util.h"
#include "runtime/comm.h"

int mesh_axis(const Module *m, uint32_t axis) {
  const Axis *x = &m->axis.at[axis];
  return x->id == AXIS_CP ? DT_AXIS_CP : x->part == AXIS_OUTER ? DT_AXIS_TP_OUTER : DT_AXIS_TP;
}

static void lay_out(const Module *m, const Param *p, const Value *grad, DtParam *q) {
  q->local = 1;
  for (uint32_t d = 0; d < p->rank; d++) q->local *= layout_extent(m, p->shard, d, p->extent[d]);
  for (uint32_t a = 0; a < m->axis.n; a++) {
    const Shard *s = &p->shard[a];
    if (s->kind == SHARD_SPLIT) q->shard[mesh_axis(m, a)] = (DtShard){s->dim - p->nstack, s->block};
    if (grad && grad->shard[a].kind == SHARD_PARTIAL)
      q->partial |= 1u << mesh_axis(m, a);
  }
}

// Of a program that is not cut into stages, or NULL.
static const Value *whole_gradient(const Module *m, uint32_t param) {
  const Fn *step = m->entry[ENTRY_STEP] == NONE ? NULL : &m->fn.at[m->entry[ENTRY_STEP]];
  Id v = step ? arg_find(step, MEANS_GRAD, param) : NONE;
  return v == NONE ? NULL : &step->value.at[v];
}

static DtParam param_of(const Module *m, const Param *p, const Value *grad) {
  DtParam q = {.name = p->name, .rank = p->rank, .nstack = p->nstack, .count = 1, .init = (DtInit)p->init,
               .init_a = p->init_a, .init_b = p->init_b, .decay = p->decay};
  for (int d = 0; d < p->rank; d++) q.count *= q.extent[d] = p->extent[d];
  lay_out(m, p, grad, &q);
  return q;
}

static void place_whole(DtProgram *t, DtParam *param) {
  for (int i = 0; i < t->nparam; i++) {
    param[i].offset = t->param_count;
    t->param_count += (param[i].local + 15) / 16 * 16;
  }
}

static void place_as_planned(const Module *m, DtProgram *t, DtParam *param) {
  const ParamLayout *l = param_layout(m);
  DtStack *stack = NEWN(m->arena, DtStack, l->stack.n + 1);
  for (uint32_t s = 0; s < l->stack.n; s++)
    stack[s] = (DtStack){.name = l->stack.at[s].name, .count = l->stack.at[s].count, .offset = l->stack.at[s].offset,
                         .stride = l->stack.at[s].stride};
  for (int i = 0; i < t->nparam; i++) {
    const ParamPlace *q = &l->param[i];
    param[i].stack = q->stack == NONE ? 0 : (int)q->stack + 1;
    param[i].offset = q->offset + (q->stack == NONE ? 0 : stack[q->stack].offset);
    param[i].local = q->count;
  }
  t->nstack = (int)l->stack.n;
  t->stack = stack;
  t->param_count = l->count;
}

static void place_stage(const Module *m, const Plan *p, DtStage *t, uint32_t stage) {
  const ParamLayout *l = param_layout_stage(m, stage);
  DtParam *param = NEWN(m->arena, DtParam, l->n + 1);
  DtHeld *held = NEWN(m->arena, DtHeld, l->n + 1);
  DtStack *stack = NEWN(m->arena, DtStack, l->stack.n + 1);
  for (uint32_t s = 0; s < l->stack.n; s++)
    stack[s] = (DtStack){.name = l->stack.at[s].name, .count = l->stack.at[s].count, .offset = l->stack.at[s].offset,
                         .stride = l->stack.at[s].stride, .first = l->stack.at[s].first};
  int64_t count = 0; // without a plan each lies whole
  for (uint32_t i = 0; i < l->n; i++) {
    const ParamPlace *q = &l->param[i];
    const Param *whole = &m->param.at[l->piece[i].param];
    param[i] = param_of(m, whole, param_gradient(m, l, i));
    if (whole->nstack) {
      param[i].count = param[i].count / whole->extent[0] * l->piece[i].count;
      param[i].extent[0] = l->piece[i].count;
    }
    param[i].stack = !p || q->stack == NONE ? 0 : (int)q->stack + 1;
    param[i].offset = !p ? count : q->offset + (q->stack == NONE ? 0 : stack[q->stack].offset);
    param[i].local = q->count;
    count += (q->count + 15) / 16 * 16;
    held[i] = (DtHeld){(int)l->piece[i].param, l->piece[i].first};
  }
  *t = (DtStage){.nparam = (int)l->n, .nstack = p ? (int)l->stack.n : 0, .param = param, .held = held, .stack = stack,
                 .param_count = p ? l->count : count, .frame_bytes = p ? largest_frame(p, stage) : 64};
}

static void place_stages(const Module *m, const Plan *p, DtProgram *t) {
  DtStage *stage = NEWN(m->arena, DtStage, m->stages);
  DtPipeChunk *chunk = NEWN(m->arena, DtPipeChunk, m->chunk.n);
  DtPipeKind kind;
  int chunks;
  if (!dt_pipe_parse(m->schedule, &kind, &chunks)) BUG("no schedule is called %s", m->schedule);
  for (uint32_t s = 0; s < m->stages; s++) place_stage(m, p, &stage[s], s);
  for (uint32_t k = 0; k < m->chunk.n; k++) {
    chunk[k].slot_bytes = chunk_slot_bytes(m, k);
    for (int i = 0; i < NCHUNK_PART; i++) {
      chunk[k].sent_bytes[i] = chunk_sent_bytes(m, k, (ChunkPart)i);
      chunk[k].cost[i] = !p || m->chunk.at[k].fn[i] == NONE ? 0 : chunk_cost(p, m->chunk.at[k].fn[i]);
    }
  }
  t->pp = (int)m->stages;
  t->stage = stage;
  t->nchunk = (int)m->chunk.n;
  t->chunk = chunk;
  t->schedule = kind;
}

static DtType type_of(Dtype t) {
  return t == DT_BOOL  ? DT_TYPE_BOOL
         : t == DT_I32 ? DT_TYPE_I32
         : t == DT_F32 ? DT_TYPE_F32
         : t == DT_BF16 ? DT_TYPE_BF16
         : t == DT_F16 ? DT_TYPE_F16
                       : DT_TYPE_F64;
}

static void fill_data(const Module *m, DtProgram *t) {
  const Fn *f = &m->fn.at[m->chunk.n ? m->chunk.at[0].fn[CHUNK_FORWARD] : m->entry[ENTRY_STEP]];
  DtData *data = NEWN(m->arena, DtData, m->ndata + 1);
  for (uint32_t i = 0; i < m->ndata; i++) {
    const Value *v = &f->value.at[f->arg.at[i]];
    DtData *d = &data[i];
    *d = (DtData){.name = v->name, .rank = v->rank, .type = type_of(v->type)};
    memcpy(d->extent, v->extent, sizeof d->extent);
    for (uint32_t k = 0; k < m->range.n; k++)
      if (m->range.at[k].arg == i) {
        d->checked = true;
        d->lo = m->range.at[k].lo;
        d->hi = m->range.at[k].hi;
      }
    if (m->train.data == DATA_ARRAYS) d->path = m->train.array_path.at[i];
    if (m->train.val == DATA_ARRAYS) d->val_path = m->train.val_array_path.at[i];
  }
  t->ndata = (int)m->ndata;
  t->data = data;
}

static DtTrain train_of(const Train *t) {
  return (DtTrain){.data = (DtDataKind)t->data, .val = (DtDataKind)t->val, .data_path = t->data_path,
                   .val_path = t->val_path, .length = t->length, .batch = t->batch, .microbatch = t->microbatch,
                   .steps = t->steps, .eval_every = t->eval_every, .seed = t->seed,
                   .optimizer = (DtOptimizer)t->opt, .lr = t->lr, .beta1 = t->beta1, .beta2 = t->beta2,
                   .eps = t->eps, .weight_decay = t->weight_decay, .momentum = t->momentum,
                   .nesterov = t->nesterov, .schedule = (DtSchedule)t->schedule, .warmup = t->warmup,
                   .final = t->final, .clip = t->clip, .precision = "fp64"};
}

DtProgram tables_make(const Module *m, const Plan *p) {
  DtProgram t = {.model = m->name, .build = "interpreter", .type = type_of(m->compute),
                 .param_type = type_of(param_type(m)), .reduce_type = type_of(m->compute), .nparam = (int)m->param.n,
                 .nmetric = (int)m->metric.n, .frame_bytes = p ? largest_frame(p, 0) : 64, .listing = "",
                  .scratch_bytes = p ? m->target->scratch(p) : 0};
  DtParam *param = NEWN(m->arena, DtParam, m->param.n + 1);
  const char **metric = NEWN(m->arena, const char *, m->metric.n + 1);
  for (uint32_t i = 0; i < m->param.n; i++) param[i] = param_of(m, &m->param.at[i], whole_gradient(m, i));
  for (uint32_t i = 0; i < m->metric.n; i++) metric[i] = m->metric.at[i];
  for (uint32_t a = 0; a < m->axis.n; a++) {
    int size = (int)m->axis.at[a].size, number = mesh_axis(m, a);
    if (number == DT_AXIS_TP_OUTER) t.tp_outer = size;
    if (number == DT_AXIS_CP) t.cp = size;
    else t.tp = t.tp ? t.tp * size : size;
  }
  t.param = param;
  t.metric = metric;
  t.nmoment = m->train.opt != OPT_SGD ? 2 : m->train.momentum != 0;
  t.train = train_of(&m->train);
  if (m->chunk.n) place_stages(m, p, &t);
  else if (p) place_as_planned(m, &t, param);
  else place_whole(&t, param);
  fill_data(m, &t);
  Id count = m->entry[ENTRY_COUNT];
  if (count == NONE) return t;
  t.ntotal = (int)m->fn.at[count].result.n;
  t.random_totals = fn_is_random(m, count);
  return t;
}
