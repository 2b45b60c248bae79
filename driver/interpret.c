// --interpret: the training program with the interpreter in place of compiled code. It fills the tables that emitted C would
// hold, with functions that run the module's entries in float64, and hands them to the runtime: data, order of
// samples, schedule and log are the very same code.
#include <stdlib.h>

#include "codegen/host/program.h"
#include "driver/compile.h"
#include "driver/interpret_chunk.h"
#include "driver/source.h"
#include "ir/interp/interp.h"
#include "runtime/comm.h"

_Static_assert((int)DT_MAX_DATA >= MAX_DATA && (int)DT_MAX_METRICS >= MAX_METRICS &&
                   (int)DT_MAX_TOTALS >= MAX_TOTALS && (int)DT_MAX_RANK >= MAX_RANK,
               "the runtime has room for what the front end accepts");

typedef struct Oracle {
  Module *m;
  Interp *interp;
  DtProgram program;
  Source *source;
  double **rounded; // by parameter, where kernels read 16 bits
} Oracle;

static Oracle *oracle; // a DtEntry has no other way to its module

// Room for a copy of a parameter, the same at each call.
static double *rounded_params(uint32_t param, int64_t n) {
  Module *m = oracle->m;
  if (!oracle->rounded) oracle->rounded = NEWN(m->arena, double *, m->param.n + 1);
  if (!oracle->rounded[param]) oracle->rounded[param] = NEWN(m->arena, double, n + 1);
  return oracle->rounded[param];
}

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

// Carries out a collective of the module between the processes that the runtime started.
static bool exchange(void *world, const Fn *f, const Stmt *s, Tensor *to, const Tensor *from, Buf *error) {
  static const DtReduce op[NRED] = {[RED_SUM] = DT_SUM, [RED_MAX] = DT_MAX, [RED_MIN] = DT_MIN};
  const Oracle *o = world;
  const DtGroup *g = dt_group(s->both ? DT_TP_AXES : 1u << mesh_axis(o->m, s->axis));
  DtType type = to->real ? DT_TYPE_F64 : DT_TYPE_I32;
  const void *in = from->real ? (const void *)from->real : from->integer;
  void *out = to->real ? (void *)to->real : to->integer;
  DtNote note = {f->value.at[s->lhs].name, -1, NULL};
  int64_t count = tensor_count(s->coll == COLL_REDUCE_SCATTER ? from : to);
  (void)error;
  switch (s->coll) {
  case COLL_ALL_REDUCE: dt_wait(dt_all_reduce(g, type, op[s->red], in, out, count, note)); break;
  case COLL_REDUCE_SCATTER: dt_wait(dt_reduce_scatter(g, type, op[s->red], in, out, count, note)); break;
  case COLL_ALL_GATHER: dt_wait(dt_all_gather(g, type, in, out, count, note)); break;
  case COLL_ALL_TO_ALL: dt_wait(dt_all_to_all(g, type, in, out, count, note)); break;
  case COLL_SHIFT: dt_wait(dt_shift(g, type, in, out, count, note)); break;
  case NCOLL: BUG("no such collective");
  }
  return true;
}

// A parameter as kernels read it: where it has 16 bits, a rounded copy of the master.
static void *stored_param(const Value *v, double *master) {
  int64_t n = value_count(v);
  if (!is_half(v->type)) return master;
  double *copy = rounded_params(v->of, n);
  for (int64_t i = 0; i < n; i++) copy[i] = interp_round(v->type, master[i]);
  return copy;
}

// Where an argument of an entry lives.
static void *place(const DtCall *c, const Value *v) {
  const DtProgram *p = &oracle->program;
  switch (v->means) {
  case MEANS_DATA: return (void *)c->data[v->of];
  case MEANS_FIRST: return (void *)&c->scalars->first;
  case MEANS_BATCH: return (void *)&c->scalars->batch;
  case MEANS_TOTAL: return (double *)c->scalars->total.f64 + v->of;
  case MEANS_PARAM: return stored_param(v, (double *)c->param + p->param[v->of].offset);
  case MEANS_LOSS_SCALE: return (void *)c->scalars->loss_scale.f64;
  case MEANS_GRAD: return (double *)c->grad + p->param[v->of].offset;
  case MEANS_RANK: return &dt_world.coord[mesh_axis(oracle->m, v->of)];
  case MEANS_SCALAR: return (double *)c->scalars->update.f64 + v->of;
  case MEANS_PIECE:
    if (v->of < PIECE_MOMENT1) return v->of == PIECE_PARAM ? c->param : c->grad;
    return c->moment[v->of - PIECE_MOMENT1];
  default: BUG("--interpret: entry argument `%s`", v->name);
  }
}

// The results of an entry go to c->out in order, or to the arguments whose storage they take over.
static void run(Entry e, const DtCall *c) {
  Module *m = oracle->m;
  Fn *f = entry_fn(m, e);
  Tensor *arg = NEWN(m->arena, Tensor, f->arg.n), **pointer = NEWN(m->arena, Tensor *, f->arg.n);
  Tensor **result = NEWN(m->arena, Tensor *, f->result.n + 1);
  for (uint32_t i = 0; i < f->arg.n; i++) {
    const Value *v = &f->value.at[f->arg.at[i]];
    arg[i] = view(v, place(c, v));
    pointer[i] = &arg[i];
  }
  Buf error = {0};
  InterpOptions o = {.seed = c->scalars->key[0], .step = c->scalars->key[1], .round = is_half(m->store)};
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

// The function is one of UPDATE_PIECE elements: the last of `count` are copied to as many, and back.
static void run_update(const DtCall *c) {
  enum { ARRAYS = 2 + DT_MAX_MOMENTS };
  static double piece[ARRAYS][UPDATE_PIECE];
  double *all[ARRAYS] = {c->param, c->grad, c->moment[0], c->moment[1]};
  for (int64_t at = 0; at < c->count; at += UPDATE_PIECE) {
    DtCall part = *c;
    int64_t left = c->count - at, n = left < UPDATE_PIECE ? left : UPDATE_PIECE;
    part.param = piece[0], part.grad = piece[1];
    for (int i = 0; i < DT_MAX_MOMENTS; i++) part.moment[i] = piece[2 + i];
    memset(piece, 0, sizeof piece);
    for (int i = 0; i < ARRAYS; i++)
      if (all[i]) memcpy(piece[i], all[i] + at, (size_t)n * sizeof(double));
    run(ENTRY_UPDATE, &part);
    for (int i = 0; i < ARRAYS; i++)
      if (all[i] && i != 1) memcpy(all[i] + at, piece[i], (size_t)n * sizeof(double));
  }
}

static void run_chunk(const DtCall *c) {
  chunk_run(oracle->interp, oracle->m, &oracle->program, c, place);
}
static void run_sample(const DtCall *c) { run(ENTRY_SAMPLE, c); }
static void run_source(const DtCall *c) { source_step(oracle->source, &oracle->program, c); }

// The interpreter's reals are doubles whatever pass precision chose, and its bools are ints.
static void widen_data(DtProgram *p, Module *m) {
  DtData *data = NEWN(m->arena, DtData, p->ndata + 1);
  for (int k = 0; k < p->ndata; k++) {
    data[k] = p->data[k];
    if (data[k].type == DT_TYPE_F32) data[k].type = DT_TYPE_F64;
    if (data[k].type != DT_TYPE_BOOL) continue;
    data[k].type = DT_TYPE_I32;
    data[k].checked = true;
    data[k].lo = 0;
    data[k].hi = 2;
  }
  p->data = data;
}

// The command line of the training program.
static int run_main(const DtProgram *p, const InterpretRun *run) {
  const char *argv[24] = {"dtc --interpret", "--quiet", "--threads", "1", "--steps"};
  char number[32], world[32];
  int n = 5;
  snprintf(number, sizeof number, "%lld", (long long)run->steps);
  snprintf(world, sizeof world, "%d", run->ranks);
  argv[n++] = number;
  argv[n++] = "--ranks", argv[n++] = world;
  argv[n++] = "--log", argv[n++] = run->log ? run->log : "/dev/stdout";
  if (run->data) argv[n++] = "--data", argv[n++] = run->data;
  if (run->init) argv[n++] = "--init", argv[n++] = run->init;
  if (run->gradient) argv[n++] = "--export-gradient", argv[n++] = run->gradient;
  if (run->log) argv[n++] = "--eval-every", argv[n++] = "0";
  return dt_main(p, n, (char **)argv);
}

int interpret(Module *m, const InterpretRun *run) {
  const ZeroOptions *zero = &run->zero;
  Oracle o = {.m = m, .interp = interp_new(m), .program = program_make(m, NULL), .source = run->source};
  DtProgram *p = &o.program;
  interp_join(o.interp, exchange, &o);
  p->type = p->param_type = p->reduce_type = DT_TYPE_F64;
  p->train.precision = "fp64";
  p->build = "interpreter";
  widen_data(p, m);
  p->zero = zero->stage;
  p->zero_group = zero->group;
  p->accumulate_each = zero->each;
  p->gather_once = zero->once;
  if (entry_fn(m, ENTRY_COUNT)) p->count = run_count;
  if (m->chunk.n) {
    chunks_fill(m, p, run_chunk);
    p->stores_grad = true; // chunk_run starts its gradients itself
  } else {
    p->step = o.source ? run_source : run_step;
    p->eval = run_eval;
  }
  p->update = run_update;
  if (entry_fn(m, ENTRY_SAMPLE)) p->sample = run_sample;
  oracle = &o;
  fflush(stdout);
  int status = run_main(p, run);
  interp_free(o.interp);
  oracle = NULL;
  bool tool = status == DT_EXIT_OS || status == DT_EXIT_CREATE || status == DT_EXIT_IO;
  return status == DT_EXIT_BUG ? EXIT_BUG : tool ? EXIT_TOOL : status ? EXIT_MODEL : 0;
}
