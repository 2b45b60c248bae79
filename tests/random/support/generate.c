// Random statements, functions and programs.
#include "tests/random/support/gen.h"

#include <math.h>

int64_t dim_extent(const Dim *d) {
  int64_t n = 1;
  for (uint32_t i = 0; i < d->n; i++) n *= d->extent[i];
  return n;
}

int64_t pick_extent(Gen *g) { return g->palette[rng_below(&g->r, 6)]; }

const Known *pick_known(Gen *g, Scalar type) {
  Id found[64];
  uint32_t n = 0;
  for (uint32_t i = g->known.n; i-- > 0 && n < 64;)
    if (g->known.at[i].type == type) found[n++] = i;
  if (!n) return NULL;
  // Recent values more often: programs with long chains.
  uint32_t k = rng_chance(&g->r, 40) ? rng_below(&g->r, n < 3 ? n : 3) : rng_below(&g->r, n);
  return &g->known.at[found[k]];
}

static const Dtype storage[] = {[SC_REAL] = DT_REAL, [SC_INT] = DT_I32, [SC_BOOL] = DT_BOOL};

Id gen_value(Gen *g, const char *name, const Known *k, Role role) {
  int64_t extent[MAX_RANK];
  for (uint32_t d = 0; d < k->rank; d++) extent[d] = dim_extent(&k->dim[d]);
  return fn_value(g->m, gen_fn(g), str_intern(name), storage[k->type], extent, k->rank, role, 0);
}

static void know(Gen *g, Known k) { PUSH(g->m->arena, g->known, k); }

static double most_size(const Gen *g) { return g->exact ? 1e6 : 1e3; }

// ---- comprehensions

// Decides which indices are free, and puts those first: place[i] is the new position of index i.
typedef struct Split {
  bool free[MAX_INDEX];
  uint32_t nfree;
  Id place[MAX_INDEX]; // as expressions
  Index index[MAX_INDEX];
} Split;

static int64_t split(Comp *c, Split *s) {
  Id order[MAX_INDEX];
  uint32_t n = 0;
  int64_t bound = 1;
  for (int pass = 1; pass >= 0; pass--) {
    uint32_t from = n;
    for (uint32_t i = 0; i < c->n; i++)
      if (s->free[i] == pass) order[n++] = i;
    for (uint32_t i = n; i > from + 1; i--) { // in any order
      uint32_t k = from + rng_below(&c->g->r, i - from);
      Id t = order[i - 1];
      order[i - 1] = order[k];
      order[k] = t;
    }
    if (pass) s->nfree = n;
  }
  for (uint32_t i = 0; i < n; i++) {
    s->place[order[i]] = ex_index(c->g->m, i);
    s->index[i] = c->index[order[i]];
    if (i >= s->nfree) bound *= s->index[i].extent;
  }
  return bound;
}

static Red pick_red(Gen *g, Scalar type) {
  static const Red real[] = {RED_SUM, RED_SUM, RED_SUM, RED_SUM, RED_MEAN, RED_MAX, RED_MIN};
  if (type == SC_INT)
    return rng_chance(&g->r, 50) ? RED_SUM : rng_chance(&g->r, 50) ? RED_MAX : RED_MIN;
  Red r = real[rng_below(&g->r, 7)];
  return g->exact && r == RED_MEAN ? RED_SUM : r;
}

// The left side's dimensions: free indices in order, neighbours sometimes in a group.
static void left_side(Gen *g, const Split *s, Known *k, Id *sub) {
  k->rank = 0;
  for (uint32_t i = 0; i < s->nfree;) {
    uint32_t n = 1;
    while (i + n < s->nfree && n < 3 && rng_chance(&g->r, 20)) n++;
    Id arg[3];
    Dim *d = &k->dim[k->rank];
    d->n = (uint8_t)n;
    for (uint32_t j = 0; j < n; j++) {
      arg[j] = ex_index(g->m, i + j);
      d->extent[j] = s->index[i + j].extent;
    }
    sub[k->rank++] = n == 1 ? arg[0] : ex_group(g->m, arg, n);
    i += n;
  }
}

static void add_comp(Comp *c, Known *k, const char *name, const Id *sub, const Split *s, Red red,
                     Id body) {
  Gen *g = c->g;
  k->id = gen_value(g, name, k, ROLE_LOCAL);
  fn_comp(g->m, gen_fn(g), k->id, sub, false, red, s->index, s->nfree, c->n,
          ex_rename(g->m, body, s->place, NULL), 0);
  know(g, *k);
}

static Comp comp_new(Gen *g) {
  return (Comp){.g = g, .most = 2 + rng_below(&g->r, 4), .points = 1};
}

static Known gen_real_comp(Gen *g) {
  Comp c = comp_new(g);
  bool product = rng_chance(&g->r, 30);
  if (product) c.most = 3 + rng_below(&g->r, 5);
  Real body = product ? gen_product(&c) : gen_real(&c, 1 + (int)rng_below(&g->r, 3));
  if (rng_chance(&g->r, 8)) comp_index(&c, pick_extent(g), true); // one that nothing mentions
  Red red = c.n && rng_chance(&g->r, product ? 90 : 55) ? pick_red(g, SC_REAL) : RED_NONE;
  if (product && red != RED_NONE && rng_chance(&g->r, 80))
    red = g->exact || rng_chance(&g->r, 75) ? RED_SUM : RED_MEAN;
  Split s = {0};
  for (uint32_t i = 0; i < c.n; i++) s.free[i] = red == RED_NONE || rng_chance(&g->r, 50);
  int64_t bound = split(&c, &s);
  double n = red == RED_SUM ? (double)bound : 1;
  body = limit(&c, body, most_size(g) / n);
  Known k = {.type = SC_REAL, .size = body.size * n};
  Id sub[MAX_RANK];
  left_side(g, &s, &k, sub);
  add_comp(&c, &k, "x", sub, &s, red, body.e);
  return k;
}

static void gen_int_comp(Gen *g) {
  Comp c = comp_new(g);
  Known k = {.type = SC_INT};
  Id body, sub[MAX_RANK];
  Red red = RED_NONE;
  Split s = {0};
  bool argmax = rng_chance(&g->r, 35);
  Int x = {0};
  Real y = {0};
  bool ints = argmax && rng_chance(&g->r, 25);
  if (argmax && !ints) y = gen_real(&c, 2);
  else x = gen_int(&c, 2);
  if (c.n && (argmax || rng_chance(&g->r, 25))) red = argmax ? RED_ARGMAX : pick_red(g, SC_INT);
  if (argmax && red == RED_NONE) return;
  for (uint32_t i = 0; i < c.n; i++) s.free[i] = red == RED_NONE || rng_chance(&g->r, 50);
  int64_t bound = split(&c, &s);
  if (argmax) {
    body = ints ? x.e : y.e;
    k.hi = bound - 1;
  } else {
    int64_t extent = pick_extent(g), n = red == RED_SUM ? bound : 1;
    if (rng_chance(&g->r, 70) || x.lo < -1000 || x.hi > 1000)
      x = (Int){clamp_to(&c, x, extent), 0, extent - 1};
    body = x.e;
    k.lo = x.lo * n, k.hi = x.hi * n;
  }
  left_side(g, &s, &k, sub);
  add_comp(&c, &k, "n", sub, &s, red, body);
}

static void gen_bool_comp(Gen *g) {
  Comp c = comp_new(g);
  Id body = gen_bool(&c, 2), sub[MAX_RANK];
  Split s = {0};
  for (uint32_t i = 0; i < c.n; i++) s.free[i] = true;
  split(&c, &s);
  Known k = {.type = SC_BOOL};
  left_side(g, &s, &k, sub);
  add_comp(&c, &k, "c", sub, &s, RED_NONE, body);
}

// ---- scatters

// A subscript that may hit a place many times, or never.
static Id scatter_subscript(Comp *c, int64_t extent) {
  Rng *r = &c->g->r;
  Id i = comp_index(c, extent, rng_chance(r, 50));
  if (i != NONE && rng_chance(r, 40)) return i;
  if (i == NONE && c->n) i = ex_index(c->g->m, rng_below(r, c->n));
  if (i == NONE) return ex_int(c->g->m, rng_below(r, (uint32_t)extent));
  int64_t n = c->index[ex(c->g->m, i)->integer].extent;
  if (rng_chance(r, 35)) {
    Id e = clamp_to(c, gen_computed_int(c), extent);
    if (ex_indices(c->g->m, e)) return e;
  }
  if (rng_chance(r, 30)) {
    Int whole = {i, 0, n - 1};
    int64_t k = 1 + rng_below(r, 3);
    if ((n - 1) / k < extent) return ex2(c->g->m, OP_IDIV, i, ex_int(c->g->m, k));
    return clamp_to(c, whole, extent);
  }
  return clamp_to(c, gen_int(c, 2), extent);
}

static void add_scatter(Gen *g, Known *k) {
  Comp c = comp_new(g);
  Id sub[MAX_RANK], body;
  Split s = {0};
  uint32_t on_left = 0;
  for (uint32_t d = 0; d < k->rank; d++) sub[d] = scatter_subscript(&c, dim_extent(&k->dim[d]));
  for (uint32_t d = 0; d < k->rank; d++) on_left |= ex_indices(g->m, sub[d]);
  Real x = rng_chance(&g->r, 25) ? gen_product(&c) : gen_real(&c, 2);
  for (uint32_t i = 0; i < c.n; i++) s.free[i] = on_left >> i & 1;
  int64_t bound = split(&c, &s);
  Red red = s.nfree == c.n ? RED_NONE : rng_chance(&g->r, 80) ? RED_SUM : pick_red(g, SC_REAL);
  x = limit(&c, x, most_size(g) / (double)c.points);
  body = ex_rename(g->m, x.e, s.place, NULL);
  for (uint32_t d = 0; d < k->rank; d++) sub[d] = ex_rename(g->m, sub[d], s.place, NULL);
  (void)bound;
  k->size += x.size * (double)c.points;
  fn_comp(g->m, gen_fn(g), k->id, sub, true, red, s.index, s.nfree, c.n, body, 0);
}

static Known pick_shape(Gen *g, uint32_t most_rank) {
  Known k = {.type = SC_REAL, .rank = rng_below(&g->r, most_rank + 1)};
  int64_t points = 1;
  for (uint32_t d = 0; d < k.rank; d++) {
    k.dim[d].n = rng_chance(&g->r, 15) ? 2 : 1;
    for (uint32_t i = 0; i < k.dim[d].n; i++) {
      int64_t e = pick_extent(g);
      k.dim[d].extent[i] = points * e > g->most_points / 4 ? 2 : e;
      points *= k.dim[d].extent[i];
    }
  }
  return k;
}

// Sums into long rows that another value names: acc[row[i], d] += x.
static void gen_rows(Gen *g) {
  static const int64_t columns[] = {65, 96, 130};
  Known k = {.type = SC_REAL, .rank = 2};
  k.dim[0] = (Dim){1, {pick_extent(g)}};
  k.dim[1] = (Dim){1, {columns[rng_below(&g->r, 3)]}};
  k.id = gen_value(g, "rows", &k, ROLE_LOCAL);
  Comp c = comp_new(g);
  Split s = {0};
  c.index[0] = (Index){.name = str_intern("i"), .extent = 2 + rng_below(&g->r, 4)};
  c.n = c.most = 1;
  c.points = c.index[0].extent;
  Id row = clamp_to(&c, gen_computed_int(&c), dim_extent(&k.dim[0]));
  if (!ex_indices(g->m, row)) row = clamp_to(&c, (Int){ex_index(g->m, 0), 0, c.points - 1}, dim_extent(&k.dim[0]));
  c.index[c.n++] = (Index){.name = str_intern("d"), .extent = dim_extent(&k.dim[1])};
  c.most = 2;
  c.points *= dim_extent(&k.dim[1]);
  Id sub[] = {row, ex_index(g->m, 1)};
  Real x = limit(&c, gen_real(&c, 1), 8);
  for (uint32_t i = 0; i < c.n; i++) s.index[i] = c.index[i];
  k.size = x.size * (double)c.index[0].extent;
  fn_comp(g->m, gen_fn(g), k.id, sub, true, RED_NONE, s.index, c.n, c.n, x.e, 0);
  know(g, k);
}

static void gen_scatter(Gen *g) {
  if (rng_chance(&g->r, 10)) {
    gen_rows(g);
    return;
  }
  Known k = pick_shape(g, 2);
  if (!k.rank) k.rank = 1, k.dim[0] = (Dim){1, {pick_extent(g)}};
  k.id = gen_value(g, "acc", &k, ROLE_LOCAL);
  int n = 1 + (int)rng_chance(&g->r, 40);
  while (n-- > 0) add_scatter(g, &k);
  know(g, k);
}

// ---- calls

static void gen_statement(Gen *g, int depth);

static Gen callee_new(Gen *g, const char *name) {
  Gen c = {.m = g->m,
           .r = {rng_next(&g->r)},
           .exact = g->exact,
           .awkward = g->awkward,
           .stops = g->stops,
           .most_points = g->most_points,
           .site = g->site + 100};
  memcpy(c.palette, g->palette, sizeof c.palette);
  c.fn = fn_new(g->m, str_intern(name), 0);
  return c;
}

static void push_arg(Module *m, Call *k, ActualMode mode, Id value) {
  Actual *a = NEWN(m->arena, Actual, k->narg + 1);
  if (k->narg) memcpy(a, k->arg, k->narg * sizeof *a);
  a[k->narg++] = (Actual){mode, value};
  k->arg = a;
}

static void push_result(Module *m, Call *k, ResultMode mode, Id value) {
  Result *a = NEWN(m->arena, Result, k->nresult + 1);
  if (k->nresult) memcpy(a, k->result, k->nresult * sizeof *a);
  a[k->nresult++] = (Result){mode, value};
  k->result = a;
}

static void add_formal(Gen *callee, Known k, const char *name) {
  k.id = gen_value(callee, name, &k, ROLE_IN);
  know(callee, k);
}

static void gen_call(Gen *g) {
  Gen callee = callee_new(g, "part");
  Call *k = NEW(g->m->arena, Call);
  *k = (Call){.fn = callee.fn, .count = 1};
  int n = 1 + (int)rng_below(&g->r, 3);
  for (int i = 0; i < n; i++) {
    const Known *from = pick_known(g, rng_chance(&g->r, 20) ? SC_INT : SC_REAL);
    if (!from) continue;
    push_arg(g->m, k, ACT_WHOLE, from->id);
    add_formal(&callee, *from, "a");
  }
  uint32_t first = callee.known.n;
  for (n = 1 + (int)rng_below(&g->r, 2); n > 0; n--) gen_statement(&callee, 0);
  Known last = gen_real_comp(&callee);
  PUSH(g->m->arena, gen_fn(&callee)->result, last.id);
  Known mine = last;
  mine.id = gen_value(g, "y", &mine, ROLE_LOCAL);
  push_result(g->m, k, RES_WHOLE, mine.id);
  if (rng_chance(&g->r, 30) && first < callee.known.n - 1) { // one more result
    Known more = callee.known.at[first];
    PUSH(g->m->arena, gen_fn(&callee)->result, more.id);
    more.id = gen_value(g, "z", &more, ROLE_LOCAL);
    push_result(g->m, k, RES_WHOLE, more.id);
    know(g, more);
  }
  fn_stmt(g->m, gen_fn(g), ST_CALL, 0)->call = k;
  know(g, mine);
}

// A value of the shape of `like`, no greater than it is.
static Known gen_like(Gen *g, const Known *like) {
  Comp c = comp_new(g);
  Split s = {0};
  Known k = *like;
  Id sub[MAX_RANK], arg[3];
  uint32_t n = 0;
  c.most = MAX_INDEX;
  for (uint32_t d = 0; d < k.rank; d++) {
    for (uint32_t i = 0; i < k.dim[d].n; i++) {
      arg[i] = ex_index(g->m, n);
      c.index[n] = (Index){.name = str_printf("f%u", n), .extent = k.dim[d].extent[i]};
      n++;
      c.points *= k.dim[d].extent[i];
    }
    sub[d] = k.dim[d].n == 1 ? arg[0] : ex_group(g->m, arg, k.dim[d].n);
  }
  s.nfree = c.n = n;
  c.most = n + 2;
  Real body = gen_real(&c, 2);
  body = limit(&c, body, like->size);
  Red red =
      c.n > n ? (Red[]){RED_MAX, RED_MIN, RED_MEAN}[rng_below(&g->r, g->exact ? 2 : 3)] : RED_NONE;
  for (uint32_t i = 0; i < c.n; i++) s.place[i] = NONE, s.index[i] = c.index[i];
  add_comp(&c, &k, "next", sub, &s, red, body.e);
  return k;
}

static bool can_slice(const Known *k, int64_t count) {
  return k->rank >= 1 && dim_extent(&k->dim[0]) == count;
}

static Known without_first(Known k) {
  k.rank--;
  memmove(k.dim, k.dim + 1, k.rank * sizeof *k.dim);
  return k;
}

static Known with_first(Known k, int64_t count) {
  memmove(k.dim + 1, k.dim, k.rank * sizeof *k.dim);
  k.dim[0] = (Dim){1, {count}};
  k.rank++;
  return k;
}

static void repeat_args(Gen *g, Gen *callee, Call *k, Known *carried, uint32_t ncarried) {
  for (uint32_t i = 0; i < ncarried; i++) {
    push_arg(g->m, k, ACT_CARRY, carried[i].id);
    carried[i].size = fmax(carried[i].size, 4);
    add_formal(callee, carried[i], "h");
  }
  for (uint32_t i = 0, n = 0; i < g->known.n && n < 2; i++) {
    Known v = g->known.at[i];
    if (!can_slice(&v, k->count) || !rng_chance(&g->r, 60)) continue;
    push_arg(g->m, k, ACT_SLICE, v.id);
    add_formal(callee, without_first(v), "w");
    n++;
  }
  const Known *whole = pick_known(g, SC_REAL);
  if (whole && rng_chance(&g->r, 60)) {
    push_arg(g->m, k, ACT_WHOLE, whole->id);
    add_formal(callee, *whole, "u");
  }
  if (!rng_chance(&g->r, 40)) return;
  push_arg(g->m, k, ACT_ITER, NONE);
  add_formal(callee, (Known){.type = SC_INT, .hi = k->count - 1}, "iteration");
}

// Values that a repeat carries on: one, or two.
static uint32_t pick_carried(Gen *g, Known carried[2]) {
  uint32_t n = 0;
  for (uint32_t want = 1 + rng_chance(&g->r, 20); want > 0; want--) {
    const Known *start = pick_known(g, SC_REAL);
    uint32_t indices = 0;
    for (uint32_t d = 0; start && d < start->rank; d++) indices += start->dim[d].n;
    if (start && indices <= 4) carried[n++] = *start;
  }
  return n;
}

static void gen_repeat(Gen *g) {
  Known carried[2];
  uint32_t ncarried = pick_carried(g, carried);
  if (!ncarried) return;
  Gen callee = callee_new(g, "body");
  Call *k = NEW(g->m->arena, Call);
  *k = (Call){.fn = callee.fn,
              .count = 2 + rng_below(&g->r, 3),
              .iter = str_intern("t"),
              .reverse = rng_chance(&g->r, 25)};
  for (uint32_t i = 0; i < g->known.n; i++) { // as many iterations as something has slices
    const Known *v = &g->known.at[i];
    if (v->rank && dim_extent(&v->dim[0]) <= 7 && rng_chance(&g->r, 50))
      k->count = dim_extent(&v->dim[0]);
  }
  repeat_args(g, &callee, k, carried, ncarried);
  int n = (int)rng_below(&g->r, 3);
  for (int i = 0; i < n; i++) gen_statement(&callee, 0);
  for (uint32_t i = 0; i < ncarried; i++) {
    Known next = callee.known.at[i]; // in some, what came in
    if (!rng_chance(&g->r, 8)) next = gen_like(&callee, &next);
    PUSH(g->m->arena, gen_fn(&callee)->result, next.id);
    carried[i].id = gen_value(g, "last", &carried[i], ROLE_LOCAL);
    push_result(g->m, k, RES_CARRY, carried[i].id);
  }
  for (uint32_t i = k->narg; i < callee.known.n; i++) {
    Known more = callee.known.at[i];
    if (more.type == SC_BOOL || more.rank >= 4 || !rng_chance(&g->r, 35)) continue;
    PUSH(g->m->arena, gen_fn(&callee)->result, more.id);
    if (rng_chance(&g->r, 20)) {
      push_result(g->m, k, RES_DROP, NONE);
      continue;
    }
    more = with_first(more, k->count);
    more.id = gen_value(g, "all", &more, ROLE_LOCAL);
    push_result(g->m, k, RES_SLICE, more.id);
    know(g, more);
  }
  fn_stmt(g->m, gen_fn(g), ST_REPEAT, 0)->call = k;
  for (uint32_t i = 0; i < ncarried; i++) know(g, carried[i]);
}

// A running sum along a new dimension, long enough to be a pass of its own: of f[i] * x, say.
static void gen_running_sum(Gen *g) {
  static const int64_t extents[] = {64, 67, 80};
  static const Op compare[] = {OP_LE, OP_LT, OP_GE, OP_GT};
  const Known *x = pick_known(g, SC_REAL);
  Comp c = comp_new(g);
  Split s = {0};
  Id sub[MAX_RANK], read[MAX_RANK];
  if (!x || x->rank >= 3) return;
  Known from = *x, k = *x;
  int64_t n = extents[rng_below(&g->r, 3)], count = 1;
  uint32_t at = rng_below(&g->r, x->rank + 1);
  for (uint32_t d = 0; d < x->rank; d++) count *= dim_extent(&x->dim[d]);
  if (count * n > 2000) return;
  Module *m = g->m;
  for (uint32_t d = 0; d <= x->rank; d++) {
    k.dim[d] = d == at ? (Dim){1, {n}} : (Dim){1, {dim_extent(&x->dim[d - (d > at)])}};
    s.index[d] = (Index){.name = str_printf("s%u", d), .extent = dim_extent(&k.dim[d])};
    s.place[d] = sub[d] = ex_index(m, d);
    if (d != at) read[d - (d > at)] = sub[d];
  }
  k.rank = s.nfree = c.n = x->rank + 1;
  Id i = sub[at], j = ex_index(m, k.rank), e = ex_read(m, gen_fn(g), from.id, read);
  Id factor = ex1(m, OP_TO_REAL, ex2(m, OP_SUB, ex2(m, OP_MOD, i, ex_int(m, 5)), ex_int(m, 2)));
  k.size = from.size * 2;
  add_comp(&c, &k, "spread", sub, &s, RED_NONE, ex2(m, OP_MUL, factor, e));
  Id spread = k.id, body;
  s.index[k.rank] = (Index){.name = str_intern("t"), .extent = n};
  s.place[k.rank] = j;
  c.n++;
  sub[at] = j;
  e = ex_read(m, gen_fn(g), spread, sub);
  sub[at] = i;
  bool swap = rng_chance(&g->r, 50);
  body = ex2(m, compare[rng_below(&g->r, 4)], swap ? i : j, swap ? j : i);
  body = ex3(m, OP_WHERE, body, e, ex_real(m, 0));
  k.size *= (double)n;
  if (k.size > most_size(g)) return;
  add_comp(&c, &k, "running", sub, &s, RED_SUM, body);
}

// Several reductions of one value along the same dimensions: they may share loops.
static void gen_statistics(Gen *g) {
  static const Red kinds[] = {RED_SUM, RED_SUM, RED_MEAN, RED_MAX, RED_MIN, RED_ARGMAX, RED_ARGMAX};
  const Known *known = pick_known(g, SC_REAL);
  if (!known || !known->rank || known->rank > 4) return;
  Known x = *known;
  uint32_t nfree = rng_below(&g->r, x.rank);
  for (int i = 2 + (int)rng_below(&g->r, 2); i > 0; i--) {
    Red red = kinds[rng_below(&g->r, 7)];
    bool place = red == RED_ARGMAX;
    Comp c = comp_new(g);
    Split s = {.nfree = nfree};
    Known k = {.type = place ? SC_INT : SC_REAL, .rank = nfree, .size = x.size};
    Id sub[MAX_RANK];
    int64_t bound = 1;
    for (uint32_t d = 0; d < x.rank; d++) {
      s.index[d] = (Index){.name = str_printf("i%u", d), .extent = dim_extent(&x.dim[d])};
      s.place[d] = sub[d] = ex_index(g->m, d);
      if (d >= nfree) bound *= s.index[d].extent;
      else k.dim[d] = (Dim){1, {s.index[d].extent}};
    }
    c.n = x.rank;
    k.hi = bound - 1;
    if (red == RED_SUM) k.size *= (double)bound;
    if (k.size > most_size(g) || (g->exact && red == RED_MEAN)) continue;
    add_comp(&c, &k, place ? "n" : "x", sub, &s, red, ex_read(g->m, gen_fn(g), x.id, sub));
  }
}

static void gen_statement(Gen *g, int depth) {
  uint32_t what = rng_below(&g->r, 100);
  Known made;
  if (what < 10) gen_int_comp(g);
  else if (what < 15) gen_bool_comp(g);
  else if (what < 26) gen_scatter(g);
  else if (what < 33 && depth > 0) gen_call(g);
  else if (what < 42 && depth > 0) gen_repeat(g);
  else if (what < 45) gen_running_sum(g);
  else if (what < 50 && gen_guarded_sum(g, &made)) know(g, made);
  else if (what < 57 && depth > 0 && gen_dense(g, &made)) know(g, made);
  else if (what < 61) gen_statistics(g);
  else gen_real_comp(g);
}

// ---- programs

void gen_param(Gen *g, Known *k, Str name) {
  Module *m = g->m;
  k->id = gen_value(g, name, k, ROLE_IN);
  Param p = {.name = name, .rank = (uint8_t)k->rank, .bar = -1, .init = INIT_NORMAL, .init_b = 1};
  for (uint32_t d = 0; d < k->rank; d++) p.extent[d] = dim_extent(&k->dim[d]);
  PUSH(m->arena, m->param, p);
}

static void gen_args(Gen *g) {
  Module *m = g->m;
  int nint = 1 + (int)rng_below(&g->r, 2), nreal = (int)rng_below(&g->r, 2),
      nparam = 1 + (int)rng_below(&g->r, 3);
  for (int i = 0; i < nint + nreal + nparam; i++) {
    Known k = pick_shape(g, i < nint ? 2 : 3);
    Str name = i < nint           ? str_printf("n%d", i)
               : i < nint + nreal ? str_printf("d%d", i - nint)
                                  : str_printf("p%d", i - nint - nreal);
    k.size = g->exact ? 3 : 2;
    if (i < nint) {
      k.type = SC_INT;
      k.lo = rng_chance(&g->r, 25) ? -1 : 0;
      k.hi = pick_extent(g) - 1;
      PUSH(m->arena, m->range, (DataRange){(Id)i, k.lo, k.hi + 1, 0});
    }
    if (i >= nint + nreal) {
      gen_param(g, &k, name);
    } else {
      k.id = gen_value(g, name, &k, ROLE_IN);
      m->ndata++;
    }
    know(g, k);
  }
}

// The last few values, at least one of them real.
static void gen_results(Gen *g, uint32_t nargs) {
  Fn *f = gen_fn(g);
  uint32_t n = 0, most = 1 + rng_below(&g->r, 3);
  bool real = false;
  for (uint32_t i = g->known.n; i-- > nargs && (n < most || !real);) {
    const Known *k = &g->known.at[i];
    if (k->type == SC_BOOL || (n >= most && k->type != SC_REAL)) continue;
    PUSH(g->m->arena, f->result, k->id);
    real |= k->type == SC_REAL;
    n++;
  }
}

// sum over all elements of result * weight, weights -5 .. 5.
static Id weighted(Module *m, Fn *f, Id value) {
  const Value v = f->value.at[value];
  Index index[MAX_RANK];
  Id sub[MAX_RANK], number = ex_int(m, 0);
  for (uint32_t d = 0; d < v.rank; d++) {
    index[d] = (Index){.name = str_printf("i%u", d), .extent = v.extent[d]};
    sub[d] = ex_index(m, d);
    number = ex2(m, OP_ADD, ex2(m, OP_MUL, number, ex_int(m, v.extent[d])), sub[d]);
  }
  number = ex2(m, OP_ADD, ex2(m, OP_MUL, number, ex_int(m, 7)), ex_int(m, 3));
  Id weight = ex2(m, OP_SUB, ex2(m, OP_MOD, number, ex_int(m, 11)), ex_int(m, 5));
  Id body = ex2(m, OP_MUL, ex_read(m, f, value, sub), ex1(m, OP_TO_REAL, weight));
  Id part = fn_value(m, f, str_intern("part"), DT_REAL, NULL, 0, ROLE_LOCAL, 0);
  fn_comp(m, f, part, NULL, false, RED_SUM, index, 0, v.rank, body, 0);
  return part;
}

void generate_loss(Module *m) {
  Id main_fn = m->entry[ENTRY_UPDATE], fn = fn_new(m, str_intern("loss"), 0);
  Fn *f = &m->fn.at[fn], *callee = &m->fn.at[main_fn];
  Call *k = NEW(m->arena, Call);
  *k = (Call){.fn = main_fn, .count = 1};
  for (uint32_t i = 0; i < callee->arg.n; i++) {
    const Value v = callee->value.at[callee->arg.at[i]];
    bool data = i < m->ndata;
    push_arg(m, k, ACT_WHOLE,
             fn_meant(m, f, v.name, data ? MEANS_DATA : MEANS_PARAM, data ? i : i - m->ndata, &v, ROLE_IN));
  }
  for (uint32_t i = 0; i < callee->result.n; i++) {
    const Value v = callee->value.at[callee->result.at[i]];
    push_result(m, k, RES_WHOLE, fn_value(m, f, v.name, v.type, v.extent, v.rank, ROLE_LOCAL, 0));
  }
  fn_stmt(m, f, ST_CALL, 0)->call = k;
  Id sum = NONE;
  for (uint32_t i = 0; i < k->nresult; i++) {
    if (f->value.at[k->result[i].value].type != DT_REAL) continue;
    Id read = ex_read(m, f, weighted(m, f, k->result[i].value), NULL);
    sum = sum == NONE ? read : ex2(m, OP_ADD, sum, read);
  }
  Id loss = fn_value(m, f, str_intern("loss"), DT_REAL, NULL, 0, ROLE_LOCAL, 0);
  fn_comp(m, f, loss, NULL, false, RED_NONE, NULL, 0, 0, sum, 0);
  PUSH(m->arena, f->result, loss);
  m->entry[ENTRY_LOSS] = fn;
}

Module *generate(Arena *a, const GenerateOptions *o) {
  static const int64_t extent[] = {1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 11, 13, 16, 17, 33, 65};
  Module *m = module_new(a, sources_new(a));
  Gen g = {.m = m,
           .r = {o->seed * UINT64_C(0x2545f4914f6cdd1d) + 1},
           .exact = o->exact,
           .awkward = o->awkward,
           .site = 1};
  for (int i = 0; i < 6; i++) g.palette[i] = extent[rng_below(&g.r, i < 3 ? 11 : 16)];
  // Few extents: then operands of products have many indices in common.
  if (rng_chance(&g.r, 50))
    for (int i = 0; i < 6; i++) g.palette[i] = i < 5 ? 2 + i % 2 : g.palette[5];
  g.stops = rng_chance(&g.r, 12);
  // With low limits few points take every path; some programs have as many as vectors of any
  // length and the usual limits want.
  g.most_points = rng_chance(&g.r, 10) ? 20000 : rng_chance(&g.r, 50) ? 300 : 900;
  m->name = str_printf("random%llu", (unsigned long long)o->seed);
  m->train = (Train){.batch = 1, .microbatch = 1, .steps = 1, .precision = str_intern("fp64")};
  g.fn = fn_new(m, str_intern("main"), 0);
  gen_args(&g);
  uint32_t nargs = g.known.n;
  for (int n = 2 + (int)rng_below(&g.r, 7); n > 0; n--) gen_statement(&g, 1);
  gen_real_comp(&g);
  gen_results(&g, nargs);
  m->entry[ENTRY_UPDATE] = g.fn;
  return m;
}
