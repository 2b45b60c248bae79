#include "tests/oracle/oracle.h"

#include <math.h>
#include <stdlib.h>

static uint64_t mix(uint64_t z) {
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

static uint64_t hash_name(const char *s, uint64_t h) {
  for (; *s; s++) h = mix(h ^ (unsigned char)*s) + UINT64_C(0x9e3779b97f4a7c15);
  return h;
}

static void fill_ints(const Module *m, const Value *v, uint32_t position, uint64_t h, Tensor *t) {
  int64_t lo = 0, hi = v->type == DT_BOOL ? 2 : 4;
  for (uint32_t i = 0; i < m->range.n; i++)
    if (m->range.at[i].arg == position && position < m->ndata)
      lo = m->range.at[i].lo, hi = m->range.at[i].hi;
  if (lo < -4 && hi > 0) lo = -1; // ignored targets and the like: the common case matters more
  for (int64_t i = 0; i < tensor_count(t); i++)
    t->integer[i] = (int32_t)(lo + (int64_t)(mix(h + (uint64_t)i) >> 1) % (hi - lo));
}

static void fill_reals(const ArgOptions *o, uint64_t h, Tensor *t) {
  double spread = o->spread > 0 ? o->spread : 1;
  for (int64_t i = 0; i < tensor_count(t); i++) {
    double u = (double)(mix(h + (uint64_t)i) >> 11) * 0x1p-53;
    t->real[i] = o->small ? floor(u * 7) - 3 : (float)((2 * u - 1) * spread);
  }
}

Activation activation_new(const Module *m, Id fn, const ArgOptions *o) {
  const Fn *f = &m->fn.at[fn];
  Activation a = {.m = m, .fn = fn, .narg = f->arg.n, .nresult = f->result.n};
  a.arg = calloc(f->arg.n + 1, sizeof *a.arg);
  for (uint32_t i = 0; i < f->arg.n; i++) {
    const Value *v = &f->value.at[f->arg.at[i]];
    Tensor *t = a.arg[i] = tensor_like(v);
    uint64_t h = hash_name(v->name, mix(o->seed + 1));
    if (v->role == ROLE_INOUT && o->zero_inout) continue;
    if (!strcmp(v->name, "$first") && t->integer) continue;
    if (!strcmp(v->name, "$batch") && t->integer) t->integer[0] = (int32_t)m->train.batch;
    else if (t->integer) fill_ints(m, v, i, h, t);
    else fill_reals(o, h, t);
    for (int64_t e = 0; t->real && is_half(v->type) && e < tensor_count(t); e++)
      t->real[e] = interp_round(v->type, t->real[e]);
  }
  return a;
}

void activation_free(Activation *a) {
  for (uint32_t i = 0; i < a->narg && a->arg; i++) tensor_free(a->arg[i]);
  for (uint32_t i = 0; i < a->nresult && a->result; i++) tensor_free(a->result[i]);
  free(a->arg);
  free(a->result);
  *a = (Activation){0};
}

bool activation_run(Activation *a, const InterpOptions *o, Buf *error) {
  Tensor **result = calloc(a->nresult + 1, sizeof *result);
  if (interp_run(a->m, a->fn, a->arg, result, o, error)) {
    a->result = result;
    return true;
  }
  free(result);
  return false;
}

// What float32 flushes or rounds to 0 is no error.
static double smallest(double unit) { return unit > 1e-10 ? 1e-36 : 1e-300; }

// Whether `got` may stand for `want`. A number may be anything where its bound is not known, as
// rounding may have decided about an infinity. What is NaN or infinite must not become a number:
// only a guard takes such a value away. doc/ir.md lets a guard move outwards, over an infinite
// factor, and 0 * inf is 0 then; no pass does that today, and one that does must be allowed for here.
static bool alike(double want, double got, double scale, double bound) {
  if (want == got || (isnan(want) && isnan(got))) return true;
  if (!isfinite(want)) return isinf(want) && !isfinite(got) && !isfinite(scale);
  return !isfinite(scale) || fabs(want - got) <= bound;
}

static bool tensor_same(const char *name, const Tensor *want, const Tensor *got, double allowed,
                        double least, Buf *error) {
  for (int64_t i = 0; i < tensor_count(want); i++) {
    double w = want->real ? want->real[i] : want->integer[i],
           g = got->real ? got->real[i] : got->integer[i];
    double scale = want->scale ? want->scale[i] : 0;
    if (alike(w, g, scale, allowed * scale + least))
      continue;
    buf_printf(error, "%s[%lld] is %.17g, should be %.17g +- %.3g", name, (long long)i, g, w,
               allowed * scale);
    return false;
  }
  return true;
}

bool activation_same(const Activation *want, const Activation *got, double factor, double unit,
                     Buf *error) {
  const Fn *f = &want->m->fn.at[want->fn], *g = &got->m->fn.at[got->fn];
  if (want->narg != got->narg || want->nresult != got->nresult) {
    buf_printf(error, "another signature");
    return false;
  }
  for (uint32_t i = 0; i < want->nresult; i++)
    if (!tensor_same(g->value.at[g->result.at[i]].name, want->result[i], got->result[i],
                     factor * unit, smallest(unit), error))
      return false;
  for (uint32_t i = 0; i < want->narg; i++)
    if (f->value.at[f->arg.at[i]].role == ROLE_INOUT &&
        !tensor_same(g->value.at[g->arg.at[i]].name, want->arg[i], got->arg[i], factor * unit,
                     smallest(unit), error))
      return false;
  return true;
}
