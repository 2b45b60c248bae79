// Blocks of softmax attention on one thread: a template to be included after vector.h.
//
// Scores are held transposed, s[key][query], so that a query is a lane: maxima and sums over keys
// need no shuffle. Every product takes its operands as they lie in scratch (tile_kernel.h), and
// tiles, also the rows of a sum, end where the last visible pair does: little but the causal half
// is computed. The forward is the online softmax of Milakov and Gimelshein (2018) on blocks as
// FlashAttention has it; the backward recomputes the scores.
#include "runtime/device/cpu/tile_kernel.h"

// e^x for x <= 0 or a little above, within 1.5 units of the last place; 0 below DT_EXP_LOW, where
// the result would not be a normal number. x = n ln 2 + r, |r| <= ln 2 / 2, and a polynomial in r:
// for float Cephes' expf, for double the series to r^13 / 13!.
DT_FN static inline V DT_NAME(exp)(V x) {
#if DT_F64
  static const double coefficient[] = {
      1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320,
      1.0 / 5040,       1.0 / 720,       1.0 / 120,      1.0 / 24,      1.0 / 6,      0.5};
  enum { TERMS = 12, MANTISSA = 52 };
  const double low = -708, magic = 0x1.8p52, ln2_high = 0x1.62e42fee00000p-1,
               ln2_low = 0x1.a39ef35793c76p-33;
#else
  static const float coefficient[] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                                      4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};
  enum { TERMS = 6, MANTISSA = 23 };
  const float low = -87, magic = 0x1.8p23f, ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
#endif
  VI under = x < v_set(low);
  x = v_select(under, v_set(low), x);
  V shifted = v_fma(x, v_set(1.44269504088896340736), v_set(magic)); // n in the lowest bits
  V n = shifted - v_set(magic);
  V r = v_fma(n, v_set(-ln2_low), v_fma(n, v_set(-ln2_high), x));
  V p = v_set(coefficient[0]);
#pragma GCC unroll 12
  for (int i = 1; i < TERMS; i++) p = v_fma(p, r, v_set(coefficient[i]));
  p = v_fma(p, r * r, r) + v_set(1);
  return (V)(((VI)p + ((VI)shifted << MANTISSA)) & ~under);
}

// tanh x within 2 units of the last place: near 0 Cephes' polynomial or quotient, else by e^(-2|x|).
DT_FN static inline V DT_NAME(tanh)(V x) {
  VI sign = (VI)x & (VI)v_set(-0.0);
  V a = (V)((VI)x ^ sign), e = DT_NAME(exp)(a * v_set(-2)), z = x * x;
  V far = (v_set(1) - e) / (v_set(1) + e);
#if DT_F64
  V p = v_fma(v_fma(v_set(-9.64399179425052238628e-1), z, v_set(-9.92877231001918586564e1)), z,
              v_set(-1.61468768441708447952e3));
  V q = v_fma(v_fma(z + v_set(1.12811678491632931402e2), z, v_set(2.23548839060100448583e3)), z,
              v_set(4.84406305325125486048e3));
  V near = v_fma(x * z, p / q, x);
#else
  V p = v_fma(v_set(-5.70498872745e-3f), z, v_set(2.06390887954e-2f));
  p = v_fma(p, z, v_set(-5.37397155531e-2f));
  p = v_fma(p, z, v_set(1.33314422036e-1f));
  p = v_fma(p, z, v_set(-3.33332819422e-1f));
  V near = v_fma(p * z, x, x);
#endif
  return v_select(a < v_set(0.625), near, (V)((VI)far | sign));
}

// Scratch of a task. Extents in elements: Q = ATTENTION_Q, K = ATTENTION_K, E = dim rounded up to
// lanes. Copies of operands are padded with zeros to E and to whole tiles of rows.
typedef struct {
  DT_REAL *s, *ds;             // [K][Q]: scores and probabilities; their adjoints
  DT_REAL *k, *v;              // [K][E]
  DT_REAL *q_t, *dout_t;       // [E][Q]
  DT_REAL *q, *dout;           // [Q][E]
  DT_REAL *acc_q;              // [Q][E]: o, or dq
  DT_REAL *acc_k, *acc_v;      // [K][E]: dk, dv
  DT_REAL *max, *sum, *factor; // [Q]; the backward keeps lse and sum(e: o * dout) in max and sum
  double slope;                // of the head
} DT_NAME(Scratch);
#define Scratch DT_NAME(Scratch)

DT_FN static Scratch DT_NAME(scratch)(int64_t dim, bool backward) {
  int64_t e = (dim + DT_LANES - 1) / DT_LANES * DT_LANES, q = ATTENTION_Q, k = ATTENTION_K;
  DT_REAL *p = dt_scratch((size_t)dt_attention_elements(e, backward) * sizeof(DT_REAL));
  Scratch x = {.s = p};
  x.k = p += k * q, x.v = p += k * e, x.q_t = p += k * e, x.acc_q = p += q * e;
  x.max = p += q * e, x.sum = p += q, x.factor = p += q, p += q;
  if (!backward) return x;
  x.ds = p, x.acc_k = p += k * q, x.acc_v = p += k * e, x.dout_t = p += k * e;
  x.q = p += q * e, x.dout = p += q * e;
  return x;
}

// Asks for the row that comes `ahead` rows later: rows of a head lie far apart, which no hardware
// foresees.
DT_FN static inline void DT_NAME(fetch_row)(const DT_IN *from, const DtAttentionStride *stride,
                                            int64_t ahead, int64_t dim) {
  for (int64_t c = 0; c < dim; c += 64 / (int)sizeof(DT_IN))
    __builtin_prefetch(from + ahead * stride->t + c);
}

// to[rows][e] = from[rows][dim], rows up to a whole tile.
DT_FN static void DT_NAME(copy_rows)(const DtAttention *x, const DT_IN *from,
                                     const DtAttentionStride *stride, int64_t rows, DT_REAL *to,
                                     int64_t e) {
  enum { AHEAD = 12 };
  int64_t dim = x->dim;
  for (int64_t i = 0; i < rows; i++, from += stride->t, to += e) {
    int64_t c = 0;
    if (i + AHEAD < rows) DT_NAME(fetch_row)(from, stride, AHEAD, dim);
#if DT_HALF
    if (stride->e == 1) dt_widen(x->operand, to, from, c = dim);
    for (; c < dim; c++) dt_widen(x->operand, to + c, from + c * stride->e, 1);
    for (; c < e; c++) to[c] = 0;
#else
    for (; stride->e == 1 && c + DT_LANES <= dim; c += DT_LANES) v_store(to + c, v_load(from + c));
    for (; c < e; c++) to[c] = c < dim ? from[c * stride->e] : 0;
#endif
  }
  memset(to, 0, (size_t)((rows + MR - 1) / MR * MR - rows) * (size_t)e * sizeof(DT_REAL));
}

// to[c][i] = from[i][c] for c < dim; i up to a whole vector, zeros past rows.
DT_FN static void DT_NAME(transpose_rows)(const DT_REAL *from, const DtAttentionStride *stride,
                                          int64_t rows, int64_t dim, DT_REAL *to) {
  for (int64_t i = 0; i < rows; i += DT_LANES, from += DT_LANES * stride->t, to += DT_LANES) {
    int64_t c = 0, left = rows - i;
#if !DT_HALF // else they are in scratch already
    for (int64_t l = DT_LANES; l < 2 * DT_LANES && l < left; l++)
      DT_NAME(fetch_row)(from, stride, l, dim);
#endif
    for (; stride->e == 1 && left >= DT_LANES && c + DT_LANES <= dim; c += DT_LANES) {
      V row[DT_LANES];
#pragma GCC unroll 16
      for (int l = 0; l < DT_LANES; l++) row[l] = v_load(from + l * stride->t + c);
      DT_NAME(transpose_lanes)(row, to + c * ATTENTION_Q, ATTENTION_Q);
    }
    for (; c < dim; c++)
      for (int64_t l = 0; l < DT_LANES; l++)
        to[c * ATTENTION_Q + l] = l < left ? from[l * stride->t + c * stride->e] : 0;
  }
}

// A block of queries, or of their adjoints: transposed to to_t, and `keep` also to row[rows][e], where
// 16-bit operands go in any case.
DT_FN static void DT_NAME(load_queries)(const DtAttention *x, const DT_IN *from,
                                        const DtAttentionStride *stride, int64_t rows, bool keep,
                                        DT_REAL *row, DT_REAL *to_t, int64_t e) {
#if DT_HALF
  (void)keep;
  DT_NAME(copy_rows)(x, from, stride, rows, row, e);
  DT_NAME(transpose_rows)(row, &(DtAttentionStride){.t = e, .e = 1}, rows, x->dim, to_t);
#else
  DT_NAME(transpose_rows)(from, stride, rows, x->dim, to_t);
  if (keep) DT_NAME(copy_rows)(x, from, stride, rows, row, e);
#endif
}

// s[keys][queries] = sum(c < dim: a[key][c] * b[c][query]), where any query of a tile sees the key.
DT_FN static void DT_NAME(scores)(const Pair *p, const DT_REAL *a, const DT_REAL *b, DT_REAL *s) {
  int64_t dim = p->x->dim, e = (dim + DT_LANES - 1) / DT_LANES * DT_LANES;
  int64_t vectors = (p->queries + DT_LANES - 1) / DT_LANES;
  for (int64_t c = 0, width; c < vectors; c += width) {
    width = DT_NAME(tile_width)(vectors - c);
    int64_t rows = seen(p, (c + width) * DT_LANES - 1), at = c * DT_LANES;
    for (int64_t i = 0; i < rows; i += MR)
      DT_NAME(tile_of)((int)width, dim, a + i * e, e, 1, b + at, ATTENTION_Q,
                       s + i * ATTENTION_Q + at, ATTENTION_Q, 0);
  }
}

// How far down a column of queries a block of scores is looked at: a vector's queries see all keys
// from `clear` to `all`, and some of those before and of those from there to `some`. Products go on
// a little, through zeros up to `end`.
typedef struct {
  int64_t clear, all, some, end;
} DT_NAME(Reach);

DT_FN static inline DT_NAME(Reach) DT_NAME(reach)(const Pair *p, int64_t c) {
  int64_t some = seen(p, c + DT_LANES - 1), clear = hidden(p, c + DT_LANES - 1);
  if (clear > some) clear = some;
  int64_t all = seen(p, c), end = some + MR < p->keys ? some + MR : p->keys;
  return (DT_NAME(Reach)){clear, all > clear ? all : clear, some, end};
}

DT_FN static inline VI DT_NAME(lanes)(void) {
  VI lane;
#pragma GCC unroll 16
  for (int i = 0; i < DT_LANES; i++) lane[i] = i;
  return lane;
}

static inline int64_t DT_NAME(lane_at)(int64_t i) {
  return i < 0 ? 0 : i > DT_LANES ? DT_LANES : i;
}

// Which lanes of queries c .. see key j of the block, as a mask.
DT_FN static inline VI DT_NAME(visible)(const Pair *p, int64_t c, int64_t j) {
  int64_t apart = p->key + j - p->offset - p->query - c; // the key's position less lane 0's
  VI lane = DT_NAME(lanes)(), mask = lane >= v_bits(0);
  if (p->x->causal) mask = lane >= v_bits(DT_NAME(lane_at)(apart - p->x->ahead));
  if (p->x->window) mask &= lane < v_bits(DT_NAME(lane_at)(apart + p->x->window));
  return mask;
}

static inline bool DT_NAME(is_shaped)(const DtAttention *x) { return x->cap != 0 || x->bias != 0; }

// The score of a product s, of queries c .. and key j, where it is more than scale * s; *by: its
// derivative by s.
DT_FN static inline V DT_NAME(shape)(const Pair *p, double slope, V s, int64_t c, int64_t j, V *by) {
  const DtAttention *x = p->x;
  V z = s * v_set(x->scale);
  *by = v_set(x->scale);
  if (x->cap != 0) {
    V u = DT_NAME(tanh)(s * v_set(x->scale / x->cap));
    z = u * v_set(x->cap);
    *by *= v_fma(-u, u, v_set(1));
  }
  if (x->bias == 0) return z;
  V lane = __builtin_convertvector(DT_NAME(lanes)(), V);
  V distance = v_set((double)(p->key + j - p->offset - p->query - c)) - lane;
  if (x->apart) distance = v_max(distance, -distance);
  return v_fma(distance, v_set(slope), z);
}

// Scores in the place of products, of queries c .. .
DT_FN static void DT_NAME(shape_column)(const Pair *p, const Scratch *w, int64_t c, int64_t rows) {
  V by;
  for (int64_t j = 0; j < rows; j++) {
    DT_REAL *s = w->s + j * ATTENTION_Q + c;
    v_store(s, DT_NAME(shape)(p, w->slope, v_load(s), c, j, &by));
  }
}

// One block of the online softmax, for one vector of queries (column c of s): scores become
// probabilities relative to the new maximum; factor is what earlier sums are to be multiplied with.
DT_FN static void DT_NAME(softmax_block)(const Pair *p, const Scratch *w, int64_t c) {
  const bool shaped = DT_NAME(is_shaped)(p->x);
  const V none = v_set(-INFINITY), scale = v_set(shaped ? 1 : p->x->scale);
  DT_NAME(Reach) r = DT_NAME(reach)(p, c);
  DT_REAL *s = w->s + c;
  V old = v_load(w->max + c), top = old, top2 = old;
  int64_t j = 0;
  if (shaped) DT_NAME(shape_column)(p, w, c, r.some);
  for (; j < r.clear; j++) {
    V z = v_load(s + j * ATTENTION_Q) * scale;
    top = v_max(v_select(DT_NAME(visible)(p, c, j), z, none), top);
  }
  for (; j + 2 <= r.all; j += 2) { // two chains: the next maximum need not wait for the last
    top = v_max(v_load(s + j * ATTENTION_Q) * scale, top);
    top2 = v_max(v_load(s + (j + 1) * ATTENTION_Q) * scale, top2);
  }
  for (; j < r.some; j++) {
    V z = v_load(s + j * ATTENTION_Q) * scale;
    top = v_max(v_select(DT_NAME(visible)(p, c, j), z, none), top);
  }
  top = v_max(top2, top);
  V base = v_select(top == none, v_set(0),
                    top); // no key seen yet: e^(-inf - 0) is 0, not e^(-inf + inf)
  V factor = DT_NAME(exp)(old - base), sum = v_load(w->sum + c) * factor;
  for (j = 0; j < r.clear; j++) {
    V e = DT_NAME(exp)(v_fma(v_load(s + j * ATTENTION_Q), scale, -base));
    e = (V)((VI)e & DT_NAME(visible)(p, c, j));
    v_store(s + j * ATTENTION_Q, e);
    sum += e;
  }
  for (; j < r.all; j++) {
    V e = DT_NAME(exp)(v_fma(v_load(s + j * ATTENTION_Q), scale, -base));
    v_store(s + j * ATTENTION_Q, e);
    sum += e;
  }
  for (; j < r.some; j++) {
    V e = DT_NAME(exp)(v_fma(v_load(s + j * ATTENTION_Q), scale, -base));
    e = (V)((VI)e & DT_NAME(visible)(p, c, j));
    v_store(s + j * ATTENTION_Q, e);
    sum += e;
  }
  for (; j < r.end; j++) v_store(s + j * ATTENTION_Q, v_set(0));
  v_store(w->max + c, top);
  v_store(w->sum + c, sum);
  v_store(w->factor + c, factor);
}

// acc_q = factor * acc_q + probabilities * V; the first block of keys that is seen starts it.
DT_FN static void DT_NAME(add_values)(const Pair *p, const Scratch *w, bool first) {
  int64_t vectors = (p->x->dim + DT_LANES - 1) / DT_LANES, e = vectors * DT_LANES;
  for (int64_t i = 0; i < p->queries && !first; i++)
    if (w->factor[i] != 1)
      for (int64_t c = 0; c < e; c += DT_LANES)
        v_store(w->acc_q + i * e + c, v_load(w->acc_q + i * e + c) * v_set(w->factor[i]));
  for (int64_t c = 0, width; c < vectors; c += width) {
    width = DT_NAME(tile_width)(vectors - c);
    int64_t at = c * DT_LANES;
    for (int64_t i = 0; i < p->queries; i += MR)
      DT_NAME(tile_of)((int)width, seen(p, i + MR - 1), w->s + i, 1, ATTENTION_Q,
                       w->v + at, e, w->acc_q + i * e + at, e, !first);
  }
}

#if DT_HALF
// Elements of o from number `at` on.
DT_FN static inline void DT_NAME(put)(const DtAttention *x, void *o, int64_t at, const float *from, int64_t n) {
  if (x->float_o) memcpy((float *)o + at, from, (size_t)n * sizeof *from);
  else dt_narrow(x->operand, (DT_IN *)o + at, from, n);
}
#endif

// o = acc_q / sum, from its element number `at` on, and lse.
DT_FN static void DT_NAME(finish)(const DtAttention *x, const Scratch *w, int64_t queries, void *out,
                                  int64_t at, DT_REAL *lse) {
  int64_t e = (x->dim + DT_LANES - 1) / DT_LANES * DT_LANES;
  for (int64_t i = 0; i < queries; i++, at += x->o.t) {
    DT_REAL *from = w->acc_q + i * e;
    DT_REAL sum = w->sum[i], r = sum == 0 ? 0 : 1 / sum;
    lse[i] = sum == 0 ? -INFINITY : (DT_REAL)(log((double)sum) + (double)w->max[i]);
    int64_t c = 0;
#if DT_HALF
    for (; c < x->dim; c++) from[c] = sum == 0 ? 0 : from[c] * r;
    if (x->o.e == 1) DT_NAME(put)(x, out, at, from, x->dim);
    else
      for (c = 0; c < x->dim; c++) DT_NAME(put)(x, out, at + c * x->o.e, from + c, 1);
#else
    DT_REAL *o = (DT_REAL *)out + at;
    for (; x->o.e == 1 && sum != 0 && c + DT_LANES <= x->dim; c += DT_LANES)
      v_store(o + c, v_load(from + c) * v_set(r));
    for (; c < x->dim; c++) o[c * x->o.e] = sum == 0 ? 0 : from[c] * r;
#endif
  }
}

// Where a (b, g, r) of an operand starts.
DT_FN static inline int64_t DT_NAME(head)(const DtAttentionStride *s, int64_t b, int64_t g,
                                          int64_t r) {
  return b * s->b + g * s->g + r * s->r;
}

// One block of queries of one head, whose slope and sink are given.
DT_FN static void DT_NAME(forward)(const DtAttention *x, const DT_IN *q, const DT_IN *k,
                                   const DT_IN *v, void *o, int64_t o_at, DT_REAL *lse,
                                   int64_t query, double slope, double sink) {
  Scratch w = DT_NAME(scratch)(x->dim, false);
  int64_t queries = pair_at(x, query, 0).queries, key = 0;
  int64_t e = (x->dim + DT_LANES - 1) / DT_LANES * DT_LANES;
  bool first = true;
  Pair p;
  w.slope = slope;
  // The sink is a first key, of the value 0.
  for (int64_t i = 0; i < ATTENTION_Q; i++) w.max[i] = (DT_REAL)sink, w.sum[i] = x->has_sink != 0;
  DT_NAME(load_queries)(x, q + query * x->q.t, &x->q, queries, false, w.acc_q, w.q_t, e);
  while (next_keys(&p, x, query, &key)) {
    DT_NAME(copy_rows)(x, k + p.key * x->k.t, &x->k, p.keys, w.k, e);
    DT_NAME(copy_rows)(x, v + p.key * x->v.t, &x->v, p.keys, w.v, e);
    DT_NAME(scores)(&p, w.k, w.q_t, w.s);
    for (int64_t c = 0; c < queries; c += DT_LANES) DT_NAME(softmax_block)(&p, &w, c);
    DT_NAME(add_values)(&p, &w, first);
    first = false;
  }
  if (first) memset(w.acc_q, 0, (size_t)(queries * e) * sizeof(DT_REAL));
  DT_NAME(finish)(x, &w, queries, o, o_at + query * x->o.t, lse + query);
}

// Probabilities and adjoints of the scores from w.s (scores) and w.ds (adjoints of the
// probabilities).
DT_FN static void DT_NAME(score_adjoints)(const Pair *p, const Scratch *w) {
  const bool shaped = DT_NAME(is_shaped)(p->x);
  const V none = v_set(-INFINITY), scale = v_set(p->x->scale);
  for (int64_t c = 0; c < p->queries; c += DT_LANES) {
    DT_NAME(Reach) r = DT_NAME(reach)(p, c);
    V lse = v_load(w->max + c), dot = v_load(w->sum + c);
    VI some = lse != none;
    lse = v_select(some, lse, v_set(0));
    for (int64_t j = 0; j < r.end; j++) {
      DT_REAL *s = w->s + j * ATTENTION_Q + c, *ds = w->ds + j * ATTENTION_Q + c;
      VI seen = j >= r.clear && j < r.all ? some : some & DT_NAME(visible)(p, c, j);
      V by = scale, prob;
      if (shaped) prob = DT_NAME(exp)(DT_NAME(shape)(p, w->slope, v_load(s), c, j, &by) - lse);
      else prob = DT_NAME(exp)(v_fma(v_load(s), scale, -lse));
      // Unseen pairs are 0 even where a value there is infinite.
      v_store(s, (V)((VI)prob & seen));
      v_store(ds, (V)((VI)(prob * (v_load(ds) - dot) * by) & seen));
    }
  }
}

// lse and sum(e: o * dout) of a block of queries, padded with values that make nothing but 0.
DT_FN static void DT_NAME(row_sums)(const DtAttention *x, const Scratch *w, int64_t queries,
                                    const DT_REAL *o, const DtAttentionStride *os,
                                    const DT_REAL *dout, const DtAttentionStride *ds,
                                    const DT_REAL *lse) {
  bool rows = os->e == 1 && ds->e == 1;
  for (int64_t i = 0; i < ATTENTION_Q; i++, o += os->t, dout += ds->t) {
    enum { CHAINS = 16 }; // in a fixed order, whatever the lanes
    DT_REAL sum[CHAINS] = {0};
    int64_t c = 0;
    if (i < queries) {
      V part[CHAINS / DT_LANES];
      for (int l = 0; l < CHAINS / DT_LANES; l++) part[l] = v_set(0);
      for (; rows && c + CHAINS <= x->dim; c += CHAINS)
#pragma GCC unroll 16
        for (int l = 0; l < CHAINS / DT_LANES; l++)
          part[l] += v_load(o + c + l * DT_LANES) * v_load(dout + c + l * DT_LANES);
      for (int l = 0; l < CHAINS / DT_LANES; l++) v_store(sum + l * DT_LANES, part[l]);
      for (; c < x->dim; c++) sum[c % CHAINS] += o[c * os->e] * dout[c * ds->e];
    }
    for (int half = CHAINS / 2; half > 0; half /= 2)
      for (int l = 0; l < half; l++) sum[l] += sum[l + half];
    w->sum[i] = sum[0];
    w->max[i] = i < queries ? lse[i] : -INFINITY;
  }
}

// Writes rows of an accumulator, or adds them to what is there.
DT_FN static void DT_NAME(write_rows)(const DT_REAL *from, int64_t e, int64_t rows, int64_t dim,
                                      DT_REAL *to, const DtAttentionStride *stride, bool add) {
  for (int64_t i = 0; i < rows; i++, from += e, to += stride->t) {
    int64_t c = 0;
    for (; stride->e == 1 && c + DT_LANES <= dim; c += DT_LANES)
      v_store(to + c, add ? v_load(to + c) + v_load(from + c) : v_load(from + c));
    for (; c < dim; c++) {
      DT_REAL *at = to + c * stride->e;
      *at = add ? *at + from[c] : from[c];
    }
  }
}

typedef struct {
  const DT_IN *q, *o, *dout;
  const DT_REAL *lse;
  DT_REAL *dq;
} DT_NAME(Queries);

// c[rows][e] += sum(j: a[row][j] * b[j][e]) of one block, a being probabilities or adjoints of
// scores and its rows keys: query j is left out before the first that sees any key of a tile.
DT_FN static void DT_NAME(add_to_keys)(const Pair *p, const DT_REAL *a, const DT_REAL *b,
                                       DT_REAL *c) {
  int64_t vectors = (p->x->dim + DT_LANES - 1) / DT_LANES, e = vectors * DT_LANES;
  int64_t rows = seen(p, p->queries - 1);
  for (int64_t v = 0, width; v < vectors; v += width) {
    width = DT_NAME(tile_width)(vectors - v);
    int64_t at = v * DT_LANES;
    for (int64_t i = 0; i < rows; i += MR) {
      int64_t first = p->x->causal ? p->key + i - p->offset - p->query - p->x->ahead : 0;
      if (first < 0) first = 0;
      DT_NAME(tile_of)((int)width, p->queries - first, a + i * ATTENTION_Q + first, ATTENTION_Q, 1,
                       b + first * e + at, e, c + i * e + at, e, 1);
    }
  }
}

// acc_q = adjoints of the scores * K.
DT_FN static void DT_NAME(query_adjoints)(const Pair *p, const Scratch *w) {
  int64_t vectors = (p->x->dim + DT_LANES - 1) / DT_LANES, e = vectors * DT_LANES;
  for (int64_t c = 0, width; c < vectors; c += width) {
    width = DT_NAME(tile_width)(vectors - c);
    int64_t at = c * DT_LANES;
    for (int64_t i = 0; i < p->queries; i += MR)
      DT_NAME(tile_of)((int)width, seen(p, i + MR - 1), w->ds + i, 1, ATTENTION_Q,
                       w->k + at, e, w->acc_q + i * e + at, e, 0);
  }
}

// What one block of queries adds to a block of keys, whose operands and accumulators are in w. dq is
// written, or added to.
DT_FN static void DT_NAME(backward_block)(const Pair *p, const Scratch *w,
                                          const DT_NAME(Queries) * h, bool add) {
  const DtAttention *x = p->x;
  int64_t e = (x->dim + DT_LANES - 1) / DT_LANES * DT_LANES, dim = x->dim;
  const DT_IN *q = h->q + p->query * x->q.t, *dout = h->dout + p->query * x->dout.t,
              *o = h->o + p->query * x->o.t;
#if DT_HALF
  const DtAttentionStride dense = {.t = e, .e = 1};
  DT_NAME(load_queries)(x, dout, &x->dout, p->queries, true, w->dout, w->dout_t, e);
  DT_NAME(copy_rows)(x, o, &x->o, p->queries, w->acc_q, e);
  DT_NAME(row_sums)(x, w, p->queries, w->acc_q, &dense, w->dout, &dense, h->lse + p->query);
#else
  DT_NAME(row_sums)(x, w, p->queries, o, &x->o, dout, &x->dout, h->lse + p->query);
  DT_NAME(load_queries)(x, dout, &x->dout, p->queries, true, w->dout, w->dout_t, e);
#endif
  DT_NAME(load_queries)(x, q, &x->q, p->queries, true, w->q, w->q_t, e);
  DT_NAME(scores)(p, w->k, w->q_t, w->s);
  DT_NAME(scores)(p, w->v, w->dout_t, w->ds);
  DT_NAME(score_adjoints)(p, w);
  DT_NAME(add_to_keys)(p, w->s, w->dout, w->acc_v);
  DT_NAME(add_to_keys)(p, w->ds, w->q, w->acc_k);
  DT_NAME(query_adjoints)(p, w);
  DT_NAME(write_rows)(w->acc_q, e, p->queries, dim, h->dq + p->query * x->dq.t, &x->dq, add);
}

// One kv head of one batch element: every block of keys with all the queries that see it.
DT_FN static void DT_NAME(backward)(const DtAttention *x, int64_t b, int64_t g, const DT_IN *q,
                                    const DT_IN *k, const DT_IN *v, const DT_IN *o,
                                    const DT_REAL *lse, const DT_IN *dout, DT_REAL *dq,
                                    DT_REAL *dk, DT_REAL *dv) {
  Scratch w = DT_NAME(scratch)(x->dim, true);
  int64_t e = (x->dim + DT_LANES - 1) / DT_LANES * DT_LANES, dim = x->dim;
  k += DT_NAME(head)(&x->k, b, g, 0), v += DT_NAME(head)(&x->v, b, g, 0);
  dk += DT_NAME(head)(&x->dk, b, g, 0), dv += DT_NAME(head)(&x->dv, b, g, 0);
  // The first block is taken even where no query sees it, or there is no key: it writes dq.
  for (int64_t key = 0, keys; key == 0 || key < x->tk; key += keys ? keys : 1) {
    keys = pair_at(x, 0, key).keys;
    DT_NAME(copy_rows)(x, k + key * x->k.t, &x->k, keys, w.k, e);
    DT_NAME(copy_rows)(x, v + key * x->v.t, &x->v, keys, w.v, e);
    memset(w.acc_k, 0, (size_t)(keys * e) * sizeof(DT_REAL));
    memset(w.acc_v, 0, (size_t)(keys * e) * sizeof(DT_REAL));
    for (int64_t r = 0; r < x->group; r++) {
      w.slope = slope_of(x, g, r, DT_F64);
      DT_NAME(Queries)
      h = {q + DT_NAME(head)(&x->q, b, g, r), o + DT_NAME(head)(&x->o, b, g, r),
           dout + DT_NAME(head)(&x->dout, b, g, r),
           lse + ((b * x->kv_heads + g) * x->group + r) * x->tq,
           dq + DT_NAME(head)(&x->dq, b, g, r)};
      for (int64_t query = 0, queries; query < x->tq; query += queries) {
        Pair p = pair_at(x, query, key);
        Scratch from = w;
        int64_t skip;
        queries = p.queries;
        if (!cut_pair(&p, MR, &skip) && key > 0) continue;
        from.k += skip * e, from.v += skip * e, from.acc_k += skip * e, from.acc_v += skip * e;
        DT_NAME(backward_block)(&p, &from, &h, key > 0);
      }
    }
    DT_NAME(write_rows)(w.acc_k, e, keys, dim, dk + key * x->dk.t, &x->dk, false);
    DT_NAME(write_rows)(w.acc_v, e, keys, dim, dv + key * x->dv.t, &x->dv, false);
  }
}

// Tasks [begin, end) of a call.
DT_FN static void DT_NAME(forward_tasks)(void *const *arg, int64_t begin, int64_t end) {
  const DtAttention *x = arg[0];
  int64_t blocks = query_blocks(x);
  for (int64_t task = begin; task < end; task++) {
    int64_t head = task / blocks, r = head % x->group, g = head / x->group % x->kv_heads;
    int64_t b = head / x->group / x->kv_heads;
    DT_NAME(forward)(x, (const DT_IN *)arg[1] + DT_NAME(head)(&x->q, b, g, r),
                     (const DT_IN *)arg[2] + DT_NAME(head)(&x->k, b, g, 0),
                     (const DT_IN *)arg[3] + DT_NAME(head)(&x->v, b, g, 0),
                     arg[4], DT_NAME(head)(&x->o, b, g, r),
                     (DT_REAL *)arg[5] + head * x->tq, query_of_block(x, task % blocks),
                     slope_of(x, g, r, DT_F64), sink_of(x, g, r, DT_F64));
  }
}

DT_FN static void DT_NAME(backward_tasks)(void *const *arg, int64_t begin, int64_t end) {
  const DtAttention *x = arg[0];
  for (int64_t task = begin; task < end; task++)
    DT_NAME(backward)(x, task / x->kv_heads, task % x->kv_heads, arg[1], arg[2], arg[3], arg[4],
                      arg[5], arg[6], arg[7], arg[8], arg[9]);
}
#undef Scratch
