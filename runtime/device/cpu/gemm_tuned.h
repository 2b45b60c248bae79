// How matrix products are cut for the caches; found by bench/tune_gemm.c, which prints the table.
//
// kc is part of a program's meaning: a sum over k is taken in blocks of kc, each added to C in
// turn; it is the same at all levels, so that levels 3 and 4 give the same bits. mc and nc change
// speed only. The blocks of A (mc x kc) and of B (kc x nc) are packed and stay in the second-level
// cache together; a strip of B (kc x columns of the micro-kernel) stays in the first-level cache.
#ifndef DTC_RUNTIME_CPU_GEMM_TUNED_H
#define DTC_RUNTIME_CPU_GEMM_TUNED_H

#include <stdbool.h>

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

#endif
