#include "codegen/host/program.h"

#include "codegen/host/host.h"
#include "codegen/target.h"
#include "ir/layout.h"
#include "passes/util.h"
#include "runtime/comm.h"
#include "runtime/pipeline/pipeline.h"

int mesh_axis(const Module *m, uint32_t axis) {
  const Axis *x = &m->axis.at[axis];
  return x->id == AXIS_CP ? DT_AXIS_CP : x->part == AXIS_OUTER ? DT_AXIS_TP_OUTER : DT_AXIS_TP;
}

// A real without a type, before pass precision, is the interpreter's.
static DtType type_of(Dtype t) {
  static const DtType type[NDTYPE] = {[DT_F64] = DT_TYPE_F64,   [DT_F32] = DT_TYPE_F32,   [DT_I32] = DT_TYPE_I32,
                                      [DT_BOOL] = DT_TYPE_BOOL, [DT_BF16] = DT_TYPE_BF16, [DT_F16] = DT_TYPE_F16};
  if (t == DT_REAL) return DT_TYPE_F64;
  if (!host_type[t]) BUG("the runtime has no values of %s", dtype_name[t]);
  return type[t];
}

// "gpt2.dt:24", or NULL.
static Str source_of(const Module *m, Id loc, bool outermost) {
  Buf place = {0};
  put_source(m, loc, outermost, &place);
  Str s = place.n ? str_internn(place.text, place.n) : NULL;
  buf_free(&place);
  return s;
}

// ---- parameters

static DtParam param_of(const Module *m, uint32_t param, const Value *grad) {
  const Param *p = &m->param.at[param];
  DtParam q = {.name = p->name, .rank = p->rank, .nstack = p->nstack, .count = 1, .init = (DtInit)p->init,
               .init_a = p->init_a, .init_b = p->init_b, .decay = p->decay,
               .source = source_of(m, param_use(m, param), true)};
  for (int d = 0; d < p->rank; d++) q.count *= q.extent[d] = p->extent[d];
  for (uint32_t a = 0; a < m->axis.n; a++) {
    const Shard *s = &p->shard[a];
    if (s->kind == SHARD_SPLIT) q.shard[mesh_axis(m, a)] = (DtShard){s->dim - p->nstack, s->block};
    if (grad && grad->shard[a].kind == SHARD_PARTIAL) q.partial |= 1u << mesh_axis(m, a);
  }
  return q;
}

static void set_local(DtParam *q, int64_t n) { q->local = n == q->count ? 0 : n; }

static int64_t padded(int64_t n) { return (n + 15) / 16 * 16; }

static const DtStack *stacks_of(const Module *m, const ParamLayout *l) {
  DtStack *stack = NEWN(m->arena, DtStack, l->stack.n + 1);
  for (uint32_t s = 0; s < l->stack.n; s++) {
    const StackPlace *t = &l->stack.at[s];
    uint32_t i = 0;
    while (l->param[i].stack != s) i++;
    stack[s] = (DtStack){.name = t->name, .count = t->count, .offset = t->offset, .stride = t->stride,
                         .first = t->first, .source = source_of(m, param_use(m, l->piece[i].param), true)};
  }
  return stack;
}

// Of the parameter or piece that is number i of the layout; without a plan it lies whole at *end.
static void place_param(const ParamLayout *l, uint32_t i, bool planned, DtParam *q, int64_t *end) {
  const ParamPlace *at = &l->param[i];
  bool stacked = planned && at->stack != NONE;
  q->stack = stacked ? (int)at->stack + 1 : 0;
  q->offset = !planned ? *end : at->offset + (stacked ? l->stack.at[at->stack].offset : 0);
  *end += padded(q->local ? q->local : q->count);
}

static void fill_params(const Module *m, const Plan *p, DtProgram *t) {
  const ParamLayout *l = param_layout(m);
  DtParam *param = NEWN(m->arena, DtParam, m->param.n + 1);
  int64_t end = 0;
  for (uint32_t i = 0; i < l->n; i++) {
    param[i] = param_of(m, i, m->chunk.n ? NULL : param_gradient(m, l, i));
    set_local(&param[i], l->param[i].count);
    place_param(l, i, p, &param[i], &end);
  }
  t->nparam = (int)l->n;
  t->param = param;
  if (p && l->stack.n) t->nstack = (int)l->stack.n, t->stack = stacks_of(m, l);
  if (!m->chunk.n) t->param_count = p ? l->count : end;
}

// ---- a pipeline

static void fill_stage(const Module *m, const Plan *p, uint32_t stage, DtStage *t) {
  const ParamLayout *l = param_layout_stage(m, stage);
  DtParam *param = NEWN(m->arena, DtParam, l->n + 1);
  DtHeld *held = NEWN(m->arena, DtHeld, l->n + 1);
  int64_t end = 0;
  for (uint32_t i = 0; i < l->n; i++) {
    const Piece *piece = &l->piece[i];
    const Param *whole = &m->param.at[piece->param];
    param[i] = param_of(m, piece->param, param_gradient(m, l, i));
    if (whole->nstack) {
      param[i].count = param[i].count / whole->extent[0] * piece->count;
      param[i].extent[0] = piece->count;
    }
    set_local(&param[i], l->param[i].count);
    place_param(l, i, p, &param[i], &end);
    held[i] = (DtHeld){(int)piece->param, piece->first};
  }
  *t = (DtStage){.nparam = (int)l->n, .param = param, .held = held, .param_count = p ? l->count : end,
                 .frame_bytes = p ? largest_frame(p, stage).bytes : 64};
  if (p && l->stack.n) t->nstack = (int)l->stack.n, t->stack = stacks_of(m, l);
}

static void fill_chunk(const Module *m, const Plan *p, uint32_t k, DtPipeChunk *t) {
  const Chunk *c = &m->chunk.at[k];
  t->nparam = (int)c->piece.n;
  for (uint32_t before = k % m->stages; before < k; before += m->stages)
    t->param += (int)m->chunk.at[before].piece.n;
  for (int i = 0; i < NCHUNK_PART; i++) {
    if (c->fn[i] == NONE) continue;
    t->message[i] = chunk_message(m, k, (ChunkPart)i, &t->source[i]);
    if (!p) continue;
    t->sent_bytes[i] = chunk_sent_bytes(m, k, (ChunkPart)i);
    t->cost[i] = chunk_cost(p, c->fn[i]);
    t->reads_data[i] = chunk_reads_data(p, k, (ChunkPart)i);
  }
  for (int i = 0; p && i < DT_SPANS; i++) t->slot_bytes[i] = chunk_slot_bytes(m, k, (DtSpan)i);
}

static void fill_pipeline(const Module *m, const Plan *p, DtProgram *t) {
  DtStage *stage = NEWN(m->arena, DtStage, m->stages);
  DtPipeChunk *chunk = NEWN(m->arena, DtPipeChunk, m->chunk.n);
  int chunks;
  if (!m->chunk.n) return;
  if (!dt_pipe_parse(m->schedule, &t->schedule, &chunks)) BUG("no schedule is called %s", m->schedule);
  for (uint32_t s = 0; s < m->stages; s++) fill_stage(m, p, s, &stage[s]);
  for (uint32_t k = 0; k < m->chunk.n; k++) fill_chunk(m, p, k, &chunk[k]);
  t->pp = (int)m->stages;
  t->nchunk = (int)m->chunk.n;
  t->stage = stage;
  t->chunk = chunk;
}

// ---- data, settings

// All of the proofs' requirements on one data argument together.
static void add_ranges(const Module *m, uint32_t data, DtData *d) {
  int64_t lo = INT64_MIN, hi = INT64_MAX;
  for (uint32_t i = 0; i < m->range.n; i++) {
    const DataRange *r = &m->range.at[i];
    if (r->arg != data) continue;
    d->checked = true;
    if (r->lo > lo) lo = r->lo;
    if (r->hi < hi) hi = r->hi;
  }
  if (d->checked) d->lo = lo, d->hi = hi;
}

static void fill_data(const Module *m, DtProgram *t) {
  const Fn *f = &m->fn.at[m->chunk.n ? m->chunk.at[0].fn[CHUNK_FORWARD] : m->entry[ENTRY_STEP]];
  const Train *train = &m->train;
  DtData *data = NEWN(m->arena, DtData, m->ndata + 1);
  for (uint32_t i = 0; i < m->ndata; i++) {
    const Value *v = &f->value.at[f->arg.at[i]];
    data[i] = (DtData){.name = v->name, .rank = v->rank, .type = type_of(v->type)};
    memcpy(data[i].extent, v->extent, v->rank * sizeof *v->extent);
    add_ranges(m, i, &data[i]);
    if (i < train->array_path.n) data[i].path = train->array_path.at[i];
    if (i < train->val_array_path.n) data[i].val_path = train->val_array_path.at[i];
  }
  t->ndata = (int)m->ndata;
  t->data = data;
}

static DtTrain train_of(const Module *m) {
  const Train *t = &m->train;
  return (DtTrain){.data = (DtDataKind)t->data, .val = (DtDataKind)t->val, .data_path = t->data_path,
                   .val_path = t->val_path, .length = t->length, .batch = t->batch, .microbatch = t->microbatch,
                   .steps = t->steps, .eval_every = t->eval_every, .seed = t->seed,
                   .optimizer = (DtOptimizer)t->opt, .lr = t->lr, .beta1 = t->beta1, .beta2 = t->beta2,
                   .eps = t->eps, .weight_decay = t->weight_decay, .momentum = t->momentum,
                   .nesterov = t->nesterov, .schedule = (DtSchedule)t->schedule, .warmup = t->warmup,
                   .final = t->final, .clip = t->clip, .precision = precision_name(m)};
}

static void fill_metrics(const Module *m, DtProgram *t) {
  const char **metric = NEWN(m->arena, const char *, m->metric.n + 1);
  for (uint32_t i = 0; i < m->metric.n; i++) metric[i] = m->metric.at[i];
  t->nmetric = (int)m->metric.n;
  if (m->metric.n) t->metric = metric;
}

static void fill_mesh(const Module *m, DtProgram *t) {
  for (uint32_t a = 0; a < m->axis.n; a++) {
    int size = (int)m->axis.at[a].size, number = mesh_axis(m, a);
    if (number == DT_AXIS_TP_OUTER) t->tp_outer = size;
    if (number == DT_AXIS_CP) t->cp = size;
    else t->tp = t->tp ? t->tp * size : size;
  }
}

static void fill_totals(const Module *m, DtProgram *t) {
  Id count = m->entry[ENTRY_COUNT];
  if (count == NONE) return;
  t->ntotal = (int)m->fn.at[count].result.n;
  t->random_totals = fn_is_random(m, count);
}

static void fill_sample(const Module *m, DtProgram *t) {
  Id first = m->chunk.n ? m->chunk.at[0].fn[CHUNK_SAMPLE] : m->entry[ENTRY_SAMPLE];
  Id last = m->chunk.n ? m->chunk.at[m->chunk.n - 1].fn[CHUNK_SAMPLE] : first;
  if (first == NONE) return;
  const Fn *f = &m->fn.at[first], *g = &m->fn.at[last];
  const Value *tokens = &f->value.at[f->arg.at[0]];
  const Value *logits = &g->value.at[g->result.at[g->result.n - 1]];
  t->sample_length = tokens->extent[tokens->rank - 1];
  t->sample_vocab = logits->extent[logits->rank - 1];
}

// ---- of the plan

static void visit(const Plan *p, Id fn, bool *seen, Id *order, uint32_t *n) {
  const FnPlan *fp = &p->fn[fn];
  if (seen[fn]) return;
  seen[fn] = true;
  for (uint32_t i = 0; i < fp->kernel.n; i++)
    if (fp->kernel.at[i].kind == K_CALL)
      visit(p, p->m->fn.at[fn].stmt.at[fp->kernel.at[i].stmt.at[0]].call->fn, seen, order, n);
  order[(*n)++] = fn;
}

uint32_t program_order(const Plan *p, bool all, Id *order) {
  const Module *m = p->m;
  bool *seen = NEWN(m->arena, bool, m->fn.n + 1), *root = NEWN(m->arena, bool, m->fn.n + 1);
  uint32_t n = 0;
  for (int e = ENTRY_SAMPLE; e < NENTRY; e++)
    if (m->entry[e] != NONE) root[m->entry[e]] = true;
  for (uint32_t i = 0; i < m->chunk.n * NCHUNK_PART; i++) {
    Id fn = m->chunk.at[i / NCHUNK_PART].fn[i % NCHUNK_PART];
    if (fn != NONE) root[fn] = true;
  }
  for (Id f = 0; f < m->fn.n; f++)
    if (p->reached[f] && (all || root[f])) visit(p, f, seen, order, &n);
  return n;
}

static void list_shape(const Value *v, Buf *b) {
  buf_printf(b, "[");
  for (uint32_t d = 0; d < v->rank; d++) buf_printf(b, "%s%lld", d ? ", " : "", (long long)v->extent[d]);
  buf_printf(b, "]");
}

static void list_row(Buf *b, const char *name, const Buf *shape, const char *type, int64_t bytes, int64_t at) {
  buf_printf(b, "  %-21s %-24s %-4s %10lld at %-10lld ", name, shape->n ? shape->text : "", type, (long long)bytes,
             (long long)at);
}

// Every buffer of a function's frame: shape, type, bytes, place, and the kernels between which it lives.
static void list_fn(const Plan *p, Id fn, Buf *b) {
  const Fn *f = &p->m->fn.at[fn];
  const FnPlan *fp = &p->fn[fn];
  const Life *life = plan_lives(p, fn);
  buf_printf(b, "%s: %u kernels, frame of %lld bytes\n", f->name, fp->kernel.n, (long long)fp->frame_bytes);
  for (Id v = 0; v < f->value.n; v++) {
    const Value *l = &f->value.at[v];
    Buf shape = {0};
    if (fp->address[v] < 0) continue;
    list_shape(l, &shape);
    list_row(b, l->name, &shape, dtype_name[l->type], value_count(l) * dtype_size(l->type), fp->address[v]);
    buf_printf(b, "kernels %u-%u\n", life[v].first, life[v].last);
    buf_free(&shape);
  }
  for (uint32_t i = 0; i < fp->kernel.n; i++) {
    if (fp->kernel.at[i].kind != K_CALL) continue;
    const Call *c = f->stmt.at[fp->kernel.at[i].stmt.at[0]].call;
    list_row(b, str_printf("(%s)", p->m->fn.at[c->fn].name), &(Buf){0}, "", call_scratch(p, c, c->nresult),
             fp->callee_frame[i]);
    buf_printf(b, "kernel  %u\n", i);
  }
}

static void fill_kernels(const Plan *p, const Id *order, uint32_t n, DtProgram *t) {
  const Module *m = p->m;
  uint32_t most = 0;
  for (uint32_t i = 0; i < n; i++) most += p->fn[order[i]].kernel.n;
  DtKernelInfo *kernel = NEWN(m->arena, DtKernelInfo, most + 1);
  for (uint32_t i = 0; i < n; i++) {
    const FnPlan *fp = &p->fn[order[i]];
    for (uint32_t j = 0; j < fp->kernel.n; j++) {
      const Kernel *k = &fp->kernel.at[j];
      if (!kernel_is_named(k)) continue;
      Str source = k->stmt.n ? source_of(m, m->fn.at[fp->fn].stmt.at[k->stmt.at[0]].loc, false) : NULL;
      kernel[t->nkernel++] = (DtKernelInfo){k->name, source ? source : "", k->bytes, k->flops};
    }
  }
  t->kernel = kernel;
}

static void fill_plan(const Plan *p, DtProgram *t) {
  const Module *m = p->m;
  Id *order = NEWN(m->arena, Id, m->fn.n + 1);
  uint32_t n = program_order(p, false, order);
  Buf listing = {0};
  for (uint32_t i = 0; i < n; i++) list_fn(p, order[i], &listing);
  t->listing = listing.n ? str_internn(listing.text, listing.n) : "";
  buf_free(&listing);
  fill_kernels(p, order, n, t);
  if (!m->chunk.n) t->frame_bytes = largest_frame(p, 0).bytes;
  t->scratch_bytes = m->target->scratch(p);
  t->stores_grad = true;
  t->zero = p->zero.stage;
  t->zero_group = p->zero.group;
  t->accumulate_each = p->zero.each;
  t->gather_once = p->zero.once;
  t->offload = p->zero.offload;
  t->in_flight = p->in_flight > 1 ? p->in_flight : 0;
  if (p->zero.bf16) t->reduce_type = DT_TYPE_BF16;
}

DtProgram program_make(const Module *m, const Plan *p) {
  DtProgram t = {.model = m->name, .build = "", .type = type_of(m->compute), .param_type = type_of(param_type(m)),
                 .reduce_type = type_of(m->compute), .loss_scaling = m->store == DT_F16, .train = train_of(m),
                 .frame_bytes = p ? 0 : 64, .listing = ""};
  Id update = m->entry[ENTRY_UPDATE];
  Id loss = m->chunk.n ? m->chunk.at[m->chunk.n - 1].fn[CHUNK_FORWARD] : m->entry[ENTRY_STEP];
  t.nmoment = update == NONE ? 0 : (int)update_moments(&m->fn.at[update]);
  if (loss != NONE) t.source = source_of(m, m->fn.at[loss].loc, true);
  fill_params(m, p, &t);
  fill_pipeline(m, p, &t);
  fill_data(m, &t);
  fill_metrics(m, &t);
  fill_mesh(m, &t);
  fill_totals(m, &t);
  fill_sample(m, &t);
  if (p) fill_plan(p, &t);
  return t;
}
