// Matrix products against a plain double loop, at awkward extents and strides, by our own kernel on
// every instruction set that this processor has and by oneDNN where it is there; and the same bits on 1, 2 and 3
// threads and at any alignment.
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/real.h"
#include "runtime/device/cpu/gemm.h"
#include "runtime/device/cpu/level.h"
#include "runtime/device/cpu/scratch.h"
#include "runtime/base/parallel.h"

enum { BATCHES = sizeof((DtGemm *)0)->batch / sizeof((DtGemm *)0)->batch[0] };

static int failures;
static uint64_t state = 88172645463325252u;

static double random_unit(void) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return (double)(state >> 11) * 0x1p-52 - 1;
}

static int64_t random_below(int64_t n) {
  return (int64_t)((random_unit() + 1) / 2 * (double)n) % n;
}

typedef struct {
  double *a, *b, *c, *expect, *bound; // bound: sum of magnitudes, the scale of rounding errors
  int64_t na, nb, nc;
} Operands;

static int64_t extent_of(const DtGemm *g, char which) {
  int64_t last = which == 'a'   ? (g->m - 1) * g->a_row + (g->k - 1) * g->a_col
                 : which == 'b' ? (g->k - 1) * g->b_row + (g->n - 1) * g->b_col
                                : (g->m - 1) * g->c_row + g->n - 1;
  for (int i = 0; i < g->nbatch; i++)
    last += (g->batch[i].count - 1) * (which == 'a'   ? g->batch[i].a
                                       : which == 'b' ? g->batch[i].b
                                                      : g->batch[i].c);
  return (last < 0 ? 0 : last) + 1;
}

static void naive(const DtGemm *g, int level, const Operands *o, int64_t a, int64_t b, int64_t c) {
  if (level < g->nbatch && level < BATCHES) {
    for (int64_t i = 0; i < g->batch[level].count; i++)
      naive(g, level + 1, o, a + i * g->batch[level].a, b + i * g->batch[level].b,
            c + i * g->batch[level].c);
    return;
  }
  for (int64_t i = 0; i < g->m; i++)
    for (int64_t j = 0; j < g->n; j++)
      for (int64_t p = 0; p < g->k; p++) {
        double x = o->a[a + i * g->a_row + p * g->a_col] * o->b[b + p * g->b_row + j * g->b_col];
        o->expect[c + i * g->c_row + j] += x;
        o->bound[c + i * g->c_row + j] += fabs(x);
      }
}

// Multiplies the elements of C that some product writes by beta; the rest stay as they are.
static void scale_c(const DtGemm *g, int level, Operands *o, double beta, int64_t c) {
  if (level < g->nbatch && level < BATCHES) {
    int64_t count = g->batch[level].c == 0 ? 1 : g->batch[level].count;
    for (int64_t i = 0; i < count; i++) scale_c(g, level + 1, o, beta, c + i * g->batch[level].c);
    return;
  }
  for (int64_t i = 0; i < g->m; i++)
    for (int64_t j = 0; j < g->n; j++) {
      double *x = &o->expect[c + i * g->c_row + j];
      *x *= beta;
      o->bound[c + i * g->c_row + j] = fabs(*x);
    }
}

// A copy of n values as float or double, `shift` elements past a page's start.
static void *operand(const double *from, int64_t n, bool f64, int shift) {
  size_t size = f64 ? sizeof(double) : sizeof(float);
  size_t bytes = ((size_t)(n + shift) * size + 4095) / 4096 * 4096;
  char *p = aligned_alloc(4096, bytes);
  if (!p) abort();
  for (int64_t i = 0; i < n; i++)
    if (f64) ((double *)p)[shift + i] = from[i];
    else ((float *)p)[shift + i] = (float)from[i];
  return p;
}

// The product, with each operand at an alignment of its own.
static void *run(const DtGemm *g, const Operands *o, double beta, bool f64, int shift) {
  int sa = shift, sb = 2 * shift % 16, sc = 3 * shift % 16;
  void *a = operand(o->a, o->na, f64, sa), *b = operand(o->b, o->nb, f64, sb),
       *c = operand(o->c, o->nc, f64, sc);
  if (f64) dt_gemm_f64(g, (double *)a + sa, (double *)b + sb, (double *)c + sc, beta);
  else dt_gemm_f32(g, (float *)a + sa, (float *)b + sb, (float *)c + sc, (float)beta);
  size_t size = f64 ? sizeof(double) : sizeof(float);
  memmove(c, (char *)c + (size_t)sc * size, (size_t)o->nc * size);
  free(a), free(b);
  return c;
}

static void compare(const DtGemm *g, const Operands *o, const void *c, bool f64, const char *way,
                    const char *name) {
  double eps = f64 ? 0x1p-52 : 0x1p-23;
  for (int64_t i = 0; i < o->nc; i++) {
    double x = f64 ? ((const double *)c)[i] : ((const float *)c)[i];
    if (fabs(x - o->expect[i]) <= eps * (4 + sqrt((double)g->k)) * (o->bound[i] + 1e-30)) continue;
    printf("%s %s %s: element %lld is %.17g, not %.17g\n", name, f64 ? "f64" : "f32", way,
           (long long)i, x, o->expect[i]);
    failures++;
    return;
  }
}

// As computed on one thread, against `expect`; on others and elsewhere in memory, the same bits.
static void check_way(const DtGemm *g, const Operands *o, double beta, bool f64, const char *way,
                      const char *name) {
  static const int shifts[] = {0, 1, 4};
  size_t bytes = (size_t)o->nc * (f64 ? sizeof(double) : sizeof(float));
  void *first = NULL;
  for (int threads = 1; threads <= 3; threads++) {
    dt_parallel_init(threads);
    if (dt_scratch_plan((size_t)dt_gemm_scratch(g->m, g->n, g->k, f64))) abort();
    void *c = run(g, o, beta, f64, shifts[threads - 1]);
    if (!first) {
      compare(g, o, first = c, f64, way, name);
      continue;
    }
    if (memcmp(first, c, bytes) != 0) {
      printf("%s %s %s: %d threads, operands shifted by %d, give other bits than 1\n", name,
             f64 ? "f64" : "f32", way, threads, shifts[threads - 1]);
      failures++;
    }
    free(c);
  }
  free(first);
}

static void check_type(const DtGemm *g, const Operands *o, double beta, bool f64,
                       const char *name) {
  static const int levels[] = {1, 3, 4};
  static const char *const names[] = {"level 1", "level 3", "level 4"};
  dt_gemm_use(DT_GEMM_OWN);
  for (int l = 0; l < 3; l++)
    if (dt_cpu_level(levels[l]) == levels[l]) check_way(g, o, beta, f64, names[l], name);
  dt_cpu_level(0);
  if (!f64 && dt_gemm_use(DT_GEMM_DNNL) == DT_GEMM_DNNL)
    check_way(g, o, beta, f64, "oneDNN", name);
  dt_gemm_use(DT_GEMM_OWN);
}

static void check(const DtGemm *g, double beta, const char *name) {
  Operands o = {.na = extent_of(g, 'a'), .nb = extent_of(g, 'b'), .nc = extent_of(g, 'c')};
  o.a = malloc((size_t)o.na * sizeof(double)), o.b = malloc((size_t)o.nb * sizeof(double));
  o.c = malloc((size_t)o.nc * sizeof(double)), o.expect = malloc((size_t)o.nc * sizeof(double));
  o.bound = calloc((size_t)o.nc, sizeof(double));
  // Values that float holds exactly, so that both types compute from the same operands.
  for (int64_t i = 0; i < o.na; i++) o.a[i] = (float)random_unit();
  for (int64_t i = 0; i < o.nb; i++) o.b[i] = (float)random_unit();
  for (int64_t i = 0; i < o.nc; i++) o.c[i] = o.expect[i] = (float)random_unit();
  scale_c(g, 0, &o, beta, 0);
  naive(g, 0, &o, 0, 0, 0);
  for (int64_t i = 0; beta == 0 && i < o.nc; i++)
    if (o.bound[i] != 0) o.c[i] = NAN; // beta 0 must not read what it writes
  check_type(g, &o, beta, false, name);
  check_type(g, &o, beta, true, name);
  free(o.a), free(o.b), free(o.c), free(o.expect), free(o.bound);
}

static DtGemm plain(int64_t m, int64_t n, int64_t k, const char *op) {
  DtGemm g = {.m = m, .n = n, .k = k, .c_row = n};
  g.a_row = op[0] == 'N' ? k : 1, g.a_col = op[0] == 'N' ? 1 : m;
  g.b_row = op[1] == 'N' ? n : 1, g.b_col = op[1] == 'N' ? 1 : k;
  return g;
}

static void check_extents(void) {
  static const int64_t extent[] = {1, 2, 3, 7, 8, 9, 16, 31, 47, 48, 49, 97, 131, 200};
  static const char *const ops[] = {"NN", "NT", "TN", "TT"};
  static const double betas[] = {0, 1, 0.5};
  for (int i = 0; i < 60; i++) {
    DtGemm g = plain(extent[random_below(14)], extent[random_below(14)], extent[random_below(14)],
                     ops[i % 4]);
    check(&g, betas[i % 3], ops[i % 4]);
  }
  DtGemm large = plain(211, 397, 1031, "NN"), tall = plain(1511, 53, 401, "TN"),
         wide = plain(61, 2003, 97, "NT");
  DtGemm tiles = plain(801, 1601, 90, "NN");
  check(&large, 0, "several blocks");
  check(&tiles, 1, "several tiles");
  check(&tall, 1, "tall");
  check(&wide, 0, "wide");
}

static void check_strides(void) {
  DtGemm g = plain(37, 61, 29, "NN");
  g.a_row = 200, g.a_col = 3, g.b_row = 7, g.b_col = 211, g.c_row = 70;
  check(&g, 1, "no stride is 1");
  g = plain(40, 100, 64, "NN");
  g.a_row = 0, g.b_col = 0, g.b_row = 1;
  check(&g, 0, "strides of 0");
  g = plain(33, 64, 48, "NT");
  g.nbatch = 2, g.batch[0].count = 3, g.batch[0].a = 33 * 48, g.batch[0].c = 2 * 33 * 64;
  g.batch[1].count = 2, g.batch[1].b = 48 * 64, g.batch[1].c = 33 * 64;
  check(&g, 0, "batch");
  g = plain(70, 50, 20, "TN");
  g.nbatch = 3, g.batch[0].count = 4, g.batch[0].a = 1400, g.batch[0].b = 1000;
  g.batch[1].count = 2, g.batch[1].c = 3500, g.batch[2].count = 3, g.batch[2].a = 7,
  g.batch[2].b = 5;
  check(&g, 1, "batch that adds up");
  g = plain(48, 700, 1, "NT");
  g.b_row = 0, g.b_col = 1, g.c_row = 900;
  check(&g, 1, "outer product into wider rows");
  g = plain(1, 300, 200, "NN");
  g.a_row = 3, g.c_row = 0;
  check(&g, 0, "one row");
  g = plain(90, 1, 77, "NT");
  check(&g, 0, "one column");
  g = plain(5, 6, 0, "NN");
  g.a_row = g.b_col = 1;
  check(&g, 0, "empty sum");
}

// With a bias or a residual, or both in either order: the bits of the product, and then of each addition.
static void check_then_of(const DtGemm *shape, bool has_bias, bool has_plus, bool plus_first, const char *name) {
  DtGemm copy = *shape, *g = &copy;
  g->plus_first = plus_first;
  int64_t na = extent_of(g, 'a'), nb = extent_of(g, 'b'), nc = extent_of(g, 'c');
  float *a = malloc((size_t)na * sizeof *a), *b = malloc((size_t)nb * sizeof *b),
        *bias = calloc((size_t)g->n, sizeof *bias), *plus = malloc((size_t)nc * sizeof *plus);
  float *plain = calloc((size_t)nc, sizeof *plain), *whole = calloc((size_t)nc, sizeof *whole);
  for (int64_t i = 0; i < na; i++) a[i] = (float)random_unit();
  for (int64_t i = 0; i < nb; i++) b[i] = (float)random_unit();
  for (int64_t i = 0; i < g->n; i++) bias[i] = (float)random_unit();
  for (int64_t i = 0; i < nc; i++) plus[i] = (float)random_unit();
  if (dt_scratch_plan((size_t)dt_gemm_scratch(g->m, g->n, g->k, false))) abort();
  dt_gemm_f32(g, a, b, plain, 0);
  dt_gemm_then_f32(g, a, b, whole, &(DtEpilogue){.bias = has_bias ? bias : NULL, .plus = has_plus ? plus : NULL});
  for (int64_t i = 0; i < g->m; i++)
    for (int64_t j = 0; j < g->n; j++) {
      float *v = plain + i * g->c_row + j;
      if (has_plus && plus_first) *v += plus[i * g->c_row + j];
      if (has_bias) *v += bias[j];
      if (has_plus && !plus_first) *v += plus[i * g->c_row + j];
    }
  if (memcmp(plain, whole, (size_t)nc * sizeof *plain) != 0) {
    printf("%s: bias %d and residual %d are not each added once to the product\n", name, has_bias, has_plus);
    failures++;
  }
  free(a), free(b), free(bias), free(plus), free(plain), free(whole);
}

static void check_bias_of(const DtGemm *g, const char *name) {
  check_then_of(g, true, false, false, name);
  check_then_of(g, false, true, true, name);
  check_then_of(g, true, true, false, name);
  check_then_of(g, true, true, true, name);
}

static void check_bias(void) {
  static const int levels[] = {1, 3, 4};
  DtGemm g[] = {plain(211, 397, 700, "NN"), plain(37, 61, 29, "TT"), plain(1, 9, 257, "NT"),
                plain(600, 800, 300, "TN"), plain(5, 6, 0, "NN"), plain(40, 50, 64, "NN")};
  g[5].nbatch = 1, g[5].batch[0].count = 3, g[5].batch[0].a = 40 * 64, g[5].batch[0].b = 64 * 50;
  dt_gemm_use(DT_GEMM_OWN);
  for (int l = 0; l < 3; l++)
    for (int i = 0; i < 6 && dt_cpu_level(levels[l]) == levels[l]; i++) check_bias_of(&g[i], "own");
  dt_cpu_level(0);
  dt_gemm_use(DT_GEMM_DNNL);
  for (int i = 0; i < 6; i++) check_bias_of(&g[i], "oneDNN");
  dt_gemm_use(DT_GEMM_OWN);
  double a[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, b[8] = {1, 1, 1, 1, 2, 2, 2, 2},
         bias[2] = {0.5, 7}, c[6];
  DtGemm h = plain(3, 2, 4, "NN");
  if (dt_scratch_plan((size_t)dt_gemm_scratch(h.m, h.n, h.k, true))) abort();
  dt_gemm_then_f64(&h, a, b, c, &(DtEpilogue){.bias = bias});
  if (c[0] != 17.5 || c[5] != 72) {
    printf("fp64 with a bias: %g %g\n", c[0], c[5]);
    failures++;
  }
}

// 16-bit operands: the bits of the product of the same numbers in float by our own kernel, bias and residual added,
// rounded once where C has 16 bits; on any number of threads.
static void check_half_of(const DtGemm *as, DtType operand, DtType result, DtType bias_type,
                          float beta, const char *name) {
  DtGemm g = *as;
  g.plus_first = g.n % 2;
  DtGemm alone = g, *shape = &alone;
  int64_t na = extent_of(&g, 'a'), nb = extent_of(&g, 'b'), nc = extent_of(&g, 'c');
  g.operand = operand, g.result = result, g.bias = g.plus = bias_type;
  size_t size = result == DT_TYPE_F32 ? 4 : 2;
  float *fa = malloc((size_t)na * 4), *fb = malloc((size_t)nb * 4), *fc = malloc((size_t)nc * 4),
        *fbias = malloc((size_t)g.n * 4), *fplus = malloc((size_t)nc * 4);
  void *a = malloc((size_t)na * 2), *b = malloc((size_t)nb * 2), *start = malloc((size_t)nc * 4),
       *c = malloc((size_t)nc * 4), *want = malloc((size_t)nc * 4), *bias = malloc((size_t)g.n * 4),
       *plus = malloc((size_t)nc * 4);
  for (int64_t i = 0; i < na; i++) dt_put_real(operand, a, i, random_unit());
  for (int64_t i = 0; i < nb; i++) dt_put_real(operand, b, i, random_unit());
  for (int64_t i = 0; i < nc; i++) dt_put_real(result, start, i, random_unit());
  for (int64_t i = 0; i < g.n; i++) dt_put_real(bias_type, bias, i, random_unit());
  for (int64_t i = 0; i < nc; i++) dt_put_real(bias_type, plus, i, random_unit());
  dt_widen(operand, fa, a, na), dt_widen(operand, fb, b, nb);
  if (result == DT_TYPE_F32) memcpy(fc, start, (size_t)nc * 4);
  else dt_widen(result, fc, start, nc);
  if (bias_type == DT_TYPE_F32) memcpy(fbias, bias, (size_t)g.n * 4);
  else dt_widen(bias_type, fbias, bias, g.n);
  if (bias_type == DT_TYPE_F32) memcpy(fplus, plus, (size_t)nc * 4);
  else dt_widen(bias_type, fplus, plus, nc);
  int64_t scratch = dt_gemm_scratch(g.m, g.n, g.k, false), half = dt_gemm_half_scratch(g.m, g.n, g.k);
  dt_parallel_init(1);
  if (dt_scratch_plan((size_t)(half > scratch ? half : scratch))) abort();
  if (beta == 0) dt_gemm_then_f32(shape, fa, fb, fc, &(DtEpilogue){.bias = fbias, .plus = fplus});
  else dt_gemm_f32(shape, fa, fb, fc, beta);
  memcpy(want, start, (size_t)nc * size);
  if (result == DT_TYPE_F32) memcpy(want, fc, (size_t)nc * 4);
  else dt_narrow(result, want, fc, nc);
  for (int threads = 1; threads <= 3; threads++) {
    dt_parallel_init(threads);
    if (dt_scratch_plan((size_t)half)) abort();
    memcpy(c, start, (size_t)nc * size);
    if (beta == 0) dt_gemm_then_half(&g, a, b, c, &(DtEpilogue){.bias = bias, .plus = plus});
    else dt_gemm_half(&g, a, b, c, beta);
    if (memcmp(c, want, (size_t)nc * size) == 0) continue;
    printf("%s, types %d and %d, %d threads: other bits than in float\n", name, operand, result, threads);
    failures++;
  }
  free(fa), free(fb), free(fc), free(fbias), free(fplus), free(plus);
  free(a), free(b), free(start), free(c), free(want), free(bias);
}

// Under the sanitizers, which make arithmetic slow, each shape and type has one of the cases.
#ifdef __SANITIZE_ADDRESS__
enum { CASES = 1 };
#else
enum { CASES = 4 };
#endif

static void check_half(void) {
  static const int levels[] = {1, 3, 4};
  static const DtType type[] = {DT_TYPE_BF16, DT_TYPE_F16};
  DtGemm g[] = {plain(211, 397, 700, "NN"), plain(37, 61, 29, "TT"),   plain(1, 9, 257, "NT"),
                plain(600, 800, 300, "TN"), plain(40, 50, 64, "NN"), plain(193, 385, 257, "NT"),
                plain(33, 64, 48, "NT"),    plain(5, 6, 0, "NN"),    plain(37, 61, 29, "NN")};
  g[4].nbatch = 1, g[4].batch[0].count = 3, g[4].batch[0].a = 40 * 64, g[4].batch[0].b = 64 * 50;
  g[6].nbatch = 2, g[6].batch[0].count = 3, g[6].batch[0].a = 33 * 48, g[6].batch[0].c = 2 * 33 * 64;
  g[6].batch[1].count = 2, g[6].batch[1].b = 48 * 64, g[6].batch[1].c = 33 * 64;
  g[8].a_row = 200, g[8].a_col = 3, g[8].b_row = 7, g[8].b_col = 211, g[8].c_row = 70;
  for (int l = 0; l < 3; l++)
    for (int i = 0; i < 9 && dt_cpu_level(levels[l]) == levels[l]; i++)
      for (int t = 0; t < 2; t++)
        for (int n = 0; n < CASES; n++) {
          int k = (i + t + l + n) % 4; // of result, bias, and what is added to
          check_half_of(&g[i], type[t], k % 2 ? type[t] : DT_TYPE_F32, k == 1 ? DT_TYPE_F32 : type[t],
                        k / 2, "half");
        }
  dt_cpu_level(0);
}

int main(void) {
  check_half();
  check_extents();
  check_bias();
  check_strides();
  dt_parallel_done();
  if (failures) printf("%d failures\n", failures);
  return failures != 0;
}
