// Attention: one task for each block of queries forward, for each kv head backward.
// attention_kernel.h computes a task.
#include "runtime/device/cpu/attention.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "runtime/base/real.h"
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

// A block of queries against a block of keys; neither goes past a turn.
typedef struct {
  const DtAttention *x;
  int64_t query, queries, key, keys;
  int64_t offset; // position of query 0 less position of key 0, were all as these
} Pair;

// The blocks that begin at a query and at a key.
static inline Pair pair_at(const DtAttention *x, int64_t query, int64_t key) {
  int64_t queries = (query < x->q_turn ? x->q_turn : x->tq) - query;
  int64_t keys = (key < x->k_turn ? x->k_turn : x->tk) - key;
  int64_t offset = x->offset + (query < x->q_turn ? 0 : x->q_jump);
  if (key >= x->k_turn) offset -= x->k_jump;
  return (Pair){x,   query, queries < ATTENTION_Q ? queries : ATTENTION_Q,
                key, keys < ATTENTION_K ? keys : ATTENTION_K, offset};
}

// Query i of the block sees keys [hidden, seen) of the block of keys.
static inline int64_t seen(const Pair *p, int64_t i) {
  int64_t last = p->query + i + p->offset + p->x->ahead - p->key;
  return !p->x->causal || last >= p->keys ? p->keys : last < 0 ? 0 : last + 1;
}

static inline int64_t hidden(const Pair *p, int64_t i) {
  int64_t first = p->query + i + p->offset - p->x->window + 1 - p->key;
  return !p->x->window || first < 0 ? 0 : first < p->keys ? first : p->keys;
}

// The first key from `key` on that the window of some query of the block may reach, or a turn.
static int64_t key_in_window(const DtAttention *x, int64_t query, int64_t key) {
  int64_t end = key < x->k_turn ? x->k_turn : x->tk;
  int64_t first = query + pair_at(x, query, key).offset - x->window + 1;
  if (!x->window || first <= key) return key;
  if (first < end) return first;
  return end < x->tk ? key_in_window(x, query, end) : end;
}

// The blocks of keys for a block of queries, forward: false after the last.
static inline bool next_keys(Pair *p, const DtAttention *x, int64_t query, int64_t *key) {
  while ((*key = key_in_window(x, query, *key)) < x->tk) {
    *p = pair_at(x, query, *key);
    *key += p->keys;
    p->keys = seen(p, p->queries - 1);
    if (p->keys) return true;
  }
  return false;
}

// The part of a pair that is visible, backward: keys from a multiple of `tile` on. False: none is.
static inline bool cut_pair(Pair *p, int64_t tile, int64_t *first) {
  int64_t from = hidden(p, 0);
  bool some = from < seen(p, p->queries - 1);
  *first = from / tile * tile;
  p->key += *first;
  p->keys -= *first;
  return some;
}

static int64_t stands(const DtAttentionPlace *p, int side, const int32_t *n) {
  return p->from[side] + (n ? p->by[side] * *n : 0);
}

void dt_attention_place(DtAttention *x, const int32_t *q, const int32_t *k) {
  x->offset = stands(&x->q_at, 0, q) - stands(&x->k_at, 0, k);
  x->q_jump = x->q_turn ? stands(&x->q_at, 1, q) - stands(&x->q_at, 0, q) : 0;
  x->k_jump = x->k_turn ? stands(&x->k_at, 1, k) - stands(&x->k_at, 0, k) : 0;
}

int64_t dt_attention_pairs(const DtAttention *x, int backward) {
  int64_t pairs = 0, first;
  Pair p;
  for (int64_t block = 0; block < query_blocks(x); block++) {
    int64_t query = query_of_block(x, block), key = 0;
    if (!backward) {
      while (next_keys(&p, x, query, &key)) pairs += p.queries * p.keys;
      continue;
    }
    for (; key < x->tk; key += pair_at(x, query, key).keys) {
      p = pair_at(x, query, key);
      if (cut_pair(&p, 1, &first)) pairs += p.queries * seen(&p, p.queries - 1);
    }
  }
  return pairs;
}

// The head's value of an array by head, in either type.
static double of_head(const void *at, const DtAttentionStride *s, int64_t g, int64_t r, int f64) {
  int64_t i = g * s->g + r * s->r;
  return f64 ? ((const double *)at)[i] : (double)((const float *)at)[i];
}

static double slope_of(const DtAttention *x, int64_t g, int64_t r, int f64) {
  return x->slopes ? x->bias * of_head(x->slopes, &x->slope, g, r, f64) : x->bias;
}

static double sink_of(const DtAttention *x, int64_t g, int64_t r, int f64) {
  if (!x->has_sink) return -INFINITY;
  return x->sinks ? of_head(x->sinks, &x->sink_at, g, r, f64) : x->sink;
}

#define DT_BODY "runtime/device/cpu/attention_kernel.h"
#define DT_F64 0
#define DT_HALF 0
#include "runtime/device/cpu/levels.h"
#undef DT_HALF
#define DT_HALF 1
#include "runtime/device/cpu/levels.h"
#undef DT_HALF
#define DT_HALF 0
#undef DT_F64
#define DT_F64 1
#include "runtime/device/cpu/levels.h"

enum { F32, F64, HALF, KINDS };
typedef struct {
  DtKernel *forward[KINDS], *backward[KINDS];
} Variant;

static const Variant *variant(void) {
  static const Variant baseline = {{forward_tasks_f32_v1, forward_tasks_f64_v1, forward_tasks_half_v1},
                                   {backward_tasks_f32_v1, backward_tasks_f64_v1, backward_tasks_half_v1}};
#if defined(__x86_64__)
  static const Variant avx2 = {{forward_tasks_f32_v3, forward_tasks_f64_v3, forward_tasks_half_v3},
                               {backward_tasks_f32_v3, backward_tasks_f64_v3, backward_tasks_half_v3}};
  static const Variant avx512 = {{forward_tasks_f32_v4, forward_tasks_f64_v4, forward_tasks_half_v4},
                                 {backward_tasks_f32_v4, backward_tasks_f64_v4, backward_tasks_half_v4}};
  int level = dt_cpu_level_now();
  if (level == 4) return &avx512;
  if (level == 3) return &avx2;
#endif
  return &baseline;
}

// Gradients by head, tasks [begin, end) of heads: dsink = -sum(b, i: exp(sink - lse) * sum(e: o *
// dout)), added up in double in the order of b and i.
#define HEAD_TASKS(name, type, f64)                                                                \
  static void name(void *const *arg, int64_t begin, int64_t end) {                                 \
    const DtAttention *x = arg[0];                                                                 \
    const type *o = arg[4], *lse = arg[5], *dout = arg[6];                                         \
    for (int64_t h = begin; h < end; h++) {                                                        \
      int64_t g = h / x->group, r = h % x->group;                                                  \
      double sum = 0, sink = sink_of(x, g, r, f64);                                                \
      for (int64_t b = 0; b < x->batch && x->dsinks; b++)                                          \
        for (int64_t i = 0; i < x->tq; i++) {                                                      \
          const type *p = o + b * x->o.b + g * x->o.g + r * x->o.r + i * x->o.t;                   \
          const type *d = dout + b * x->dout.b + g * x->dout.g + r * x->dout.r + i * x->dout.t;    \
          double dot = 0;                                                                          \
          for (int64_t e = 0; e < x->dim; e++)                                                     \
            dot += (double)p[e * x->o.e] * (double)d[e * x->dout.e];                               \
          sum -= exp(sink - (double)lse[(b * x->kv_heads * x->group + h) * x->tq + i]) * dot;      \
        }                                                                                          \
      if (x->dsinks) ((type *)x->dsinks)[g * x->dsink.g + r * x->dsink.r] = (type)sum;             \
      if (x->dslopes) ((type *)x->dslopes)[g * x->dslope.g + r * x->dslope.r] = 0;                 \
    }                                                                                              \
  }
HEAD_TASKS(head_tasks_f32, float, 0)
HEAD_TASKS(head_tasks_f64, double, 1)

static void forward(const DtAttention *x, int kind, const void *q, const void *k, const void *v,
                    void *o, void *lse) {
  void *arg[] = {(void *)x, (void *)q, (void *)k, (void *)v, o, lse};
  int64_t heads = x->batch * x->kv_heads * x->group;
  dt_parallel(variant()->forward[kind], arg, heads * query_blocks(x), 1);
}

static void backward(const DtAttention *x, int kind, const void *q, const void *k, const void *v,
                     const void *o, const void *lse, const void *dout, void *dq, void *dk,
                     void *dv) {
  void *arg[] = {(void *)x,   (void *)q,    (void *)k, (void *)v, (void *)o,
                 (void *)lse, (void *)dout, dq,        dk,        dv};
  dt_parallel(variant()->backward[kind], arg, x->batch * x->kv_heads, 1);
  if (x->dsinks || x->dslopes)
    dt_parallel(kind == F64 ? head_tasks_f64 : head_tasks_f32, arg, x->kv_heads * x->group, 1);
}

void dt_attention_fwd_f32(const DtAttention *x, const float *q, const float *k, const float *v,
                          float *o, float *lse) {
  forward(x, F32, q, k, v, o, lse);
}

void dt_attention_fwd_f64(const DtAttention *x, const double *q, const double *k, const double *v,
                          double *o, double *lse) {
  forward(x, F64, q, k, v, o, lse);
}

void dt_attention_bwd_f32(const DtAttention *x, const float *q, const float *k, const float *v,
                          const float *o, const float *lse, const float *dout, float *dq, float *dk,
                          float *dv) {
  backward(x, F32, q, k, v, o, lse, dout, dq, dk, dv);
}

void dt_attention_bwd_f64(const DtAttention *x, const double *q, const double *k, const double *v,
                          const double *o, const double *lse, const double *dout, double *dq,
                          double *dk, double *dv) {
  backward(x, F64, q, k, v, o, lse, dout, dq, dk, dv);
}

void dt_attention_fwd_half(const DtAttention *x, const uint16_t *q, const uint16_t *k,
                           const uint16_t *v, void *o, float *lse) {
  forward(x, HALF, q, k, v, o, lse);
}

void dt_attention_bwd_half(const DtAttention *x, const uint16_t *q, const uint16_t *k,
                           const uint16_t *v, const uint16_t *o, const float *lse,
                           const uint16_t *dout, float *dq, float *dk, float *dv) {
  backward(x, HALF, q, k, v, o, lse, dout, dq, dk, dv);
}
