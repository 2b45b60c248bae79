// Dense layers: a value times a parameter, plainly or through linear subscripts, and a bias or a
// residual that is added to the product alone.
#include "tests/random/support/gen.h"

typedef struct Dense {
  Gen *g;
  Known x, z; // z: the product
  Index index[MAX_INDEX]; // those of z, then the one that is summed
  Id at[MAX_RANK]; // z's indices
  int64_t terms;
} Dense;

static double param_size(const Gen *g) { return g->exact ? 3 : 2; }

static Id read(Gen *g, Id value, const Id *sub) { return ex_read(g->m, gen_fn(g), value, sub); }

static Id times_or_plus(Gen *g, Op op, Id a, Id b) {
  bool swap = rng_chance(&g->r, 50);
  return ex2(g->m, op, swap ? b : a, swap ? a : b);
}

// The last subscript of x, which the sum runs over: as it lies, backwards, every second element,
// or a window that moves with one more row index.
static Id summed(Dense *d, Id k) {
  Gen *g = d->g;
  Module *m = g->m;
  int64_t extent = d->terms;
  uint32_t what = rng_below(&g->r, 8);
  if (what == 0) return ex2(m, OP_SUB, ex_int(m, extent - 1), k);
  if (what == 1 && extent >= 4) {
    d->terms = extent / 2;
    return ex2(m, OP_ADD, ex2(m, OP_MUL, ex_int(m, 2), k), ex_int(m, extent % 2));
  }
  if (what == 2 && extent >= 3) {
    uint32_t row = d->x.rank - 1; // in the place of a row index of extent 1
    d->terms = 2;
    d->z.dim[row].extent[0] = extent - 1;
    return ex2(m, OP_ADD, ex_index(m, row), k);
  }
  return k;
}

static void add(Dense *d, Known *k, const char *name, Red red, uint32_t n, Id body) {
  Gen *g = d->g;
  k->id = gen_value(g, name, k, ROLE_LOCAL);
  fn_comp(g->m, gen_fn(g), k->id, d->at, false, red, d->index, d->z.rank, n, body, 0);
}

static bool product(Dense *d) {
  Gen *g = d->g;
  Id sub[MAX_RANK], pair[2];
  uint32_t column = d->x.rank;
  Known w = {.type = SC_REAL, .rank = 2, .size = param_size(g)};
  d->z = d->x;
  d->z.rank = column + 1;
  d->z.dim[column - 1] = (Dim){1, {1}};
  d->z.dim[column] = (Dim){1, {2 + rng_below(&g->r, rng_chance(&g->r, 20) ? 17 : 5)}};
  Id k = ex_index(g->m, column + 1), last = summed(d, k);
  int64_t points = d->terms;
  for (uint32_t i = 0; i <= column; i++) {
    int64_t n = dim_extent(&d->z.dim[i]);
    d->z.dim[i] = (Dim){1, {n}};
    d->index[i] = (Index){.name = str_printf("r%u", i), .extent = n};
    d->at[i] = sub[i] = ex_index(g->m, i);
    points *= n;
  }
  d->index[column + 1] = (Index){.name = str_intern("k"), .extent = d->terms};
  d->z.size = d->x.size * w.size * (double)d->terms;
  if (points > 3000 || d->z.size > (g->exact ? 1e5 : 500)) return false;
  sub[column - 1] = last;
  bool turned = rng_chance(&g->r, 40);
  w.dim[turned] = (Dim){1, {d->terms}};
  w.dim[!turned] = d->z.dim[column];
  gen_param(g, &w, str_printf("w%u", g->m->param.n));
  pair[turned] = k, pair[!turned] = d->at[column];
  Id body = times_or_plus(g, OP_MUL, read(g, d->x.id, sub), read(g, w.id, pair));
  add(d, &d->z, "z", RED_SUM, column + 2, body);
  return true;
}

// y = z + a bias for each column, or an element for each of z's.
static Known with_term(Dense *d) {
  Gen *g = d->g;
  Known y = d->z, term = d->z;
  bool residual = rng_chance(&g->r, 40);
  if (!residual) term.rank = 1, term.dim[0] = d->z.dim[d->z.rank - 1];
  term.size = param_size(g);
  gen_param(g, &term, str_printf("b%u", g->m->param.n));
  y.size = d->z.size + term.size;
  Id added = read(g, term.id, residual ? d->at : d->at + d->z.rank - 1);
  add(d, &y, "y", RED_NONE, d->z.rank, times_or_plus(g, OP_ADD, read(g, d->z.id, d->at), added));
  return y;
}

bool gen_dense(Gen *g, Known *k) {
  const Known *x = pick_known(g, SC_REAL);
  if (!x || x->rank < 1 || x->rank > 3) return false;
  Dense d = {.g = g, .x = *x, .terms = dim_extent(&x->dim[x->rank - 1])};
  if (!product(&d)) return false;
  *k = rng_chance(&g->r, 80) ? with_term(&d) : d.z;
  return true;
}
