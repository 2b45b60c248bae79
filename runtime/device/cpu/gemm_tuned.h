// How matrix products are cut for the caches; found by bench/tune_gemm.c, which prints the table.
//
// kc is part of a program's meaning: a sum over k is taken in blocks of kc, each added to C in
// turn; it is the same at all levels, so that levels 3 and 4 give the same bits. mc and nc change
// speed only. The blocks of A (mc x kc) and of B (kc x nc) are packed and stay in the second-level
// cache together; a strip of B (kc x columns of the micro-kernel) stays in the first-level cache.
#ifndef DTC_RUNTIME_CPU_GEMM_TUNED_H
#define DTC_RUNTIME_CPU_GEMM_TUNED_H

#include <stdbool.h>
#include <stdint.h>

//                        kc   mc   nc
#define DT_GEMM_F32_V4 {256, 128, 384}
#define DT_GEMM_F64_V4 {256, 128, 384}
#define DT_GEMM_F32_V3 {256, 256, 768}
#define DT_GEMM_F64_V3 {256, 128, 384}
#define DT_GEMM_F32_V1 {256, 256, 768}
#define DT_GEMM_F64_V1 {256, 128, 384}

// The micro-kernel's tile: rows; columns in float and in double.
#define DT_GEMM_MR_V4 8
#define DT_GEMM_NR_V4 {48, 24}
#define DT_GEMM_MR_V3 4
#define DT_GEMM_NR_V3 {24, 12}
#define DT_GEMM_MR_V1 4
#define DT_GEMM_NR_V1 {8, 4}

// Of bf16 by instructions on pairs of them (gemm_pairs.h): the micro-kernel's tile, in panels of 16 rows
// and vectors of 16 columns; kc, which is part of a program's meaning here too; a task's tile of C, at most; steps
// of 32 terms at a time. The task's rows of A (m x kc) stay in the second-level cache, and so do C's sums where kc is
// more than these steps: their part of a strip of B stays in the first-level cache.
#define DT_PAIRS_AVX512_VECTORS 3
#define DT_PAIRS_AMX_VECTORS 2
#define DT_PAIRS_AVX512 1, DT_PAIRS_AVX512_VECTORS, 256, 192, 384
#define DT_PAIRS_AMX 2, DT_PAIRS_AMX_VECTORS, 1024, 512, 384
#define DT_PAIRS_AVX512_STEPS 8
#define DT_PAIRS_AMX_STEPS 16
// Whether AVX512_BF16 is faster than conversion to float.
#define DT_PAIRS_AVX512_FAST false
#define DT_PAIRS_AVX512_FAST_AMD true

// Who computes a product in float, and on which tile: the first line that fits. A kind says which
// operands' rows are contiguous (N) and which columns (T).
enum { GEMM_NN = 0, GEMM_NT = 1, GEMM_TN = 2, GEMM_TT = 3, GEMM_ANY = 15 };
typedef struct {
  unsigned kinds;  // bits 1 << GEMM_..
  int64_t m, n, k; // at least
  bool dnnl;       // oneDNN, else our own kernel
  int64_t tile_m, tile_n; // oneDNN's tiles, at most
} GemmRule;

// Measured by bench/gemm.c on AVX-512 (doc/measurements.md), on an Intel processor of family 6,
// model 207: a B of contiguous columns costs oneDNN more to pack than it gains, and so does an A of
// long contiguous columns or a deep one.
static const GemmRule gemm_f32_rule[] = {
    {1 << GEMM_NT | 1 << GEMM_TT, 0, 0, 0, false, 512, 768},
    {1 << GEMM_TN, 2048, 0, 512, false, 512, 768},
    {1 << GEMM_TN, 16384, 0, 0, false, 512, 768},
    {1 << GEMM_TN, 0, 0, 2048, false, 512, 768},
    {GEMM_ANY, 192, 192, 192, true, 512, 768},
    {GEMM_ANY, 0, 0, 0, false, 512, 768},
};

// On an AMD processor of family 26 oneDNN wins only where both operands' rows are contiguous, and
// there where A has few rows or long ones, and B few columns.
static const GemmRule gemm_f32_rule_amd[] = {
    {1 << GEMM_NT | 1 << GEMM_TT | 1 << GEMM_TN, 0, 0, 0, false, 512, 768},
    {GEMM_ANY, 192, 192, 16384, true, 512, 768},
    {GEMM_ANY, 512, 0, 0, false, 512, 768},
    {GEMM_ANY, 0, 3072, 0, false, 512, 768},
    {GEMM_ANY, 192, 192, 192, true, 512, 768},
    {GEMM_ANY, 0, 0, 0, false, 512, 768},
};

#endif
