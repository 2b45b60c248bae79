#include "tests/gradient/support/case.h"

#include <math.h>
#include <stdlib.h>

#include "codegen/target.h"
#include "driver/passes.h"
#include "frontend/frontend.h"
#include "ir/text/text.h"
#include "ir/verify.h"

Module *case_compile(Arena *a, const Case *c, Str precision, bool whole) {
  Str define[MAX_DEFINES + 2];
  uint32_t n = 0;
  for (; n < c->ndefine; n++) define[n] = c->define[n];
  define[n++] = str_printf("train.precision=%s", precision);
  FrontendOptions o = {
      .path = c->path, .stdlib = str_intern(SOURCE_DIR "/stdlib"), .define = define, .ndefine = n};
  Sources *s = sources_new(a);
  s->out = stdout;
  Module *m = frontend_compile(a, s, &o);
  if (!m || !whole) return m;
  define[o.ndefine++] = str_printf("train.microbatch=%lld", (long long)m->train.batch);
  return frontend_compile(a, s, &o);
}

Module *case_copy(const Case *c, Arena *a, const Module *m, Str after) {
  Sources *s = sources_new(a);
  s->out = stdout;
  Buf one = {0}, two = {0}, why = {0};
  ir_print(m, &one);
  const char *text = arena_copy(a, one.text, one.n + 1);
  Module *copy = ir_parse(a, s, str_intern("printed.ir"), text, one.n);
  bool ok = copy && ir_verify(copy, &why);
  if (ok) ir_print(copy, &two);
  bool same = ok && one.n == two.n && !memcmp(one.text, two.text, one.n);
  if (!ok) printf("%s: after %s: what is printed is no program: ", c->name, after);
  else if (!same) printf("%s: after %s: it prints differently after parsing", c->name, after);
  if (!same) printf("%s\n", why.n ? why.text : "");
  buf_free(&one);
  buf_free(&two);
  buf_free(&why);
  return same ? copy : NULL;
}

static bool round_trip(const Case *c, const Module *m, Str after) {
  Arena *a = arena_new();
  bool ok = case_copy(c, a, m, after);
  arena_free(a);
  return ok;
}

static bool content(const Case *c, const Module *m, Str after, bool ranged) {
  Buf why = {0};
  bool ok = ir_verify(m, &why) && (!ranged || ir_verify_ranges(m, &why));
  if (!ok) printf("%s: after %s: %s\n", c->name, after, why.text);
  buf_free(&why);
  return ok && round_trip(c, m, after);
}

bool case_passes(const Case *c, Module *m, Str from, Str until) {
  bool on = !from, ranged = false;
  if (!m->target) target_use(m, target_named("cpu"));
  if (on && !content(c, m, "the front end", false)) return false;
  for (int i = 0; i < pass_count; i++) {
    const Pass *p = &pass_table[i];
    ranged |= !strcmp(p->name, "range");
    on |= from && !strcmp(p->name, from);
    if (on && !p->run(m)) return printf("%s: pass %s reports errors\n", c->name, p->name), false;
    if (on && !content(c, m, p->name, ranged)) return false;
    if (until && !strcmp(p->name, until)) break;
  }
  return true;
}

// ---- inputs

static uint64_t next(uint64_t *state) { // splitmix64
  uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

static double normal(uint64_t *state) {
  double u = (double)(next(state) >> 11) * 0x1p-53, v = (double)(next(state) >> 11) * 0x1p-53;
  return (float)(sqrt(-2 * log(1 - u)) * cos(6.283185307179586 * v));
}

// Whole numbers in the range that the data must have. Where it has no end below, one in seven is
// negative: a target that does not count.
static void fill_data(const Module *m, uint32_t i, Tensor *t, uint64_t *state) {
  int64_t lo = 0, hi = 2;
  for (uint32_t k = 0; k < m->range.n; k++)
    if (m->range.at[k].arg == i) lo = m->range.at[k].lo, hi = m->range.at[k].hi;
  for (int64_t e = 0; e < tensor_count(t); e++) {
    if (t->real) {
      t->real[e] = normal(state);
      continue;
    }
    bool ignored = lo < -1000 && next(state) % 7 == 0;
    int64_t first = lo < -1000 ? 0 : lo;
    t->integer[e] = ignored ? -1
                            : (int32_t)(first + (int64_t)(next(state) % (uint64_t)(hi - first)));
  }
}

// No parameter is what it starts as in training: zero biases would hide what is lost.
static Tensor *random_param(const Param *p, uint64_t *state) {
  Tensor *t = tensor_new(DT_REAL, p->extent, p->rank);
  double in = 1, around = p->init == INIT_ONES ? 1 : 0;
  for (int d = 0; d < p->bar; d++) in *= (double)p->extent[p->nstack + d];
  double spread = p->bar > 0 ? 1 / sqrt(in) : 0.4;
  for (int64_t e = 0; e < tensor_count(t); e++)
    t->real[e] = (float)(around + spread * normal(state));
  return t;
}

Inputs inputs_new(const Module *m, uint64_t seed) {
  const Fn *f = &m->fn.at[m->entry[ENTRY_STEP]];
  Inputs in = {.ndata = m->ndata,
               .nparam = m->param.n,
               .batch = m->train.batch,
               .micro = m->train.microbatch};
  in.parts = (in.batch + in.micro - 1) / in.micro;
  in.data = calloc(in.ndata + 1, sizeof *in.data);
  in.param = calloc(in.nparam + 1, sizeof *in.param);
  uint64_t state = seed;
  for (uint32_t i = 0; i < in.ndata; i++) {
    const Value *v = &f->value.at[f->arg.at[i]];
    int64_t extent[MAX_RANK];
    memcpy(extent, v->extent, sizeof extent);
    CHECK(extent[0] == in.micro);
    extent[0] *= in.parts;
    in.data[i] = tensor_new(v->type, extent, v->rank);
    fill_data(m, i, in.data[i], &state);
  }
  for (uint32_t i = 0; i < in.nparam; i++) in.param[i] = random_param(&m->param.at[i], &state);
  return in;
}

void inputs_free(Inputs *in) {
  for (uint32_t i = 0; i < in->ndata; i++) tensor_free(in->data[i]);
  for (uint32_t i = 0; i < in->nparam; i++) tensor_free(in->param[i]);
  free(in->data);
  free(in->param);
}

Tensor *inputs_slice(const Inputs *in, uint32_t i, int64_t from, int64_t n) {
  const Tensor *all = in->data[i];
  int64_t extent[MAX_RANK], sample = tensor_count(all) / all->extent[0];
  memcpy(extent, all->extent, sizeof extent);
  extent[0] = n;
  Tensor *t = tensor_new(all->type, extent, all->rank);
  size_t at = (size_t)(from * sample), count = (size_t)(n * sample);
  if (t->real) memcpy(t->real, all->real + at, count * sizeof *t->real);
  else memcpy(t->integer, all->integer + at, count * sizeof *t->integer);
  return t;
}

// ---- outcomes

void outcome_free(Outcome *r) {
  for (uint32_t i = 0; r->grad && i < r->nparam; i++) tensor_free(r->grad[i]);
  free(r->grad);
  free(r->out);
  free(r->out_scale);
  *r = (Outcome){0};
}

// One tensor against another.
typedef struct Compare {
  const Case *c;
  Tolerance t;
  Str what, name;
  SameCount *n;
} Compare;

static bool same(const Compare *x, const double *want, const double *got, const double *scale,
                 const double *spread, int64_t count) {
  bool exact = !spread;
  for (int64_t i = 0; i < count; i++) {
    double bound = scale ? scale[i] : 0, error = fabs(got[i] - want[i]);
    x->n->elements++;
    if (!exact && !isfinite(bound)) {
      x->n->left_out++;
      continue;
    }
    double allowed = exact ? 0 : fmin(x->t.bound * bound, x->t.noise * spread[i]);
    if (allowed > 0) x->n->worst = fmax(x->n->worst, error / allowed);
    if (want[i] == got[i] || (!exact && error <= allowed)) continue;
    printf("%s: %s: %s[%lld] is %.17g, should be %.17g +- %.3g\n", x->c->name, x->what, x->name,
           (long long)i, got[i], want[i], allowed);
    return false;
  }
  return true;
}

bool outcome_same(const Case *c, const Outcome *want, const Outcome *got, Tolerance t, Str what,
                  SameCount *n) {
  CHECK(want->nout == got->nout && want->parts == got->parts && want->nparam == got->nparam);
  CHECK(!want->grad == !got->grad);
  Compare x = {c, t, what, str_intern("loss and metrics"), n};
  const Outcome *s = t.spread;
  if (!same(&x, want->out, got->out, want->out_scale, s ? s->out : NULL, want->nout * want->parts))
    return false;
  for (uint32_t p = 0; want->grad && p < want->nparam; p++) {
    const Tensor *w = want->grad[p], *g = got->grad[p];
    x.name = str_printf("gradient of %s", want->param ? want->param[p].name : "a parameter");
    const double *spread = s ? s->grad[p]->real : NULL;
    if (!same(&x, w->real, g->real, w->scale, spread, tensor_count(w))) return false;
  }
  return true;
}
