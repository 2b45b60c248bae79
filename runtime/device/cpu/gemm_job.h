// Inside of matrix products: how a call is cut into tasks, and what computes one. gemm.c has our
// own kernels; gemm_f32.c chooses between them and the matrix library, gemm_half.c how
// 16-bit operands are multiplied.
#ifndef DTC_RUNTIME_CPU_GEMM_JOB_H
#define DTC_RUNTIME_CPU_GEMM_JOB_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/parallel.h"
#include "runtime/device/cpu/gemm.h"

// C[m, n] = beta * C + A[m, g->k] * B[g->k, n] on the calling thread alone.
typedef void DtGemmTile(const DtGemm *g, int64_t m, int64_t n, const float *a, const float *b,
                        float *c, float beta);

// A library's product of one tile. Its bits may depend on a tile's size, so that tiles are m x n
// (less at the edges) whatever the number of threads; our own kernel's do not, and its follow it.
typedef struct {
  DtGemmTile *tile;
  int64_t m, n;
} DtGemmLibrary;

// All of g, and `then` unless it is NULL. library NULL: our own kernel. fp64 has no library.
void dt_gemm_run(const DtGemm *g, const void *a, const void *b, void *c, double beta,
                 const DtEpilogue *then, bool f64, const DtGemmLibrary *library);

// A tile of float on the calling thread by our own kernel: C[m, n] = beta * C + A[m, k] * B[k, n].
// `buffer` has room for dt_gemm_buffer elements.
void dt_gemm_own_tile(const DtGemm *g, int64_t m, int64_t n, const float *a, const float *b, float *c,
                      float beta, float *buffer);
int64_t dt_gemm_buffer(int64_t m, int64_t n, int64_t k);

// What is added to sums of 16-bit operands, of types g->bias and g->plus, at the tile's first column and element; NULL:
// nothing.
typedef struct {
  const void *bias, *plus;
  void *kept; // of type g->kept: where the sums go before `act`
  DtKernel *act;
  bool plus_first;
} GemmHalfEnd;
// C[m, n] = act(sum[m, n] + those), rounded once; rows of `sum` are `row` apart. `sum` may be C itself, of float.
void dt_gemm_half_finish(const DtGemm *g, const GemmHalfEnd *end, int64_t m, int64_t n, const float *sum, int64_t row,
                         void *c);

// A task of a product whose operands are of 16 bits (gemm_half.c): a tile of C at most GEMM_HALF_M x
// GEMM_HALF_N, `together` products added up, the i-th of which has its operands a[i] and b[i] elements on.
typedef void DtGemmOffset(const void *ctx, int64_t i, int64_t *a, int64_t *b);
void dt_gemm_half_tile(const DtGemm *g, int64_t m, int64_t n, const uint16_t *a, const uint16_t *b,
                       void *c, float beta, const GemmHalfEnd *end, int64_t together, DtGemmOffset *offset,
                       const void *ctx);

// The same of bf16, by instructions on pairs: a tile at most kernel->m x kernel->n.
typedef struct DtPairsKernel DtPairsKernel;
void dt_gemm_pairs_tile(const DtPairsKernel *kernel, const DtGemm *g, int64_t m, int64_t n, const uint16_t *a,
                        const uint16_t *b, void *c, float beta, const GemmHalfEnd *end, int64_t together,
                        DtGemmOffset *offset, const void *ctx);

// Which of them computes g; NULL: dt_gemm_half_tile does.
const DtPairsKernel *dt_gemm_pairs(const DtGemm *g);

#endif
