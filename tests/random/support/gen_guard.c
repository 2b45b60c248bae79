// Sums of products under a guard: where it does not hold, some factor is infinite, NaN, or would be
// read out of range; where it does, all are tame.
//
//   y[t, c] = sum(s: where(s <= t, p[t, s] * x[s, c] * exp(800 * (s - t)), 0))
#include "tests/random/support/gen.h"

#include <math.h>

enum { T, S, C, B, NINDEX }; // the indices of a term: free or bound as it turns out

typedef struct Term {
  Gen *g;
  int64_t extent[NINDEX];
  Id at[NINDEX]; // as expressions, in the statement being made
  Op order; // how s and t must stand for a term to count
  int64_t hole_s, hole_t; // no term counts where s or t is this; -1: none
  Id factor[8];
  uint32_t n;
  double size;
} Term;

static Id num(Term *x, double v) { return ex_real(x->g->m, v); }
static Id whole(Term *x, int64_t v) { return ex_int(x->g->m, v); }
static Id op(Term *x, Op o, Id a, Id b) { return ex2(x->g->m, o, a, b); }
static Id real_of(Term *x, Id e) { return ex1(x->g->m, OP_TO_REAL, e); }
static Rng *rng(Term *x) { return &x->g->r; }

static Id bad_number(Term *x) {
  static const double bad[] = {INFINITY, -INFINITY, NAN};
  return num(x, bad[rng_below(rng(x), 3)]);
}

// A value over some of the indices, no greater than 2, but bad where one of them is in its hole.
static Id operand(Term *x, const char *name, const uint32_t *over, uint32_t n) {
  Gen *g = x->g;
  Comp c = {.g = g, .most = n, .points = 1};
  Id sub[MAX_RANK], read[MAX_RANK];
  int64_t extent[MAX_RANK];
  for (uint32_t i = 0; i < n; i++) {
    extent[i] = x->extent[over[i]];
    c.index[c.n++] = (Index){.name = str_printf("f%u", i), .extent = extent[i]};
    c.points *= extent[i];
    sub[i] = ex_index(g->m, i);
    read[i] = x->at[over[i]];
  }
  Id e = limit(&c, gen_real(&c, 1), 2).e;
  for (uint32_t i = 0; i < n; i++) {
    int64_t hole = over[i] == S ? x->hole_s : over[i] == T ? x->hole_t : -1;
    if (hole < 0 || rng_chance(rng(x), 20)) continue;
    Id in = op(x, OP_EQ, sub[i], whole(x, hole));
    e = ex3(g->m, OP_WHERE, in, bad_number(x), e);
  }
  Id v = fn_value(g->m, gen_fn(g), str_intern(name), DT_REAL, extent, n, ROLE_LOCAL, 0);
  fn_comp(g->m, gen_fn(g), v, sub, false, RED_NONE, c.index, n, n, e, 0);
  return ex_read(g->m, gen_fn(g), v, read);
}

// How far s is on the right side of t: positive, or 0 where they may be equal.
static Id distance(Term *x) {
  bool below = x->order == OP_LE || x->order == OP_LT;
  return below ? op(x, OP_SUB, x->at[T], x->at[S]) : op(x, OP_SUB, x->at[S], x->at[T]);
}

// Tame where the guard holds, at most 1 there.
static Id singular(Term *x) {
  Module *m = x->g->m;
  Id d = real_of(x, distance(x)), one;
  bool strict = x->order == OP_LT || x->order == OP_GT;
  switch (rng_below(rng(x), 6)) {
  case 0: return ex1(m, OP_EXP, op(x, OP_MUL, d, num(x, -800)));
  case 1: return ex1(m, OP_EXP, op(x, OP_MUL, d, num(x, -0.125)));
  case 2: return op(x, OP_DIV, num(x, 1), strict ? d : op(x, OP_ADD, d, num(x, 1)));
  case 3:
    one = ex1(m, OP_LOG, strict ? d : op(x, OP_ADD, d, num(x, 1)));
    return op(x, OP_MUL, one, num(x, 0.125));
  case 4: return op(x, OP_MUL, ex1(m, OP_SQRT, d), num(x, 0.125));
  default:
    if (x->hole_s < 0) return num(x, 0.5);
    one = real_of(x, op(x, OP_SUB, x->at[S], whole(x, x->hole_s)));
    return op(x, OP_DIV, num(x, 1), one);
  }
}

// A read that is in range only where the guard holds: r[t - s].
static Id far_read(Term *x) {
  Gen *g = x->g;
  int64_t n = x->extent[x->order == OP_LE || x->order == OP_LT ? T : S];
  Index index = {.name = str_intern("f0"), .extent = n};
  Id i = ex_index(g->m, 0), at = distance(x);
  Id v = fn_value(g->m, gen_fn(g), str_intern("far"), DT_REAL, &n, 1, ROLE_LOCAL, 0);
  Id e = op(x, OP_DIV, num(x, 1), op(x, OP_ADD, real_of(x, i), num(x, 1)));
  fn_comp(g->m, gen_fn(g), v, &i, false, RED_NONE, &index, 1, 1, e, 0);
  return ex_read(g->m, gen_fn(g), v, &at);
}

static void push_factor(Term *x, Id e, double size) {
  uint32_t k = rng_below(rng(x), x->n + 1);
  x->factor[x->n++] = x->factor[k];
  x->factor[k] = e;
  x->size *= size;
}

static Id guard_of(Term *x) {
  Id c = op(x, x->order, x->at[S], x->at[T]);
  if (rng_chance(rng(x), 20)) c = op(x, OP_GE, distance(x), whole(x, x->order == OP_LE || x->order == OP_GE ? 0 : 1));
  if (x->hole_s >= 0) {
    Id in = op(x, OP_NE, x->at[S], whole(x, x->hole_s));
    c = rng_chance(rng(x), 50) ? op(x, OP_AND, c, in) : op(x, OP_AND, in, c);
  }
  if (x->hole_t >= 0) c = op(x, OP_AND, op(x, OP_NE, x->at[T], whole(x, x->hole_t)), c);
  return c;
}

static Id product_of(Term *x) {
  Id e = x->factor[0];
  for (uint32_t i = 1; i < x->n; i++) {
    bool right = rng_chance(rng(x), 25);
    e = op(x, OP_MUL, right ? x->factor[i] : e, right ? e : x->factor[i]);
  }
  if (rng_chance(rng(x), 20)) e = ex1(x->g->m, OP_NEG, e);
  return e;
}

static Id guarded(Term *x, Id e) {
  Module *m = x->g->m;
  Id c = guard_of(x), zero = num(x, 0);
  if (rng_chance(rng(x), 15)) return ex3(m, OP_WHERE, ex1(m, OP_NOT, c), zero, e);
  if (ex_is(m, c, OP_AND) && rng_chance(rng(x), 30)) { // one guard in the other
    Id inner = ex3(m, OP_WHERE, ex_arg(m, c, 1), e, zero);
    return ex3(m, OP_WHERE, ex_arg(m, c, 0), inner, zero);
  }
  return ex3(m, OP_WHERE, c, e, zero);
}

static void pick_extents(Term *x) {
  static const int64_t some[] = {3, 5, 8, 17}, many[] = {16, 17, 20, 33};
  bool large = rng_chance(rng(x), 60); // a matrix product worth a library's call
  for (int i = 0; i < NINDEX; i++)
    x->extent[i] = (large ? many : some)[rng_below(rng(x), large ? 3 : 4)];
  if (large && rng_chance(rng(x), 30)) x->extent[T] = 33;
  x->extent[B] = rng_chance(rng(x), 50) ? 1 : 2;
  if (rng_chance(rng(x), 60)) x->extent[S] = x->extent[T];
}

// Which indices stand on the left; the others are summed.
static uint32_t pick_free(Term *x) {
  static const uint32_t set[] = {1 << T | 1 << C, 1 << T | 1 << C, 1 << S | 1 << C, 1 << T | 1 << S,
                                 1 << T, 1 << S, 1 << C, 0};
  uint32_t free = set[rng_below(rng(x), 8)];
  return rng_chance(rng(x), 60) ? free | 1 << B : free;
}

static void factors(Term *x) {
  static const uint32_t ts[] = {B, T, S}, sc[] = {B, S, C}, tc[] = {B, T, C};
  uint32_t skip = rng_chance(rng(x), 60); // B
  push_factor(x, operand(x, "p", ts + skip, 3 - skip), 2);
  skip = rng_chance(rng(x), 40);
  push_factor(x, operand(x, "x", sc + skip, 3 - skip), 2);
  if (rng_chance(rng(x), 30)) push_factor(x, operand(x, "z", tc, 3), 2);
  if (rng_chance(rng(x), 15)) push_factor(x, operand(x, "r", ts + 1, 1), 2);
  if (rng_chance(rng(x), 70)) push_factor(x, singular(x), 1);
  if (rng_chance(rng(x), 15)) push_factor(x, far_read(x), 1);
}

bool gen_guarded_sum(Gen *g, Known *k) {
  static const Op order[] = {OP_LE, OP_LT, OP_GE, OP_GT};
  static const char *const name[] = {"t", "s", "c", "b"};
  Term x = {.g = g, .order = order[rng_below(&g->r, 4)], .hole_s = -1, .hole_t = -1, .size = 1};
  if (g->exact) return false;
  pick_extents(&x);
  if (rng_chance(&g->r, 50)) x.hole_s = rng_below(&g->r, (uint32_t)x.extent[S]);
  if (rng_chance(&g->r, 25)) x.hole_t = rng_below(&g->r, (uint32_t)x.extent[T]);
  uint32_t free = pick_free(&x), n = 0;
  Index index[NINDEX];
  Id sub[MAX_RANK];
  *k = (Known){.type = SC_REAL};
  for (int pass = 1; pass >= 0; pass--)
    for (uint32_t i = 0; i < NINDEX; i++) {
      if ((int)(free >> i & 1) != pass) continue;
      index[n] = (Index){.name = str_intern(name[i]), .extent = x.extent[i]};
      x.at[i] = ex_index(g->m, n);
      if (pass) sub[k->rank] = x.at[i], k->dim[k->rank++] = (Dim){1, {x.extent[i]}};
      n++;
    }
  factors(&x);
  Id body = guarded(&x, product_of(&x));
  double points = 1, most = 1e3;
  for (uint32_t i = k->rank; i < n; i++) points *= (double)index[i].extent;
  Red red = n == k->rank ? RED_NONE : rng_chance(&g->r, 80) ? RED_SUM
          : (Red[]){RED_MEAN, RED_MAX, RED_MIN}[rng_below(&g->r, 3)];
  double scale = ldexp(1, -ilogb(x.size * points / most) - 1);
  if (scale < 1) body = op(&x, OP_MUL, body, num(&x, scale));
  k->size = most;
  int64_t extent[MAX_RANK];
  for (uint32_t d = 0; d < k->rank; d++) extent[d] = dim_extent(&k->dim[d]);
  k->id = fn_value(g->m, gen_fn(g), str_intern("guarded"), DT_REAL, extent, k->rank, ROLE_LOCAL, 0);
  fn_comp(g->m, gen_fn(g), k->id, sub, rng_chance(&g->r, 10), red, index, k->rank, n, body, 0);
  return true;
}
