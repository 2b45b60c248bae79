#include "driver/source.h"

#include <math.h>
#include <stdlib.h>

#include "passes/passes.h"

enum { DIRECTIONS = 3, NOISY = 8 };
// Bounds of the gradient, which grow without measure with depth, and a part of its size;
// tests/oracle/tangent.c has the same.
static const double SLOPE_BOUNDS = 4 * 0x1p-53, SLOPE_PART = 1e-10;

Source *source_new(Arena *a, const Module *loss, Module *step) {
  if (!pass_inline(step) || !pass_differentiate(step)) return NULL;
  Source *s = NEW(a, Source);
  s->loss = loss;
  s->step = step;
  s->run_loss = interp_new(loss);
  s->run_step = interp_new(step);
  s->grad = NEWN(a, Tensor *, loss->param.n + 1);
  s->spread = NEWN(a, double *, loss->param.n + 1);
  return s;
}

static void forget(Source *s) {
  for (uint32_t p = 0; p < s->loss->param.n; p++) {
    tensor_free(s->grad[p]);
    free(s->spread[p]);
    s->grad[p] = NULL;
    s->spread[p] = NULL;
  }
}

void source_free(Source *s) {
  if (!s) return;
  forget(s);
  interp_free(s->run_loss);
  interp_free(s->run_step);
}

// ---- calls

typedef struct Args {
  Tensor *tensor, **arg, **result; // by argument; tensor: in the caller's memory
  const Fn *f;
} Args;

static void *memory(const DtProgram *p, const DtCall *c, const Value *v) {
  if (v->means == MEANS_PARAM) return (double *)c->param + p->param[v->of].offset;
  if (v->means == MEANS_DATA) return (void *)c->data[v->of];
  if (v->means == MEANS_LOSS_SCALE) return (void *)c->scalars->loss_scale.f64; // all is widened
  BUG("the front end's loss has an argument `%s`", v->name);
}

// Arguments in the runtime's memory; gradients, which come last in a step's, in s->grad.
static Args args_new(Source *s, const DtProgram *p, const DtCall *c, const Module *m, Id fn) {
  const Fn *f = &m->fn.at[fn];
  Args a = {.f = f};
  a.tensor = calloc(f->arg.n + 1, sizeof *a.tensor);
  a.arg = calloc(f->arg.n + 1, sizeof *a.arg);
  a.result = calloc(f->result.n + 1, sizeof *a.result);
  CHECK(a.tensor && a.arg && a.result);
  for (uint32_t i = 0, grads = 0; i < f->arg.n; i++) {
    const Value *v = &f->value.at[f->arg.at[i]];
    if (v->role == ROLE_INOUT) {
      a.arg[i] = s->grad[grads++] = tensor_like(v);
      continue;
    }
    Tensor *t = a.arg[i] = &a.tensor[i];
    *t = (Tensor){.type = v->type, .rank = v->rank};
    memcpy(t->extent, v->extent, sizeof t->extent);
    void *at = memory(p, c, v);
    if (scalar_of(v->type) == SC_REAL)
      t->real = at;
    else
      t->integer = at;
  }
  return a;
}

static void args_free(Args *a) {
  for (uint32_t i = 0; i < a->f->arg.n; i++) free(a->tensor[i].tangent);
  for (uint32_t i = 0; i < a->f->result.n; i++) tensor_free(a->result[i]);
  free(a->tensor);
  free(a->arg);
  free(a->result);
}

static void call(Interp *x, Id fn, const Args *a, const InterpOptions *o) {
  Buf error = {0};
  if (!interp_call(x, fn, a->arg, a->result, o, &error))
    BUG("the front end's program: %s", error.text);
}

// ---- gradients

// The step, its gradients in s->grad.
static void run_step(Source *s, const DtProgram *p, const DtCall *c, const InterpOptions *o) {
  Id fn = s->step->entry[ENTRY_STEP];
  Args a = args_new(s, p, c, s->step, fn);
  call(s->run_step, fn, &a, o);
  s->value = a.result[0]->real[0];
  s->value_bound = a.result[0]->scale ? a.result[0]->scale[0] : 0;
  args_free(&a);
}

// How far roundings move the loss and each element of a gradient, at most, in some runs that have
// them.
static void find_spread(Source *s, const DtProgram *p, const DtCall *c) {
  uint64_t state = 1;
  uint32_t n = s->loss->param.n;
  Tensor **exact = calloc(n + 1, sizeof *exact);
  CHECK(exact);
  memcpy(exact, s->grad, n * sizeof *exact);
  double value = s->value, bound = s->value_bound, spread = 0;
  for (int k = 0; k < NOISY; k++) {
    InterpOptions o = {
        .seed = c->scalars->key[0], .step = c->scalars->key[1], .scale = true, .unit = s->unit, .noise = &state};
    run_step(s, p, c, &o);
    spread = fmax(spread, fabs(s->value - value));
    for (uint32_t i = 0; i < n; i++) {
      int64_t count = tensor_count(exact[i]);
      if (!s->spread[i]) s->spread[i] = calloc((size_t)count, sizeof(double));
      CHECK(s->spread[i]);
      for (int64_t e = 0; e < count; e++)
        s->spread[i][e] = fmax(s->spread[i][e], fabs(s->grad[i]->real[e] - exact[i]->real[e]));
      tensor_free(s->grad[i]);
    }
  }
  memcpy(s->grad, exact, n * sizeof *exact);
  free(exact);
  s->value = value;
  s->value_bound = bound;
  s->value_spread = spread;
}

// ---- tangents

static double direction(uint64_t *state) { // splitmix64, in [-1, 1)
  uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return (double)(int64_t)(z ^ z >> 31) * 0x1p-63;
}

// Aims the arguments along a random direction of one parameter, or of all (which is NONE); returns
// what the gradient says of it, and by how much roundings may move that.
static double aim(const Source *s, Args *a, uint32_t which, uint64_t *state, double *allowed) {
  double want = 0, error = 0, size = 0;
  for (uint32_t p = 0; p < s->loss->param.n; p++) {
    Tensor *t = a->arg[s->loss->ndata + p];
    const Tensor *g = s->grad[p];
    int64_t n = tensor_count(t);
    if (!t->tangent) t->tangent = calloc((size_t)n, sizeof *t->tangent);
    CHECK(t->tangent);
    for (int64_t e = 0; e < n; e++) {
      double d = direction(state), bound = g->scale ? g->scale[e] : 0;
      if (isfinite(bound)) size += fabs(g->real[e]);
      t->tangent[e] = (which == NONE || which == p) && isfinite(bound) ? d : 0;
      if (t->tangent[e] == 0) continue;
      want += g->real[e] * d;
      error += (bound + fabs(g->real[e])) * fabs(d);
    }
  }
  *allowed = fmin(SLOPE_BOUNDS * error, SLOPE_PART * (size + 1e-3)) + 1e-290;
  return want;
}

static bool along(Source *s, Args *a, uint32_t which, uint64_t *state, const InterpOptions *o,
                  double *want, double *got) {
  double allowed;
  for (uint32_t i = 0; i < a->f->result.n; i++) tensor_free(a->result[i]);
  *want = aim(s, a, which, state, &allowed);
  call(s->run_loss, s->loss->entry[ENTRY_LOSS], a, o);
  *got = a->result[0]->tangent[0];
  if (!isfinite(*want) && !isfinite(*got)) return true;
  if (*want != *got) s->slope = fmax(s->slope, fabs(*want - *got) / allowed);
  return fabs(*want - *got) <= allowed;
}

// Leaves the loss and metrics, of the front end's function, in the arguments' results.
static void check_tangents(Source *s, Args *a, const DtCall *c) {
  InterpOptions o = {.seed = c->scalars->key[0], .step = c->scalars->key[1], .tangent = true};
  uint64_t state = 1;
  double want, got;
  bool ok = true;
  for (int k = 0; k < DIRECTIONS && ok; k++) ok = along(s, a, NONE, &state, &o, &want, &got);
  if (ok) return;
  for (uint32_t p = 0; p < s->loss->param.n; p++)
    if (!along(s, a, p, &state, &o, &want, &got))
      BUG("the gradient of `%s` from pass differentiate is not that of the loss: along one "
          "direction it is %.17g, by forward mode %.17g",
          s->loss->param.at[p].name, want, got);
  BUG("the gradient from pass differentiate is not that of the loss");
}

void source_step(Source *s, const DtProgram *p, const DtCall *c) {
  forget(s);
  s->slope = 0;
  // The bounds are those of first order: doc/numerics.md.
  run_step(s, p, c,
           &(InterpOptions){.seed = c->scalars->key[0], .step = c->scalars->key[1], .scale = true, .unit = 0x1p-53});
  Args a = args_new(s, p, c, s->loss, s->loss->entry[ENTRY_LOSS]);
  check_tangents(s, &a, c);
  s->value = a.result[0]->real[0];
  for (uint32_t i = 0; i < a.f->result.n; i++) ((double *)c->out)[i] = a.result[i]->real[0];
  args_free(&a);
  for (uint32_t i = 0; i < s->loss->param.n; i++) {
    double *to = (double *)c->grad + p->param[i].offset;
    for (int64_t e = 0; e < tensor_count(s->grad[i]); e++) to[e] += s->grad[i]->real[e];
  }
  if (s->measure) find_spread(s, p, c);
}

// ---- what it would take

static double stmt_points(const Stmt *s) {
  double n = 1;
  for (uint32_t i = 0; i < s->nindex; i++) n *= (double)s->index[i].extent;
  return n;
}

double source_points(const Module *m, Id fn) {
  double n = 0;
  for (uint32_t i = 0; i < m->fn.at[fn].stmt.n; i++) {
    const Stmt *s = &m->fn.at[fn].stmt.at[i];
    if (s->kind == ST_COMP)
      n += stmt_points(s);
    else if (s->call)
      n += (double)s->call->count * source_points(m, s->call->fn);
  }
  return n;
}

void source_largest(const Module *m, Buf *out) {
  const Fn *where = NULL;
  const Stmt *most = NULL;
  for (Id f = 0; f < m->fn.n; f++)
    for (uint32_t i = 0; i < m->fn.at[f].stmt.n; i++) {
      const Stmt *s = &m->fn.at[f].stmt.at[i];
      if (s->kind != ST_COMP || (most && stmt_points(s) <= stmt_points(most))) continue;
      most = s;
      where = &m->fn.at[f];
    }
  if (!most) return;
  buf_printf(out, "`%s` over", where->value.at[most->lhs].name);
  for (uint32_t i = 0; i < most->nindex; i++)
    buf_printf(out, "%s %s<%lld", i ? "," : "", most->index[i].name,
               (long long)most->index[i].extent);
}

bool source_is_local(const Module *m) {
  for (Id f = 0; f < m->fn.n; f++)
    for (uint32_t i = 0; i < m->fn.at[f].stmt.n; i++) {
      const Stmt *s = &m->fn.at[f].stmt.at[i];
      for (uint32_t k = 0; k < s->nindex; k++)
        if (s->index[k].local) return true;
    }
  return false;
}
