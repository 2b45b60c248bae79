// Random expressions.
#include "tests/random/support/gen.h"

#include <math.h>
#include <stdlib.h>

static Id ei(Comp *c, int64_t v) { return ex_int(c->g->m, v); }
static Id op1(Comp *c, Op op, Id a) { return ex1(c->g->m, op, a); }
static Id op2(Comp *c, Op op, Id a, Id b) { return ex2(c->g->m, op, a, b); }
static Rng *rng(Comp *c) { return &c->g->r; }

Id comp_index(Comp *c, int64_t extent, bool fresh) {
  Id found[MAX_INDEX];
  uint32_t n = 0;
  for (uint32_t i = 0; i < c->n; i++)
    if (c->index[i].extent == extent) found[n++] = i;
  if (n && !fresh && rng_chance(rng(c), 75)) return ex_index(c->g->m, found[rng_below(rng(c), n)]);
  if (c->n < c->most && c->points * extent <= c->g->most_points) {
    static const char *const name[] = {"i", "j", "k", "l", "p", "q", "r", "s"};
    c->index[c->n] = (Index){.name = str_intern(name[c->n]), .extent = extent};
    c->points *= extent;
    return ex_index(c->g->m, c->n++);
  }
  return n && !fresh ? ex_index(c->g->m, found[rng_below(rng(c), n)]) : NONE;
}

// ---- ints

Id clamp_to(Comp *c, Int x, int64_t extent) {
  if (x.lo >= 0 && x.hi < extent) return x.e;
  if (rng_chance(rng(c), 50)) return op2(c, OP_MOD, x.e, ei(c, extent));
  return op2(c, OP_MIN, op2(c, OP_MAX, x.e, ei(c, 0)), ei(c, extent - 1));
}

static Int constant_int(Comp *c) {
  int64_t v = (int64_t)rng_below(rng(c), 9) - 3;
  return (Int){ei(c, v), v, v};
}

static Int some_index(Comp *c) {
  if (!c->n) return constant_int(c);
  uint32_t i = rng_below(rng(c), c->n);
  return (Int){ex_index(c->g->m, i), 0, c->index[i].extent - 1};
}

static Id read_known(Comp *c, const Known *k, int depth, Id *guard);

static Real random_number(Comp *c);

// A power of two times random(), so that it is the same in every precision.
static Int random_int(Comp *c) {
  int64_t n = (int64_t)1 << rng_below(rng(c), 4);
  Id e = op2(c, OP_MUL, random_number(c).e, ex_real(c->g->m, (double)n));
  return (Int){op1(c, OP_TO_INT, op1(c, OP_FLOOR, e)), 0, n - 1};
}

static Int read_int(Comp *c, int depth) {
  const Known *k = pick_known(c->g, SC_INT);
  if (!k || depth <= 0) return some_index(c);
  Id guard = NONE, e = read_known(c, k, depth - 1, &guard);
  Int r = {e, k->lo, k->hi};
  if (guard == NONE) return r;
  r.e = ex3(c->g->m, OP_WHERE, guard, e, ei(c, k->lo));
  return r;
}

static Int product(Comp *c, Int a, Int b) {
  int64_t p[] = {a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi};
  Int r = {op2(c, OP_MUL, a.e, b.e), p[0], p[0]};
  for (int i = 1; i < 4; i++) r.lo = p[i] < r.lo ? p[i] : r.lo, r.hi = p[i] > r.hi ? p[i] : r.hi;
  return r;
}

// By what is no constant, and maybe negative.
static Int divide(Comp *c, Int a, Int b) {
  int64_t most = llabs(a.lo) > llabs(a.hi) ? llabs(a.lo) : llabs(a.hi),
          by = llabs(b.lo) > llabs(b.hi) ? llabs(b.lo) : llabs(b.hi);
  Id divisor = ex3(c->g->m, OP_WHERE, op2(c, OP_EQ, b.e, ei(c, 0)), ei(c, 1), b.e);
  if (rng_chance(rng(c), 50)) return (Int){op2(c, OP_IDIV, a.e, divisor), -most, most};
  return (Int){op2(c, OP_MOD, a.e, divisor), by > 1 ? 1 - by : 0, by > 1 ? by - 1 : 0};
}

static int64_t floor_div(int64_t a, int64_t d) { return a / d - (a % d < 0); }

// One of two indices, from the number of the pair of both: (i j) // n, (i * n + j) % n.
static Int of_pair(Comp *c) {
  Module *m = c->g->m;
  if (c->n < 2) return some_index(c);
  uint32_t i = rng_below(rng(c), c->n), j = (i + 1 + rng_below(rng(c), c->n - 1)) % c->n;
  Id pair[] = {ex_index(m, i), ex_index(m, j)}, e;
  int64_t n = c->index[j].extent;
  if (rng_chance(rng(c), 50)) e = ex_group(m, pair, 2);
  else e = op2(c, OP_ADD, op2(c, OP_MUL, pair[0], ei(c, n)), pair[1]);
  bool first = rng_chance(rng(c), 50);
  return (Int){op2(c, first ? OP_IDIV : OP_MOD, e, ei(c, n)), 0, (first ? c->index[i].extent : n) - 1};
}

Int gen_int(Comp *c, int depth) {
  if (depth <= 0) return rng_chance(rng(c), 70) ? some_index(c) : constant_int(c);
  Int a = gen_int(c, depth - 1), b;
  int64_t k = 1 + rng_below(rng(c), 5);
  switch (rng_below(rng(c), 13)) {
  case 12: return of_pair(c);
  case 11:
    b = gen_int(c, depth - 1);
    return divide(c, a, b);
  case 0:
    b = gen_int(c, depth - 1);
    return (Int){op2(c, OP_ADD, a.e, b.e), a.lo + b.lo, a.hi + b.hi};
  case 1:
    b = gen_int(c, depth - 1);
    return (Int){op2(c, OP_SUB, a.e, b.e), a.lo - b.hi, a.hi - b.lo};
  case 2:
    b = gen_int(c, depth - 1);
    if (llabs(a.lo) > 4000 || llabs(a.hi) > 4000 || llabs(b.lo) > 4000 || llabs(b.hi) > 4000)
      return a;
    return product(c, a, b);
  case 3: return (Int){op2(c, OP_IDIV, a.e, ei(c, k)), floor_div(a.lo, k), floor_div(a.hi, k)};
  case 4: return (Int){op2(c, OP_MOD, a.e, ei(c, k)), 0, k - 1};
  case 5: b = gen_int(c, depth - 1);
    return (Int){op2(c, OP_MIN, a.e, b.e), a.lo < b.lo ? a.lo : b.lo, a.hi < b.hi ? a.hi : b.hi};
  case 6: b = gen_int(c, depth - 1);
    return (Int){op2(c, OP_MAX, a.e, b.e), a.lo > b.lo ? a.lo : b.lo, a.hi > b.hi ? a.hi : b.hi};
  case 7:
    if (rng_chance(rng(c), 70)) return (Int){op1(c, OP_NEG, a.e), -a.hi, -a.lo};
    return (Int){op1(c, OP_ABS, a.e), 0, llabs(a.lo) > llabs(a.hi) ? llabs(a.lo) : llabs(a.hi)};
  case 8: {
    b = gen_int(c, depth - 1);
    Id cond = gen_bool(c, depth - 1);
    return (Int){ex3(c->g->m, OP_WHERE, cond, a.e, b.e), a.lo < b.lo ? a.lo : b.lo,
                 a.hi > b.hi ? a.hi : b.hi};
  }
  default: return rng_chance(rng(c), 5) ? random_int(c) : read_int(c, depth);
  }
}

Int gen_computed_int(Comp *c) {
  return rng_chance(rng(c), 4) ? random_int(c) : read_int(c, 1);
}

// ---- subscripts

static void guard_with(Comp *c, Id *guard, Id cond) {
  *guard = *guard == NONE ? cond : op2(c, OP_AND, *guard, cond);
}

// What has to hold for x to be a subscript. Bounds that are implied are mostly left out.
static void guard_range(Comp *c, Int x, int64_t extent, Id *guard) {
  bool all = rng_chance(rng(c), 10);
  if (c->g->awkward && rng_chance(rng(c), 8)) return;
  if (x.lo < 0 || all) guard_with(c, guard, op2(c, OP_GE, x.e, ei(c, 0)));
  if (x.hi >= extent || all) guard_with(c, guard, op2(c, OP_LT, x.e, ei(c, extent)));
}

static Int affine(Comp *c) {
  static const int64_t scale[] = {1, 1, 1, -1, 2, 3};
  Int x = some_index(c), k = {.lo = scale[rng_below(rng(c), 6)]};
  k.hi = k.lo;
  if (k.lo != 1) k.e = ei(c, k.lo), x = product(c, k, x);
  if (rng_chance(rng(c), 40)) {
    Int y = some_index(c);
    x = (Int){op2(c, OP_ADD, x.e, y.e), x.lo + y.lo, x.hi + y.hi};
  }
  int64_t d = (int64_t)rng_below(rng(c), 7) - 3;
  if (d) x = (Int){op2(c, OP_ADD, x.e, ei(c, d)), x.lo + d, x.hi + d};
  return x;
}

// Indices for each of a group's extents, all different; NONE where there is no room.
static Id group(Comp *c, const Dim *d) {
  Id arg[3];
  for (uint32_t i = 0; i < d->n; i++) {
    arg[i] = comp_index(c, d->extent[i], false);
    for (uint32_t k = 0; k < i && arg[i] != NONE; k++)
      if (arg[k] == arg[i]) arg[i] = comp_index(c, d->extent[i], true);
    if (arg[i] == NONE) return NONE;
  }
  return d->n == 1 ? arg[0] : ex_group(c->g->m, arg, d->n);
}

static Id odd_subscript(Comp *c, const Dim *d, int depth, Id *guard) {
  int64_t extent = dim_extent(d);
  Int x;
  Id same;
  switch (rng_below(rng(c), 6)) {
  case 0:
    same = comp_index(c, extent, false);
    if (same != NONE) return op2(c, OP_SUB, ei(c, extent - 1), same);
    break;
  case 1: return clamp_to(c, depth > 0 ? gen_computed_int(c) : some_index(c), extent);
  case 2: return clamp_to(c, gen_int(c, 2), extent);
  case 3: {
    int64_t k = 1 + rng_below(rng(c), 4);
    x = some_index(c);
    x = (Int){op2(c, OP_IDIV, x.e, ei(c, k)), floor_div(x.lo, k), floor_div(x.hi, k)};
    guard_range(c, x, extent, guard);
    return x.e;
  }
  case 4: // by way of numbers of more than 32 bits, which subscripts may have
    same = rng_chance(rng(c), 30) ? comp_index(c, extent, false) : NONE;
    if (same == NONE) break;
    if (rng_chance(rng(c), 40))
      return op2(c, OP_SUB, op2(c, OP_MUL, op1(c, OP_NEG, same), ei(c, -3000000001)), op2(c, OP_MUL, same, ei(c, 3000000000)));
    return op2(c, OP_SUB, op2(c, OP_MUL, same, ei(c, 3000000001)), op2(c, OP_MUL, same, ei(c, 3000000000)));
  default: break;
  }
  x = affine(c);
  guard_range(c, x, extent, guard);
  return x.e;
}

static Id subscript(Comp *c, const Dim *d, int depth, Id *guard) {
  if (rng_chance(rng(c), 70)) {
    Id e = group(c, d);
    if (e != NONE) return e;
  }
  if (depth > 0 && rng_chance(rng(c), 15))
    return clamp_to(c, gen_computed_int(c), dim_extent(d));
  if (c->n && rng_chance(rng(c), 65)) return odd_subscript(c, d, depth, guard);
  if (rng_chance(rng(c), 30)) {
    Id e = group(c, d);
    if (e != NONE) return e;
  }
  return ei(c, rng_below(rng(c), (uint32_t)dim_extent(d)));
}

static Id read_known(Comp *c, const Known *k, int depth, Id *guard) {
  Id sub[MAX_RANK];
  Known copy = *k; // the list may move
  for (uint32_t d = 0; d < copy.rank; d++) sub[d] = subscript(c, &copy.dim[d], depth, guard);
  return ex_read(c->g->m, gen_fn(c->g), copy.id, sub);
}

// ---- bools

static Real constant_real(Comp *c);

Id gen_bool(Comp *c, int depth) {
  static const Op compare[] = {OP_LT, OP_LE, OP_GT, OP_GE, OP_EQ, OP_NE};
  const Known *k = pick_known(c->g, SC_BOOL);
  Op op = compare[rng_below(rng(c), 6)];
  switch (depth > 0 ? rng_below(rng(c), 9) : 7) {
  case 8:
    if (rng_chance(rng(c), 20)) { // a mask: 1 / 8, ... 7 / 8 of it true
      double p = (1 + rng_below(rng(c), 7)) * 0.125;
      return op2(c, op, random_number(c).e, ex_real(c->g->m, p));
    }
    // fall through
  case 0: return op2(c, OP_AND, gen_bool(c, depth - 1), gen_bool(c, depth - 1));
  case 1: return op2(c, OP_OR, gen_bool(c, depth - 1), gen_bool(c, depth - 1));
  case 2: return op1(c, OP_NOT, gen_bool(c, depth - 1));
  case 3: {
    bool constant = rng_chance(rng(c), 12);
    Real a = constant ? constant_real(c) : gen_real(c, depth - 1);
    Real b = !constant ? gen_real(c, depth - 1) : rng_chance(rng(c), 30) ? a : constant_real(c);
    return op2(c, op, a.e, b.e);
  }
  case 4:
    if (k) {
      Id guard = NONE, e = read_known(c, k, depth - 1, &guard);
      return guard == NONE ? e : op2(c, OP_AND, guard, e);
    }
    // fall through
  default: {
    Int a = gen_int(c, depth > 1 ? 1 : 0),
        b = rng_chance(rng(c), 50) ? some_index(c) : constant_int(c);
    return op2(c, op, a.e, b.e);
  }
  }
}

// ---- reals

static Real constant_real(Comp *c) {
  double v = c->g->exact ? (double)((int)rng_below(rng(c), 7) - 3)
             : rng_chance(rng(c), 40) ? ((double)rng_below(rng(c), 17) - 8) / 4
                                      : rng_real(rng(c)) * 4 - 2;
  return (Real){ex_real(c->g->m, v), fabs(v)};
}

Real gen_read(Comp *c, const Known *k, int depth) {
  if (!k) return constant_real(c);
  double size = k->size;
  Id guard = NONE, e = read_known(c, k, depth, &guard);
  if (guard == NONE) return (Real){e, size};
  Real other = rng_chance(rng(c), 70) ? (Real){ex_real(c->g->m, 0), 0} : constant_real(c);
  if (rng_chance(rng(c), 15)) { // the other way round
    Id no = op1(c, OP_NOT, guard);
    return (Real){ex3(c->g->m, OP_WHERE, no, other.e, e), fmax(size, other.size)};
  }
  return (Real){ex3(c->g->m, OP_WHERE, guard, e, other.e), fmax(size, other.size)};
}

static Real read_real(Comp *c, int depth) {
  return gen_read(c, pick_known(c->g, SC_REAL), depth);
}

static Real random_number(Comp *c) {
  Id element = ei(c, 0), arg[3];
  for (uint32_t i = 0; i < c->n; i++)
    element =
        op2(c, OP_ADD, op2(c, OP_MUL, element, ei(c, c->index[i].extent)), ex_index(c->g->m, i));
  arg[0] = ei(c, c->g->site++);
  arg[1] = ei(c, rng_below(rng(c), 3));
  arg[2] = element;
  return (Real){ex_op(c->g->m, OP_RANDOM, arg, 3), 1};
}

static Real leaf(Comp *c, int depth) {
  uint32_t what = rng_below(rng(c), 100);
  if (what < 75) return read_real(c, depth);
  if (what < 85) return constant_real(c);
  if (what < 87 && !c->g->exact) return random_number(c);
  Int x = gen_int(c, 1);
  double size = fmax(fabs((double)x.lo), fabs((double)x.hi));
  return limit(c, (Real){op1(c, OP_TO_REAL, x.e), size}, 100);
}

Real limit(Comp *c, Real x, double most) {
  if (x.size <= most) return x;
  if (c->g->exact) {
    Id lo = ex_real(c->g->m, -4), hi = ex_real(c->g->m, 4);
    return (Real){op2(c, OP_MAX, op2(c, OP_MIN, x.e, hi), lo), 4};
  }
  if (rng_chance(rng(c), 30))
    return (Real){op1(c, OP_TANH, op2(c, OP_MUL, x.e, ex_real(c->g->m, 0.125))), 1};
  double k = ldexp(1, -ilogb(x.size));
  return (Real){op2(c, OP_MUL, x.e, ex_real(c->g->m, k)), x.size * k};
}

// x * x + k, at least k.
static Real positive(Comp *c, Real x, double k) {
  x = limit(c, x, 4);
  return (Real){op2(c, OP_ADD, op2(c, OP_MUL, x.e, x.e), ex_real(c->g->m, k)), x.size * x.size + k};
}

// 1 / (k + exp(u)), as in a sigmoid, also where exp(u) is infinite.
static Real logistic(Comp *c, Real a) {
  Id e = op1(c, OP_EXP, rng_chance(rng(c), 50) ? op1(c, OP_NEG, a.e) : a.e),
     k = ex_real(c->g->m, rng_chance(rng(c), 70) ? 1 : 2);
  Id sum = rng_chance(rng(c), 50) ? op2(c, OP_ADD, k, e) : op2(c, OP_ADD, e, k);
  return (Real){op2(c, OP_DIV, ex_real(c->g->m, 1), sum), 1};
}

static Real power_of(Comp *c, Real a, Real b) {
  a = positive(c, a, 0.5), b = limit(c, b, 2);
  double size = fmax(pow(a.size, b.size), pow(0.5, -b.size));
  return limit(c, (Real){op2(c, OP_POW, a.e, b.e), size}, 50);
}

static Real unary(Comp *c, Real a) {
  switch (rng_below(rng(c), 14)) {
  case 12: return logistic(c, a);
  case 13: return power_of(c, a, read_real(c, 1));
  case 0: a = limit(c, a, 3); return (Real){op1(c, OP_EXP, a.e), exp(a.size)};
  case 1: a = positive(c, a, 0.5); return (Real){op1(c, OP_LOG, a.e), log(a.size) + 1};
  case 2: a = positive(c, a, 0.25); return (Real){op1(c, OP_SQRT, a.e), sqrt(a.size)};
  case 3: return (Real){op1(c, OP_SIN, a.e), 1};
  case 4: return (Real){op1(c, OP_COS, a.e), 1};
  case 5: return (Real){op1(c, OP_TANH, a.e), 1};
  case 6: return (Real){op1(c, OP_ERF, a.e), 1};
  case 7: return (Real){op1(c, OP_ABS, a.e), a.size};
  case 8: return c->g->stops ? (Real){op1(c, OP_STOP, a.e), a.size} : a;
  case 9: return (Real){op1(c, OP_FLOOR, a.e), a.size + 1};
  case 10: {
    static const double power[] = {2, 3, 0.5, -1, -1.5, 1.7};
    a = positive(c, a, 0.5);
    double p = power[rng_below(rng(c), 6)];
    return limit(
        c, (Real){op2(c, OP_POW, a.e, ex_real(c->g->m, p)), fmax(pow(a.size, p), pow(0.5, p))}, 50);
  }
  default: return (Real){op1(c, OP_NEG, a.e), a.size};
  }
}

static Real exact_unary(Comp *c, Real a) {
  static const Op op[] = {OP_NEG, OP_ABS, OP_FLOOR, OP_STOP};
  return (Real){op1(c, op[rng_below(rng(c), c->g->stops ? 4 : 3)], a.e), a.size};
}

Real gen_real(Comp *c, int depth) {
  if (depth <= 0) return leaf(c, 1);
  Real a = gen_real(c, depth - 1), b;
  uint32_t what = rng_below(rng(c), 100);
  if (what < 12) return leaf(c, 1);
  if (what < 35) return c->g->exact ? exact_unary(c, a) : unary(c, a);
  b = gen_real(c, depth - 1);
  if (what < 47) return (Real){op2(c, OP_ADD, a.e, b.e), a.size + b.size};
  if (what < 54) return (Real){op2(c, OP_SUB, a.e, b.e), a.size + b.size};
  if (what < 78) {
    a = limit(c, a, 100), b = limit(c, b, 100);
    return (Real){op2(c, OP_MUL, a.e, b.e), a.size * b.size};
  }
  if (what < 83) return (Real){op2(c, OP_MIN, a.e, b.e), fmax(a.size, b.size)};
  if (what < 87) return (Real){op2(c, OP_MAX, a.e, b.e), fmax(a.size, b.size)};
  if (what < 92 && !c->g->exact) {
    b = positive(c, b, 0.5);
    return (Real){op2(c, OP_DIV, a.e, b.e), 2 * a.size};
  }
  if (what < 94) {
    Real k = constant_real(c);
    return (Real){ex3(c->g->m, OP_FMA, a.e, k.e, b.e), a.size * k.size + b.size};
  }
  Id cond = gen_bool(c, 2);
  return (Real){ex3(c->g->m, OP_WHERE, cond, a.e, b.e), fmax(a.size, b.size)};
}
