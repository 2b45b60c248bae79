// How much scratch memory (dt_scratch) a call of a product or of attention asks for on a thread.
// The compiler takes the most over all calls of a program (DtProgram.scratch_bytes); the runtime
// has so much for each thread before the first step, and no more after.
#ifndef DTC_RUNTIME_CPU_SCRATCH_H
#define DTC_RUNTIME_CPU_SCRATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/program.h"
#include "runtime/device/cpu/gemm_tuned.h"

// Queries and keys in a block: whole micro-kernel tiles at every level, and the blocks of scores
// fit the second-level cache. They are part of a program's meaning: maxima and sums go block by
// block.
enum { ATTENTION_Q = 96, ATTENTION_K = 256 };

static inline int64_t dt_least_up(int64_t most, int64_t n, int64_t unit) {
  n = (n + unit - 1) / unit * unit;
  return n < most ? n : most;
}

// Bytes for C[m, n] = A[m, k] * B[k, n] by our own kernel: packed blocks of A and B. On any number
// of threads, and at the level of the instruction set that takes most: a program does not know
// where it will run. oneDNN asks for none of this.
static inline int64_t dt_gemm_scratch(int64_t m, int64_t n, int64_t k, bool f64) {
  static const struct {
    int64_t mr, nr[2], cut[2][3];
  } level[] = {{DT_GEMM_MR_V1, DT_GEMM_NR_V1, {DT_GEMM_F32_V1, DT_GEMM_F64_V1}},
               {DT_GEMM_MR_V3, DT_GEMM_NR_V3, {DT_GEMM_F32_V3, DT_GEMM_F64_V3}},
               {DT_GEMM_MR_V4, DT_GEMM_NR_V4, {DT_GEMM_F32_V4, DT_GEMM_F64_V4}}};
  int64_t most = 0;
  for (int i = 0; i < 3; i++) {
    const int64_t *cut = level[i].cut[f64];
    int64_t need = dt_least_up(cut[0], k, 1) * (dt_least_up(cut[1], m, level[i].mr) +
                                                dt_least_up(cut[2], n, level[i].nr[f64]));
    if (need > most) most = need;
  }
  return most * (f64 ? 8 : 4);
}

// Bytes for one of 16-bit operands: its blocks of A and B and its tile of C as float as well.
enum { GEMM_HALF_M = 192, GEMM_HALF_N = 384, GEMM_HALF_K = 256 };
static inline int64_t dt_gemm_half_scratch(int64_t m, int64_t n, int64_t k) {
  int64_t mt = dt_least_up(GEMM_HALF_M, m, 8), nt = dt_least_up(GEMM_HALF_N, n, 48),
          kb = dt_least_up(GEMM_HALF_K, k, 1);
  return dt_gemm_scratch(mt, nt, kb, false) + 4 * (kb * (mt + nt) + mt * nt + nt + 64);
}

// Of one of bf16 by instructions on pairs: the extents of what a task has packed, rounded up.
typedef struct DtPairsExtents {
  int64_t m, n, k, nr; // a tile of C; terms; a strip's columns
} DtPairsExtents;
// Terms in a block of a sum of k, at most kc: blocks are equal, up to whole steps.
static inline int64_t dt_pairs_block(int64_t kc, int64_t k) {
  int64_t blocks = (k + kc - 1) / kc;
  return blocks ? ((k + blocks - 1) / blocks + 31) / 32 * 32 : 0;
}
static inline DtPairsExtents dt_pairs_extents(int64_t panels, int64_t vectors, int64_t kc, int64_t most_m,
                                              int64_t most_n, int64_t m, int64_t n, int64_t k) {
  DtPairsExtents x = {.nr = 16 * vectors};
  x.m = dt_least_up(most_m, m, 16 * panels), x.n = dt_least_up(most_n, n, x.nr), x.k = dt_pairs_block(kc, k);
  return x;
}
// A strip's sums, the bias and C's tile as float, A's panels and a strip of B.
static inline int64_t dt_pairs_bytes(const DtPairsExtents *x) {
  return 4 * (x->m * x->nr + x->n + x->m * x->n) + 2 * x->k * (x->m + x->nr);
}

// Bytes for a product of bf16, whatever computes it.
static inline int64_t dt_gemm_bf16_scratch(int64_t m, int64_t n, int64_t k) {
  DtPairsExtents x[] = {dt_pairs_extents(DT_PAIRS_AVX512, m, n, k), dt_pairs_extents(DT_PAIRS_AMX, m, n, k)};
  int64_t most = dt_gemm_half_scratch(m, n, k);
  for (int i = 0; i < 2; i++)
    if (dt_pairs_bytes(&x[i]) > most) most = dt_pairs_bytes(&x[i]);
  return most;
}

// Elements for a block of attention over heads of `e` elements, a multiple of the vector's lanes.
static inline int64_t dt_attention_elements(int64_t e, bool backward) {
  const int64_t q = ATTENTION_Q, k = ATTENTION_K;
  int64_t need = k * q + 2 * k * e + 2 * q * e + 3 * q;
  return backward ? need + k * q + 2 * k * e + 3 * q * e : need;
}

// Bytes for attention over heads of `dim` elements, with the widest vectors that there are.
static inline int64_t dt_attention_scratch(int64_t dim, bool backward, bool f64) {
  const int64_t lanes = f64 ? 8 : 16;
  return dt_attention_elements((dim + lanes - 1) / lanes * lanes, backward) * (f64 ? 8 : 4);
}

// Bytes for the end of an extent (runtime/device/cpu/launch.h): a tile of each array, of elements of `size` bytes.
enum { DT_EXTENT_ARRAYS = 2 + DT_MAX_MOMENTS };
static inline int64_t dt_extent_scratch(int64_t tile, int64_t size) { return DT_EXTENT_ARRAYS * tile * size; }

#endif
