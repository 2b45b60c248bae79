// --verify-run in bf16 and fp16, and where gradients are reduced in bf16. Roundings to 16 bits are too large for bounds of first order, so each tensor's error
// as a whole is held against two measures (doc/numerics.md):
//   - what correct layouts have in layer l of L: 4 * 1.03^(L + 1 - l) roundings of the tensor's norm (TTrace);
//   - three times the error of the interpreter on one rank, where it rounds as the IR says. A tensor whose terms cancel
//     is as far off there.
// The greater of the two is allowed, but no more than a part of the whole gradient's root mean square or of the
// tensor's: where the interpreter is off by more, a value is rounded that must not be.
#include <math.h>
#include <stdlib.h>

#include "driver/verify_run.h"

static const double ROUNDINGS = 4, BY_LAYER = 1.03, OWN = 3;
// The interpreter's error counts as at least this part of a rounding of the gradient's root mean square: that of a
// tensor of few elements may be small by chance.
static const double LEAST = 0.25, MOST = 64;

typedef struct Half {
  const VerifyRun *v;
  const StepOutcome *got, *own;
  double unit; // a rounding, relative
  double typical; // the root mean square of the whole gradient
  double squares, allowed; // of the tensors so far, sums
  double worst; // error in units of the allowed one
  FILE *out;
} Half;

// The extent of a parameter's stacks, of all that begin with the same name, and 0 outside stacks.
static int64_t layers_like(const Module *m, const Param *p) {
  int64_t most = 0;
  size_t n = strcspn(p->name, "*");
  for (uint32_t i = 0; p->nstack && i < m->param.n; i++) {
    const Param *x = &m->param.at[i];
    if (x->nstack && strcspn(x->name, "*") == n && !strncmp(x->name, p->name, n))
      most = verify_instances(x) > most ? verify_instances(x) : most;
  }
  return most;
}

// L: the layers of all stacks.
static int64_t layers(const Module *m) {
  int64_t n = 0;
  for (uint32_t i = 0; i < m->param.n; i++) {
    const Param *p = &m->param.at[i];
    bool met = false;
    for (uint32_t k = 0; k < i; k++) {
      size_t same = strcspn(p->name, "*");
      met |= m->param.at[k].nstack && strcspn(m->param.at[k].name, "*") == same &&
             !strncmp(m->param.at[k].name, p->name, same);
    }
    if (!met) n += layers_like(m, p);
  }
  return n;
}

typedef struct Row {
  int64_t count;
  double largest, error, own, norm; // squares, but the first
  double worst;
} Row;

// One instance: want in float64.
static void compare(const Half *h, Row *row, const double *want, const double *got, const double *own, int64_t n,
                    int64_t layer, double *allowed) {
  double error = 0, off = 0, norm = 0;
  for (int64_t i = 0; i < n; i++) {
    double d = fabs(got[i] - want[i]);
    if (!(d <= row->largest)) row->largest = d;
    error += d * d;
    off += (own[i] - want[i]) * (own[i] - want[i]);
    norm += want[i] * want[i];
  }
  double typical = h->typical * sqrt((double)n), depth = (double)(layers(h->v->source->loss) + 1 - layer);
  double by_own = fmin(OWN * fmax(sqrt(off), LEAST * h->unit * typical), MOST * h->unit * fmax(typical, sqrt(norm)));
  double most = fmax(ROUNDINGS * pow(BY_LAYER, depth) * h->unit * sqrt(norm), by_own);
  double part = error == 0 ? 0 : sqrt(error) / most;
  row->count += n;
  row->error += error;
  row->own += off;
  row->norm += norm;
  if (!(part <= row->worst)) row->worst = isnan(part) ? INFINITY : part;
  *allowed += most * most;
}

static double relative(double squares, double norm) { return norm > 0 ? sqrt(squares / norm) : sqrt(squares); }

static bool compare_param(Half *h, uint32_t p) {
  const Param *x = &h->v->source->loss->param.at[p];
  const Tensor *g = h->v->source->grad[p];
  int64_t n = verify_instances(x), each = tensor_count(g) / n;
  double *got = malloc(2 * (size_t)each * sizeof *got + 1), *own = got + each;
  ALLOCATED(got);
  Row row = {0};
  bool ok = true;
  for (int64_t s = 0; ok && s < n; s++) {
    Str name = verify_instance(x, s);
    ok = verify_read(h->v, &h->got->gradient, name, each, got) && verify_read(h->v, &h->own->gradient, name, each, own);
    if (ok) compare(h, &row, g->real + s * each, got, own, each, s, &h->allowed);
  }
  free(got);
  if (!ok) return false;
  fprintf(h->out, "%-40s %11lld  %8.2g  %8.2g  %8.2g  %8.2g%s\n", x->name, (long long)row.count, row.largest,
          relative(row.error, row.norm), relative(row.own, row.norm), row.worst, row.worst <= 1 ? "" : "  WRONG");
  h->worst = fmax(h->worst, row.worst);
  h->squares += row.norm;
  return true;
}

static double root_mean_square(const Source *s) {
  double sum = 0, n = 0;
  for (uint32_t p = 0; p < s->loss->param.n; p++) {
    n += (double)tensor_count(s->grad[p]);
    for (int64_t i = 0; i < tensor_count(s->grad[p]); i++) sum += s->grad[p]->real[i] * s->grad[p]->real[i];
  }
  return n > 0 ? sqrt(sum / n) : 0;
}

// A number of the log's against what is allowed.
static void compare_number(Half *h, const char *name, double got, double want, double allowed) {
  double part = got == want ? 0 : fabs(got - want) / allowed;
  if (isnan(part)) part = INFINITY;
  fprintf(h->out, "%-14s %.9g, in float64 %.17g: %.2g of the allowed error%s\n", name, got, want, part,
          part <= 1 ? "" : "  WRONG");
  h->worst = fmax(h->worst, part);
}

// Ranks send no losses in bf16, so that of an fp32 program has the bound of its roundings.
static double allowed_of_loss(const VerifyRun *v, const StepOutcome *own) {
  const Source *s = v->source;
  if (!is_half(v->rounded->store)) return 2 * 0x1p-24 * s->value_bound;
  double unit = v->rounded->store == DT_F16 ? 0x1p-11 : 0x1p-8;
  return fmax(unit * fabs(s->value), OWN * fabs(own->loss - s->value));
}

int verify_half(const VerifyRun *v, const StepOutcome *got, const StepOutcome *own, FILE *out) {
  const Source *s = v->source;
  Half h = {.v = v, .got = got, .own = own, .out = out};
  bool fp16 = !strcmp(v->precision, "fp16");
  h.unit = fp16 && !v->reduces_bf16 ? 0x1p-11 : 0x1p-8;
  h.typical = root_mean_square(s);
  fprintf(out, "%-40s %11s  %8s  %8s  %8s  %8s\n", "gradient of", "elements", "largest", "relative", "one rank",
          "of bound");
  for (uint32_t p = 0; p < s->loss->param.n; p++)
    if (!compare_param(&h, p)) return EXIT_MODEL;
  fputs("\n", out);
  compare_number(&h, "loss", got->loss, s->value, allowed_of_loss(v, own));
  compare_number(&h, "gradient norm", got->norm, sqrt(h.squares), sqrt(h.allowed));
  fprintf(out, "forward mode agrees with the gradient in float64: %.2g of the allowed error\n", s->slope);
  fprintf(out,
          h.worst <= 1 ? "right: the largest error is %.2g of the error allowed in %s (doc/numerics.md)\n"
                       : "WRONG: the largest error is %.2g times the error allowed in %s (doc/numerics.md)\n",
          h.worst, v->precision);
  return h.worst <= 1 ? 0 : EXIT_MODEL;
}
