// The matrix products of attention alone, for bench/floor.c: a template to be included after
// runtime/device/cpu/attention.c and vector.h. The tiles are those of attention_kernel.h, on operands that
// lie in the caches: no softmax, no copies of operands, no results written.

// Heads [begin, end): arg[0] is the DtAttention, one head's worth. Two products forward and five
// backward, each as far as the causal half goes.
DT_FN static void DT_NAME(attention_products)(void *const *arg, int64_t begin, int64_t end) {
  const DtAttention *x = arg[0];
  DT_NAME(Scratch) w = DT_NAME(scratch)(x->dim, true);
  DT_REAL *last = w.dout + ATTENTION_Q * ((x->dim + DT_LANES - 1) / DT_LANES * DT_LANES);
  for (DT_REAL *p = w.s; p < last; p++) *p = (DT_REAL)1e-3;
  for (int64_t head = begin; head < end; head++)
    for (int64_t key = 0; key < x->tk; key += ATTENTION_K)
      for (int64_t query = key / ATTENTION_Q * ATTENTION_Q; query < x->tq; query += ATTENTION_Q) {
        int64_t queries = x->tq - query < ATTENTION_Q ? x->tq - query : ATTENTION_Q;
        int64_t keys = x->tk - key < ATTENTION_K ? x->tk - key : ATTENTION_K;
        Pair p = {x, query, queries, key, keys};
        DT_NAME(scores)(&p, w.k, w.q_t, w.s);
        DT_NAME(query_adjoints)(&p, &w); // the shape of probabilities times values
        DT_NAME(scores)(&p, w.k, w.q_t, w.s);
        DT_NAME(scores)(&p, w.v, w.dout_t, w.ds);
        DT_NAME(add_to_keys)(&p, w.s, w.dout, w.acc_v);
        DT_NAME(add_to_keys)(&p, w.ds, w.q, w.acc_k);
        DT_NAME(query_adjoints)(&p, &w);
      }
}
