// Products of bf16 by each way to compute them that this processor has (conversion to float at each level,
// AVX512_BF16, AMX) against sums in double: awkward extents and strides, every form, the same bits on 1, 2 and 3
// threads; infinities, NaN and subnormal numbers; and the order in which the instructions add, to the bit.
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parallel.h"
#include "runtime/base/real.h"
#include "runtime/device/cpu/gemm.h"
#include "runtime/device/cpu/level.h"
#include "runtime/device/cpu/scratch.h"

static int failures;
static uint64_t state = 88172645463325252u;

static double random_unit(void) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return (double)(state >> 11) * 0x1p-52 - 1;
}
static int64_t random_below(int64_t n) { return (int64_t)((random_unit() + 1) / 2 * (double)n) % n; }

// ---- The ways

typedef struct Way {
  const char *name;
  DtGemmBf16Use use;
  int level;
  int chain; // additions that follow one another in a block, at most
  int block; // terms of one, at most
} Way;
static const Way ways[] = {{"float, level 1", DT_GEMM_FLOAT, 1, 512, 256}, // each product is rounded
                           {"float, level 3", DT_GEMM_FLOAT, 3, 256, 256},
                           {"float, level 4", DT_GEMM_FLOAT, 4, 256, 256},
                           {"AVX512_BF16", DT_GEMM_AVX512, 4, 256, 256},
                           {"AMX", DT_GEMM_AMX, 4, 256, 1024}};
enum { WAYS = sizeof ways / sizeof *ways };

static bool take(const Way *w) {
  return dt_cpu_level(w->level) == w->level && dt_gemm_bf16_use(w->use) == w->use;
}

// ---- A product with its operands

typedef struct Case {
  DtGemm g;
  double beta;
  bool has_bias, has_plus;
  int64_t na, nb, nc;
  uint16_t *a, *b;
  void *bias, *before, *plus; // of g.bias; C before, of g.result; of g.plus
  double *expect, *scale; // sum of the terms, of their absolute values; NaN: nothing is written there
} Case;

static int64_t last_of(const DtGemm *g, char which) {
  int64_t last = which == 'a'   ? (g->m - 1) * g->a_row + (g->k - 1) * g->a_col
                 : which == 'b' ? (g->k - 1) * g->b_row + (g->n - 1) * g->b_col
                                : (g->m - 1) * g->c_row + g->n - 1;
  for (int i = 0; i < g->nbatch; i++)
    last += (g->batch[i].count - 1) * (which == 'a'   ? g->batch[i].a
                                       : which == 'b' ? g->batch[i].b
                                                      : g->batch[i].c);
  return last < 0 ? 0 : last;
}

static double value(DtType type, const void *p, int64_t i) {
  if (type == DT_TYPE_F32) return (double)((const float *)p)[i];
  uint16_t v = ((const uint16_t *)p)[i];
  return (double)(type == DT_TYPE_F16 ? dt_from_f16(v) : dt_from_bf16(v));
}

static void add_products(Case *x, int level, int64_t a, int64_t b, int64_t c) {
  const DtGemm *g = &x->g;
  if (level < g->nbatch) {
    for (int64_t i = 0; i < g->batch[level].count; i++)
      add_products(x, level + 1, a + i * g->batch[level].a, b + i * g->batch[level].b, c + i * g->batch[level].c);
    return;
  }
  for (int64_t i = 0; i < g->m; i++)
    for (int64_t j = 0; j < g->n; j++) {
      int64_t at = c + i * g->c_row + j;
      if (isnan(x->expect[at])) {
        double c0 = x->beta == 0 ? 0 : x->beta * value(g->result, x->before, at);
        if (x->has_plus) c0 += value(g->plus, x->plus, at);
        x->expect[at] = c0 + (x->has_bias ? value(g->bias, x->bias, j) : 0);
        x->scale[at] = fabs(c0) + (x->has_bias ? fabs(value(g->bias, x->bias, j)) : 0);
      }
      for (int64_t p = 0; p < g->k; p++) {
        double term = value(DT_TYPE_BF16, x->a, a + i * g->a_row + p * g->a_col) *
                      value(DT_TYPE_BF16, x->b, b + p * g->b_row + j * g->b_col);
        x->expect[at] += term, x->scale[at] += fabs(term);
      }
    }
}

static void *filled(DtType type, int64_t n) {
  void *p = malloc((size_t)n * dt_type_size(type));
  if (!p) abort();
  for (int64_t i = 0; i < n; i++) dt_put_real(type, p, i, random_unit());
  return p;
}

static void open_case(Case *x) {
  DtGemm *g = &x->g;
  x->na = last_of(g, 'a') + 1, x->nb = last_of(g, 'b') + 1, x->nc = last_of(g, 'c') + 1;
  x->a = filled(DT_TYPE_BF16, x->na), x->b = filled(DT_TYPE_BF16, x->nb);
  x->bias = filled(g->bias, g->n), x->before = filled(g->result, x->nc);
  x->plus = filled(g->plus, x->nc);
  x->expect = malloc((size_t)x->nc * sizeof(double)), x->scale = calloc((size_t)x->nc, sizeof(double));
  for (int64_t i = 0; i < x->nc; i++) x->expect[i] = NAN;
  add_products(x, 0, 0, 0, 0);
  for (int64_t i = 0; i < x->nc; i++) // with beta 0 nothing of C is read
    if (x->beta == 0 && !isnan(x->expect[i])) dt_put_real(g->result, x->before, i, NAN);
}

static void close_case(Case *x) {
  free(x->a), free(x->b), free(x->bias), free(x->before), free(x->plus), free(x->expect), free(x->scale);
}

static void *compute(const Case *x, int threads) {
  const DtGemm *g = &x->g;
  size_t bytes = (size_t)x->nc * dt_type_size(g->result);
  void *c = malloc(bytes);
  memcpy(c, x->before, bytes);
  dt_parallel_init(threads);
  if (dt_scratch_plan((size_t)dt_gemm_bf16_scratch(g->m, g->n, g->k))) abort();
  if (x->has_bias) {
    DtEpilogue e = {.bias = x->bias, .plus = x->has_plus ? x->plus : NULL};
    dt_gemm_then_half(g, x->a, x->b, c, &e);
  } else {
    dt_gemm_half(g, x->a, x->b, c, (float)x->beta);
  }
  return c;
}

// Rounding is monotonic: what lies within the bound of errors rounds to between its ends' roundings.
static bool within(DtType type, double x, double expect, double bound) {
  float low = (float)(expect - bound), high = (float)(expect + bound);
  if (type == DT_TYPE_BF16) low = dt_from_bf16(dt_to_bf16(low)), high = dt_from_bf16(dt_to_bf16(high));
  return x >= (double)low && x <= (double)high;
}

static void compare(const Case *x, const void *c, const Way *w, const char *name) {
  const DtGemm *g = &x->g;
  int64_t products = 1;
  for (int i = 0; i < g->nbatch; i++)
    if (g->batch[i].c == 0) products *= g->batch[i].count;
  int64_t blocks = (g->k + w->block - 1) / w->block * products, chain = g->k < w->block ? g->k : w->chain;
  double additions = (double)(chain < w->chain ? 2 * chain : w->chain) + (double)blocks + 2;
  for (int64_t i = 0; i < x->nc; i++) {
    double is = value(g->result, c, i), was = value(g->result, x->before, i);
    bool right = isnan(x->expect[i]) ? memcmp(&is, &was, sizeof is) == 0
                                     : within(g->result, is, x->expect[i], additions * 0x1p-24 * x->scale[i]);
    if (right) continue;
    printf("%s, %s, type %d: element %lld is %.9g, not %.9g\n", name, w->name, g->result, (long long)i, is,
           x->expect[i]);
    failures++;
    return;
  }
}

static void check_way(const Case *x, const Way *w, const char *name) {
  void *first = compute(x, 1);
  compare(x, first, w, name);
  for (int threads = 2; threads <= 3; threads++) {
    void *c = compute(x, threads);
    if (memcmp(first, c, (size_t)x->nc * dt_type_size(x->g.result)) != 0) {
      printf("%s, %s: %d threads give other bits than 1\n", name, w->name, threads);
      failures++;
    }
    free(c);
  }
  free(first);
}

// With each type of result, by each way; `form`: 0 plain, 1 a bias of float and a residual, 2 a bias of bf16, 3 added to C, 4 added
// to half of C.
static void check(const DtGemm *shape, int form, const char *name) {
  for (int wide = 0; wide < 2; wide++) {
    Case x = {.g = *shape, .beta = form == 3 ? 1 : form == 4 ? 0.5 : 0, .has_bias = form == 1 || form == 2};
    x.g.operand = DT_TYPE_BF16, x.g.result = wide ? DT_TYPE_F32 : DT_TYPE_BF16;
    x.has_plus = form == 1, x.g.plus = wide ? DT_TYPE_BF16 : DT_TYPE_F32, x.g.plus_first = shape->m % 2;
    x.g.bias = form == 2 ? DT_TYPE_BF16 : DT_TYPE_F32;
    open_case(&x);
    for (int w = 0; w < WAYS; w++)
      if (take(&ways[w])) check_way(&x, &ways[w], name);
    close_case(&x);
  }
}

static DtGemm plain(int64_t m, int64_t n, int64_t k, const char *op) {
  DtGemm g = {.m = m, .n = n, .k = k, .c_row = n};
  g.a_row = op[0] == 'N' ? k : 1, g.a_col = op[0] == 'N' ? 1 : m;
  g.b_row = op[1] == 'N' ? n : 1, g.b_col = op[1] == 'N' ? 1 : k;
  return g;
}

// Under the sanitizers, which make arithmetic slow, there are fewer.
#ifdef __SANITIZE_ADDRESS__
enum { RANDOM_CASES = 16 };
#else
enum { RANDOM_CASES = 80 };
#endif

static void check_extents(void) {
  static const int64_t extent[] = {1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 65, 97, 130, 200};
  static const char *const ops[] = {"NN", "NT", "TN", "TT"};
  for (int i = 0; i < RANDOM_CASES; i++) {
    DtGemm g = plain(extent[random_below(18)], extent[random_below(18)], extent[random_below(18)], ops[i % 4]);
    check(&g, i / 4 % 5, ops[i % 4]);
  }
  DtGemm large[] = {plain(211, 397, 1031, "NN"), plain(513, 385, 257, "NT"), plain(545, 53, 401, "TN"),
                    plain(61, 803, 97, "TT"),    plain(3, 5, 2049, "NT"),    plain(1, 1, 513, "NN")};
  for (int i = 0; i < 6; i++) check(&large[i], i % 5, "several blocks or tiles");
}

static void check_strides(void) {
  DtGemm g = plain(37, 61, 29, "NN");
  g.a_row = 200, g.a_col = 3, g.b_row = 7, g.b_col = 211, g.c_row = 70;
  check(&g, 3, "no stride is 1");
  g = plain(40, 100, 64, "NN");
  g.a_row = 0, g.b_col = 0, g.b_row = 1;
  check(&g, 0, "strides of 0");
  g = plain(33, 64, 48, "NT");
  g.nbatch = 2, g.batch[0].count = 3, g.batch[0].a = 33 * 48, g.batch[0].c = 2 * 33 * 64;
  g.batch[1].count = 2, g.batch[1].b = 48 * 64, g.batch[1].c = 33 * 64;
  check(&g, 1, "batch");
  g = plain(70, 50, 20, "TN");
  g.nbatch = 3, g.batch[0].count = 4, g.batch[0].a = 1400, g.batch[0].b = 1000;
  g.batch[1].count = 2, g.batch[1].c = 3500, g.batch[2].count = 3, g.batch[2].a = 7, g.batch[2].b = 5;
  for (int form = 0; form < 5; form++) check(&g, form, "batch that adds up");
  g = plain(48, 700, 1, "NT");
  g.b_row = 0, g.b_col = 1, g.c_row = 900;
  check(&g, 3, "outer product into wider rows");
  g = plain(5, 6, 0, "NN");
  g.a_row = g.b_col = 1;
  for (int form = 0; form < 5; form++) check(&g, form, "empty sum");
}

// ---- What is not finite, and what is subnormal

// C[1, 1] = a * b by `k` terms, of which `at` is as given and the others are 1 * 0.
static float product_of(uint16_t a, uint16_t b, int64_t k, int64_t at) {
  DtGemm g = plain(1, 1, k, "NT");
  g.operand = DT_TYPE_BF16, g.result = DT_TYPE_F32;
  uint16_t x[64], y[64];
  float c;
  for (int64_t i = 0; i < k; i++) x[i] = 0x3f80, y[i] = 0;
  x[at] = a, y[at] = b;
  dt_gemm_half(&g, x, y, &c, 0);
  return c;
}

static void expect(bool right, const char *what, const Way *w) {
  if (right) return;
  printf("%s: %s\n", w->name, what);
  failures++;
}

static void check_special(const Way *w) {
  enum { INF = 0x7f80, MINUS_INF = 0xff80, NOT_A_NUMBER = 0x7fc0, ONE = 0x3f80, MOST = 0x7f7f };
  enum { LEAST_NORMAL = 0x0080, SUBNORMAL = 0x0040 }; // 2^-126, 2^-127
  for (int64_t at = 0; at < 33; at += 8) {
    expect(product_of(INF, ONE, 33, at) == INFINITY, "inf * 1", w);
    expect(product_of(ONE, MINUS_INF, 33, at) == -INFINITY, "1 * -inf", w);
    expect(isnan(product_of(INF, 0, 33, at)), "inf * 0", w);
    expect(isnan(product_of(NOT_A_NUMBER, ONE, 33, at)), "NaN * 1", w);
    expect(isnan(product_of(0, NOT_A_NUMBER, 33, at)), "0 * NaN", w);
    expect(product_of(MOST, MOST, 33, at) == INFINITY, "overflow", w);
    expect(product_of(LEAST_NORMAL, ONE, 33, at) == 0x1p-126f, "the least normal number is kept", w);
  }
  // doc/numerics.md: instructions on pairs take a subnormal operand, and give a subnormal result, as 0.
  bool keeps = w->use == DT_GEMM_FLOAT;
  uint16_t half = 0x3f00, two = 0x4000;
  expect(product_of(SUBNORMAL, two, 33, 5) == (keeps ? 0x1p-126f : 0), "a subnormal operand", w);
  expect(product_of(two, SUBNORMAL, 33, 6) == (keeps ? 0x1p-126f : 0), "a subnormal operand on the right", w);
  expect(product_of(LEAST_NORMAL, half, 33, 5) == (keeps ? 0x1p-127f : 0), "a subnormal product", w);
}

// ---- The order of additions

// One rounding, of a product and a sum, with subnormal numbers as 0.
static float fused(float a, float b, float c) {
  float r = fmaf(a, b, c);
  return fabsf(r) < 0x1p-126f ? copysignf(0, r) : r;
}

// As doc/numerics.md says of one element: by AVX512_BF16 the odd term of each pair and then the even one; by AMX even
// and odd terms of 32 apart, their sum added to the block's. Blocks are equal, up to multiples of 32.
static float in_order(const Way *w, const float *a, const float *b, int64_t k) {
  float all = 0;
  int64_t blocks = (k + w->block - 1) / w->block, block = ((k + blocks - 1) / blocks + 31) / 32 * 32;
  for (int64_t first = 0; first < k; first += block) {
    int64_t end = first + block < k ? first + block : k;
    float sum = 0;
    for (int64_t p = first; p < end && w->use == DT_GEMM_AVX512; p += 2)
      sum = fused(a[p], b[p], fused(a[p + 1], b[p + 1], sum));
    for (int64_t step = first; step < end && w->use == DT_GEMM_AMX; step += 32) {
      float even = 0, odd = 0;
      for (int64_t p = step; p < step + 32 && p < end; p += 2)
        even = fused(a[p], b[p], even), odd = fused(a[p + 1], b[p + 1], odd);
      sum = fused(1, even + odd, sum);
    }
    all = first ? all + sum : sum;
  }
  return all;
}

static void check_order(const Way *w) {
  enum { K = 1310, N = 40 };
  DtGemm g = plain(1, N, K, "NT");
  g.operand = DT_TYPE_BF16, g.result = DT_TYPE_F32;
  uint16_t *a = filled(DT_TYPE_BF16, K), *b = filled(DT_TYPE_BF16, K * N);
  static float wide_a[K], wide_b[K * N], c[N];
  dt_widen(DT_TYPE_BF16, wide_a, a, K), dt_widen(DT_TYPE_BF16, wide_b, b, K * N);
  dt_gemm_half(&g, a, b, c, 0);
  for (int j = 0; j < N; j++) {
    float want = in_order(w, wide_a, wide_b + j * K, K);
    if (memcmp(&want, &c[j], sizeof want) == 0) continue;
    printf("%s: column %d is %a, and in the order that is documented %a\n", w->name, j, (double)c[j], (double)want);
    failures++;
    break;
  }
  free(a), free(b);
}

// A product for a named processor is computed with what its name stands for, and with nothing else.
static void check_named_processor(void) {
  DtGemm g = plain(70, 90, 300, "NN");
  Case x = {.g = g};
  x.g.operand = DT_TYPE_BF16, x.g.result = x.g.bias = DT_TYPE_F32;
  open_case(&x);
  static const struct {
    const char *features;
    int way;
  } name[] = {{NULL, 2}, {"avx512vnni avx512bf16", 3}, {"avx512bf16 amx-bf16", 4}};
  for (int i = 0; i < 3; i++) {
    if (!take(&ways[name[i].way])) continue;
    void *want = compute(&x, 1);
    dt_gemm_bf16_use(DT_GEMM_BF16_TABLE);
    if (name[i].features) dt_cpu_name_pairs(name[i].features);
    void *c = compute(&x, 1);
    if (memcmp(c, want, (size_t)x.nc * sizeof(float)) != 0) {
      printf("a processor with '%s': not the bits of %s\n", name[i].features, ways[name[i].way].name);
      failures++;
    }
    free(c), free(want);
  }
  close_case(&x);
}

int main(void) {
  for (int w = 0; w < WAYS; w++) {
    if (!take(&ways[w])) {
      printf("%s: not on this machine\n", ways[w].name);
      continue;
    }
    dt_parallel_init(1);
    if (dt_scratch_plan((size_t)dt_gemm_bf16_scratch(64, 64, 1310))) abort();
    check_special(&ways[w]);
    if (ways[w].use != DT_GEMM_FLOAT) check_order(&ways[w]);
  }
  check_named_processor();
  check_extents();
  check_strides();
  dt_parallel_done();
  if (failures) printf("%d failures\n", failures);
  return failures != 0;
}
