#include <math.h>
#include <stdlib.h>

#include "tests/oracle/oracle.h"

// A function's arguments and results on every rank.
typedef struct OnRanks {
  const Module *whole, *local;
  const Fn *f; // of the global form
  int64_t n;
  Tensor ***arg, ***result;
} OnRanks;

static Tensor ***rows(int64_t n, uint32_t each) {
  Tensor ***row = calloc((size_t)n, sizeof *row);
  CHECK(row);
  for (int64_t r = 0; r < n; r++) {
    row[r] = calloc(each + 1, sizeof **row);
    CHECK(row[r]);
  }
  return row;
}

static void free_rows(Tensor ***row, int64_t n, uint32_t each) {
  for (int64_t r = 0; r < n; r++) {
    for (uint32_t i = 0; i < each; i++) tensor_free(row[r][i]);
    free(row[r]);
  }
  free(row);
}

static OnRanks shares(const Module *whole, const Module *local, Id fn, const Activation *a) {
  const Fn *f = &whole->fn.at[fn];
  OnRanks x = {whole, local, f, mesh_size(local), NULL, NULL};
  x.arg = rows(x.n, f->arg.n);
  x.result = rows(x.n, f->result.n);
  for (int64_t r = 0; r < x.n; r++)
    for (uint32_t i = 0; i < f->arg.n; i++)
      x.arg[r][i] = tensor_share(whole, f->value.at[f->arg.at[i]].shard, a->arg[i], r);
  return x;
}

static bool run(OnRanks *x, Id fn, const InterpOptions *o, Buf *error) {
  const Module **m = malloc((size_t)x->n * sizeof *m);
  CHECK(m);
  for (int64_t r = 0; r < x->n; r++) m[r] = x->local;
  bool ok = interp_ranks(m, fn, (Tensor *const *const *)x->arg, x->result, o, error);
  free(m);
  return ok;
}

static double difference(const Tensor *want, const Tensor *got) {
  double most = 1e-3, worst = 0;
  for (int64_t i = 0, n = tensor_count(want); i < n; i++) {
    double w = want->real ? want->real[i] : want->integer[i];
    double g = got->real ? got->real[i] : got->integer[i];
    if (w == g || (isnan(w) && isnan(g))) continue;
    most = fmax(most, isfinite(w) ? fabs(w) : 0);
    double d = fabs(w - g);
    if (!(d <= worst)) worst = d; // a NaN stays
  }
  for (int64_t i = 0, n = tensor_count(want); want->real && i < n; i++)
    if (isfinite(want->real[i])) most = fmax(most, fabs(want->real[i]));
  return worst / most;
}

// One value: column `at` of the rows against what it should be.
static bool same(OnRanks *x, Id value, Tensor ***row, uint32_t at, const Tensor *want,
                 double *worst, Buf *error) {
  const Value *v = &x->f->value.at[value];
  Tensor **share = malloc((size_t)x->n * sizeof *share);
  CHECK(share);
  for (int64_t r = 0; r < x->n; r++) share[r] = row[r][at];
  Tensor *got = tensor_gather(x->whole, v->shard, share, v->extent, error);
  free(share);
  if (!got) {
    buf_printf(error, " (`%s`)", v->name);
    return false;
  }
  double d = difference(want, got);
  tensor_free(got);
  if (!(d <= *worst)) *worst = d;
  return true;
}

static bool all_same(OnRanks *x, const Activation *want, double *worst, Buf *error) {
  for (uint32_t i = 0; i < x->f->result.n; i++)
    if (!same(x, x->f->result.at[i], x->result, i, want->result[i], worst, error)) return false;
  for (uint32_t i = 0; i < x->f->arg.n; i++)
    if (x->f->value.at[x->f->arg.at[i]].role == ROLE_INOUT &&
        !same(x, x->f->arg.at[i], x->arg, i, want->arg[i], worst, error))
      return false;
  return true;
}

bool ranks_compare(const Module *whole, const Module *local, Id fn, const ArgOptions *a,
                   const InterpOptions *o, double *worst, Buf *error) {
  return ranks_compare_to(whole, fn, whole, local, fn, a, o, worst, error);
}

bool ranks_compare_to(const Module *plain, Id plain_fn, const Module *whole, const Module *local,
                      Id fn, const ArgOptions *a, const InterpOptions *o, double *worst,
                      Buf *error) {
  Activation want = activation_new(plain, plain_fn, a);
  OnRanks x = shares(whole, local, fn, &want);
  *worst = 0;
  bool ok = activation_run(&want, o, error) && run(&x, fn, o, error);
  if (ok) ok = all_same(&x, &want, worst, error);
  free_rows(x.arg, x.n, x.f->arg.n);
  free_rows(x.result, x.n, x.f->result.n);
  activation_free(&want);
  return ok;
}
