// Batched strided matrix products, fp32, fp64 and of 16-bit operands:  C[m, n] = beta * C + A[m, k] * B[k, n].
//
// Each tile of C belongs to one thread and is computed by our own kernel, or by oneDNN where that is asked for;
// the order of a sum over k is a function of the shape and the instruction set. So the
// bits are the same on any number of threads and from run to run.
#ifndef DTC_RUNTIME_CPU_GEMM_H
#define DTC_RUNTIME_CPU_GEMM_H

#include "runtime/device/product.h"

// beta is usually 0 (C is only written, and may be uninitialised) or 1 (accumulate).
// An empty sum (k == 0) is 0.
void dt_gemm_f32(const DtGemm *g, const float *a, const float *b, float *c, float beta);
void dt_gemm_f64(const DtGemm *g, const double *a, const double *b, double *c, double beta);

// C[m, n] = act(A[m, k] * B[k, n] + bias[n] + plus[m, n]): the product is rounded before the first is added, and each sum.
// A block of C gets these when its sums are done, while it is in the cache.
void dt_gemm_then_f32(const DtGemm *g, const float *a, const float *b, float *c, const DtEpilogue *e);
void dt_gemm_then_f64(const DtGemm *g, const double *a, const double *b, double *c, const DtEpilogue *e);

// The same with A and B of type g->operand, BF16 or F16; C is of g->result, the bias of g->bias and what is added of
// g->plus, F32 or 16 bits too. Operands are converted to float and added up in float by our own kernel, in its
// order, C where beta is not 0 and the bias included; or, of BF16, multiplied and added up by the processor's
// instructions on pairs (doc/numerics.md). C is rounded once, to nearest even.
void dt_gemm_half(const DtGemm *g, const void *a, const void *b, void *c, float beta);
void dt_gemm_then_half(const DtGemm *g, const void *a, const void *b, void *c, const DtEpilogue *e);

// Chooses the code for products in float: our own kernel, or oneDNN wherever it can. Without a call the environment
// variable DT_GEMM says ("own" or "dnnl"), else our own. Returns what is taken: DT_GEMM_OWN where oneDNN is asked for
// and is not there. Results differ in rounding. Before there are threads.
typedef enum { DT_GEMM_OWN, DT_GEMM_DNNL } DtGemmUse;
DtGemmUse dt_gemm_use(DtGemmUse use);
const char *dt_gemm_name(void); // of what is taken now: "own", "oneDNN 2.6.3"

// The same of BF16: the table, conversion to float, AVX512_BF16 or AMX; without a call DT_GEMM_BF16 says
// ("float", "vector", "tile"), else the table. Returns DT_GEMM_FLOAT where the processor lacks what is asked for.
typedef enum { DT_GEMM_BF16_TABLE, DT_GEMM_FLOAT, DT_GEMM_AVX512, DT_GEMM_AMX } DtGemmBf16Use;
DtGemmBf16Use dt_gemm_bf16_use(DtGemmBf16Use use);
const char *dt_gemm_bf16_name(void); // of what is taken now, as in DT_GEMM_BF16

#endif
