// Softmax attention on tiles, forward and backward, for any strides and types; no memory ever holds tq x tk. The
// definition is that of runtime/device/cpu/attention.h:
//
//   s[b, g, r, i, j] = scale * sum(e: q[b, i, g, r, e] * k[b, j, g, e])
//   z[b, g, r, i, j] = s, or with a cap: cap * tanh(s / cap)
//                    + bias * slopes[g, r] * (position of j - position of i)
//   lse[b, g, r, i]  = log(sum(j: exp(z)) + exp(sink[g, r]))        over keys j visible to i
//   o[b, i, g, r, e] = sum(j: exp(z - lse) * v[b, j, g, e])
//
// A block of 256 threads, 16 x 16, computes the rows of its tile: queries forward and for dq, keys for dk and dv. The
// tiles of the other side come one after the other, 32 rows each, those without a visible pair left out. Every sum has
// a fixed order, a function of sizes alone: there are no atomics.
#ifndef DT_CUDA_ATTENTION_H
#define DT_CUDA_ATTENTION_H

#include "runtime/device/cuda/kernel.h"

// Strides in elements of an operand [b, t, g, r, e]; r of keys and values is not used.
template <int64_t b, int64_t t, int64_t g, int64_t r, int64_t e> struct DtStrides {
  static constexpr int64_t row = t, element = e;
  static __device__ __forceinline__ int64_t head(int batch, int group, int member) { return batch * b + group * g + member * r; }
};

// A call's constants, which an emitted struct adds to or redefines: batch, kv_heads, group, tq, tk, dim, scale, and strides
// Q, K, V, O, DO, DQ, DK, DV, where the call has the operand.
struct DtAttention {
  // With i and j as positions in the whole, query i sees key j when j <= i + ahead, if causal, and i - j < window, if
  // window is not 0.
  static constexpr bool causal = false;
  static constexpr int ahead = 0, window = 0;
  // Queries from q_turn on, and keys from k_turn on, jump (DtPlaces). 0: none do.
  static constexpr int q_turn = 0, k_turn = 0;
  static constexpr double cap = 0, bias = 0; // 0: none
  static constexpr bool apart = false;       // the bias is of |distance|
  static constexpr bool has_sink = false;
  static constexpr double sink = 0; // of each head, where has_sink and no array of sinks
  // Strides of g and r in arrays by head.
  static constexpr int slope_g = 0, slope_r = 0, sink_g = 0, sink_r = 0, dslope_g = 0, dslope_r = 0, dsink_g = 0, dsink_r = 0;
};

// Where queries and keys stand in the whole.
struct DtPlaces {
  int offset;         // position of query 0 less position of key 0
  int q_jump, k_jump; // that queries from q_turn on, and keys from k_turn on, stand further than they would
};

// ---- who sees whom

template <class X> DT_DEVICE int dt_query_position(const DtPlaces &at, int i) {
  return i + at.offset + (X::q_turn && i >= X::q_turn ? at.q_jump : 0);
}
template <class X> DT_DEVICE int dt_key_position(const DtPlaces &at, int j) {
  return j + (X::k_turn && j >= X::k_turn ? at.k_jump : 0);
}

template <class X> DT_DEVICE bool dt_sees(const DtPlaces &at, int i, int j) {
  if (i >= X::tq || j >= X::tk) return false;
  const int behind = dt_query_position<X>(at, i) - dt_key_position<X>(at, j);
  return (!X::causal || behind >= -X::ahead) && (!X::window || behind < X::window);
}

// Positions of rows [first, last]: the least and the greatest.
struct DtStretch {
  int least, most;
};
DT_DEVICE DtStretch dt_span(int first, int last, int turn, int jump) {
  const int a = first + (turn && first >= turn ? jump : 0), b = last + (turn && last >= turn ? jump : 0);
  DtStretch s = {a < b ? a : b, a < b ? b : a};
  if (turn && first < turn && last >= turn) {
    s.least = s.least < turn + jump ? s.least : turn + jump;
    s.most = s.most > turn - 1 ? s.most : turn - 1;
  }
  return s;
}

// Whether any of `queries` rows from i on may see any of `keys` rows from j on.
template <class X> DT_DEVICE bool dt_tile_sees(const DtPlaces &at, int i, int queries, int j, int keys) {
  const int last_i = i + queries < X::tq ? i + queries - 1 : X::tq - 1, last_j = j + keys < X::tk ? j + keys - 1 : X::tk - 1;
  const DtStretch q = dt_span(i, last_i, X::q_turn, at.q_jump), k = dt_span(j, last_j, X::k_turn, at.k_jump);
  return (!X::causal || q.most + at.offset - k.least >= -X::ahead) && (!X::window || q.least + at.offset - k.most < X::window);
}

// ---- scores

DT_DEVICE float dt_exp_of(float x) { return expf(x); }
DT_DEVICE double dt_exp_of(double x) { return exp(x); }
DT_DEVICE float dt_log_of(float x) { return logf(x); }
DT_DEVICE double dt_log_of(double x) { return log(x); }
DT_DEVICE float dt_tanh_of(float x) { return tanhf(x); }
DT_DEVICE double dt_tanh_of(double x) { return tanh(x); }
DT_DEVICE float dt_fma_of(float a, float b, float c) { return fmaf(a, b, c); }
DT_DEVICE double dt_fma_of(double a, double b, double c) { return fma(a, b, c); }

template <class Real> struct DtScore {
  Real z, by; // by: derivative of z by the product
};

// Of a product of query i and key j; slope: the head's, times the bias.
template <class X, class Real> DT_DEVICE DtScore<Real> dt_score(const DtPlaces &at, Real product, Real slope, int i, int j) {
  constexpr Real scale = (Real)X::scale, cap = (Real)X::cap;
  DtScore<Real> s = {product * scale, scale};
  if constexpr (X::cap != 0) {
    const Real u = dt_tanh_of(s.z / cap);
    s = {cap * u, scale * dt_fma_of(-u, u, (Real)1)};
  }
  if constexpr (X::bias != 0) {
    const int d = dt_key_position<X>(at, j) - dt_query_position<X>(at, i);
    s.z = dt_fma_of((Real)(X::apart && d < 0 ? -d : d), slope, s.z);
  }
  return s;
}

template <class X, class Real, class T> DT_DEVICE Real dt_slope(const T *slopes, int group, int member) {
  if (X::bias == 0 || !slopes) return (Real)X::bias;
  return (Real)X::bias * (Real)slopes[group * X::slope_g + member * X::slope_r];
}
template <class X, class Real, class T> DT_DEVICE Real dt_sink(const T *sinks, int group, int member) {
  if (!X::has_sink) return (Real)-INFINITY;
  return sinks ? (Real)sinks[group * X::sink_g + member * X::sink_r] : (Real)X::sink;
}

// ---- tiles

enum { DT_OTHER = 32 /* rows of the other side's tile */, DT_SLICE = 32 /* elements of rows in shared memory at once */ };

// How a block's 256 threads share out its tile: thread (x, y) of 16 x 16 has rows y + 16 i, the other side's rows x + 16 j,
// and elements x + 16 c of its rows.
template <class X, class Real> struct DtTiling {
  static constexpr int rows = X::dim * (int)sizeof(Real) <= 512 ? 4 : 2; // of a thread
  static constexpr int own = 16 * rows, columns = (X::dim + 15) / 16;
  struct Shared {
    Real own[16 * rows][DT_SLICE + 1], other[DT_OTHER][DT_SLICE + 1], weight[16 * rows][DT_OTHER + 1];
  };
};

// Rows of one head.
template <class T, class S> struct DtRows {
  const T *at;
  int count; // that there are
};
template <class S, class T> DT_DEVICE DtRows<T, S> dt_rows(const T *p, int batch, int group, int member, int first, int count) {
  return {p + S::head(batch, group, member) + first * S::row, count - first};
}

// A slice of rows to shared memory, zeros past the ends.
template <int dim, int n, class Real, class T, class S>
DT_DEVICE void dt_stage(Real (&to)[n][DT_SLICE + 1], const DtRows<T, S> &from, int slice) {
#pragma unroll
  for (int k = 0; k < n * DT_SLICE; k += 256) {
    const int row = (k + (int)threadIdx.x) / DT_SLICE, c = (int)threadIdx.x % DT_SLICE, e = slice + c;
    to[row][c] = row < from.count && e < dim ? (Real)from.at[row * S::row + e * S::element] : (Real)0;
  }
}

// part[i][j] = sum(e: own[y + 16 i][e] * b), with b = other[x + 16 j][e], or across: other[e][x + 16 j].
template <bool across, int n, class Real>
DT_DEVICE void dt_multiply(const Real (&own)[n][DT_SLICE + 1], const Real (&other)[DT_OTHER][DT_SLICE + 1], Real (&part)[n / 16][2]) {
  static_assert(DT_OTHER == DT_SLICE, "rows of weights are as long as slices");
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
#pragma unroll
  for (int i = 0; i < n / 16; i++) part[i][0] = part[i][1] = 0;
#pragma unroll 8
  for (int e = 0; e < DT_SLICE; e++) {
    const Real b0 = across ? other[e][x] : other[x][e], b1 = across ? other[e][x + 16] : other[x + 16][e];
#pragma unroll
    for (int i = 0; i < n / 16; i++) {
      const Real a = own[y + 16 * i][e];
      part[i][0] = dt_fma_of(a, b0, part[i][0]);
      part[i][1] = dt_fma_of(a, b1, part[i][1]);
    }
  }
}

// product[i][j] = sum(e: a[y + 16 i][e] * b[x + 16 j][e]). Ends with a barrier.
template <class X, class Real, class A, class B>
DT_DEVICE void dt_products(typename DtTiling<X, Real>::Shared &w, const A &a, const B &b, Real (&product)[DtTiling<X, Real>::rows][2]) {
  constexpr int rows = DtTiling<X, Real>::rows;
#pragma unroll
  for (int i = 0; i < rows; i++) product[i][0] = product[i][1] = 0;
#pragma unroll 1
  for (int slice = 0; slice < X::dim; slice += DT_SLICE) {
    dt_stage<X::dim>(w.own, a, slice);
    dt_stage<X::dim>(w.other, b, slice);
    __syncthreads(); // the slices are complete
    Real part[rows][2];
    dt_multiply<false>(w.own, w.other, part);
#pragma unroll
    for (int i = 0; i < rows; i++) product[i][0] += part[i][0], product[i][1] += part[i][1];
    __syncthreads(); // the slices have been read
  }
}

// sum[i][c] += sum(k: weight[y + 16 i][k] * b[k][x + 16 c]). The weights were written before; ends with a barrier.
template <class X, class Real, class B>
DT_DEVICE void dt_add_rows(typename DtTiling<X, Real>::Shared &w, const B &b,
                           Real (&sum)[DtTiling<X, Real>::rows][DtTiling<X, Real>::columns]) {
  constexpr int rows = DtTiling<X, Real>::rows, columns = DtTiling<X, Real>::columns;
#pragma unroll
  for (int c = 0; c < columns; c += 2) {
    dt_stage<X::dim>(w.other, b, c * 16);
    __syncthreads(); // weights and the slice are complete
    Real part[rows][2];
    dt_multiply<true>(w.weight, w.other, part);
#pragma unroll
    for (int i = 0; i < rows; i++) {
      sum[i][c] += part[i][0];
      if (c + 1 < columns) sum[i][c + 1] += part[i][1];
    }
    __syncthreads(); // the slice has been read
  }
}

// to[y + 16 i][x + 16 c] = sum[i][c], times by[i].
template <class X, class S, class T, class Real>
DT_DEVICE void dt_store_rows(T *to, int batch, int group, int member, int first, int count,
                             const Real (&sum)[DtTiling<X, Real>::rows][DtTiling<X, Real>::columns]) {
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  to += S::head(batch, group, member);
#pragma unroll
  for (int i = 0; i < DtTiling<X, Real>::rows; i++) {
    const int row = first + y + 16 * i;
    if (row >= count) continue;
#pragma unroll
    for (int c = 0; c < DtTiling<X, Real>::columns; c++)
      if (c * 16 + x < X::dim) to[row * S::row + (c * 16 + x) * S::element] = (T)sum[i][c];
  }
}

// The block's head and tile: late tiles, whose queries see most keys, come first where `backwards`.
struct DtWork {
  int batch, group, member, first; // first: row of the tile
};
DT_DEVICE DtWork dt_work(int kv_heads, int members, int heads, int tile, int tiles, bool backwards) {
  const int head = (int)blockIdx.x % heads, at = (int)blockIdx.x / heads;
  return {head / members / kv_heads, head / members % kv_heads, head % members, (backwards ? tiles - 1 - at : at) * tile};
}

// ---- forward: a block for each tile of queries

template <class X, class Real, class In, class Out, class Slope, class Sink>
DT_DEVICE void dt_attention_forward(const DtPlaces &at, const In *q, const In *k, const In *v, const Slope *slopes,
                                    const Sink *sinks, Out *o, Real *lse) {
  using Tiling = DtTiling<X, Real>;
  constexpr int rows = Tiling::rows, columns = Tiling::columns, tiles = (X::tq + Tiling::own - 1) / Tiling::own;
  __shared__ typename Tiling::Shared w;
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  const DtWork n = dt_work(X::kv_heads, X::group, X::batch * X::kv_heads * X::group, Tiling::own, tiles, X::causal);
  const auto queries = dt_rows<typename X::Q>(q, n.batch, n.group, n.member, n.first, X::tq);
  const Real slope = dt_slope<X, Real>(slopes, n.group, n.member), sink = dt_sink<X, Real>(sinks, n.group, n.member);
  Real sum[rows][columns] = {}, most[rows], total[rows];
#pragma unroll
  for (int i = 0; i < rows; i++) most[i] = sink, total[i] = X::has_sink && x == 0; // the sink is a key of the value 0
#pragma unroll 1
  for (int j = 0; j < X::tk; j += DT_OTHER) {
    if (!dt_tile_sees<X>(at, n.first, Tiling::own, j, DT_OTHER)) continue;
    Real p[rows][2];
    dt_products<X, Real>(w, queries, dt_rows<typename X::K>(k, n.batch, n.group, 0, j, X::tk), p);
#pragma unroll
    for (int i = 0; i < rows; i++) {
      const int query = n.first + y + 16 * i;
      Real top = -INFINITY;
#pragma unroll
      for (int c = 0; c < 2; c++) {
        const int key = j + x + 16 * c;
        p[i][c] = dt_sees<X>(at, query, key) ? dt_score<X>(at, p[i][c], slope, query, key).z : (Real)-INFINITY;
        top = dt_max(top, p[i][c]);
      }
      top = dt_max(most[i], dt_lanes<DtMax, 16>(top));
      const Real base = top == (Real)-INFINITY ? (Real)0 : top; // no key seen yet: exp(-inf - 0) is 0
      const Real factor = dt_exp_of(most[i] - base);
      most[i] = top;
      total[i] *= factor;
#pragma unroll
      for (int c = 0; c < 2; c++) {
        const Real e = dt_exp_of(p[i][c] - base);
        w.weight[y + 16 * i][x + 16 * c] = e;
        total[i] += e;
      }
#pragma unroll
      for (int c = 0; c < columns; c++) sum[i][c] *= factor;
    }
    dt_add_rows<X, Real>(w, dt_rows<typename X::V>(v, n.batch, n.group, 0, j, X::tk), sum);
  }
  lse += (int64_t)((n.batch * X::kv_heads + n.group) * X::group + n.member) * X::tq;
#pragma unroll
  for (int i = 0; i < rows; i++) {
    const int query = n.first + y + 16 * i;
    total[i] = dt_lanes<DtSum, 16>(total[i]);
    if (x == 0 && query < X::tq) lse[query] = total[i] == 0 ? (Real)-INFINITY : dt_log_of(total[i]) + most[i];
    const Real by = total[i] == 0 ? (Real)0 : (Real)1 / total[i];
#pragma unroll
    for (int c = 0; c < columns; c++) sum[i][c] *= by;
  }
  dt_store_rows<X, typename X::O>(o, n.batch, n.group, n.member, n.first, X::tq, sum);
}

// ---- backward

// delta[b, g, r, i] = sum(e: o * dout): a warp for each query, 8 to a block.
template <class X, class Real, class In> DT_DEVICE void dt_attention_delta(const In *o, const In *dout, Real *delta) {
  const int lane = threadIdx.x % 32;
  const int64_t row = (int64_t)blockIdx.x * 8 + threadIdx.x / 32;
  if (row >= (int64_t)X::batch * X::kv_heads * X::group * X::tq) return;
  const int head = (int)(row / X::tq), i = (int)(row % X::tq), member = head % X::group, group = head / X::group % X::kv_heads,
            batch = head / X::group / X::kv_heads;
  o += X::O::head(batch, group, member) + i * X::O::row;
  dout += X::DO::head(batch, group, member) + i * X::DO::row;
  Real sum = 0;
  for (int e = lane; e < X::dim; e += 32) sum = dt_fma_of((Real)o[e * X::O::element], (Real)dout[e * X::DO::element], sum);
  sum = dt_warp_reduce<DtSum>(sum);
  if (lane == 0) delta[row] = sum;
}

// Of a pair that sees: exp(z - lse), and the adjoint of the product of query and key.
template <class Real> struct DtPair {
  Real p, ds;
};
template <class X, class Real>
DT_DEVICE DtPair<Real> dt_pair(const DtPlaces &at, Real product, Real dp, Real lse, Real delta, Real slope, int query, int key) {
  if (!dt_sees<X>(at, query, key) || lse == (Real)-INFINITY) return {0, 0};
  const DtScore<Real> s = dt_score<X>(at, product, slope, query, key);
  const Real p = dt_exp_of(s.z - lse);
  return {p, p * (dp - delta) * s.by};
}

// dk and dv: a block for each tile of keys, which takes the tiles of queries of all heads of its group in turn.
template <class X, class Real, class In, class Slope, class Out>
DT_DEVICE void dt_attention_keys(const DtPlaces &at, const In *q, const In *k, const In *v, const Slope *slopes, const Real *lse,
                                 const In *dout, const Real *delta, Out *dk, Out *dv) {
  using Tiling = DtTiling<X, Real>;
  constexpr int rows = Tiling::rows, columns = Tiling::columns, tiles = (X::tk + Tiling::own - 1) / Tiling::own;
  __shared__ typename Tiling::Shared w;
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  const DtWork n = dt_work(X::kv_heads, 1, X::batch * X::kv_heads, Tiling::own, tiles, false);
  const auto keys = dt_rows<typename X::K>(k, n.batch, n.group, 0, n.first, X::tk);
  const auto values = dt_rows<typename X::V>(v, n.batch, n.group, 0, n.first, X::tk);
  Real sum_k[rows][columns] = {}, sum_v[rows][columns] = {};
#pragma unroll 1
  for (int member = 0; member < X::group; member++) {
    const Real slope = dt_slope<X, Real>(slopes, n.group, member);
    const int64_t head = (int64_t)((n.batch * X::kv_heads + n.group) * X::group + member) * X::tq;
#pragma unroll 1
    for (int i = 0; i < X::tq; i += DT_OTHER) {
      if (!dt_tile_sees<X>(at, i, DT_OTHER, n.first, Tiling::own)) continue;
      const auto queries = dt_rows<typename X::Q>(q, n.batch, n.group, member, i, X::tq);
      const auto adjoints = dt_rows<typename X::DO>(dout, n.batch, n.group, member, i, X::tq);
      Real p[rows][2], ds[rows][2];
      dt_products<X, Real>(w, keys, queries, p);
      dt_products<X, Real>(w, values, adjoints, ds);
#pragma unroll
      for (int c = 0; c < 2; c++) {
        const int query = i + x + 16 * c;
        const Real lse_i = query < X::tq ? lse[head + query] : (Real)0, delta_i = query < X::tq ? delta[head + query] : (Real)0;
#pragma unroll
        for (int r = 0; r < rows; r++) {
          const DtPair<Real> pair = dt_pair<X>(at, p[r][c], ds[r][c], lse_i, delta_i, slope, query, n.first + y + 16 * r);
          w.weight[y + 16 * r][x + 16 * c] = pair.p;
          ds[r][c] = pair.ds;
        }
      }
      dt_add_rows<X, Real>(w, adjoints, sum_v);
#pragma unroll
      for (int r = 0; r < rows; r++) w.weight[y + 16 * r][x] = ds[r][0], w.weight[y + 16 * r][x + 16] = ds[r][1];
      dt_add_rows<X, Real>(w, queries, sum_k);
    }
  }
  dt_store_rows<X, typename X::DK>(dk, n.batch, n.group, 0, n.first, X::tk, sum_k);
  dt_store_rows<X, typename X::DV>(dv, n.batch, n.group, 0, n.first, X::tk, sum_v);
}

// dq: a block for each tile of queries.
template <class X, class Real, class In, class Slope, class Out>
DT_DEVICE void dt_attention_queries(const DtPlaces &at, const In *q, const In *k, const In *v, const Slope *slopes,
                                    const Real *lse, const In *dout, const Real *delta, Out *dq) {
  using Tiling = DtTiling<X, Real>;
  constexpr int rows = Tiling::rows, columns = Tiling::columns, tiles = (X::tq + Tiling::own - 1) / Tiling::own;
  __shared__ typename Tiling::Shared w;
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  const DtWork n = dt_work(X::kv_heads, X::group, X::batch * X::kv_heads * X::group, Tiling::own, tiles, X::causal);
  const auto queries = dt_rows<typename X::Q>(q, n.batch, n.group, n.member, n.first, X::tq);
  const auto adjoints = dt_rows<typename X::DO>(dout, n.batch, n.group, n.member, n.first, X::tq);
  const Real slope = dt_slope<X, Real>(slopes, n.group, n.member);
  const int64_t head = (int64_t)((n.batch * X::kv_heads + n.group) * X::group + n.member) * X::tq;
  Real sum[rows][columns] = {}, lse_i[rows], delta_i[rows];
#pragma unroll
  for (int i = 0; i < rows; i++) {
    const int query = n.first + y + 16 * i;
    lse_i[i] = query < X::tq ? lse[head + query] : (Real)0;
    delta_i[i] = query < X::tq ? delta[head + query] : (Real)0;
  }
#pragma unroll 1
  for (int j = 0; j < X::tk; j += DT_OTHER) {
    if (!dt_tile_sees<X>(at, n.first, Tiling::own, j, DT_OTHER)) continue;
    const auto keys = dt_rows<typename X::K>(k, n.batch, n.group, 0, j, X::tk);
    Real p[rows][2], dp[rows][2];
    dt_products<X, Real>(w, queries, keys, p);
    dt_products<X, Real>(w, adjoints, dt_rows<typename X::V>(v, n.batch, n.group, 0, j, X::tk), dp);
#pragma unroll
    for (int i = 0; i < rows; i++)
#pragma unroll
      for (int c = 0; c < 2; c++)
        w.weight[y + 16 * i][x + 16 * c] =
            dt_pair<X>(at, p[i][c], dp[i][c], lse_i[i], delta_i[i], slope, n.first + y + 16 * i, j + x + 16 * c).ds;
    dt_add_rows<X, Real>(w, keys, sum);
  }
  dt_store_rows<X, typename X::DQ>(dq, n.batch, n.group, n.member, n.first, X::tq, sum);
}

// dsinks[g, r] = -sum(b, i: exp(sink - lse) * delta), and 0 to dslopes, since slopes are data: a block for each head.
template <class X, class Real, class Sink, class OutSlope, class OutSink>
DT_DEVICE void dt_attention_heads(const Sink *sinks, const Real *lse, const Real *delta, OutSlope *dslopes, OutSink *dsinks) {
  const int member = (int)blockIdx.x % X::group, group = (int)blockIdx.x / X::group;
  if (dslopes && threadIdx.x == 0) dslopes[group * X::dslope_g + member * X::dslope_r] = (OutSlope)0.0f;
  if (!dsinks) return;
  const Real sink = dt_sink<X, Real>(sinks, group, member);
  Real sum = 0;
  for (int batch = 0; batch < X::batch; batch++) {
    const int64_t head = (int64_t)((batch * X::kv_heads + group) * X::group + member) * X::tq;
    Real part = 0;
    for (int i = (int)threadIdx.x; i < X::tq; i += 256) part -= dt_exp_of(sink - lse[head + i]) * delta[head + i];
    sum += part;
  }
  sum = dt_block_reduce<DtSum, 256>(sum);
  if (threadIdx.x == 0) dsinks[group * X::dsink_g + member * X::dsink_r] = (OutSink)sum;
}

#endif
