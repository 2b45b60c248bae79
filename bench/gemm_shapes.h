// The matrix products of one GPT-2 124M training step, for the programs in this directory.
#ifndef DTC_BENCH_GEMM_SHAPES_H
#define DTC_BENCH_GEMM_SHAPES_H

#include "runtime/device/cpu/gemm.h"

// op: 'N' C = A[m,k] B[k,n]; 'T' C = A[m,k] B[n,k]^T; 'W' C += A[k,m]^T B[k,n].
typedef struct {
  const char *name;
  char op;
  int64_t m, n, k;
  int times; // in one step
} GemmShape;

enum { GEMM_SHAPES = 15 };

// Fills the table for `tokens` = batch * length positions.
static inline void gemm_shapes(int64_t tokens, GemmShape shape[GEMM_SHAPES]) {
  static const struct {
    const char *name;
    int64_t in, out;
  } layer[4] = {{"qkv", 768, 2304}, {"proj", 768, 768}, {"up", 768, 3072}, {"down", 3072, 768}};
  for (int i = 0; i < 4; i++) {
    shape[3 * i] = (GemmShape){layer[i].name, 'N', tokens, layer[i].out, layer[i].in, 12};
    shape[3 * i + 1] = (GemmShape){layer[i].name, 'T', tokens, layer[i].in, layer[i].out, 12};
    shape[3 * i + 2] = (GemmShape){layer[i].name, 'W', layer[i].in, layer[i].out, tokens, 12};
  }
  shape[12] = (GemmShape){"logits", 'T', tokens, 50257, 768, 1};
  shape[13] = (GemmShape){"logits", 'N', tokens, 768, 50257, 1};
  shape[14] = (GemmShape){"logits", 'W', 50257, 768, tokens, 1};
}

static inline DtGemm gemm_of_shape(const GemmShape *s) {
  DtGemm g = {.m = s->m, .n = s->n, .k = s->k, .c_row = s->n};
  g.a_row = s->op == 'W' ? 1 : s->k;
  g.a_col = s->op == 'W' ? s->m : 1;
  g.b_row = s->op == 'T' ? 1 : s->n;
  g.b_col = s->op == 'T' ? s->k : 1;
  return g;
}

#endif
