// Attention: one task for each block of queries forward, for each kv head backward.
// attention_kernel.h computes a task.
#include "runtime/device/cpu/attention.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "runtime/device/cpu/level.h"
#include "runtime/device/cpu/scratch.h"
#include "runtime/base/parallel.h"

static int64_t blocks_of(int64_t queries) { return (queries + ATTENTION_Q - 1) / ATTENTION_Q; }

// Blocks of queries, none of which goes past the jump; the first query of one.
static int64_t query_blocks(const DtAttention *x) {
  return blocks_of(x->q_turn) + blocks_of(x->tq - x->q_turn);
}

static int64_t query_of_block(const DtAttention *x, int64_t block) {
  int64_t first = blocks_of(x->q_turn);
  return block < first ? block * ATTENTION_Q : x->q_turn + (block - first) * ATTENTION_Q;
}

#define DT_F64 0
#define DT_LEVEL 1
#include "runtime/device/cpu/vector.h"
#include "runtime/device/cpu/gemm_kernel.h"
#include "runtime/device/cpu/tile_kernel.h"
#include "runtime/device/cpu/attention_kernel.h"
#if defined(__x86_64__)
#undef DT_LEVEL
#define DT_LEVEL 3
#include "runtime/device/cpu/vector.h"
#include "runtime/device/cpu/gemm_kernel.h"
#include "runtime/device/cpu/tile_kernel.h"
#include "runtime/device/cpu/attention_kernel.h"
#undef DT_LEVEL
#define DT_LEVEL 4
#include "runtime/device/cpu/vector.h"
#include "runtime/device/cpu/gemm_kernel.h"
#include "runtime/device/cpu/tile_kernel.h"
#include "runtime/device/cpu/attention_kernel.h"
#endif
#undef DT_F64
#define DT_F64 1
#undef DT_LEVEL
#define DT_LEVEL 1
#include "runtime/device/cpu/vector.h"
#include "runtime/device/cpu/gemm_kernel.h"
#include "runtime/device/cpu/tile_kernel.h"
#include "runtime/device/cpu/attention_kernel.h"
#if defined(__x86_64__)
#undef DT_LEVEL
#define DT_LEVEL 3
#include "runtime/device/cpu/vector.h"
#include "runtime/device/cpu/gemm_kernel.h"
#include "runtime/device/cpu/tile_kernel.h"
#include "runtime/device/cpu/attention_kernel.h"
#undef DT_LEVEL
#define DT_LEVEL 4
#include "runtime/device/cpu/vector.h"
#include "runtime/device/cpu/gemm_kernel.h"
#include "runtime/device/cpu/tile_kernel.h"
#include "runtime/device/cpu/attention_kernel.h"
#endif

typedef struct {
  DtKernel *forward[2], *backward[2]; // [f64]
} Variant;

static const Variant *variant(void) {
  static const Variant baseline = {{forward_tasks_f32_v1, forward_tasks_f64_v1},
                                   {backward_tasks_f32_v1, backward_tasks_f64_v1}};
#if defined(__x86_64__)
  static const Variant avx2 = {{forward_tasks_f32_v3, forward_tasks_f64_v3},
                               {backward_tasks_f32_v3, backward_tasks_f64_v3}};
  static const Variant avx512 = {{forward_tasks_f32_v4, forward_tasks_f64_v4},
                                 {backward_tasks_f32_v4, backward_tasks_f64_v4}};
  int level = dt_cpu_level_now();
  if (level == 4) return &avx512;
  if (level == 3) return &avx2;
#endif
  return &baseline;
}

static void forward(const DtAttention *x, int f64, const void *q, const void *k, const void *v,
                    void *o, void *lse) {
  void *arg[] = {(void *)x, (void *)q, (void *)k, (void *)v, o, lse};
  int64_t heads = x->batch * x->kv_heads * x->group;
  dt_parallel(variant()->forward[f64], arg, heads * query_blocks(x), 1);
}

static void backward(const DtAttention *x, int f64, const void *q, const void *k, const void *v,
                     const void *o, const void *lse, const void *dout, void *dq, void *dk,
                     void *dv) {
  void *arg[] = {(void *)x,   (void *)q,    (void *)k, (void *)v, (void *)o,
                 (void *)lse, (void *)dout, dq,        dk,        dv};
  dt_parallel(variant()->backward[f64], arg, x->batch * x->kv_heads, 1);
}

void dt_attention_fwd_f32(const DtAttention *x, const float *q, const float *k, const float *v,
                          float *o, float *lse) {
  forward(x, 0, q, k, v, o, lse);
}

void dt_attention_fwd_f64(const DtAttention *x, const double *q, const double *k, const double *v,
                          double *o, double *lse) {
  forward(x, 1, q, k, v, o, lse);
}

void dt_attention_bwd_f32(const DtAttention *x, const float *q, const float *k, const float *v,
                          const float *o, const float *lse, const float *dout, float *dq, float *dk,
                          float *dv) {
  backward(x, 0, q, k, v, o, lse, dout, dq, dk, dv);
}

void dt_attention_bwd_f64(const DtAttention *x, const double *q, const double *k, const double *v,
                          const double *o, const double *lse, const double *dout, double *dq,
                          double *dk, double *dv) {
  backward(x, 1, q, k, v, o, lse, dout, dq, dk, dv);
}
