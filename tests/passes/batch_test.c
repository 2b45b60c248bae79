// For every program of tests/passes/batch: a batch of 5 samples run whole, as the model was
// written, gives the same loss, metrics and gradients as three microbatches of 2, the last with a
// sample of padding, run by what batch and differentiate make of it and added up. "@B" in the text
// is the extent of the batch. For those of tests/passes/local the microbatches are batches of 2, 2
// and 1 samples in their own right, of which each counts with its part of the samples.
#include <math.h>
#include <stdlib.h>

#include "support/load.h"

enum { WHOLE = 5, PART = 2, MAX_ARGS = 64, PATH = 8192 };

typedef struct Run {
  const Module *whole, *part; // as written, and cut into microbatches
  const Module *piece[WHOLE + 1]; // as written, for so many samples
  bool local;
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
  for (int first = 0; first < WHOLE + PART; first += PART) // the last one is all padding
    if (!run_microbatch(r, fn, first, ntotal, sum, &junk)) return false;
  return true;
}

// Adds weight * from to the numbers of `to`.
static void add(Tensor *to, const Tensor *from, double weight) {
  for (int64_t i = 0; i < tensor_count(to); i++) to->real[i] += weight * from->real[i];
}

// The step of m, a module before pass batch, on its samples from `first` on; results and gradients
// are added, weighed by its part of the samples.
static bool run_as_batch(Run *r, const Module *m, int first, double weight, Tensor **want) {
  const Fn *f = &m->fn.at[m->entry[ENTRY_STEP]];
  uint32_t ndata = m->ndata, nparam = m->param.n;
  Tensor *arg[MAX_ARGS], *result[16];
  for (uint32_t i = 0; i < f->arg.n; i++) {
    Tensor *t = arg[i] = tensor_like(&f->value.at[f->arg.at[i]]);
    int64_t from = i < ndata ? first * (tensor_count(t) / t->extent[0]) : 0;
    if (i >= ndata + nparam) continue;
    for (int64_t k = 0; k < tensor_count(t); k++)
      if (t->real) t->real[k] = r->arg[i]->real[from + k];
      else t->integer[k] = r->arg[i]->integer[from + k];
  }
  if (!run_fn(m, m->entry[ENTRY_STEP], arg, result, NULL)) return false;
  for (uint32_t i = 0; i < f->result.n; i++) {
    if (!first) want[i] = tensor_new(DT_REAL, NULL, 0);
    add(want[i], result[i], weight);
    tensor_free(result[i]);
  }
  for (uint32_t i = 0; i < f->arg.n; i++) {
    if (i >= ndata + nparam) add(r->arg[i], arg[i], weight);
    tensor_free(arg[i]);
  }
  return true;
}

static bool run_whole(Run *r, Tensor **want) {
  if (!r->local) return run_as_batch(r, r->whole, 0, 1, want);
  for (int first = 0; first < WHOLE; first += PART) {
    int n = WHOLE - first < PART ? WHOLE - first : PART;
    if (!run_as_batch(r, r->piece[n], first, (double)n / WHOLE, want)) return false;
  }
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
  if (!run_whole(r, want)) return false;
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

// The module for so many samples, with its step; `cut` by pass batch.
static const Module *load_step(Arena *a, const char *path, int samples, bool cut) {
  char *text = load_text(path, samples);
  Module *m = text ? load_module(a, path, text) : NULL;
  free(text);
  bool ok = m && run_pass(m, "inline", path) && (!cut || run_pass(m, "batch", path)) &&
            run_pass(m, "differentiate", path);
  return ok ? m : NULL;
}

static bool check(const char *path, bool local) {
  Arena *a = arena_new();
  Run r = {.path = path, .local = local};
  r.whole = load_step(a, path, WHOLE, false);
  r.part = load_step(a, path, PART, true);
  bool ok = r.whole && r.part;
  for (int n = 1; ok && local && n <= PART; n++)
    ok = (r.piece[n] = load_step(a, path, n, false)) != NULL;
  ok = ok && compare(&r);
  arena_free(a);
  return ok;
}

static int check_all(const char *dir, bool local, int *count) {
  static char name[256][256];
  int n = list_files(dir, ".ir", name, 256), bad = n == 0;
  for (int i = 0; i < n; i++) {
    char path[PATH];
    snprintf(path, sizeof path, "%.4000s/%.255s", dir, name[i]);
    bad += !check(path, local);
  }
  *count += n;
  return bad;
}

int main(void) {
  int n = 0;
  int bad = check_all(SOURCE_DIR "/tests/passes/batch", false, &n);
  bad += check_all(SOURCE_DIR "/tests/passes/local", true, &n);
  printf("%d of %d programs failed\n", bad, n);
  return bad != 0;
}
