// A step in the interpreter, and central differences.
#include <math.h>
#include <stdlib.h>

#include "tests/gradient/support/case.h"
#include "tests/oracle/oracle.h"

enum { MAX_ARGS = 256, PROBES = 32, NOISY = 8 };

// One entry's call: its arguments, of which it owns those from the front up to `owned`.
typedef struct Frame {
  Tensor *arg[MAX_ARGS], *result[MAX_ARGS];
  uint32_t n, owned;
} Frame;

static void frame_int(Frame *f, int64_t v) {
  Tensor *t = f->arg[f->n++] = tensor_new(DT_I32, NULL, 0);
  t->integer[0] = (int32_t)v;
}

static void frame_free(Frame *f, const Fn *fn) {
  for (uint32_t i = 0; i < f->owned; i++) tensor_free(f->arg[i]);
  for (uint32_t i = 0; i < fn->result.n; i++) tensor_free(f->result[i]);
}

// Data of one part, its first sample's number, the batch.
static Frame frame_new(const Inputs *in, int64_t part) {
  Frame f = {0};
  for (uint32_t i = 0; i < in->ndata; i++)
    f.arg[f.n++] = inputs_slice(in, i, part * in->micro, in->micro);
  frame_int(&f, part * in->micro);
  frame_int(&f, in->batch);
  f.owned = f.n;
  return f;
}

static bool call(const Case *c, const Module *m, Entry e, Frame *f, const InterpOptions *o) {
  Buf error = {0};
  const Fn *fn = &m->fn.at[m->entry[e]];
  if (fn->arg.n != f->n)
    return printf("%s: %s has %u arguments\n", c->name, entry_name[e], fn->arg.n), false;
  bool ok = interp_run(m, m->entry[e], f->arg, f->result, o, &error);
  if (!ok) printf("%s: %s: %s\n", c->name, entry_name[e], error.text);
  buf_free(&error);
  return ok;
}

// Totals over the batch, with their bounds.
static bool count_run(const Case *c, const Module *m, const Inputs *in, const InterpOptions *o,
                      Tensor **total) {
  const Fn *fn = &m->fn.at[m->entry[ENTRY_COUNT]];
  for (uint32_t i = 0; i < fn->result.n; i++) {
    total[i] = tensor_new(DT_REAL, NULL, 0);
    total[i]->scale = calloc(1, sizeof(double));
  }
  for (int64_t part = 0; part < in->parts; part++) {
    Frame f = frame_new(in, part);
    if (!call(c, m, ENTRY_COUNT, &f, o)) return false;
    for (uint32_t i = 0; i < fn->result.n; i++) {
      total[i]->real[0] += f.result[i]->real[0];
      if (f.result[i]->scale) total[i]->scale[0] += f.result[i]->scale[0];
    }
    frame_free(&f, fn);
  }
  return true;
}

static bool part_run(const Case *c, const Module *m, Entry e, const Inputs *in, int64_t part,
                     const InterpOptions *o, Tensor **total, uint32_t ntotal, Outcome *r) {
  Frame f = frame_new(in, part);
  const Fn *fn = &m->fn.at[m->entry[e]];
  for (uint32_t i = 0; i < ntotal; i++) f.arg[f.n++] = total[i];
  for (uint32_t i = 0; i < in->nparam; i++) f.arg[f.n++] = in->param[i];
  for (uint32_t i = 0; r->grad && i < in->nparam; i++) f.arg[f.n++] = r->grad[i];
  if (!call(c, m, e, &f, o)) return false;
  for (uint32_t i = 0; i < fn->result.n; i++) {
    r->out[part * r->nout + i] = f.result[i]->real[0];
    r->out_scale[part * r->nout + i] = f.result[i]->scale ? f.result[i]->scale[0] : 0;
  }
  frame_free(&f, fn);
  return true;
}

bool oracle_run(const Case *c, const Module *m, Entry e, const Inputs *in, const InterpOptions *o,
                Outcome *r) {
  Tensor *total[DT_MAX_TOTALS] = {0};
  const Fn *fn = &m->fn.at[m->entry[e]];
  uint32_t ntotal = m->entry[ENTRY_COUNT] == NONE ? 0 : m->fn.at[m->entry[ENTRY_COUNT]].result.n;
  *r = (Outcome){.nout = fn->result.n, .nparam = in->nparam, .parts = in->parts};
  r->param = m->param.at;
  r->out = calloc((size_t)(r->nout * in->parts), sizeof *r->out);
  r->out_scale = calloc((size_t)(r->nout * in->parts), sizeof *r->out_scale);
  if (e == ENTRY_STEP) r->grad = calloc(in->nparam + 1, sizeof *r->grad);
  for (uint32_t i = 0; r->grad && i < in->nparam; i++)
    r->grad[i] = tensor_new(DT_REAL, in->param[i]->extent, in->param[i]->rank);
  bool ok = !ntotal || count_run(c, m, in, o, total);
  for (int64_t part = 0; ok && part < in->parts; part++)
    ok = part_run(c, m, e, in, part, o, total, ntotal, r);
  for (uint32_t i = 0; i < ntotal; i++) tensor_free(total[i]);
  return ok;
}

static void widen(double *spread, const double *want, const double *got, int64_t n) {
  for (int64_t i = 0; i < n; i++) spread[i] = fmax(spread[i], fabs(got[i] - want[i]));
}

bool oracle_spread(const Case *c, const Module *m, Entry e, const Inputs *in, double unit,
                   const Outcome *want, Outcome *spread) {
  uint64_t state = c->seed;
  *spread = (Outcome){.nout = want->nout, .nparam = want->nparam, .parts = want->parts};
  spread->out = calloc((size_t)(want->nout * want->parts), sizeof *spread->out);
  if (want->grad) spread->grad = calloc(want->nparam + 1, sizeof *spread->grad);
  for (uint32_t p = 0; want->grad && p < want->nparam; p++)
    spread->grad[p] = tensor_new(DT_REAL, want->grad[p]->extent, want->grad[p]->rank);
  for (int k = 0; k < NOISY; k++) {
    InterpOptions o = {.seed = 7, .step = 3, .scale = true, .unit = unit, .noise = &state};
    Outcome r;
    if (!oracle_run(c, m, e, in, &o, &r)) return false;
    widen(spread->out, want->out, r.out, want->nout * want->parts);
    for (uint32_t p = 0; want->grad && p < want->nparam; p++)
      widen(spread->grad[p]->real, want->grad[p]->real, r.grad[p]->real,
            tensor_count(want->grad[p]));
    outcome_free(&r);
  }
  return true;
}

// ---- central differences

typedef struct Finite {
  const Case *c;
  const Inputs *in;
  const Fn *fn;
  Interp *interp;
  Id loss;
  Frame frame;
  uint64_t rng;
} Finite;

static bool loss_at(Finite *x, double *out, uint64_t *ways) {
  Buf error = {0};
  *ways = 0;
  InterpOptions o = {.seed = 7, .step = 3, .ways = ways};
  bool ok = interp_call(x->interp, x->loss, x->frame.arg, x->frame.result, &o, &error);
  if (!ok) printf("%s: loss: %s\n", x->c->name, error.text);
  for (uint32_t i = 0; ok && i < x->fn->result.n; i++) {
    out[i] = x->frame.result[i]->real[0];
    tensor_free(x->frame.result[i]);
    x->frame.result[i] = NULL;
  }
  buf_free(&error);
  return ok;
}

// The derivative by one element; false with *kink where both sides go different ways, however near.
static bool derivative(Finite *x, double *at, double *slope, bool *kink) {
  double keep = *at;
  *kink = false;
  for (double h = 1e-5; h > 1e-7; h /= 10) {
    double up[MAX_OUT], down[MAX_OUT];
    uint64_t way, other;
    *at = keep + h;
    bool ok = loss_at(x, up, &way);
    *at = keep - h;
    ok = ok && loss_at(x, down, &other);
    *at = keep;
    if (!ok) return false;
    *slope = (up[0] - down[0]) / (2 * h);
    if (way == other) return true;
  }
  *kink = true;
  return false;
}

static bool probe(Finite *x, uint32_t p, const Tensor *grad, FiniteCount *n) {
  int64_t count = tensor_count(grad), most = count < PROBES ? count : PROBES;
  double norm = 0;
  for (int64_t e = 0; e < count; e++) norm = fmax(norm, fabs(grad->real[e]));
  // Less than the 1e-5 of doc/numerics.md. The latter: roundings of the loss, if a gradient is 0.
  double allowed = 1e-7 * norm + 1e-9;
  for (int64_t k = 0, tries = 0; k < most && tries < 2 * most; tries++) {
    x->rng = x->rng * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    int64_t e = count <= PROBES ? tries % count : (int64_t)((x->rng >> 20) % (uint64_t)count);
    double slope;
    bool kink;
    if (!derivative(x, &x->in->param[p]->real[e], &slope, &kink)) {
      if (!kink) return false;
      n->kinks++;
      continue;
    }
    k++;
    n->probes++;
    double error = fabs(slope - grad->real[e]);
    n->worst = fmax(n->worst, error / allowed);
    if (error <= allowed) continue;
    printf("%s: gradient of %s, element %lld: %.12g, but the loss grows by %.12g (+- %.2g)\n",
           x->c->name, x->fn->value.at[x->fn->arg.at[x->in->ndata + p]].name, (long long)e,
           grad->real[e], slope, allowed);
    return false;
  }
  return true;
}

// The step ran with bounds.
static bool tangents(Finite *x, const Module *m, const Outcome *step, FiniteCount *n) {
  Tensor *gradient[MAX_ARGS] = {0};
  for (uint32_t p = 0; p < x->in->nparam; p++) gradient[x->in->ndata + p] = step->grad[p];
  InterpOptions io = {.seed = 7, .step = 3};
  Buf error = {0};
  FiniteResult r = tangent_compare(m, x->loss, x->frame.arg, gradient, &io, x->c->seed, &n->tangent,
                                   &error);
  if (r != FINITE_SAME) printf("%s: %s\n", x->c->name, error.text);
  buf_free(&error);
  return r == FINITE_SAME;
}

bool finite_gradients(const Case *c, const Module *m, const Inputs *in, const Outcome *step,
                      FiniteCount *n) {
  Finite x = {.c = c, .in = in, .loss = m->entry[ENTRY_LOSS], .rng = c->seed};
  x.fn = &m->fn.at[x.loss];
  x.interp = interp_new(m);
  for (uint32_t i = 0; i < in->ndata; i++) x.frame.arg[i] = inputs_slice(in, i, 0, in->batch);
  for (uint32_t i = 0; i < in->nparam; i++) x.frame.arg[in->ndata + i] = in->param[i];
  x.frame.owned = in->ndata;
  double out[MAX_OUT];
  uint64_t ways;
  bool ok = x.fn->arg.n == in->ndata + in->nparam && loss_at(&x, out, &ways);
  for (uint32_t i = 0; ok && i < step->nout; i++) {
    double sum = 0;
    for (int64_t part = 0; part < in->parts; part++) sum += step->out[part * step->nout + i];
    ok = fabs(sum - out[i]) <= 1e-12 * (1 + fabs(out[i]));
    if (!ok)
      printf("%s: result %u of the microbatches is %.17g, of the batch %.17g\n", c->name, i, sum,
             out[i]);
  }
  ok = ok && tangents(&x, m, step, n);
  for (uint32_t p = 0; ok && p < in->nparam; p++) ok = probe(&x, p, step->grad[p], n);
  frame_free(&x.frame, x.fn);
  interp_free(x.interp);
  return ok;
}
