// Finds the cache blocks of matrix products for this machine and prints the table of
// runtime/device/cpu/gemm_tuned.h.
//
// Every level and type that the processor has is timed on one thread over the products of a GPT-2
// 124M step, scaled down where they are large; a level that it lacks keeps its present entry. kc is
// found at the highest level and then the same at all, so that levels 3 and 4 give the same bits.
// Run it on a quiet machine.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "bench/gemm_shapes.h"
#include "runtime/device/cpu/gemm.c" // for the tables and the functions behind them

static const int64_t kcs[] = {192, 256, 384}, mcs[] = {64, 128, 256}, ncs[] = {192, 384, 768};

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// A buffer that is larger than the second-level cache even where the shape is small.
static void *operand(int64_t count, bool f64) {
  size_t bytes = ((size_t)count * (f64 ? 8 : 4) + 4095) / 4096 * 4096;
  void *p = aligned_alloc(4096, bytes);
  if (!p) abort();
  dt_touch(p, bytes);
  for (int64_t i = 0; i < count; i++)
    if (f64) ((double *)p)[i] = (double)(i % 17) * 0.01;
    else ((float *)p)[i] = (float)(i % 17) * 0.01f;
  return p;
}

// Seconds for one shape, the best of a few.
static double time_shape(const Variant *v, const GemmShape *s, GemmCut cut, bool f64) {
  DtGemm g = gemm_of_shape(s);
  void *a = operand(s->m * s->k, f64), *b = operand(s->k * s->n, f64),
       *c = operand(s->m * s->n, f64);
  void *buffer = dt_scratch((size_t)(cut.kc * (cut.mc + cut.nc)) * 8);
  GemmNext none = {0};
  double best = 1e9;
  for (int i = 0; i < 3; i++) {
    double t = now();
    if (f64) v->tile64(&g, &cut, s->m, s->n, a, b, c, 1, buffer, NULL, &none);
    else v->tile32(&g, &cut, s->m, s->n, a, b, c, 1, buffer, NULL, &none);
    if ((t = now() - t) < best) best = t;
  }
  free(a), free(b), free(c);
  return best;
}

// Mean GFLOP/s over the shapes: each counts alike, since models differ in which they have most of.
static double rate(const Variant *v, GemmCut cut, bool f64) {
  GemmShape shape[GEMM_SHAPES];
  gemm_shapes(f64 ? 128 : 384, shape);
  double sum = 0;
  int count = 0;
  for (int i = 0; i < GEMM_SHAPES; i++) {
    GemmShape *s = &shape[i];
    if (s->m > 768) s->m = 768; // a thread's share
    if (s->n > 1536) s->n = 1536;
    if (s->k > 1536) s->k = 1536;
    sum += 2.0 * (double)s->m * (double)s->n * (double)s->k / time_shape(v, s, cut, f64);
    count++;
  }
  return sum / count * 1e-9;
}

// kc 0: to be found too.
static GemmCut tune(const Variant *v, bool f64, int64_t kc) {
  GemmCut best = f64 ? v->cut64 : v->cut32;
  if (kc) best.kc = kc;
  double top = rate(v, best, f64) * 1.01; // a present entry stays unless beaten for certain
  for (int k = 0; k < 3; k++)
    for (int m = 0; m < 3; m++)
      for (int n = 0; n < 3; n++) {
        if (kc && kcs[k] != kc) continue;
        GemmCut cut = {kcs[k], mcs[m], f64 ? ncs[n] / 2 : ncs[n]};
        double r = rate(v, cut, f64);
        fprintf(stderr, "  kc %3lld mc %3lld nc %3lld: %.1f\n", (long long)cut.kc,
                (long long)cut.mc, (long long)cut.nc, r);
        if (r > top) best = cut, top = r;
      }
  return best;
}

static void print_entry(const char *type, int level, GemmCut cut) {
  printf("#define DT_GEMM_%s_V%d { %lld, %lld, %lld }\n", type, level, (long long)cut.kc,
         (long long)cut.mc, (long long)cut.nc);
}

int main(void) {
  static const int levels[] = {4, 3, 1};
  int64_t kc[2] = {0};
  // Of the largest blocks that are tried.
  if (dt_scratch_plan(384 * (256 + 768) * 8)) return 71;
  for (int i = 0; i < 3; i++) {
    if (dt_cpu_level(levels[i]) != levels[i]) continue;
    const Variant *v = levels[i] == 4 ? &avx512 : levels[i] == 3 ? &avx2 : &baseline;
    for (int f64 = 0; f64 < 2; f64++) {
      fprintf(stderr, "level %d, %s\n", levels[i], f64 ? "f64" : "f32");
      GemmCut cut = tune(v, f64, kc[f64]);
      kc[f64] = cut.kc;
      print_entry(f64 ? "F64" : "F32", levels[i], cut);
    }
  }
}
