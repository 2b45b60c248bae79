// Gradients against tangents: both exact, so that what is allowed is rounding alone.
#include <math.h>
#include <stdlib.h>

#include "tests/oracle/oracle.h"

enum { MOST_NAMED = 4096 }; // elements tried one by one, to name the wrong one
// The bounds are of the gradient's rounding; those of the tangent, which takes the same products in
// another order and adds them in a wider format, are about as large. After some layers they say
// nothing: then a part of the whole gradient's size is less, or of NOTHING where all of it cancels: a loss of a few
// thousand terms of about 1 leaves some 1e-13 there.
static const double ALLOWED = 4 * 0x1p-53, PART = 1e-10, NOTHING = 1e-2, SPREADS = 8;

typedef struct Check {
  Interp *loss;
  const Fn *fn;
  Id loss_fn;
  const InterpOptions *io;
  Tensor **arg, **gradient; // by argument of the loss; gradient NULL for what has none
  uint64_t rng;
  double *worst;
  Buf *error;
} Check;

static double uniform(Check *x) {
  uint64_t z = x->rng += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return 2 * (double)((z ^ z >> 31) >> 11) * 0x1p-53 - 1;
}

static double bound(const Tensor *g, int64_t e) { return g->scale ? g->scale[e] : 0; }

// The direction: random in one argument, or in all (which is NONE), or that of one element.
static void aim(Check *x, uint32_t which, int64_t element) {
  for (uint32_t i = 0; i < x->fn->arg.n; i++) {
    const Tensor *g = x->gradient[i];
    for (int64_t e = 0; g && e < tensor_count(g); e++) {
      bool moves = (which == NONE || which == i) && (element < 0 || element == e);
      double d = element < 0 ? uniform(x) : 1;
      x->arg[i]->tangent[e] = moves && isfinite(bound(g, e)) ? d : 0;
    }
  }
}

static bool slope(Check *x, double *got) {
  Tensor **result = calloc(x->fn->result.n + 1, sizeof *result);
  InterpOptions io = *x->io;
  io.tangent = true;
  io.scale = false;
  bool ok = interp_call(x->loss, x->loss_fn, x->arg, result, &io, x->error);
  if (ok) *got = result[0]->tangent[0];
  for (uint32_t i = 0; ok && i < x->fn->result.n; i++) tensor_free(result[i]);
  free(result);
  return ok;
}

// What the gradient says of the direction, and how far that may be off.
static double expected(const Check *x, double *allowed) {
  double want = 0, error = 0, size = 0;
  for (uint32_t i = 0; i < x->fn->arg.n; i++) {
    const Tensor *g = x->gradient[i];
    for (int64_t e = 0; g && e < tensor_count(g); e++) {
      double d = x->arg[i]->tangent[e];
      if (isfinite(bound(g, e))) size += fabs(g->real[e]);
      if (d == 0) continue;
      want += g->real[e] * d;
      error += bound(g, e) * fabs(d) + fabs(g->real[e] * d);
    }
  }
  *allowed = fmin(ALLOWED * error, PART * (size + NOTHING)) + 1e-290;
  return want;
}

// How far the tangent's own rounding moves it: it is linear in the direction, so that in exact
// arithmetic any multiple of it gives the same multiple. Where terms of a gradient cancel before
// they are multiplied, to 0 even, those of the tangent cancel after, and round more.
static double spread(Check *x, double got) {
  static const double times[] = {3, 7.0 / 3, 0.6 / 7, 0.7 / 0.6}; // one after another
  double most = 0, all = 1, s;
  for (size_t k = 0; k < sizeof times / sizeof *times; k++) {
    all *= times[k];
    for (uint32_t i = 0; i < x->fn->arg.n; i++)
      for (int64_t e = 0; x->gradient[i] && e < tensor_count(x->gradient[i]); e++)
        x->arg[i]->tangent[e] *= times[k];
    if (!slope(x, &s)) return 0;
    most = fmax(most, fabs(s / all - got));
  }
  return most;
}

static FiniteResult along(Check *x, uint32_t which, int64_t element, double *want, double *got,
                          double *allowed) {
  aim(x, which, element);
  *want = expected(x, allowed);
  if (!slope(x, got)) return FINITE_FAILS;
  double off = fabs(*got - *want);
  if (!isfinite(*got) && !isfinite(*want)) return FINITE_SAME;
  if (off > *allowed) *allowed += SPREADS * spread(x, *got);
  if (x->worst && off > 0) *x->worst = fmax(*x->worst, off / *allowed);
  return off <= *allowed ? FINITE_SAME : FINITE_DIFFERS;
}

static FiniteResult name_element(Check *x, uint32_t i) {
  const char *name = x->fn->value.at[x->fn->arg.at[i]].name;
  double want, got, allowed;
  for (int64_t e = 0; e < tensor_count(x->gradient[i]) && e < MOST_NAMED; e++) {
    FiniteResult r = along(x, i, e, &want, &got, &allowed);
    if (r == FINITE_SAME) continue;
    if (r == FINITE_DIFFERS)
      buf_printf(x->error, "the gradient of %s[%lld] is %.17g; the tangent says %.17g +- %.3g",
                 name, (long long)e, want, got, allowed);
    return r;
  }
  along(x, i, -1, &want, &got, &allowed);
  buf_printf(x->error, "along %s the gradient says %.17g, the tangent %.17g +- %.3g", name, want,
             got, allowed);
  return FINITE_DIFFERS;
}

FiniteResult tangent_compare(const Module *m, Id fn, Tensor *const *arg, Tensor *const *gradient,
                             const InterpOptions *io, uint64_t seed, double *worst, Buf *error) {
  Check x = {.loss = interp_new(m), .fn = &m->fn.at[fn], .loss_fn = fn, .io = io, .rng = seed,
             .worst = worst, .error = error, .gradient = (Tensor **)gradient};
  uint32_t n = x.fn->arg.n;
  x.arg = calloc(n + 1, sizeof *x.arg);
  for (uint32_t i = 0; i < n; i++) {
    x.arg[i] = arg[i];
    if (gradient[i]) arg[i]->tangent = calloc((size_t)tensor_count(arg[i]), sizeof(double));
  }
  FiniteResult r = FINITE_SAME;
  double want, got, allowed;
  for (uint32_t i = 0; r == FINITE_SAME && i < n; i++) {
    if (!gradient[i]) continue;
    r = along(&x, i, -1, &want, &got, &allowed);
    if (r == FINITE_DIFFERS) r = name_element(&x, i);
  }
  if (r == FINITE_SAME && (r = along(&x, NONE, -1, &want, &got, &allowed)) == FINITE_DIFFERS)
    buf_printf(error, "along all parameters the gradient says %.17g, the tangent %.17g +- %.3g",
               want, got, allowed);
  for (uint32_t i = 0; i < n; i++) {
    free(arg[i]->tangent);
    arg[i]->tangent = NULL;
  }
  free(x.arg);
  interp_free(x.loss);
  return r;
}

FiniteResult tangent_check(const Module *loss_m, Id loss, const Module *step_m, Id step,
                           const ArgOptions *o, double *worst, Buf *error) {
  const Fn *lf = &loss_m->fn.at[loss];
  InterpOptions io = {.step = 1, .scale = true, .unit = 0x1p-53};
  ArgOptions ao = *o;
  ao.zero_inout = true;
  Activation s = activation_new(step_m, step, &ao), a = activation_new(loss_m, loss, &ao);
  Tensor **gradient = calloc(lf->arg.n + 1, sizeof *gradient);
  FiniteResult r = activation_run(&s, &io, error) ? FINITE_SAME : FINITE_FAILS;
  for (uint32_t i = 0; i < lf->arg.n; i++) {
    uint32_t g = arg_named(&step_m->fn.at[step],
                           str_printf("$grad.%s", lf->value.at[lf->arg.at[i]].name));
    if (g != NONE) gradient[i] = s.arg[g];
  }
  if (r == FINITE_SAME)
    r = tangent_compare(loss_m, loss, a.arg, gradient, &io, ao.seed, worst, error);
  free(gradient);
  activation_free(&a);
  activation_free(&s);
  return r;
}
