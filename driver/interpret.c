// --interpret: the training program with the interpreter in place of compiled code. It fills the tables that emitted C would
// hold, with functions that run the module's entries in float64, and hands them to the runtime: data, order of
// samples, schedule and log are the very same code.
#include <stdlib.h>

#include "driver/compile.h"
#include "ir/interp.h"
#include "runtime/program.h"

typedef struct Oracle {
  Module *m;
  Interp *interp;
  DtProgram program;
  DtData data[DT_MAX_DATA];
  DtParam *param;
  const char *metric[DT_MAX_METRICS];
} Oracle;

static Oracle *oracle; // a DtEntry has no other way to its module

// A tensor over memory of the runtime's.
static Tensor view(const Value *v, void *at) {
  Tensor t = {.type = v->type, .rank = v->rank};
  memcpy(t.extent, v->extent, sizeof t.extent);
  if (scalar_of(v->type) == SC_REAL)
    t.real = at;
  else
    t.integer = at;
  return t;
}

// Where argument `name` of an entry lives.
static void *place(const DtCall *c, Str name, uint32_t position) {
  const Module *m = oracle->m;
  static const char gradient[] = "grad.";
  if (!strcmp(name, "first")) return (void *)&c->first;
  if (!strcmp(name, "batch")) return (void *)&c->batch;
  if (!strncmp(name, "total.", 6)) return (double *)c->total + atoi(name + 6);
  bool grad = !strncmp(name, gradient, sizeof gradient - 1);
  const char *rest = grad ? name + sizeof gradient - 1 : name;
  for (uint32_t p = 0; p < m->param.n; p++)
    if (!strcmp(rest, m->param.at[p].name)) return (double *)(grad ? c->grad : c->param) + oracle->param[p].offset;
  if (position < m->ndata) return (void *)c->data[position];
  BUG("--interpret: entry argument `%s`", name);
}

// Where argument `position` of the update lives: scalars, then the piece.
static void *update_place(const DtCall *c, uint32_t position) {
  if (position < 5) return (double *)c->scalar + position;
  if (position < 7) return position == 5 ? c->param : c->grad;
  return c->moment[position - 7];
}

// The results of an entry go to c->out in order, or to the arguments whose storage they take over.
static void run(Entry e, const DtCall *c) {
  Module *m = oracle->m;
  Fn *f = entry_fn(m, e);
  Tensor *arg = NEWN(m->arena, Tensor, f->arg.n), **pointer = NEWN(m->arena, Tensor *, f->arg.n);
  Tensor **result = NEWN(m->arena, Tensor *, f->result.n + 1);
  for (uint32_t i = 0; i < f->arg.n; i++) {
    const Value *v = &f->value.at[f->arg.at[i]];
    arg[i] = view(v, e == ENTRY_UPDATE ? update_place(c, i) : place(c, v->name, i));
    pointer[i] = &arg[i];
  }
  Buf error = {0};
  InterpOptions o = {.seed = c->seed, .step = c->step};
  if (!interp_call(oracle->interp, m->entry[e], pointer, result, &o, &error)) BUG("--interpret: %s", error.text);
  double *out = c->out;
  for (uint32_t i = 0; i < f->result.n; i++) {
    size_t bytes = (size_t)tensor_count(result[i]) * sizeof(double);
    double *to = out;
    for (uint32_t a = 0; i < f->alias.n && a < f->arg.n; a++)
      if (f->arg.at[a] == f->alias.at[i]) to = arg[a].real;
    memcpy(to, result[i]->real, bytes);
    if (to == out) out += tensor_count(result[i]);
    tensor_free(result[i]);
  }
}

static void run_count(const DtCall *c) { run(ENTRY_COUNT, c); }
static void run_step(const DtCall *c) { run(ENTRY_STEP, c); }
static void run_eval(const DtCall *c) { run(ENTRY_EVAL, c); }
static void run_update(const DtCall *c) { run(ENTRY_UPDATE, c); }
static void run_sample(const DtCall *c) { run(ENTRY_SAMPLE, c); }

static void fill_params(Oracle *o) {
  const Module *m = o->m;
  o->param = NEWN(m->arena, DtParam, m->param.n);
  for (uint32_t i = 0; i < m->param.n; i++) {
    const Param *p = &m->param.at[i];
    DtParam *q = &o->param[i];
    *q = (DtParam){.name = p->name, .rank = p->rank, .nstack = p->nstack, .count = 1, .init = (DtInit)p->init,
                   .init_a = p->init_a, .init_b = p->init_b, .decay = p->decay};
    for (int d = 0; d < p->rank; d++) q->count *= q->extent[d] = p->extent[d];
    q->offset = o->program.param_count;
    o->program.param_count += (q->count + 15) / 16 * 16;
  }
}

static void fill_data(Oracle *o) {
  const Module *m = o->m;
  const Fn *f = entry_fn(o->m, ENTRY_STEP);
  for (uint32_t i = 0; i < m->ndata; i++) {
    const Value *v = &f->value.at[f->arg.at[i]];
    DtData *d = &o->data[i];
    *d = (DtData){.name = v->name, .rank = v->rank, .type = v->type == DT_I32 ? DT_TYPE_I32 : DT_TYPE_F64};
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

int interpret(Module *m, int64_t steps, FILE *out) {
  Oracle o = {.m = m, .interp = interp_new(m)};
  DtProgram *p = &o.program;
  *p = (DtProgram){.model = m->name, .build = "interpreter", .type = DT_TYPE_F64, .ndata = (int)m->ndata,
                   .nparam = (int)m->param.n, .nmetric = (int)m->metric.n, .frame_bytes = 64, .listing = ""};
  p->nmoment = m->train.opt != OPT_SGD ? 2 : m->train.momentum != 0;
  p->train = train_of(&m->train);
  fill_params(&o);
  fill_data(&o);
  for (uint32_t i = 0; i < m->metric.n; i++) o.metric[i] = m->metric.at[i];
  p->data = o.data;
  p->param = o.param;
  p->metric = o.metric;
  if (entry_fn(m, ENTRY_COUNT)) {
    p->ntotal = (int)entry_fn(m, ENTRY_COUNT)->result.n;
    p->count = run_count;
  }
  p->step = run_step;
  p->eval = run_eval;
  p->update_piece = UPDATE_PIECE;
  p->update = run_update;
  if (entry_fn(m, ENTRY_SAMPLE)) p->sample = run_sample;
  oracle = &o;
  char number[32];
  snprintf(number, sizeof number, "%lld", (long long)steps);
  fflush(out);
  char *argv[] = {"dtc --interpret", "--steps", number, "--log", "/dev/stdout", "--quiet", "--threads", "1", NULL};
  int status = dt_main(p, 8, argv);
  interp_free(o.interp);
  oracle = NULL;
  return status ? EXIT_MODEL : 0;
}
