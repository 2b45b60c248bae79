// For every program of tests/passes/batch: a batch of 5 samples run whole, as the model was
// written, gives the same loss, metrics and gradients as three microbatches of 2, the last with a
// sample of padding, run by what batch and differentiate make of it and added up. "@B" in the text
// is the extent of the batch.
#include <math.h>
#include <stdlib.h>

#include "support/load.h"

enum { WHOLE = 5, PART = 2, MAX_ARGS = 64, PATH = 8192 };

typedef struct Run {
  const Module *whole, *part;
  const char *path;
  Tensor *arg[MAX_ARGS]; // of the whole batch: data, parameters, gradients
  Tensor *got[MAX_ARGS]; // of a microbatch: data, first, batch, totals, parameters, gradients
  double total[16];
} Run;

// Samples [first, first + PART) of a data argument; past the end, numbers that must not matter.
static void take_samples(const Tensor *from, Tensor *to, int first, Rng *junk) {
  int64_t row = tensor_count(to) / PART;
  for (int64_t i = 0; i < PART * row; i++) {
    int64_t at = first * row + i, last = tensor_count(from) - 1;
    if (to->real) to->real[i] = at <= last ? from->real[at] : rng_normal(junk);
    else to->integer[i] = from->integer[at <= last ? at : last];
  }
}

static void set_int(Tensor *t, int v) { t->integer[0] = v; }

static bool run_microbatch(Run *r, Id fn, int first, uint32_t ntotal, double *sum, Rng *junk) {
  const Fn *f = &r->part->fn.at[fn];
  Tensor *result[16];
  for (uint32_t i = 0; i < r->part->ndata; i++) take_samples(r->arg[i], r->got[i], first, junk);
  set_int(r->got[r->part->ndata], first);
  set_int(r->got[r->part->ndata + 1], WHOLE);
  for (uint32_t i = 0; i < ntotal; i++) r->got[r->part->ndata + 2 + i]->real[0] = r->total[i];
  if (!run_fn(r->part, fn, r->got, result, NULL)) return false;
  for (uint32_t i = 0; i < f->result.n; i++) {
    sum[i] += result[i]->real[0];
    tensor_free(result[i]);
  }
  return true;
}

static bool run_batch(Run *r, Id fn, uint32_t ntotal, double *sum) {
  Rng junk = {.state = 99};
  for (int i = 0; i < 16; i++) sum[i] = 0;
  for (int first = 0; first < WHOLE; first += PART)
    if (!run_microbatch(r, fn, first, ntotal, sum, &junk)) return false;
  return true;
}

static double far(double a, double b) { return fabs(a - b) / (1 + fabs(a)); }

static bool compare(Run *r) {
  Rng rng = {.state = 4321};
  const Fn *f = &r->whole->fn.at[r->whole->entry[ENTRY_STEP]],
           *g = &r->part->fn.at[r->part->entry[ENTRY_STEP]];
  uint32_t ndata = r->whole->ndata, nparam = r->whole->param.n, ntotal = g->arg.n - f->arg.n - 2;
  for (uint32_t i = 0; i < f->arg.n; i++)
    r->arg[i] = i < ndata + nparam ? random_arg(r->whole, f, i, &rng)
                                   : tensor_like(&f->value.at[f->arg.at[i]]);
  for (uint32_t i = 0; i < g->arg.n; i++) r->got[i] = tensor_like(&g->value.at[g->arg.at[i]]);
  uint32_t at = ndata + 2 + ntotal;
  for (uint32_t p = 0; p < nparam; p++)
    memcpy(r->got[at + p]->real, r->arg[ndata + p]->real,
           (size_t)tensor_count(r->arg[ndata + p]) * 8);
  Tensor *want[16];
  double sum[16], worst = 0;
  if (!run_fn(r->whole, r->whole->entry[ENTRY_STEP], r->arg, want, NULL)) return false;
  if (r->part->entry[ENTRY_COUNT] != NONE) {
    if (!run_batch(r, r->part->entry[ENTRY_COUNT], 0, sum)) return false;
    memcpy(r->total, sum, sizeof sum);
  }
  if (!run_batch(r, r->part->entry[ENTRY_STEP], ntotal, sum)) return false;
  for (uint32_t i = 0; i < f->result.n; i++) worst = fmax(worst, far(want[i]->real[0], sum[i]));
  for (uint32_t p = 0; p < nparam; p++) {
    const Tensor *a = r->arg[ndata + nparam + p], *b = r->got[at + nparam + p];
    for (int64_t i = 0; i < tensor_count(a); i++)
      if (!(far(a->real[i], b->real[i]) <= worst)) worst = far(a->real[i], b->real[i]);
  }
  for (uint32_t i = 0; i < f->result.n; i++) tensor_free(want[i]);
  for (uint32_t i = 0; i < f->arg.n; i++) tensor_free(r->arg[i]);
  for (uint32_t i = 0; i < g->arg.n; i++) tensor_free(r->got[i]);
  bool ok = worst < 1e-12;
  printf("%-4s %-60s error %.1e\n", ok ? "ok" : "FAIL", r->path, worst);
  return ok;
}

static bool check(const char *path) {
  Arena *a = arena_new();
  Run r = {.path = path};
  char *whole = load_text(path, WHOLE), *part = load_text(path, PART);
  Module *m = whole ? load_module(a, path, whole) : NULL,
         *n = part ? load_module(a, path, part) : NULL;
  bool ok = m && n && run_pass(m, "inline", path) && run_pass(m, "differentiate", path) &&
            run_pass(n, "inline", path) && run_pass(n, "batch", path) &&
            run_pass(n, "differentiate", path);
  r.whole = m;
  r.part = n;
  ok = ok && compare(&r);
  free(whole);
  free(part);
  arena_free(a);
  return ok;
}

int main(int argc, char **argv) {
  static char name[256][256];
  const char *dir = argc > 1 ? argv[1] : SOURCE_DIR "/tests/passes/batch";
  int n = list_files(dir, ".ir", name, 256), bad = 0;
  for (int i = 0; i < n; i++) {
    char path[PATH];
    snprintf(path, sizeof path, "%.4000s/%.255s", dir, name[i]);
    if (!check(path)) bad++;
  }
  printf("%d of %d programs failed\n", bad, n);
  return bad || !n;
}
