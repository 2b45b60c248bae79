// Blocks of softmax attention on one thread: a template to be included after gemm_kernel.h.
//
// Scores are held transposed, s[key][query], so that a query is a lane: maxima and sums over keys
// need no shuffle, and the block is packed for the product with V by plain copies. The forward is
// the online softmax of Milakov and Gimelshein (2018) on blocks as FlashAttention has it; the
// backward recomputes the scores.

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

// Scratch of a task. Extents in elements: Q = ATTENTION_Q, K = ATTENTION_K, E = dim rounded up to
// lanes.
typedef struct {
  DT_REAL *pa;                 // packed A, of s or ds or their transposes
  DT_REAL *s, *ds;             // [K][Q]: scores and probabilities; their adjoints
  DT_REAL *acc_q;              // [Q][E]: o, or dq
  DT_REAL *acc_k, *acc_v;      // [K][E]: dk, dv
  DT_REAL *q_t, *dout_t;       // packed B [E][Q] of the transposed blocks
  DT_REAL *q, *dout, *k, *v;   // packed B [Q][E] and [K][E]
  DT_REAL *k_a, *v_a;          // packed A: K x E
  DT_REAL *max, *sum, *factor; // [Q]; the backward keeps lse and sum(e: o * dout) in max and sum
} DT_NAME(Scratch);
#define Scratch DT_NAME(Scratch)

// Rows of a packed operand are padded: A's to MR, B's to NR.
DT_FN static Scratch DT_NAME(scratch)(int64_t dim, bool backward) {
  int64_t e = (dim + DT_LANES - 1) / DT_LANES * DT_LANES, wide = (dim + NR - 1) / NR * NR;
  int64_t q = ATTENTION_Q, k = ATTENTION_K;
  int64_t need = 2 * k * q + q * e + dim * q + k * wide + k * dim + 3 * q;
  if (backward) need += k * q + 2 * k * e + dim * q + 2 * q * wide + k * dim;
  else need += k * wide;
  DT_REAL *p = dt_scratch((size_t)need * sizeof(DT_REAL));
  Scratch x = {.pa = p};
  x.s = p += k * q, x.acc_q = p += k * q, x.q_t = p += q * e, x.k_a = p += dim * q;
  x.max = p += k * dim, x.sum = p += q, x.factor = p += q, p += q;
  if (!backward) {
    x.v = p;
    return x;
  }
  x.k = p, x.ds = p += k * wide, x.acc_k = p += k * q, x.acc_v = p += k * e, x.dout_t = p += k * e;
  x.q = p += dim * q, x.dout = p += q * wide, x.v_a = p += q * wide;
  return x;
}

// s[keys][queries] = K-like rows (packed as A) times transposed Q-like rows (packed as B), both
// over dim.
DT_FN static void DT_NAME(scores)(int64_t keys, int64_t queries, int64_t dim, const DT_REAL *a,
                                  const DT_REAL *b, DT_REAL *s) {
  int64_t m = (keys + MR - 1) / MR * MR, n = (queries + DT_LANES - 1) / DT_LANES * DT_LANES;
  DT_NAME(block)(m, n, dim, a, b, dim, s, ATTENTION_Q, 0,
                 (GemmFetch[2]){{0}}); // whole tiles: both operands are padded with 0
}

// Which of the queries that start at `query` see key `key`, as a mask.
DT_FN static inline VI DT_NAME(visible)(const DtAttention *x, int64_t query, int64_t key) {
  if (!x->causal) return v_bits(-1);
  int64_t first = key - x->offset - query; // the first lane that sees it
  VI lane;
#pragma GCC unroll 16
  for (int i = 0; i < DT_LANES; i++) lane[i] = i;
  return lane >= v_bits(first < 0 ? 0 : first > DT_LANES ? DT_LANES : first);
}

// One block of the online softmax, for one vector of queries (column c of s): scores become
// probabilities relative to the new maximum; factor is what earlier sums are to be multiplied with.
DT_FN static void DT_NAME(softmax_block)(const DtAttention *x, const Scratch *w, int64_t c,
                                         int64_t query, int64_t key, int64_t keys) {
  const V none = v_set(-INFINITY), scale = v_set(x->scale);
  V old = v_load(w->max + c), top = old;
  bool masked = x->causal && key + keys - 1 > query + x->offset;
  for (int64_t j = 0; j < keys; j++) {
    DT_REAL *at = w->s + j * ATTENTION_Q + c;
    V s = v_load(at) * scale;
    if (masked) s = v_select(DT_NAME(visible)(x, query, key + j), s, none);
    v_store(at, s);
    top = v_max(s, top);
  }
  V base = v_select(top == none, v_set(0),
                    top); // no key seen yet: e^(-inf - 0) is 0, not e^(-inf + inf)
  V factor = DT_NAME(exp)(old - base), sum = v_load(w->sum + c) * factor;
  for (int64_t j = 0; j < keys; j++) {
    DT_REAL *at = w->s + j * ATTENTION_Q + c;
    V p = DT_NAME(exp)(v_load(at) - base);
    v_store(at, p);
    sum += p;
  }
  v_store(w->max + c, top);
  v_store(w->sum + c, sum);
  v_store(w->factor + c, factor);
}

// Where a (b, g, r) of an operand starts.
DT_FN static inline int64_t DT_NAME(head)(const DtAttentionStride *s, int64_t b, int64_t g,
                                          int64_t r) {
  return b * s->b + g * s->g + r * s->r;
}

// One block of queries of one head.
DT_FN static void DT_NAME(forward)(const DtAttention *x, const DT_REAL *q, const DT_REAL *k,
                                   const DT_REAL *v, DT_REAL *o, DT_REAL *lse, int64_t query) {
  Scratch w = DT_NAME(scratch)(x->dim, false);
  GemmFetch none[2] = {{0}};
  int64_t queries = x->tq - query < ATTENTION_Q ? x->tq - query : ATTENTION_Q;
  int64_t e = (x->dim + DT_LANES - 1) / DT_LANES * DT_LANES, end = x->tk;
  if (x->causal && query + queries + x->offset < end) end = query + queries + x->offset;
  for (int64_t i = 0; i < ATTENTION_Q; i++) w.max[i] = -INFINITY, w.sum[i] = 0;
  memset(w.acc_q, 0, (size_t)(queries * e) * sizeof(DT_REAL));
  DT_NAME(pack_b)(q + query * x->q.t, x->q.e, x->q.t, x->dim, queries, w.q_t);
  for (int64_t key = 0; key < end; key += ATTENTION_K) {
    int64_t keys = end - key < ATTENTION_K ? end - key : ATTENTION_K;
    DT_NAME(pack_a)(k + key * x->k.t, x->k.t, x->k.e, keys, x->dim, w.k_a);
    DT_NAME(pack_b)(v + key * x->v.t, x->v.t, x->v.e, keys, x->dim, w.v);
    DT_NAME(scores)(keys, queries, x->dim, w.k_a, w.q_t, w.s);
    for (int64_t c = 0; c < queries; c += DT_LANES)
      DT_NAME(softmax_block)(x, &w, c, query + c, key, keys);
    for (int64_t i = 0; i < queries; i++)
      if (w.factor[i] != 1)
        for (int64_t c = 0; c < e; c += DT_LANES)
          v_store(w.acc_q + i * e + c, v_load(w.acc_q + i * e + c) * v_set(w.factor[i]));
    DT_NAME(pack_a)(w.s, 1, ATTENTION_Q, queries, keys, w.pa);
    DT_NAME(block)(queries, e, keys, w.pa, w.v, keys, w.acc_q, e, 1, none);
  }
  for (int64_t i = 0; i < queries; i++) {
    DT_REAL sum = w.sum[i];
    lse[query + i] = sum == 0 ? -INFINITY : (DT_REAL)(log((double)sum) + (double)w.max[i]);
    for (int64_t c = 0; c < x->dim; c++)
      o[(query + i) * x->o.t + c * x->o.e] = sum == 0 ? 0 : w.acc_q[i * e + c] / sum;
  }
}

// Probabilities and adjoints of the scores from w.s (scores) and w.ds (adjoints of the
// probabilities).
DT_FN static void DT_NAME(score_adjoints)(const DtAttention *x, const Scratch *w, int64_t queries,
                                          int64_t query, int64_t key, int64_t keys) {
  const V none = v_set(-INFINITY), scale = v_set(x->scale);
  for (int64_t c = 0; c < queries; c += DT_LANES) {
    V lse = v_load(w->max + c), dot = v_load(w->sum + c);
    VI some = lse != none;
    lse = v_select(some, lse, v_set(0));
    bool masked = x->causal && key + keys - 1 > query + c + x->offset;
    for (int64_t j = 0; j < keys; j++) {
      DT_REAL *s = w->s + j * ATTENTION_Q + c, *ds = w->ds + j * ATTENTION_Q + c;
      VI seen = masked ? some & DT_NAME(visible)(x, query + c, key + j) : some;
      V p = DT_NAME(exp)(v_load(s) * scale - lse);
      // Unseen pairs are 0 even where a value there is infinite.
      v_store(s, (V)((VI)p & seen));
      v_store(ds, (V)((VI)(p * (v_load(ds) - dot) * scale) & seen));
    }
  }
}

// lse and sum(e: o * dout) of a block of queries, padded with values that make nothing but 0.
DT_FN static void DT_NAME(row_sums)(const DtAttention *x, const Scratch *w, int64_t queries,
                                    const DT_REAL *o, const DT_REAL *dout, const DT_REAL *lse) {
  for (int64_t i = 0; i < ATTENTION_Q; i++) {
    DT_REAL sum[8] = {0}; // in a fixed order that vectorises
    for (int64_t c = 0; i < queries && c < x->dim; c++)
      sum[c % 8] += o[i * x->o.t + c * x->o.e] * dout[i * x->dout.t + c * x->dout.e];
    w->sum[i] = ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
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
  const DT_REAL *q, *o, *dout, *lse;
  DT_REAL *dq;
} DT_NAME(Queries);

// What one block of queries adds to a block of keys, whose operands and accumulators are in w.
DT_FN static void DT_NAME(backward_block)(const DtAttention *x, const Scratch *w,
                                          const DT_NAME(Queries) * h, int64_t query, int64_t key,
                                          int64_t keys) {
  int64_t e = (x->dim + DT_LANES - 1) / DT_LANES * DT_LANES, dim = x->dim;
  int64_t queries = x->tq - query < ATTENTION_Q ? x->tq - query : ATTENTION_Q, seen = keys;
  if (x->causal && query + queries + x->offset - key < keys)
    seen = query + queries + x->offset - key;
  if (seen < 0) seen = 0; // later keys are seen by none of these queries
  GemmFetch none[2] = {{0}};
  const DT_REAL *q = h->q + query * x->q.t, *dout = h->dout + query * x->dout.t;
  DT_NAME(row_sums)(x, w, queries, h->o + query * x->o.t, dout, h->lse + query);
  DT_NAME(pack_b)(q, x->q.e, x->q.t, dim, queries, w->q_t);
  DT_NAME(pack_b)(dout, x->dout.e, x->dout.t, dim, queries, w->dout_t);
  DT_NAME(pack_b)(q, x->q.t, x->q.e, queries, dim, w->q);
  DT_NAME(pack_b)(dout, x->dout.t, x->dout.e, queries, dim, w->dout);
  DT_NAME(scores)(seen, queries, dim, w->k_a, w->q_t, w->s);
  DT_NAME(scores)(seen, queries, dim, w->v_a, w->dout_t, w->ds);
  DT_NAME(score_adjoints)(x, w, queries, query, key, seen);
  DT_NAME(pack_a)(w->s, ATTENTION_Q, 1, seen, queries, w->pa);
  DT_NAME(block)(seen, e, queries, w->pa, w->dout, queries, w->acc_v, e, 1, none);
  DT_NAME(pack_a)(w->ds, ATTENTION_Q, 1, seen, queries, w->pa);
  DT_NAME(block)(seen, e, queries, w->pa, w->q, queries, w->acc_k, e, 1, none);
  DT_NAME(pack_a)(w->ds, 1, ATTENTION_Q, queries, seen, w->pa);
  DT_NAME(block)(queries, e, seen, w->pa, w->k, keys, w->acc_q, e, 0, none);
  DT_NAME(write_rows)(w->acc_q, e, queries, dim, h->dq + query * x->dq.t, &x->dq, key > 0);
}

// One kv head of one batch element: every block of keys with all the queries that see it.
DT_FN static void DT_NAME(backward)(const DtAttention *x, int64_t b, int64_t g, const DT_REAL *q,
                                    const DT_REAL *k, const DT_REAL *v, const DT_REAL *o,
                                    const DT_REAL *lse, const DT_REAL *dout, DT_REAL *dq,
                                    DT_REAL *dk, DT_REAL *dv) {
  Scratch w = DT_NAME(scratch)(x->dim, true);
  int64_t e = (x->dim + DT_LANES - 1) / DT_LANES * DT_LANES, dim = x->dim;
  k += DT_NAME(head)(&x->k, b, g, 0), v += DT_NAME(head)(&x->v, b, g, 0);
  dk += DT_NAME(head)(&x->dk, b, g, 0), dv += DT_NAME(head)(&x->dv, b, g, 0);
  // The first block is taken even where no query sees it, or there is no key: it writes dq.
  for (int64_t key = 0; key == 0 || key < x->tk; key += ATTENTION_K) {
    int64_t keys = x->tk - key < ATTENTION_K ? x->tk - key : ATTENTION_K, start = 0;
    if (x->causal && key > 0 && key - x->offset > 0)
      start = (key - x->offset) / ATTENTION_Q * ATTENTION_Q;
    DT_NAME(pack_a)(k + key * x->k.t, x->k.t, x->k.e, keys, dim, w.k_a);
    DT_NAME(pack_a)(v + key * x->v.t, x->v.t, x->v.e, keys, dim, w.v_a);
    DT_NAME(pack_b)(k + key * x->k.t, x->k.t, x->k.e, keys, dim, w.k);
    memset(w.acc_k, 0, (size_t)(keys * e) * sizeof(DT_REAL));
    memset(w.acc_v, 0, (size_t)(keys * e) * sizeof(DT_REAL));
    for (int64_t r = 0; r < x->group; r++) {
      DT_NAME(Queries)
      h = {q + DT_NAME(head)(&x->q, b, g, r), o + DT_NAME(head)(&x->o, b, g, r),
           dout + DT_NAME(head)(&x->dout, b, g, r),
           lse + ((b * x->kv_heads + g) * x->group + r) * x->tq,
           dq + DT_NAME(head)(&x->dq, b, g, r)};
      for (int64_t query = start; query < x->tq; query += ATTENTION_Q)
        DT_NAME(backward_block)(x, &w, &h, query, key, keys);
    }
    DT_NAME(write_rows)(w.acc_k, e, keys, dim, dk + key * x->dk.t, &x->dk, false);
    DT_NAME(write_rows)(w.acc_v, e, keys, dim, dv + key * x->dv.t, &x->dv, false);
  }
}

// Tasks [begin, end) of a call.
DT_FN static void DT_NAME(forward_tasks)(void *const *arg, int64_t begin, int64_t end) {
  const DtAttention *x = arg[0];
  int64_t blocks = (x->tq + ATTENTION_Q - 1) / ATTENTION_Q;
  for (int64_t task = begin; task < end; task++) {
    int64_t head = task / blocks, r = head % x->group, g = head / x->group % x->kv_heads;
    int64_t b = head / x->group / x->kv_heads;
    DT_NAME(forward)(x, (const DT_REAL *)arg[1] + DT_NAME(head)(&x->q, b, g, r),
                     (const DT_REAL *)arg[2] + DT_NAME(head)(&x->k, b, g, 0),
                     (const DT_REAL *)arg[3] + DT_NAME(head)(&x->v, b, g, 0),
                     (DT_REAL *)arg[4] + DT_NAME(head)(&x->o, b, g, r),
                     (DT_REAL *)arg[5] + head * x->tq, task % blocks * ATTENTION_Q);
  }
}

DT_FN static void DT_NAME(backward_tasks)(void *const *arg, int64_t begin, int64_t end) {
  const DtAttention *x = arg[0];
  for (int64_t task = begin; task < end; task++)
    DT_NAME(backward)(x, task / x->kv_heads, task % x->kv_heads, arg[1], arg[2], arg[3], arg[4],
                      arg[5], arg[6], arg[7], arg[8], arg[9]);
}
#undef Scratch
