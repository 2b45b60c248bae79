// Dense layers: a value times a parameter, plainly or through linear subscripts, and what may follow: a bias, a residual
// and a function of the sum.
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
// or a window that moves with one more row index, in which an element may stand twice.
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
  if ((what == 2 || what == 3) && extent >= 3) {
    uint32_t row = d->x.rank - 1; // in the place of a row index of extent 1
    d->terms = what == 2 ? 2 : 4;
    d->z.dim[row].extent[0] = extent - 1;
    return ex2(m, OP_ADD, ex_index(m, row), what == 2 ? k : ex2(m, OP_IDIV, k, ex_int(m, 2)));
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

// A product summed over two indices that no one stride goes along: z[r.., c] = sum(j, k: x[r.., j, k] * w[k, j, c]).
static bool product_of_two(Dense *d) {
  Gen *g = d->g;
  Module *m = g->m;
  Id sub[MAX_RANK], three[3];
  uint32_t rows = d->x.rank - 2, column = rows;
  int64_t extent[2], points = 1;
  d->z = (Known){.type = SC_REAL, .rank = rows + 1};
  for (uint32_t i = 0; i < rows; i++) d->z.dim[i] = (Dim){1, {dim_extent(&d->x.dim[i])}};
  d->z.dim[column] = (Dim){1, {2 + rng_below(&g->r, 5)}};
  for (uint32_t i = 0; i <= column; i++) {
    d->index[i] = (Index){.name = str_printf("r%u", i), .extent = dim_extent(&d->z.dim[i])};
    d->at[i] = ex_index(m, i);
    if (i < rows) sub[i] = d->at[i];
    points *= d->index[i].extent;
  }
  for (uint32_t i = 0; i < 2; i++) {
    extent[i] = dim_extent(&d->x.dim[rows + i]);
    sub[rows + i] = ex_index(m, column + 1 + i);
    d->index[column + 1 + i] = (Index){.name = str_intern(i ? "k" : "j"), .extent = extent[i]};
    if (i && extent[i] >= 4 && rng_chance(&g->r, 40)) { // a stride that libraries do not take
      d->index[column + 2].extent = extent[i] /= 2;
      sub[rows + i] = ex2(m, OP_MUL, ex_int(m, 2), sub[rows + i]);
    }
    points *= extent[i];
  }
  Known w = {.type = SC_REAL, .rank = 3, .size = param_size(g)};
  bool turned = rng_chance(&g->r, 75);
  for (uint32_t i = 0; i < 2; i++) {
    w.dim[i] = (Dim){1, {extent[i ^ turned]}};
    three[i] = ex_index(m, column + 1 + (i ^ turned));
  }
  w.dim[2] = d->z.dim[column];
  three[2] = d->at[column];
  d->z.size = d->x.size * w.size * (double)(extent[0] * extent[1]);
  if (points > 3000 || d->z.size > (g->exact ? 1e5 : 500)) return false;
  gen_param(g, &w, str_printf("w%u", m->param.n));
  Id body = times_or_plus(g, OP_MUL, read(g, d->x.id, sub), read(g, w.id, three));
  add(d, &d->z, "z", RED_SUM, column + 3, body);
  return true;
}

// The sum so far plus a bias for each column, or an element for each of its own.
static Known with_term(Dense *d, const Known *sum, bool residual, const char *name) {
  Gen *g = d->g;
  Known y = *sum, term = *sum;
  if (!residual) term.rank = 1, term.dim[0] = sum->dim[sum->rank - 1];
  term.size = param_size(g);
  gen_param(g, &term, str_printf("b%u", g->m->param.n));
  y.size = sum->size + term.size;
  Id added = read(g, term.id, residual ? d->at : d->at + sum->rank - 1);
  add(d, &y, name, RED_NONE, sum->rank, times_or_plus(g, OP_ADD, read(g, sum->id, d->at), added));
  return y;
}

// gelu by tanh, as stdlib/nn.dt writes it, or a function that differs from it a little, or another.
static Known with_function(Dense *d, const Known *sum) {
  Gen *g = d->g;
  Module *m = g->m;
  Known y = *sum;
  Id x = read(g, sum->id, d->at), half = ex_real(m, rng_chance(&g->r, 90) ? 0.5 : 0.25);
  Id cube = ex_real(m, 0.044715);
  for (int i = 0; i < 3; i++) cube = ex2(m, OP_MUL, cube, x);
  Id inner = ex2(m, OP_MUL, ex_real(m, 0.79788456080286535588), ex2(m, OP_ADD, x, cube));
  Id body = rng_chance(&g->r, 25) ? ex2(m, OP_MAX, x, ex_real(m, 0))
            : rng_chance(&g->r, 20) ? ex1(m, OP_TANH, x)
                                    : ex2(m, OP_MUL, ex2(m, OP_MUL, half, x), ex2(m, OP_ADD, ex_real(m, 1), ex1(m, OP_TANH, inner)));
  add(d, &y, "a", RED_NONE, sum->rank, body);
  return y;
}

bool gen_dense(Gen *g, Known *k) {
  const Known *x = pick_known(g, SC_REAL);
  if (!x || x->rank < 1 || x->rank > 3) return false;
  Dense d = {.g = g, .x = *x, .terms = dim_extent(&x->dim[x->rank - 1])};
  bool two = d.x.rank > 1 && rng_chance(&g->r, 25);
  if (two ? !product_of_two(&d) : !product(&d)) return false;
  if (!rng_chance(&g->r, 80)) return *k = d.z, true;
  bool residual = rng_chance(&g->r, 40);
  *k = with_term(&d, &d.z, residual, "y");
  if (rng_chance(&g->r, 30)) *k = with_term(&d, k, rng_chance(&g->r, 80) ? !residual : residual, "u");
  if (g->exact || k->size > 50 || !rng_chance(&g->r, 40)) return true;
  if (rng_chance(&g->r, 50)) PUSH(g->m->arena, g->known, *k); // others read the sum too
  *k = with_function(&d, k);
  return true;
}
