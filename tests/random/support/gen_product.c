// Sums of products: contractions of two to five operands with indices that one, some or all of them
// have, and what may stand around an operand there: guards, signs, quotients, functions, numbers.
#include "tests/random/support/gen.h"

#include <math.h>

static Rng *rng(Comp *c) { return &c->g->r; }

// A read at bare indices, each one that is there or a new one; NONE where there is no room for it.
static Id bare_read(Comp *c, const Known *k) {
  Id sub[MAX_RANK], arg[3];
  for (uint32_t d = 0; d < k->rank; d++) {
    for (uint32_t i = 0; i < k->dim[d].n; i++) {
      arg[i] = comp_index(c, k->dim[d].extent[i], rng_chance(rng(c), 45));
      if (arg[i] == NONE) arg[i] = comp_index(c, k->dim[d].extent[i], false);
      for (uint32_t e = 0; e < i; e++)
        if (arg[i] == arg[e]) return NONE;
      if (arg[i] == NONE) return NONE;
    }
    sub[d] = k->dim[d].n == 1 ? arg[0] : ex_group(c->g->m, arg, k->dim[d].n);
  }
  return ex_read(c->g->m, gen_fn(c->g), k->id, sub);
}

// A read of a value, of several dimensions where such a one is drawn soon.
static Real read_array(Comp *c) {
  const Known *k = pick_known(c->g, SC_REAL);
  for (int tries = 0; k && k->rank < 2 && tries < 4; tries++) k = pick_known(c->g, SC_REAL);
  Id e = k && rng_chance(rng(c), 80) ? bare_read(c, k) : NONE;
  return e == NONE ? gen_read(c, k, 1) : (Real){e, k->size};
}

static Real factor(Comp *c) {
  uint32_t what = rng_below(rng(c), 100);
  if (what >= 92) return gen_real(c, 1);
  Real x = limit(c, read_array(c), 8);
  Module *m = c->g->m;
  if (what < 62) return x;
  if (what < 70) {
    Id zero = ex_real(m, 0), cond = gen_bool(c, 1);
    return (Real){ex3(m, OP_WHERE, cond, x.e, zero), x.size};
  }
  if (what < 75) return (Real){ex1(m, OP_NEG, x.e), x.size};
  if (what < 80) {
    Real y = limit(c, read_array(c), 8);
    return (Real){ex2(m, rng_chance(rng(c), 50) ? OP_ADD : OP_SUB, x.e, y.e), x.size + y.size};
  }
  if (what < 86 && !c->g->exact) {
    Real y = limit(c, read_array(c), 2);
    Id square = ex2(m, OP_MUL, y.e, y.e);
    return (Real){ex2(m, OP_DIV, x.e, ex2(m, OP_ADD, square, ex_real(m, 0.5))), 2 * x.size};
  }
  if (what < 89 && !c->g->exact) return (Real){ex1(m, OP_TANH, x.e), 1};
  double k = c->g->exact ? (double)((int)rng_below(rng(c), 5) - 2) : rng_real(rng(c)) * 4 - 2;
  return (Real){ex2(m, OP_MUL, ex_real(m, k), x.e), fabs(k) * x.size};
}

// Factors in any association: (a * b) * (c * d), a * (b * c), ...
static Real tree(Comp *c, uint32_t n) {
  if (n == 1) return factor(c);
  uint32_t left = 1 + rng_below(rng(c), n - 1);
  Real a = tree(c, left), b = tree(c, n - left);
  if (a.size * b.size > 1e4) a = limit(c, a, 8), b = limit(c, b, 8);
  return (Real){ex2(c->g->m, OP_MUL, a.e, b.e), a.size * b.size};
}

static Real term(Comp *c) {
  static const uint32_t count[] = {2, 2, 3, 3, 3, 4, 4, 5};
  Module *m = c->g->m;
  Real x = tree(c, count[rng_below(rng(c), 8)]);
  if (rng_chance(rng(c), 10)) x.e = ex1(m, OP_NEG, x.e);
  if (!rng_chance(rng(c), 12)) return x;
  Id cond = gen_bool(c, 1);
  return (Real){ex3(m, OP_WHERE, cond, x.e, ex_real(m, 0)), x.size};
}

Real gen_product(Comp *c) {
  Real x = term(c);
  uint32_t more = rng_chance(rng(c), 25) ? 1 + rng_below(rng(c), 2) : 0;
  while (more-- > 0) {
    Real y = term(c);
    Op op = rng_chance(rng(c), 60) ? OP_ADD : OP_SUB;
    x = (Real){ex2(c->g->m, op, x.e, y.e), x.size + y.size};
  }
  return x;
}
