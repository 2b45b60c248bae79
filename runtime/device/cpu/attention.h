// Softmax attention on blocks, forward and backward, fp32 and fp64; no buffer ever holds tq x tk.
//
//   s[b, g, r, i, j] = scale * sum(e: q[b, g, r, i, e] * k[b, g, j, e])      where key j is visible
//   to i o[b, g, r, i, e] = sum(j: softmax(j: s[b, g, r, i, j]) * v[b, g, j, e])
//
// Query head h is (g, r): `group` query heads share kv head g. All strides are in elements, so that
// q, k and v may be slices of one packed buffer ([b, t, 3, h, e]), and likewise dq, dk and dv.
// Blocks are of fixed size and every sum has a fixed order: the bits do not depend on the number of
// threads.
#ifndef DTC_RUNTIME_CPU_ATTENTION_H
#define DTC_RUNTIME_CPU_ATTENTION_H

#include <stdint.h>

typedef struct {
  int64_t b, g, r, t, e; // strides of batch, kv head, query head within the group (unused for
} DtAttentionStride;     // k, v, dk, dv), position, and element of the head

typedef struct {
  int64_t batch, kv_heads, group;
  int64_t tq, tk, dim;
  int causal;     // key j is visible to query i when j <= i + offset; otherwise all keys are
  int64_t offset; // position of query 0 less position of key 0; used when causal
  // Queries from q_turn on stand q_jump positions further on than that says, and keys from k_turn
  // on k_jump: a rank's share of a folded sequence. All 0: none do.
  int64_t q_turn, q_jump, k_turn, k_jump;
  double scale;
  DtAttentionStride q, k, v, o;
  DtAttentionStride dout, dq, dk, dv; // backward only
} DtAttention;

// Writes o, and lse[b, g, r, i] (contiguous) = log(sum(j: exp(s))) for the backward. A query that
// sees no key gets o = 0 and lse = -infinity.
void dt_attention_fwd_f32(const DtAttention *x, const float *q, const float *k, const float *v,
                          float *o, float *lse);
void dt_attention_fwd_f64(const DtAttention *x, const double *q, const double *k, const double *v,
                          double *o, double *lse);

// Writes (does not add to) dq, dk, dv from dout, and o and lse as the forward left them.
void dt_attention_bwd_f32(const DtAttention *x, const float *q, const float *k, const float *v,
                          const float *o, const float *lse, const float *dout, float *dq, float *dk,
                          float *dv);
void dt_attention_bwd_f64(const DtAttention *x, const double *q, const double *k, const double *v,
                          const double *o, const double *lse, const double *dout, double *dq,
                          double *dk, double *dv);

#endif
