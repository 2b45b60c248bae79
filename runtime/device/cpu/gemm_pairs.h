// Products of bf16 by instructions that multiply pairs of them and add up in float: how operands are
// packed, and the micro-kernels of the two instruction sets. x86-64 alone has them.
#ifndef DTC_RUNTIME_CPU_GEMM_PAIRS_H
#define DTC_RUNTIME_CPU_GEMM_PAIRS_H

#include "runtime/device/cpu/gemm_job.h"
#include "runtime/device/cpu/gemm_tuned.h"

// A panel is 16 rows of A; a step is 32 of the terms of a sum. A packed panel is its steps in turn, each
// 16 rows of 32 elements. A packed strip of B is `nr` columns: for each pair of rows the pairs
// (B[2p, j], B[2p + 1, j]) of column after column. Elements past the edge of A or B are 0.
enum { PAIRS_PANEL = 16, PAIRS_STEP = 32 };

// sum[i, j] = A[i, ..] * B[.., j] over `steps` steps, or (more) the chains of additions that sum[i, j] ends go on:
// `panels` panels of A, `panel` elements from one to the next, and `vectors` vectors of 16 columns of a strip. A row
// of `sum` has nr elements.
typedef void DtPairsMicro(int64_t panels, int64_t vectors, int64_t steps, bool more, int64_t panel, const uint16_t *a,
                          const uint16_t *b, float *sum);

struct DtPairsKernel {
  int64_t panels, vectors; // of the micro-kernel's tile of C: rows / 16, columns / 16
  int64_t kc;              // terms of a sum that the micro-kernel adds up, at most (dt_pairs_block)
  int64_t m, n;            // of a task's tile of C, at most
  int64_t steps;           // that the micro-kernel adds up at a time
  DtPairsMicro *micro;
  void (*begin)(void), (*end)(void); // around a task, on its thread; or NULL
};

extern const DtPairsKernel dt_pairs_avx512, dt_pairs_amx;

#endif
