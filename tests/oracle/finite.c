// Central differences.
#include <math.h>
#include <stdlib.h>

#include "tests/oracle/oracle.h"

typedef struct Finite {
  const FiniteOptions *o;
  Interp *loss;
  Id loss_fn;
  Activation at; // of the loss
  Tensor **gradient, **direction,
      **start; // by argument of the loss; gradient NULL for what has none
  uint64_t rng;
  Buf *error;
} Finite;

static double uniform(Finite *x) {
  uint64_t z = x->rng += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

// The loss at start + h * direction, and which way it went at kinks.
static bool value_at(Finite *x, double h, double *loss, uint64_t *ways) {
  for (uint32_t i = 0; i < x->at.narg; i++)
    for (int64_t e = 0; x->gradient[i] && e < tensor_count(x->start[i]); e++)
      x->at.arg[i]->real[e] = x->start[i]->real[e] + h * x->direction[i]->real[e];
  Tensor **result = calloc(x->at.nresult + 1, sizeof *result);
  *ways = 0;
  InterpOptions io = {.step = 1, .ways = ways};
  bool ok = interp_call(x->loss, x->loss_fn, x->at.arg, result, &io, x->error);
  if (ok) *loss = result[0]->real[0];
  for (uint32_t i = 0; ok && i < x->at.nresult; i++) tensor_free(result[i]);
  free(result);
  return ok;
}

// The derivative along the direction, by steps h and h / 2: their difference tells how good it is.
// *kink: some comparison or maximum goes another way within reach.
static bool derivative(Finite *x, double h, double *value, double *doubt, bool *kink) {
  double l[4], base;
  uint64_t way, ways;
  static const double at[] = {1, -1, 0.5, -0.5};
  if (!value_at(x, 0, &base, &way)) return false;
  *kink = false;
  for (int i = 0; i < 4; i++) {
    if (!value_at(x, at[i] * h, &l[i], &ways)) return false;
    *kink |= ways != way;
  }
  double wide = (l[0] - l[1]) / (2 * h), narrow = (l[2] - l[3]) / h;
  *value = (4 * narrow - wide) / 3;
  *doubt = fabs(narrow - wide) + 4e-16 * (fabs(base) + fabs(l[0])) / h;
  return true;
}

// A derivative that is not the gradient's.
typedef struct Found {
  bool differs;
  double got, allowed, doubt, h;
} Found;

static FiniteResult along(Finite *x, const char *name) {
  double want = 0, norm = 0;
  for (uint32_t i = 0; i < x->at.narg; i++)
    for (int64_t e = 0; x->gradient[i] && e < tensor_count(x->start[i]); e++) {
      double part = x->gradient[i]->real[e] * x->direction[i]->real[e];
      want += part;
      norm += part * part;
    }
  double tolerance = x->o->tolerance > 0 ? x->o->tolerance : 1e-6;
  Found last = {0};
  // Where a loss turns many times within a step, the two steps may agree by chance: a difference counts if a shorter step
  // finds the same derivative, or if there is none that says otherwise.
  for (double h = 1e-3; h > (last.differs ? 1e-10 : 1e-6); h /= 8) {
    double got, doubt;
    bool kink;
    if (!derivative(x, h, &got, &doubt, &kink)) return FINITE_FAILS;
    if (kink) continue;
    double allowed = tolerance * (sqrt(norm) + fabs(got) + 1e-3) + 3 * doubt;
    if (doubt > 0.05 * (sqrt(norm) + fabs(got) + 1e-3) && h > 2e-6) continue;
    if (fabs(got - want) <= allowed) return FINITE_SAME;
    bool again = last.differs && fabs(got - last.got) <= allowed + last.allowed;
    last = (Found){true, got, allowed, doubt, h};
    if (again) break;
  }
  if (!last.differs) return FINITE_KINK;
  buf_printf(x->error, "along %s the loss grows by %.12g, the gradient says %.12g (step %.1e, doubt %.1e)", name, last.got,
             want, last.h, last.doubt);
  return FINITE_DIFFERS;
}

// Random in one parameter (or in all: which is NONE), zero elsewhere.
static void aim(Finite *x, uint32_t which) {
  for (uint32_t i = 0; i < x->at.narg; i++)
    for (int64_t e = 0; x->gradient[i] && e < tensor_count(x->start[i]); e++)
      x->direction[i]->real[e] = which == NONE || which == i ? 2 * uniform(x) - 1 : 0;
}

static FiniteResult all_directions(Finite *x, const Fn *loss) {
  FiniteResult worst = FINITE_SAME;
  int n = x->o->directions > 0 ? x->o->directions : 1;
  for (uint32_t i = 0; i <= x->at.narg; i++) {
    if (i < x->at.narg && !x->gradient[i]) continue;
    FiniteResult r = FINITE_KINK;
    for (int k = 0, tries = 0; k < n && tries < n + 4; tries++) {
      aim(x, i < x->at.narg ? i : NONE);
      FiniteResult one =
          along(x, i < x->at.narg ? loss->value.at[loss->arg.at[i]].name : "all parameters");
      if (one == FINITE_DIFFERS || one == FINITE_FAILS) return one;
      if (one == FINITE_SAME) r = one, k++;
    }
    if (r == FINITE_KINK) worst = r;
  }
  return worst;
}

uint32_t arg_named(const Fn *f, const char *name) {
  for (uint32_t i = 0; i < f->arg.n; i++)
    if (!strcmp(f->value.at[f->arg.at[i]].name, name)) return i;
  return NONE;
}

FiniteResult finite_check(const Module *loss_m, Id loss, const Module *step_m, Id step,
                          const FiniteOptions *o, Buf *error) {
  const Fn *lf = &loss_m->fn.at[loss], *sf = &step_m->fn.at[step];
  ArgOptions ao = o->arg;
  ao.zero_inout = true;
  Activation s = activation_new(step_m, step, &ao);
  if (!activation_run(&s, &(InterpOptions){.step = 1}, error))
    return activation_free(&s), FINITE_FAILS;
  Activation start = activation_new(loss_m, loss, &ao);
  Finite x = {.o = o,
              .loss = interp_new(loss_m),
              .loss_fn = loss,
              .at = activation_new(loss_m, loss, &ao),
              .start = start.arg,
              .rng = ao.seed,
              .error = error};
  x.gradient = calloc(lf->arg.n + 1, sizeof *x.gradient);
  x.direction = calloc(lf->arg.n + 1, sizeof *x.direction);
  for (uint32_t i = 0; i < lf->arg.n; i++) {
    const Value *v = &lf->value.at[lf->arg.at[i]];
    uint32_t g = arg_named(sf, str_printf("$grad.%s", v->name));
    if (g == NONE) continue;
    x.gradient[i] = s.arg[g];
    x.direction[i] = tensor_like(v);
  }
  FiniteResult r = all_directions(&x, lf);
  for (uint32_t i = 0; i < lf->arg.n; i++) tensor_free(x.direction[i]);
  free(x.gradient);
  free(x.direction);
  interp_free(x.loss);
  activation_free(&x.at);
  activation_free(&start);
  activation_free(&s);
  return r;
}
