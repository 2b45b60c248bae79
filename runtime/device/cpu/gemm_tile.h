// A product on one thread, block by block: a template to be included after vector.h. GemmCut and
// GemmNext are gemm.c's.
#include "runtime/device/cpu/gemm_kernel.h"

// Plans the fetching of x[rows, cols] over `calls` calls of the micro-kernel.
DT_FN static GemmFetch DT_NAME(plan_fetch)(const DT_REAL *x, int64_t row, int64_t col, int64_t rows,
                                           int64_t cols, int64_t calls) {
  enum { TIMES = MR }; // that a micro-kernel stops to fetch
  GemmFetch f = {.row = (const char *)x};
  if (!x || (row != 1 && col != 1)) return f;
  f.bytes = (col == 1 ? cols : rows) * (int64_t)sizeof(DT_REAL);
  f.rows = col == 1 ? rows : cols;
  f.stride = (col == 1 ? row : col) * (int64_t)sizeof(DT_REAL);
  f.lines = (f.bytes / 64 + 1) * f.rows / (calls * TIMES) + 1;
  return f;
}

// Where the blocks of A and B that follow block (i, p, j) start; false after the last of all.
static inline bool DT_NAME(next_block)(const DtGemm *g, const GemmCut *cut, int64_t n, int64_t *p,
                                       int64_t *j) {
  *p += cut->kc;
  if (*p < g->k) return true;
  *p = 0;
  *j += cut->nc;
  return *j < n;
}

// Whether A may be read where it lies: rows contiguous, and so far apart that a block of them does
// not crowd into few sets of a cache.
static inline bool DT_NAME(lies_well)(const DtGemm *g) {
  return g->a_col == 1 && g->a_row * (int64_t)sizeof(DT_REAL) % 8192 != 0;
}

DT_FN static void DT_NAME(add_row)(int64_t n, DT_REAL *c, const DT_REAL *x) {
  int64_t j = 0;
  for (; j + DT_LANES <= n; j += DT_LANES) v_store(c + j, v_load(c + j) + v_load(x + j));
  for (; j < n; j++) c[j] += x[j];
}

// C[m, n] += bias[n] + plus[m, n], in their order, and then the function; C begins at element (i, j) of the task's tile.
DT_FN static void DT_NAME(finish)(const GemmEnd *e, int64_t i, int64_t j, int64_t m, int64_t n,
                                  DT_REAL *c, int64_t row) {
  const DT_REAL *bias = e->bias ? (const DT_REAL *)e->bias + j : NULL;
  const DT_REAL *plus = e->plus ? (const DT_REAL *)e->plus + i * e->row + j : NULL;
  DT_REAL *kept = e->kept ? (DT_REAL *)e->kept + i * e->row + j : NULL;
  for (int64_t k = 0; k < m; k++, c += row) {
    if (plus && e->plus_first) DT_NAME(add_row)(n, c, plus);
    if (bias) DT_NAME(add_row)(n, c, bias);
    if (plus && !e->plus_first) DT_NAME(add_row)(n, c, plus);
    if (plus) plus += e->row;
    if (kept) memcpy(kept + k * e->row, c, (size_t)n * sizeof *c);
    if (e->act) e->act((void *const[]){c, c}, 0, n);
  }
}

// C[m, n] = beta * C + A * B on this thread, through `buffer`, and then what `end` says unless that
// is NULL: a block of C gets it when its sums are done, while it is in the cache. While the last
// blocks are computed, the first of `next` are fetched.
DT_FN static void DT_NAME(tile)(const DtGemm *g, const GemmCut *cut, int64_t m, int64_t n,
                                const DT_REAL *a, const DT_REAL *b, DT_REAL *c, DT_REAL beta,
                                DT_REAL *buffer, const GemmEnd *end, const GemmNext *next) {
  DT_REAL *pa = buffer, *pb = buffer + cut->mc * cut->kc;
  bool lies = DT_NAME(lies_well)(g);
  GemmFetch fetch[2] = {{0}};
  for (int64_t j = 0; j < n; j += cut->nc) {
    int64_t nb = n - j < cut->nc ? n - j : cut->nc, strips = (nb + NR - 1) / NR;
    for (int64_t p = 0; p < g->k; p += cut->kc) {
      int64_t kb = g->k - p < cut->kc ? g->k - p : cut->kc, np = p, nj = j;
      bool more = DT_NAME(next_block)(g, cut, n, &np, &nj);
      BlockB bb = {b + p * g->b_row + j * g->b_col, g->b_row, pb};
      if (g->b_col != 1) {
        DT_NAME(pack_b)(bb.from, g->b_row, g->b_col, kb, nb, pb);
        bb.from = NULL;
      }
      const DT_REAL *b_next = more ? b + np * g->b_row + nj * g->b_col : next->b;
      int64_t cols = more ? n - nj : next->n, calls = strips * ((m + MR - 1) / MR);
      fetch[1] = DT_NAME(plan_fetch)(b_next, g->b_row, g->b_col,
                                     g->k - np < cut->kc ? g->k - np : cut->kc,
                                     cols < cut->nc ? cols : cut->nc, calls);
      for (int64_t i = 0; i < m; i += cut->mc, bb.from = NULL) {
        int64_t mb = m - i < cut->mc ? m - i : cut->mc, whole = lies ? mb / MR * MR : 0;
        int64_t ni = i + mb < m ? i + mb : 0, ap = ni ? p : np;
        BlockA ab = {a + i * g->a_row + p * g->a_col, g->a_row, pa};
        DT_NAME(pack_a)(ab.from + whole * g->a_row, g->a_row, g->a_col, mb - whole, kb,
                        pa + whole * kb);
        if (!lies) ab.from = NULL;
        const DT_REAL *a_next =
            ni || more ? a + ni * g->a_row + ap * g->a_col : (const DT_REAL *)next->a;
        int64_t rows = ni || more ? m - ni : next->m;
        fetch[0] = DT_NAME(plan_fetch)(a_next, g->a_row, g->a_col, rows < cut->mc ? rows : cut->mc,
                                       g->k - ap < cut->kc ? g->k - ap : cut->kc,
                                       strips * ((mb + MR - 1) / MR));
        DT_NAME(block)(mb, nb, kb, &ab, &bb, kb, c + i * g->c_row + j, g->c_row,
                       p == 0 ? beta : 1, fetch);
        if (end && p + kb == g->k)
          DT_NAME(finish)(end, i, j, mb, nb, c + i * g->c_row + j, g->c_row);
      }
    }
  }
}
