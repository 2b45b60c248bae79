// Attention on 16-bit operands by tensor cores: products of 16-bit factors that are summed up in float32. Probabilities are
// rounded to 16 bits before they are multiplied with values.
//
// Rows of q, k and v begin at multiples of 16 bytes, their elements lie next to each other, and the head's size is a
// multiple of 16.
#ifndef DT_CUDA_FLASH_H
#define DT_CUDA_FLASH_H

#include "runtime/device/cuda/attention.h"
#include "runtime/device/cuda/tensor.h"

enum { DT_FLASH_ROWS = 64 /* of a tile */, DT_FLASH_THREADS = 128 };

// A tile of rows in shared memory: 16 bytes more a row, so that 8 rows of a matrix lie in different banks.
template <int dim, class T> struct alignas(16) DtTile {
  T at[DT_FLASH_ROWS][dim + 8];
};

// Starts to copy rows [first, first + 64), zeros past the last.
template <int dim, class S, class T> DT_DEVICE void dt_copy_tile(DtTile<dim, T> &to, const T *from, int first, int count) {
#pragma unroll
  for (int k = (int)threadIdx.x; k < DT_FLASH_ROWS * dim / 8; k += DT_FLASH_THREADS) {
    const int row = k / (dim / 8), e = k % (dim / 8) * 8;
    const bool some = first + row < count;
    dt_copy_async(&to.at[row][e], from + (some ? first + row : 0) * S::row + e, some);
  }
}

// Fragments of 16 rows as factor a, from global memory; zeros past the last.
template <int dim, class S, class T> DT_DEVICE void dt_load_rows(uint32_t (&to)[dim / 16][4], const T *from, int first, int count) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int k = 0; k < dim / 16; k++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int row = first + g + i % 2 * 8;
      to[k][i] = row < count ? *reinterpret_cast<const uint32_t *>(from + row * S::row + k * 16 + i / 2 * 8 + 2 * t) : 0;
    }
}

// product[n] = a * (rows 8 n to 8 n + 7 of the tile)^T
template <int dim, class T>
DT_DEVICE void dt_flash_products(float (&product)[8][4], const uint32_t (&a)[dim / 16][4], const DtTile<dim, T> &tile) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int n = 0; n < 8; n++)
#pragma unroll
    for (int i = 0; i < 4; i++) product[n][i] = 0;
#pragma unroll
  for (int k = 0; k < dim / 16; k++)
#pragma unroll
    for (int n = 0; n < 8; n += 2) {
      uint32_t b[4];
      dt_load_matrices<false>(b, &tile.at[n * 8 + lane / 16 * 8 + lane % 8][k * 16 + lane / 8 % 2 * 8]);
      dt_multiply(product[n], a[k], b[0], b[1], T());
      dt_multiply(product[n + 1], a[k], b[2], b[3], T());
    }
}

// sum += weight * tile; the weights, 64 columns of c fragments, are rounded to T.
template <int dim, class T>
DT_DEVICE void dt_flash_add(float (&sum)[dim / 8][4], const float (&weight)[8][4], const DtTile<dim, T> &tile) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int k = 0; k < 4; k++) {
    const float(&low)[4] = weight[2 * k], (&high)[4] = weight[2 * k + 1];
    const uint32_t a[4] = {dt_pair_of(low[0], low[1], T()), dt_pair_of(low[2], low[3], T()), dt_pair_of(high[0], high[1], T()),
                           dt_pair_of(high[2], high[3], T())};
#pragma unroll
    for (int n = 0; n < dim / 8; n += 2) {
      uint32_t b[4];
      dt_load_matrices<true>(b, &tile.at[k * 16 + lane % 16][n * 8 + lane / 16 * 8]);
      dt_multiply(sum[n], a, b[0], b[1], T());
      dt_multiply(sum[n + 1], a, b[2], b[3], T());
    }
  }
}

// The warp's sums to rows `row` and row + 8, times by_0 and by_1.
template <int dim, class S, class T>
DT_DEVICE void dt_flash_store(T *to, const float (&sum)[dim / 8][4], int row, int count, float by_0, float by_1) {
#pragma unroll
  for (int r = 0; r < 2; r++) {
    if (row + 8 * r >= count) continue;
#pragma unroll
    for (int n = 0; n < dim / 8; n++)
#pragma unroll
      for (int i = 0; i < 2; i++)
        to[(row + 8 * r) * S::row + (n * 8 + 2 * (int)(threadIdx.x % 4) + i) * S::element] = (T)(sum[n][2 * r + i] * (r ? by_1 : by_0));
  }
}

// Whether a score is its product times scale.
template <class X> constexpr bool dt_is_plain = X::cap == 0 && X::bias == 0;

// Whether each of 64 queries from i on sees each of 64 keys from j on.
template <class X> DT_DEVICE bool dt_tile_is_full(const DtPlaces &at, int i, int j) {
  if (i + DT_FLASH_ROWS > X::tq || j + DT_FLASH_ROWS > X::tk) return false;
  const DtStretch q = dt_span(i, i + DT_FLASH_ROWS - 1, X::q_turn, at.q_jump), k = dt_span(j, j + DT_FLASH_ROWS - 1, X::k_turn, at.k_jump);
  return (!X::causal || q.least + at.offset - k.most >= -X::ahead) && (!X::window || q.most + at.offset - k.least < X::window);
}

// The first tile of keys from j on that the queries may see, or tk.
template <class X> DT_DEVICE int dt_next_tile(const DtPlaces &at, int first, int j) {
  while (j < X::tk && !dt_tile_sees<X>(at, first, DT_FLASH_ROWS, j, DT_FLASH_ROWS)) j += DT_FLASH_ROWS;
  return j;
}

// Scores in place of products, times log2 e: exp(z) is exp2 of them.
template <class X>
DT_DEVICE void dt_flash_scores(float (&s)[8][4], const DtPlaces &at, float slope, int query, int j, bool full) {
  constexpr float log2_e = 1.4426950408889634f, scale = (float)(X::scale * 1.4426950408889634);
#pragma unroll
  for (int n = 0; n < 8; n++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int row = query + i / 2 * 8, key = j + n * 8 + (int)threadIdx.x % 4 * 2 + i % 2;
      if constexpr (dt_is_plain<X>) s[n][i] *= scale;
      else s[n][i] = dt_score<X>(at, s[n][i], slope, row, key).z * log2_e;
      if (!full && !dt_sees<X>(at, row, key)) s[n][i] = -INFINITY;
    }
}

// Forward: a block of 4 warps for 64 queries, 16 to a warp. While scores are computed the values come, and while values are
// added the next keys.
template <class X, class T, class Slope, class Sink, class Out>
DT_DEVICE void dt_flash_forward(const DtPlaces &at, const T *q, const T *k, const T *v, const Slope *slopes, const Sink *sinks,
                                Out *o, float *lse) {
  constexpr int dim = X::dim, tiles = (X::tq + DT_FLASH_ROWS - 1) / DT_FLASH_ROWS;
  __shared__ DtTile<dim, T> keys, values;
  const DtWork w = dt_work(X::kv_heads, X::group, X::batch * X::kv_heads * X::group, DT_FLASH_ROWS, tiles, X::causal);
  const int warp = w.first + (int)threadIdx.x / 32 * 16, query = warp + (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
  const float slope = dt_slope<X, float>(slopes, w.group, w.member), sink = dt_sink<X, float>(sinks, w.group, w.member);
  q += X::Q::head(w.batch, w.group, w.member);
  k += X::K::head(w.batch, w.group, 0);
  v += X::V::head(w.batch, w.group, 0);
  uint32_t a[dim / 16][4];
  dt_load_rows<dim, typename X::Q>(a, q, warp, X::tq);
  float sum[dim / 8][4] = {}, most[2], total[2];
  // The sink is a key of the value 0.
#pragma unroll
  for (int r = 0; r < 2; r++) most[r] = sink * 1.4426950408889634f, total[r] = X::has_sink && t == 0;
  int j = dt_next_tile<X>(at, w.first, 0);
  if (j < X::tk) dt_copy_tile<dim, typename X::K>(keys, k, j, X::tk);
#pragma unroll 1
  while (j < X::tk) {
    dt_copies_wait();
    __syncthreads(); // the keys are there, and the values have been read
    dt_copy_tile<dim, typename X::V>(values, v, j, X::tk);
    float s[8][4];
    dt_flash_products<dim>(s, a, keys);
    dt_flash_scores<X>(s, at, slope, query, j, dt_tile_is_full<X>(at, w.first, j));
#pragma unroll
    for (int r = 0; r < 2; r++) {
      float top = -INFINITY;
#pragma unroll
      for (int n = 0; n < 8; n++) top = dt_max(top, dt_max(s[n][2 * r], s[n][2 * r + 1]));
      top = dt_max(most[r], dt_lanes<DtMax, 4>(top));
      const float base = top == -INFINITY ? 0.0f : top; // no key seen yet: exp2(-inf - 0) is 0
      const float factor = exp2f(most[r] - base);
      most[r] = top;
      total[r] *= factor;
#pragma unroll
      for (int n = 0; n < 8; n++) {
        s[n][2 * r] = exp2f(s[n][2 * r] - base);
        s[n][2 * r + 1] = exp2f(s[n][2 * r + 1] - base);
        total[r] += s[n][2 * r] + s[n][2 * r + 1];
      }
#pragma unroll
      for (int n = 0; n < dim / 8; n++) sum[n][2 * r] *= factor, sum[n][2 * r + 1] *= factor;
    }
    j = dt_next_tile<X>(at, w.first, j + DT_FLASH_ROWS);
    dt_copies_wait();
    __syncthreads(); // the values are there, and the keys have been read
    if (j < X::tk) dt_copy_tile<dim, typename X::K>(keys, k, j, X::tk);
    dt_flash_add<dim>(sum, s, values);
  }
  lse += (int64_t)((w.batch * X::kv_heads + w.group) * X::group + w.member) * X::tq;
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const int row = query + 8 * r;
    total[r] = dt_lanes<DtSum, 4>(total[r]);
    if (t == 0 && row < X::tq) lse[row] = total[r] == 0 ? -INFINITY : logf(total[r]) + most[r] * 0.6931471805599453f;
    total[r] = total[r] == 0 ? 0.0f : 1.0f / total[r];
  }
  dt_flash_store<dim, typename X::O>(o + X::O::head(w.batch, w.group, w.member), sum, query, X::tq, total[0], total[1]);
}

// ---- backward. Adjoints of scores are rounded to 16 bits before they are multiplied with keys and queries.

// Of a pair: exp(z - lse), and the adjoint of the product of query and key, less a factor of scale where that is all that
// stands between product and score. lse: times log2 e; inf where the query sees no key.
template <class X>
DT_DEVICE DtPair<float> dt_flash_pair(const DtPlaces &at, float product, float dp, float lse, float delta, float slope, int query,
                                      int key, bool full) {
  constexpr float log2_e = 1.4426950408889634f, scale = (float)(X::scale * 1.4426950408889634);
  if (!full && !dt_sees<X>(at, query, key)) return {0, 0};
  if constexpr (dt_is_plain<X>) {
    const float p = exp2f(fmaf(product, scale, -lse));
    return {p, p * (dp - delta)};
  } else {
    const DtScore<float> s = dt_score<X>(at, product, slope, query, key);
    const float p = exp2f(fmaf(s.z, log2_e, -lse));
    return {p, p * (dp - delta) * s.by};
  }
}
template <class X> DT_DEVICE float dt_left_out() { return dt_is_plain<X> ? (float)X::scale : 1.0f; }

DT_DEVICE float dt_flash_lse(float lse) { return lse == -INFINITY ? INFINITY : lse * 1.4426950408889634f; }

// dq: a block for 64 queries, 16 to a warp.
template <class X, class T, class Slope, class Out>
DT_DEVICE void dt_flash_queries(const DtPlaces &at, const T *q, const T *k, const T *v, const Slope *slopes, const float *lse,
                                const T *dout, const float *delta, Out *dq) {
  constexpr int dim = X::dim, tiles = (X::tq + DT_FLASH_ROWS - 1) / DT_FLASH_ROWS;
  __shared__ DtTile<dim, T> keys, values;
  const DtWork w = dt_work(X::kv_heads, X::group, X::batch * X::kv_heads * X::group, DT_FLASH_ROWS, tiles, X::causal);
  const int warp = w.first + (int)threadIdx.x / 32 * 16, query = warp + (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
  const float slope = dt_slope<X, float>(slopes, w.group, w.member);
  const int64_t head = (int64_t)((w.batch * X::kv_heads + w.group) * X::group + w.member) * X::tq;
  k += X::K::head(w.batch, w.group, 0);
  v += X::V::head(w.batch, w.group, 0);
  uint32_t a[dim / 16][4], da[dim / 16][4];
  dt_load_rows<dim, typename X::Q>(a, q + X::Q::head(w.batch, w.group, w.member), warp, X::tq);
  dt_load_rows<dim, typename X::DO>(da, dout + X::DO::head(w.batch, w.group, w.member), warp, X::tq);
  float sum[dim / 8][4] = {}, lse_i[2] = {}, delta_i[2] = {};
#pragma unroll
  for (int r = 0; r < 2; r++)
    if (query + 8 * r < X::tq) lse_i[r] = dt_flash_lse(lse[head + query + 8 * r]), delta_i[r] = delta[head + query + 8 * r];
#pragma unroll 1
  for (int j = dt_next_tile<X>(at, w.first, 0); j < X::tk; j = dt_next_tile<X>(at, w.first, j + DT_FLASH_ROWS)) {
    dt_copy_tile<dim, typename X::K>(keys, k, j, X::tk);
    dt_copy_tile<dim, typename X::V>(values, v, j, X::tk);
    dt_copies_wait();
    __syncthreads(); // the tiles are there
    float s[8][4], dp[8][4];
    dt_flash_products<dim>(s, a, keys);
    dt_flash_products<dim>(dp, da, values);
    const bool full = dt_tile_is_full<X>(at, w.first, j);
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        s[n][i] = dt_flash_pair<X>(at, s[n][i], dp[n][i], lse_i[i / 2], delta_i[i / 2], slope, query + i / 2 * 8,
                                   j + n * 8 + 2 * t + i % 2, full).ds;
    dt_flash_add<dim>(sum, s, keys);
    __syncthreads(); // the tiles have been read
  }
  dt_flash_store<dim, typename X::DQ>(dq + X::DQ::head(w.batch, w.group, w.member), sum, query, X::tq, dt_left_out<X>(),
                                      dt_left_out<X>());
}

// dk and dv: a block for 64 keys, 16 to a warp, and all heads of their group in turn.
template <class X, class T, class Slope, class Out>
DT_DEVICE void dt_flash_keys(const DtPlaces &at, const T *q, const T *k, const T *v, const Slope *slopes, const float *lse,
                             const T *dout, const float *delta, Out *dk, Out *dv) {
  constexpr int dim = X::dim, tiles = (X::tk + DT_FLASH_ROWS - 1) / DT_FLASH_ROWS;
  __shared__ DtTile<dim, T> queries, adjoints;
  const DtWork w = dt_work(X::kv_heads, 1, X::batch * X::kv_heads, DT_FLASH_ROWS, tiles, false);
  const int warp = w.first + (int)threadIdx.x / 32 * 16, key = warp + (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
  uint32_t a[dim / 16][4], da[dim / 16][4];
  dt_load_rows<dim, typename X::K>(a, k + X::K::head(w.batch, w.group, 0), warp, X::tk);
  dt_load_rows<dim, typename X::V>(da, v + X::V::head(w.batch, w.group, 0), warp, X::tk);
  float sum_k[dim / 8][4] = {}, sum_v[dim / 8][4] = {};
#pragma unroll 1
  for (int member = 0; member < X::group; member++) {
    const float slope = dt_slope<X, float>(slopes, w.group, member);
    const int64_t head = (int64_t)((w.batch * X::kv_heads + w.group) * X::group + member) * X::tq;
#pragma unroll 1
    for (int i = 0; i < X::tq; i += DT_FLASH_ROWS) {
      if (!dt_tile_sees<X>(at, i, DT_FLASH_ROWS, w.first, DT_FLASH_ROWS)) continue;
      dt_copy_tile<dim, typename X::Q>(queries, q + X::Q::head(w.batch, w.group, member), i, X::tq);
      dt_copy_tile<dim, typename X::DO>(adjoints, dout + X::DO::head(w.batch, w.group, member), i, X::tq);
      dt_copies_wait();
      __syncthreads(); // the tiles are there
      float s[8][4], dp[8][4];
      dt_flash_products<dim>(s, a, queries);
      dt_flash_products<dim>(dp, da, adjoints);
      const bool full = dt_tile_is_full<X>(at, i, w.first);
#pragma unroll
      for (int n = 0; n < 8; n++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
          const int query = i + n * 8 + 2 * t + c;
          const float lse_i = query < X::tq ? dt_flash_lse(lse[head + query]) : 0.0f, delta_i = query < X::tq ? delta[head + query] : 0.0f;
#pragma unroll
          for (int r = 0; r < 2; r++) {
            const DtPair<float> pair =
                dt_flash_pair<X>(at, s[n][2 * r + c], dp[n][2 * r + c], lse_i, delta_i, slope, query, key + 8 * r, full);
            s[n][2 * r + c] = pair.p;
            dp[n][2 * r + c] = pair.ds;
          }
        }
      dt_flash_add<dim>(sum_v, s, adjoints);
      dt_flash_add<dim>(sum_k, dp, queries);
      __syncthreads(); // the tiles have been read
    }
  }
  dt_flash_store<dim, typename X::DK>(dk + X::DK::head(w.batch, w.group, 0), sum_k, key, X::tk, dt_left_out<X>(), dt_left_out<X>());
  dt_flash_store<dim, typename X::DV>(dv + X::DV::head(w.batch, w.group, 0), sum_v, key, X::tk, 1.0f, 1.0f);
}

#endif
