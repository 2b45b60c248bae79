// Softmax attention on blocks, forward and backward, fp32, fp64 and on 16-bit operands; no buffer ever
// holds tq x tk.
//
//   s[b, g, r, i, j] = scale * sum(e: q[b, g, r, i, e] * k[b, g, j, e])
//   z[b, g, r, i, j] = s, or with a cap: cap * tanh(s / cap)
//                    + bias * slopes[g, r] * (position of j - position of i)
//   lse[b, g, r, i]  = log(sum(j: exp(z)) + exp(sink[g, r]))        over keys j visible to i
//   o[b, g, r, i, e] = sum(j: exp(z - lse) * v[b, g, j, e])
//
// Query head h is (g, r): `group` query heads share kv head g. All strides are in elements, so that
// q, k and v may be slices of one packed buffer ([b, t, 3, h, e]), and likewise dq, dk and dv.
// Blocks are of fixed size and every sum has a fixed order: the bits do not depend on the number of
// threads. A block of keys that no query of a block sees is not visited.
#ifndef DTC_RUNTIME_CPU_ATTENTION_H
#define DTC_RUNTIME_CPU_ATTENTION_H

#include <stdint.h>

#include "runtime/program.h"

typedef struct {
  int64_t b, g, r, t, e; // strides of batch, kv head, query head within the group (unused for
} DtAttentionStride;     // k, v, dk, dv), position, and element of the head

// Where queries or keys stand: the first at by[0] * n + from[0], the one at the turn at by[1] * n + from[1], with n an
// int32_t that kernels make or read, such as a rank's number.
typedef struct {
  int64_t by[2], from[2];
} DtAttentionPlace;

typedef struct {
  int64_t batch, kv_heads, group;
  int64_t tq, tk, dim;
  // With i and j as positions in the whole, key j is visible to query i when
  //   j <= i + ahead, if causal, and
  //   i - j < window, if window is not 0.
  int causal;
  int64_t ahead, window;
  int64_t offset; // position of query 0 less position of key 0
  // Queries from q_turn on stand q_jump positions further on than that says, and keys from k_turn
  // on k_jump: a rank's share of a folded sequence. All 0: none do.
  int64_t q_turn, q_jump, k_turn, k_jump;
  DtAttentionPlace q_at, k_at; // of which dt_attention_place makes offset, q_jump and k_jump
  double scale;
  double cap;  // 0: none
  double bias; // 0: none; times |distance| where `apart`
  int apart, has_sink;
  double sink; // of each head, where has_sink and no `sinks`
  DtAttentionStride q, k, v, o;
  DtAttentionStride dout, dq, dk, dv; // backward only
  // By head, of the call's type; NULL: slopes are 1, the sink is a constant. Only g and r of their
  // strides are used. The backward writes 0 to dslopes: slopes are data.
  const void *slopes, *sinks;
  void *dslopes, *dsinks;
  DtAttentionStride slope, sink_at, dslope, dsink;
  DtType operand; // of the _half functions: that of q, k, v, o and dout
  int float_o;    // of dt_attention_fwd_half: o is float, and not rounded
} DtAttention;

// Writes o, and lse[b, g, r, i] (contiguous) for the backward. Without a sink, a query that sees no
// key gets o = 0 and lse = -infinity.
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

// Of q_at and k_at, with the numbers at `q` and `k` in the device's memory; NULL: 0.
void dt_attention_place(DtAttention *x, const int32_t *q, const int32_t *k);

// Pairs of a query and a key in the blocks that are visited, for one head of one batch element: the
// work, whatever the processor.
int64_t dt_attention_pairs(const DtAttention *x, int backward);

// The same on q, k, v, o and dout of BF16 or F16: they are converted to float, in which all is computed,
// and o, unless `float_o`, is rounded once, to nearest even. Without slopes and sinks by head.
void dt_attention_fwd_half(const DtAttention *x, const uint16_t *q, const uint16_t *k,
                           const uint16_t *v, void *o, float *lse);
void dt_attention_bwd_half(const DtAttention *x, const uint16_t *q, const uint16_t *k,
                           const uint16_t *v, const uint16_t *o, const float *lse,
                           const uint16_t *dout, float *dq, float *dk, float *dv);

#endif
