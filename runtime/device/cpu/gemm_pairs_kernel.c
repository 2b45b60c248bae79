// Micro-kernels of products of bf16: by AVX512_BF16 and by AMX.
#include "runtime/device/cpu/gemm_pairs.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

// ---- AVX512_BF16: a chain of pairs in order for each element of C

enum { ROWS = 8, DOT_NR = 16 * DT_PAIRS_AVX512_VECTORS }; // 24 of 32 registers hold C, 3 a row of B

#define DT_DOT __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))

// Eight rows from `a`, where a row is 64 bytes from the one before.
DT_DOT static inline __attribute__((always_inline)) void dot_rows(int vectors, int64_t steps, bool more,
                                                                  const uint16_t *a, const uint16_t *b, float *sum) {
  __m512 c[ROWS][DT_PAIRS_AVX512_VECTORS];
#pragma GCC unroll 8
  for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 4
    for (int j = 0; j < vectors; j++)
      c[i][j] = more ? _mm512_loadu_ps(sum + i * DOT_NR + 16 * j) : _mm512_setzero_ps();
  for (int64_t s = 0; s < steps; s++, a += PAIRS_PANEL * PAIRS_STEP)
    for (int p = 0; p < PAIRS_STEP; p += 2, b += 2 * DOT_NR) {
      __m512bh bv[DT_PAIRS_AVX512_VECTORS];
#pragma GCC unroll 4
      for (int j = 0; j < vectors; j++) bv[j] = (__m512bh)_mm512_loadu_si512(b + 32 * j);
#pragma GCC unroll 8
      for (int i = 0; i < ROWS; i++) {
        int32_t pair;
        memcpy(&pair, a + i * PAIRS_STEP + p, sizeof pair);
        __m512bh av = (__m512bh)_mm512_set1_epi32(pair);
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) c[i][j] = _mm512_dpbf16_ps(c[i][j], av, bv[j]);
      }
    }
#pragma GCC unroll 8
  for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 4
    for (int j = 0; j < vectors; j++) _mm512_storeu_ps(sum + i * DOT_NR + 16 * j, c[i][j]);
}

DT_DOT static void dot_micro(int64_t panels, int64_t vectors, int64_t steps, bool more, int64_t panel,
                             const uint16_t *a, const uint16_t *b, float *sum) {
  for (int64_t i = 0; i < panels * PAIRS_PANEL; i += ROWS, sum += ROWS * DOT_NR) {
    const uint16_t *rows = a + i / PAIRS_PANEL * panel + i % PAIRS_PANEL * PAIRS_STEP;
    if (vectors == 1) dot_rows(1, steps, more, rows, b, sum);
    else if (vectors == 2) dot_rows(2, steps, more, rows, b, sum);
    else dot_rows(3, steps, more, rows, b, sum);
  }
}

const DtPairsKernel dt_pairs_avx512 = {DT_PAIRS_AVX512, DT_PAIRS_AVX512_STEPS, dot_micro, NULL, NULL};

// ---- AMX: tiles of 16 x 16 of C, two by two

// The compiler's intrinsics hide from it which memory a tile is loaded from: these say that it is any.
#define LOAD(tile, at, stride)                                                                              \
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile : : "r"(at), "r"((int64_t)(stride)) : "memory")
#define STORE(tile, at, stride)                                                                             \
  __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" : : "r"(at), "r"((int64_t)(stride)) : "memory")
#define ADD_PRODUCT(c, a, b) __asm__ volatile("tdpbf16ps %tmm" #b ", %tmm" #a ", %tmm" #c)
#define ZERO(tile) __asm__ volatile("tilezero %tmm" #tile)

enum { AMX_NR = 16 * DT_PAIRS_AMX_VECTORS };

// Of 16 rows of 64 bytes, all eight.
static void amx_begin(void) {
  struct {
    uint8_t palette, start, zero[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  } tiles = {.palette = 1};
  for (int i = 0; i < 8; i++) tiles.row_bytes[i] = 64, tiles.rows[i] = 16;
  __asm__ volatile("ldtilecfg %0" : : "m"(tiles) : "memory");
}

static void amx_end(void) { __asm__ volatile("tilerelease"); }

// A tile of C, its sums at `sum` where it has some.
#define START(tile, more, sum)                        \
  if (more) LOAD(tile, sum, 4 * AMX_NR);              \
  else ZERO(tile)

static void amx_one(int64_t steps, bool more, const uint16_t *a, const uint16_t *b, float *sum) {
  START(0, more, sum);
  for (int64_t s = 0; s < steps; s++, a += PAIRS_PANEL * PAIRS_STEP, b += PAIRS_STEP * AMX_NR) {
    LOAD(4, a, 64);
    LOAD(6, b, 4 * AMX_NR);
    ADD_PRODUCT(0, 4, 6);
  }
  STORE(0, sum, 4 * AMX_NR);
}

static void amx_row(int64_t steps, bool more, const uint16_t *a, const uint16_t *b, float *sum) {
  START(0, more, sum);
  START(1, more, sum + 16);
  for (int64_t s = 0; s < steps; s++, a += PAIRS_PANEL * PAIRS_STEP, b += PAIRS_STEP * AMX_NR) {
    LOAD(4, a, 64);
    LOAD(6, b, 4 * AMX_NR);
    ADD_PRODUCT(0, 4, 6);
    LOAD(7, b + 2 * 16, 4 * AMX_NR);
    ADD_PRODUCT(1, 4, 7);
  }
  STORE(0, sum, 4 * AMX_NR);
  STORE(1, sum + 16, 4 * AMX_NR);
}

static void amx_square(int64_t steps, bool more, int64_t panel, const uint16_t *a, const uint16_t *b, float *sum) {
  const uint16_t *below = a + panel;
  float *sum_below = sum + 16 * AMX_NR;
  START(0, more, sum);
  START(1, more, sum + 16);
  START(2, more, sum_below);
  START(3, more, sum_below + 16);
  for (int64_t s = 0; s < steps; s++, a += PAIRS_PANEL * PAIRS_STEP, b += PAIRS_STEP * AMX_NR) {
    LOAD(4, a, 64);
    LOAD(6, b, 4 * AMX_NR);
    ADD_PRODUCT(0, 4, 6);
    LOAD(7, b + 2 * 16, 4 * AMX_NR);
    ADD_PRODUCT(1, 4, 7);
    LOAD(5, below, 64);
    ADD_PRODUCT(2, 5, 6);
    ADD_PRODUCT(3, 5, 7);
    below += PAIRS_PANEL * PAIRS_STEP;
  }
  STORE(0, sum, 4 * AMX_NR);
  STORE(1, sum + 16, 4 * AMX_NR);
  STORE(2, sum_below, 4 * AMX_NR);
  STORE(3, sum_below + 16, 4 * AMX_NR);
}

static void amx_micro(int64_t panels, int64_t vectors, int64_t steps, bool more, int64_t panel, const uint16_t *a,
                      const uint16_t *b, float *sum) {
  if (panels == 2 && vectors == 2) {
    amx_square(steps, more, panel, a, b, sum);
    return;
  }
  for (int64_t i = 0; i < panels; i++, a += panel, sum += 16 * AMX_NR)
    if (vectors == 2) amx_row(steps, more, a, b, sum);
    else amx_one(steps, more, a, b, sum);
}

const DtPairsKernel dt_pairs_amx = {DT_PAIRS_AMX, DT_PAIRS_AMX_STEPS, amx_micro, amx_begin, amx_end};
#endif
