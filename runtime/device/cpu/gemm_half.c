// A tile of a product of 16-bit operands: block by block they become float in scratch memory, where our
// own kernel for float takes them. A conversion is one of some hundred operations on an element. And the choice
// between that and instructions on pairs of bf16.
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/parallel.h"
#include "runtime/base/real.h"
#include "runtime/device/cpu/gemm_pairs.h"
#include "runtime/device/cpu/level.h"
#include "runtime/device/cpu/scratch.h"

// x[rows, cols] in strides as float, tight along whichever dimension is tight in x; its own strides.
typedef struct {
  const float *at;
  int64_t row, col;
} Block;

static Block widen_block(DtType type, const uint16_t *x, int64_t row, int64_t col, int64_t rows,
                         int64_t cols, float *to) {
  bool columns = row == 1 && col != 1;
  int64_t lines = columns ? cols : rows, n = columns ? rows : cols;
  for (int64_t i = 0; i < lines; i++) {
    const uint16_t *from = x + i * (columns ? col : row);
    if (columns || col == 1) dt_widen(type, to + i * n, from, n);
    else
      for (int64_t k = 0; k < n; k++) dt_widen(type, to + i * n + k, from + k * col, 1);
  }
  return (Block){to, columns ? 1 : n, columns ? n : 1};
}

// beta * C, which is 0 where beta is.
static void scale_rows(int64_t m, int64_t n, float *c, int64_t row, float beta) {
  for (int64_t i = 0; i < m; i++)
    for (int64_t k = 0; k < n; k++) c[i * row + k] = beta == 0 ? 0 : beta * c[i * row + k];
}

static void add_row(int64_t n, float *v, DtType type, const void *x) {
  for (int64_t k = 0; k < n; k++)
    v[k] += type == DT_TYPE_F32 ? ((const float *)x)[k]
            : type == DT_TYPE_BF16 ? dt_from_bf16(((const uint16_t *)x)[k])
                                   : dt_from_f16(((const uint16_t *)x)[k]);
}

static void put_row(DtType type, void *to, int64_t at, const float *v, int64_t n) {
  if (type == DT_TYPE_F32) memcpy((float *)to + at, v, (size_t)n * sizeof *v);
  else dt_narrow(type, (uint16_t *)to + at, v, n);
}

void dt_gemm_half_finish(const DtGemm *g, const GemmHalfEnd *end, int64_t m, int64_t n, const float *sum, int64_t row,
                         void *c) {
  enum { PIECE = 256 };
  float v[PIECE];
  const bool wide = g->result == DT_TYPE_F32;
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j += PIECE) {
      int64_t some = n - j < PIECE ? n - j : PIECE, at = i * g->c_row + j;
      const char *plus = end->plus ? (const char *)end->plus + at * (g->plus == DT_TYPE_F32 ? 4 : 2) : NULL;
      memcpy(v, sum + i * row + j, (size_t)some * sizeof *v);
      if (plus && end->plus_first) add_row(some, v, g->plus, plus);
      if (end->bias) add_row(some, v, g->bias, (const char *)end->bias + j * (g->bias == DT_TYPE_F32 ? 4 : 2));
      if (plus && !end->plus_first) add_row(some, v, g->plus, plus);
      if (end->kept) put_row(g->kept, end->kept, at, v, some);
      if (end->act) end->act((void *const[]){v, (char *)c + at * (wide ? 4 : 2)}, 0, some);
      else put_row(g->result, c, at, v, some);
    }
}

void dt_gemm_half_tile(const DtGemm *g, int64_t m, int64_t n, const uint16_t *a, const uint16_t *b,
                       void *c, float beta, const GemmHalfEnd *end, int64_t together, DtGemmOffset *offset,
                       const void *ctx) {
  const int64_t kc = g->k < GEMM_HALF_K ? g->k : GEMM_HALF_K;
  int64_t need = dt_gemm_buffer(m, n, kc);
  float *buffer = dt_scratch((size_t)(need + kc * (m + n) + m * n + n) * sizeof(float));
  float *wide_a = buffer + need, *wide_b = wide_a + kc * m, *tile = wide_b + kc * n;
  bool round = g->result != DT_TYPE_F32;
  float *to = round ? tile : c;
  int64_t row = round ? n : g->c_row;
  for (int64_t i = 0; round && beta != 0 && i < m; i++)
    dt_widen(g->result, tile + i * n, (const uint16_t *)c + i * g->c_row, n);
  if (together <= 0) scale_rows(m, n, to, row, beta);
  for (int64_t i = 0; i < together; i++) {
    int64_t at_a, at_b;
    offset(ctx, i, &at_a, &at_b);
    for (int64_t p = 0; p < g->k; p += kc, beta = 1) {
      int64_t k = g->k - p < kc ? g->k - p : kc;
      Block x = widen_block(g->operand, a + at_a + p * g->a_col, g->a_row, g->a_col, m, k, wide_a);
      Block y = widen_block(g->operand, b + at_b + p * g->b_row, g->b_row, g->b_col, k, n, wide_b);
      DtGemm part = {.m = m, .n = n, .k = k, .a_row = x.row, .a_col = x.col, .b_row = y.row,
                     .b_col = y.col, .c_row = row};
      dt_gemm_own_tile(&part, m, n, x.at, y.at, to, beta, buffer);
    }
  }
  if (round || end->bias || end->plus || end->kept || end->act) dt_gemm_half_finish(g, end, m, n, to, row, c);
}

// ---- Which way

static atomic_int chosen = -1; // -1: not chosen yet

static bool can(DtGemmBf16Use use) {
  return use < DT_GEMM_AVX512 || dt_cpu_has_pairs(use == DT_GEMM_AMX ? DT_PAIRS_BY_AMX : DT_PAIRS_BY_AVX512);
}

DtGemmBf16Use dt_gemm_bf16_use(DtGemmBf16Use use) {
  if (!can(use)) use = DT_GEMM_FLOAT;
  atomic_store(&chosen, (int)use);
  return use;
}

static const char *const pairs_name[] = {"float", "vector", "tile"}; // by DtPairs

static DtGemmBf16Use use_now(void) {
  int use = atomic_load_explicit(&chosen, memory_order_relaxed);
  if (use >= 0) return (DtGemmBf16Use)use;
  const char *name = getenv("DT_GEMM_BF16");
  for (int i = 0; name && i < 3; i++)
    if (!strcmp(name, pairs_name[i])) return dt_gemm_bf16_use(DT_GEMM_FLOAT + i);
  return dt_gemm_bf16_use(DT_GEMM_BF16_TABLE);
}

// The table's: what a named processor has, or the faster one of this processor's.
static DtPairs pairs_of_table(void) {
  if (dt_cpu_level_fixed()) return dt_cpu_named_pairs();
  if (dt_cpu_has_pairs(DT_PAIRS_BY_AMX)) return DT_PAIRS_BY_AMX;
  bool fast = dt_cpu_amd() ? DT_PAIRS_AVX512_FAST_AMD : DT_PAIRS_AVX512_FAST;
  return fast && dt_cpu_has_pairs(DT_PAIRS_BY_AVX512) ? DT_PAIRS_BY_AVX512 : DT_PAIRS_NONE;
}

static DtPairs pairs_now(void) {
  DtGemmBf16Use use = use_now();
  return use == DT_GEMM_BF16_TABLE ? pairs_of_table() : (DtPairs)(use - DT_GEMM_FLOAT);
}

const char *dt_gemm_bf16_name(void) { return pairs_name[pairs_now()]; }

const DtPairsKernel *dt_gemm_pairs(const DtGemm *g) {
#if defined(__x86_64__)
  static const DtPairsKernel *const kernel[] = {NULL, &dt_pairs_avx512, &dt_pairs_amx};
  return g->operand == DT_TYPE_BF16 && g->result != DT_TYPE_F16 ? kernel[pairs_now()] : NULL;
#else
  (void)g;
  return NULL;
#endif
}
