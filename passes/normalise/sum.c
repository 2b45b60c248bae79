// Products inside a sum: factors out, guards and expressions into operands, contractions two by
// two.
#include "passes/bounds.h"
#include "passes/normalise/normalise.h"
#include "passes/product.h"
#include "passes/util.h"

enum { MAX_FACTOR = 16 };

// A part of a product: its expression, the indices that it depends on.
typedef struct Part {
  Id e;
  uint32_t set;
} Part;

typedef struct Product {
  Part part[MAX_FACTOR];
  uint32_t n;
  Id outer; // the factor free of bound indices, or NONE
  Id guard; // a condition free of bound indices, around all of it, or NONE
  bool ok;
  bool whole; // asked for: a factor under a guard stays one part
  bool weak; // a factor is evaluated where its guard does not hold: see `checked`
} Product;

static bool is_zero(const Module *m, Id e) { return ex_is(m, e, OP_REAL) && ex(m, e)->real == 0; }

static void times(Module *m, Id *product, Id factor) {
  *product = *product == NONE ? factor : ex2(m, OP_MUL, *product, factor);
}

static void add_factor(Norm *n, Product *p, Id e) {
  uint32_t set = ex_indices(n->m, e);
  if (!(set & ~free_set(&n->s))) {
    if (!expr_safe(n->m, n->f, &n->s, e))
      p->ok = false; // it may be in range only under a guard around it
    times(n->m, &p->outer, e);
  } else if (p->n >= n->m->limits.product_factors) {
    p->ok = false;
  } else {
    p->part[p->n++] = (Part){e, set};
  }
}

// The part of least size that holds all indices of `set`, or NONE.
static uint32_t part_with(const Norm *n, const Product *p, uint32_t set) {
  uint32_t best = NONE;
  for (uint32_t i = 0; i < p->n; i++)
    if (!(set & ~p->part[i].set) && (best == NONE || normal_points(&n->s, p->part[i].set) <
                                                         normal_points(&n->s, p->part[best].set)))
      best = i;
  return best;
}

static void factors(Norm *n, Product *p, Id e);

static void quotient(Norm *n, Product *p, Id a, Id b) {
  Module *m = n->m;
  factors(n, p, a);
  uint32_t set = ex_indices(m, b);
  if (!(set & ~free_set(&n->s))) {
    if (!expr_safe(m, n->f, &n->s, b)) p->ok = false;
    p->outer = p->outer == NONE ? ex2(m, OP_DIV, ex_real(m, 1), b) : ex2(m, OP_DIV, p->outer, b);
    return;
  }
  uint32_t at = part_with(n, p, set);
  if (at == NONE) add_factor(n, p, ex2(m, OP_DIV, ex_real(m, 1), b));
  else p->part[at].e = ex2(m, OP_DIV, p->part[at].e, b);
}

static void drop_part(Product *p, uint32_t i) {
  for (p->n--; i < p->n; i++) p->part[i] = p->part[i + 1];
}

// Finite, whatever the program reads.
static bool always_finite(const Module *m, Id e) {
  const Expr *x = ex(m, e);
  if (x->op == OP_REAL) return __builtin_isfinite(x->real);
  if (x->op == OP_NEG) return always_finite(m, ex_arg(m, e, 0));
  return x->op == OP_TO_REAL;
}

// The parts that part `at` has all indices of, and such an outer factor, are multiplied into it.
static uint32_t gather_into(Norm *n, Product *p, uint32_t at) {
  Module *m = n->m;
  uint32_t set = p->part[at].set;
  if (p->outer != NONE && !always_finite(m, p->outer) && !(ex_indices(m, p->outer) & ~set)) {
    p->part[at].e = ex2(m, OP_MUL, p->part[at].e, p->outer);
    p->outer = NONE;
  }
  for (uint32_t i = p->n; i-- > 0;) {
    if (i == at || p->part[i].set & ~set) continue;
    p->part[at].e = ex2(m, OP_MUL, p->part[at].e, p->part[i].e);
    drop_part(p, i);
    at -= i < at;
  }
  return at;
}

// where(c, e, 0) as factors. The guard goes to one that has all of its indices, with all factors
// that have no others. The factors that are left must be in range without it, and may be infinite or NaN where
// it does not hold: 0 times that is NaN, and then the product is `weak`.
static void guarded(Norm *n, Product *p, Id c, Id e) {
  Module *m = n->m;
  Product inner = {.outer = NONE, .guard = NONE, .ok = true};
  factors(n, &inner, e);
  uint32_t set = ex_indices(m, c), at = part_with(n, &inner, set);
  if (!inner.ok || at == NONE || p->n + inner.n > m->limits.product_factors) {
    p->ok = false;
    return;
  }
  at = gather_into(n, &inner, at);
  p->weak |= inner.weak || (inner.outer != NONE && !always_finite(m, inner.outer));
  for (uint32_t i = 0; i < inner.n; i++) {
    Part *part = &inner.part[i];
    bool carries = i == at || (!(set & ~part->set) && !ex_is(m, part->e, OP_READ));
    if (carries) {
      part->e = ex3(m, OP_WHERE, c, part->e, ex_real(m, 0));
    } else {
      p->ok &= expr_safe(m, n->f, &n->s, part->e);
      p->weak |= !always_finite(m, part->e);
    }
    p->part[p->n++] = *part;
  }
  if (inner.outer != NONE) times(m, &p->outer, inner.outer);
}

static bool is_guarded(const Module *m, Id e) {
  return ex_is(m, e, OP_WHERE) && is_zero(m, ex_arg(m, e, 2));
}

static void factors(Norm *n, Product *p, Id e) {
  Module *m = n->m;
  if (!(ex_indices(m, e) & ~free_set(&n->s))) add_factor(n, p, e);
  else if (ex_is(m, e, OP_MUL)) factors(n, p, ex_arg(m, e, 0)), factors(n, p, ex_arg(m, e, 1));
  else if (ex_is(m, e, OP_DIV)) quotient(n, p, ex_arg(m, e, 0), ex_arg(m, e, 1));
  else if (ex_is(m, e, OP_NEG)) times(m, &p->outer, ex_real(m, -1)), factors(n, p, ex_arg(m, e, 0));
  else if (is_guarded(m, e) && !p->whole) guarded(n, p, ex_arg(m, e, 0), ex_arg(m, e, 1));
  else add_factor(n, p, e);
}

// The body as a product. Guards around all of it that are free of bound indices stay around it.
static Product product_of(Norm *n, Id e, bool whole) {
  Module *m = n->m;
  Product p = {.outer = NONE, .guard = NONE, .ok = true, .whole = whole};
  while (is_guarded(m, e) && !(ex_indices(m, ex_arg(m, e, 0)) & ~free_set(&n->s))) {
    p.guard = fold_and(m, p.guard, ex_arg(m, e, 0));
    e = ex_arg(m, e, 1);
  }
  factors(n, &p, e);
  for (uint32_t i = 0; i < p.n && p.guard != NONE; i++)
    p.ok &= expr_safe(m, n->f, &n->s, p.part[i].e);
  return p;
}

// A factor whose indices another has multiplies that one point by point.
static void absorb(Norm *n, Product *p) {
  for (uint32_t i = 0; i < p->n; i++)
    for (uint32_t j = 0; j < p->n; j++) {
      if (i == j || (p->part[i].set & ~p->part[j].set)) continue;
      if (p->part[i].set == p->part[j].set && j < i) continue; // once
      p->part[j].e = ex2(n->m, OP_MUL, p->part[j].e, p->part[i].e);
      drop_part(p, i);
      absorb(n, p);
      return;
    }
}

// Whether the product of two parts is large enough to stand alone. codegen/lower/product.c has the
// last word.
static bool is_contraction(const Norm *n, const Part *a, const Part *b, uint32_t summed) {
  const Stmt *s = &n->s;
  ProductSets p = product_sets(a->set, b->set, summed);
  return product_is_large(&n->m->limits, normal_points(s, p.row), normal_points(s, p.column),
                          normal_points(s, p.sum), normal_points(s, a->set | b->set));
}

// Bound indices that no other part than a and b has.
static uint32_t private_to(const Norm *n, const Product *p, uint32_t a, uint32_t b) {
  uint32_t others = 0;
  for (uint32_t i = 0; i < p->n; i++)
    if (i != a && i != b) others |= p->part[i].set;
  return (p->part[a].set | p->part[b].set) & ~others & ~free_set(&n->s);
}

static bool linear(const Module *m, Id e) {
  const Expr *x = ex(m, e);
  if (x->op == OP_INT || x->op == OP_INDEX) return true;
  if (x->op == OP_MUL) return (ex_is(m, ex_arg(m, e, 0), OP_INT) && linear(m, ex_arg(m, e, 1))) ||
                              (ex_is(m, ex_arg(m, e, 1), OP_INT) && linear(m, ex_arg(m, e, 0)));
  if (x->op != OP_GROUP && x->op != OP_ADD && x->op != OP_SUB) return false;
  for (uint32_t i = 0; i < x->narg; i++)
    if (!linear(m, ex_arg(m, e, i))) return false;
  return true;
}

// A read that the library can take as it lies.
static bool plain_read(const Norm *n, Id e, Dtype type) {
  const Expr *x = ex(n->m, e);
  if (x->op != OP_READ || n->f->value.at[x->integer].type != type) return false;
  for (uint32_t i = 0; i < x->narg; i++)
    if (!linear(n->m, ex_arg(n->m, e, i))) return false;
  return true;
}

typedef struct Halves {
  const Fn *f;
  Dtype type;
} Halves;

static void note_half(const Module *m, Id read, void *ctx) {
  Halves *h = ctx;
  Dtype t = h->f->value.at[ex(m, read)->integer].type;
  if (is_half(t)) h->type = t;
}

// The type of a product's operands: of 16 bits, if either factor reads any such value. The other is
// rounded to it then.
static Dtype operand_type(const Norm *n, const Part *a, const Part *b) {
  Halves h = {n->f, n->m->compute};
  ex_reads(n->m, b->e, note_half, &h);
  ex_reads(n->m, a->e, note_half, &h);
  return n->m->compute == DT_F32 ? h.type : n->m->compute;
}

// The indices of `a` that its operand sums before the product with `other`: of those to be summed
// in this product the ones that only `a` has. An index that a third factor has as well is not to be
// summed yet.
static uint32_t alone(const Part *a, const Part *other, uint32_t summed) {
  return a->set & ~other->set & summed;
}

// The operand as a plain read, indices that only it has summed.
static Id operand(Norm *n, const Part *a, const Part *other, uint32_t summed, Dtype type) {
  uint32_t own = alone(a, other, summed);
  if (!own && plain_read(n, a->e, type)) return a->e;
  Str name = str_printf("%s.operand", n->f->value.at[n->s.lhs].name);
  return normal_operand(n, name, type, a->set & ~own, own ? RED_SUM : RED_NONE, own, a->e);
}

static bool fits_rank(uint32_t set) { return __builtin_popcount(set) <= MAX_RANK; }

static bool operands_fit(const Part *a, const Part *b, uint32_t summed) {
  return fits_rank(a->set & ~alone(a, b, summed)) && fits_rank(b->set & ~alone(b, a, summed));
}

// Multiplies the cheapest pair until two parts are left. False where a value between would not fit.
static bool reduce_pairs(Norm *n, Product *p) {
  while (p->n > 2) {
    uint32_t x = 0, y = 1;
    double least = -1;
    for (uint32_t i = 0; i < p->n; i++)
      for (uint32_t j = i + 1; j < p->n; j++) {
        if (!private_to(n, p, i, j)) continue; // nothing to sum yet
        uint32_t set = (p->part[i].set | p->part[j].set) & ~private_to(n, p, i, j);
        double size = normal_points(&n->s, set);
        if (least < 0 || size < least) least = size, x = i, y = j;
      }
    if (least < 0) return false;
    uint32_t summed = private_to(n, p, x, y), set = (p->part[x].set | p->part[y].set) & ~summed;
    if (!fits_rank(set)) return false;
    bool product = is_contraction(n, &p->part[x], &p->part[y], summed) &&
                   operands_fit(&p->part[x], &p->part[y], summed);
    Dtype type = operand_type(n, &p->part[x], &p->part[y]);
    Id a = product ? operand(n, &p->part[x], &p->part[y], summed, type) : p->part[x].e;
    Id b = product ? operand(n, &p->part[y], &p->part[x], summed, type) : p->part[y].e;
    uint32_t bound = product ? summed & p->part[x].set & p->part[y].set : summed;
    Str name = str_printf("%s.product", n->f->value.at[n->s.lhs].name);
    Id e = normal_value(n, name, set, RED_SUM, bound, ex2(n->m, OP_MUL, a, b));
    p->part[x] = (Part){e, set};
    drop_part(p, y);
    absorb(n, p);
  }
  return true;
}

// The left side's subscripts are bare indices or groups of them: the library can write there.
static bool plain_lhs(const Norm *n) {
  for (uint32_t d = 0; d < n->f->value.at[n->s.lhs].rank; d++) {
    const Expr *e = ex(n->m, n->s.sub[d]);
    if (e->op != OP_INDEX && e->op != OP_GROUP && e->op != OP_INT) return false;
    if (e->op == OP_GROUP && !ex_is(n->m, ex_arg(n->m, n->s.sub[d], 0), OP_INDEX)) return false;
  }
  return true;
}

static double bound_points(const Stmt *s) { return normal_points(s, all_set(s) & ~free_set(s)); }

// What a sum becomes after its outer factor, guard and mean.
static Id around(Norm *n, const Product *p, Id e) {
  Module *m = n->m;
  if (n->s.red == RED_MEAN) e = ex2(m, OP_DIV, e, ex_real(m, bound_points(&n->s)));
  if (p->outer != NONE) e = ex2(m, OP_MUL, e, p->outer);
  return p->guard == NONE ? e : ex3(m, OP_WHERE, p->guard, e, ex_real(m, 0));
}

// The bound indices that no part mentions count how often each term is added.
static uint32_t missing(const Norm *n, const Product *p) {
  uint32_t set = 0;
  for (uint32_t i = 0; i < p->n; i++) set |= p->part[i].set;
  return all_set(&n->s) & ~free_set(&n->s) & ~set;
}

static bool contract(Norm *n, Product *p) {
  Stmt *s = &n->s;
  absorb(n, p);
  if (p->n < 2 || missing(n, p)) return false;
  if (p->n == 2 && !is_contraction(n, &p->part[0], &p->part[1], all_set(s) & ~free_set(s)))
    return false;
  if (!reduce_pairs(n, p) || p->n != 2) return false;
  Part *a = &p->part[0], *b = &p->part[1];
  uint32_t bound = all_set(s) & ~free_set(s), shared = a->set & b->set & bound;
  if (!fits_rank((a->set | b->set) & ~bound) || !shared || !operands_fit(a, b, bound)) return false;
  Dtype type = operand_type(n, a, b);
  Id body = ex2(n->m, OP_MUL, operand(n, a, b, bound, type), operand(n, b, a, bound, type));
  bool whole = ((a->set | b->set) & ~bound) == free_set(s);
  if (p->outer == NONE && p->guard == NONE && s->red == RED_SUM && plain_lhs(n) && whole &&
      shared == bound) {
    normal_finish(n, RED_SUM, body);
    return true;
  }
  if (p->outer == NONE && p->guard == NONE && s->red == RED_SUM && plain_lhs(n) && whole) {
    // Some bound indices are summed already: the statement keeps the others.
    normal_keep(n, shared, body);
    return true;
  }
  Str name = str_printf("%s.sum", n->f->value.at[s->lhs].name);
  Id sum = normal_value(n, name, (a->set | b->set) & ~bound, RED_SUM, shared, body);
  normal_finish(n, RED_NONE, around(n, p, sum));
  return true;
}

// A weak product: 0 times an infinite or NaN factor, where the guard does not hold, makes the sum
// NaN, and nothing takes a NaN away. So a sum that is no NaN is right, and the others are added up
// once more, every factor under its guard. Kernels skip that where there is none.
static bool checked(Norm *n, Product *p) {
  Module *m = n->m;
  const Stmt *s = &n->s;
  if (!fits_rank(free_set(s))) return false;
  Str name = n->f->value.at[s->lhs].name;
  Norm sub = *n;
  int64_t extent[MAX_RANK];
  sub.s.index = arena_copy(m->arena, s->index, s->nindex * sizeof *s->index);
  sub.s.sub = NEWN(m->arena, Id, MAX_RANK);
  for (uint32_t i = 0; i < s->nfree; i++) {
    extent[i] = s->index[i].extent;
    sub.s.sub[i] = ex_index(m, i);
  }
  sub.s.lhs = fn_value(m, n->f, str_printf("%s.fast", name), m->compute, extent, s->nfree,
                       ROLE_LOCAL, s->loc);
  sub.s.acc = false;
  if (!contract(&sub, p)) return false;
  n->out.at = sub.out.at;
  n->out.n = sub.out.n;
  n->out.cap = sub.out.cap;
  Id fast = ex_read(m, n->f, sub.s.lhs, sub.s.sub), bad = ex2(m, OP_NE, fast, fast);
  Id body = ex3(m, OP_WHERE, bad, s->body, ex_real(m, 0));
  Id again = normal_value(n, str_printf("%s.again", name), free_set(s), s->red,
                          all_set(s) & ~free_set(s), body);
  normal_finish(n, RED_NONE, ex3(m, OP_WHERE, bad, again, fast));
  return true;
}

// Whether some term of the body is a product that deserves to stand alone.
static bool holds_contraction(Norm *n, Id e) {
  Module *m = n->m;
  if (ex_is(m, e, OP_ADD) || ex_is(m, e, OP_SUB))
    return holds_contraction(n, ex_arg(m, e, 0)) || holds_contraction(n, ex_arg(m, e, 1));
  Product p = product_of(n, e, false);
  if (!p.ok) return false;
  absorb(n, &p);
  uint32_t bound = all_set(&n->s) & ~free_set(&n->s);
  return (p.n == 2 && is_contraction(n, &p.part[0], &p.part[1], bound)) || p.n > 2;
}

static Id sum_of_terms(Norm *n, Id e) {
  Module *m = n->m;
  const Stmt *s = &n->s;
  if ((ex_is(m, e, OP_ADD) || ex_is(m, e, OP_SUB)) && holds_contraction(n, e)) {
    Op op = ex(m, e)->op;
    Id a = sum_of_terms(n, ex_arg(m, e, 0));
    return ex2(m, op, a, sum_of_terms(n, ex_arg(m, e, 1)));
  }
  // The term as a separate statement, which is normalised in turn.
  uint32_t bound = all_set(s) & ~free_set(s), free = ex_indices(m, e) & ~bound;
  Str name = str_printf("%s.term", n->f->value.at[s->lhs].name);
  Norm sub = *n;
  int64_t extent[MAX_RANK];
  Id at[MAX_RANK];
  uint32_t rank = 0;
  sub.s.sub = NEWN(m->arena, Id, MAX_RANK);
  for (uint32_t i = 0; i < s->nfree; i++) {
    if (!(free >> i & 1)) continue;
    extent[rank] = s->index[i].extent;
    at[rank++] = ex_index(m, i);
  }
  // Free indices that the term lacks are dropped, so all that is left renumbers.
  Id to[MAX_INDEX];
  memset(to, 0xff, sizeof to);
  sub.s.index = NEWN(m->arena, Index, MAX_INDEX);
  sub.s.nindex = sub.s.nfree = 0;
  for (uint32_t i = 0; i < s->nindex; i++) {
    if (!((free | bound) >> i & 1)) continue;
    to[i] = ex_index(m, sub.s.nindex);
    if (i < s->nfree) sub.s.sub[sub.s.nfree++] = ex_index(m, sub.s.nindex);
    sub.s.index[sub.s.nindex++] = s->index[i];
  }
  sub.s.lhs = fn_value(m, n->f, name, m->compute, extent, rank, ROLE_LOCAL, s->loc);
  sub.s.acc = false;
  sub.s.body = ex_rename(m, e, to, NULL);
  if (!normal_sum(&sub)) PUSH(m->arena, sub.out, sub.s);
  n->out.at = sub.out.at;
  n->out.n = sub.out.n;
  n->out.cap = sub.out.cap;
  return ex_read(m, n->f, sub.s.lhs, at);
}

static bool constant_one(const Product *p) { return p->outer == NONE && p->guard == NONE; }

// Factors out of a sum that is no matrix product.
static bool pull_factors(Norm *n, Product *p) {
  const Stmt *s = &n->s;
  if (!p->n || missing(n, p) || constant_one(p)) return false;
  Id e = NONE;
  uint32_t set = 0;
  for (uint32_t i = 0; i < p->n; i++) times(n->m, &e, p->part[i].e), set |= p->part[i].set;
  uint32_t bound = all_set(s) & ~free_set(s);
  if (!fits_rank(set & ~bound)) return false;
  Str name = str_printf("%s.sum", n->f->value.at[s->lhs].name);
  // The sum alone, which may in turn be of many points.
  Id sum = normal_value(n, name, set & ~bound, RED_SUM, bound, e);
  normal_finish(n, RED_NONE, around(n, p, sum));
  return true;
}

bool normal_sum(Norm *n) {
  Module *m = n->m;
  Stmt *s = &n->s;
  if ((s->red != RED_SUM && s->red != RED_MEAN) || ex(m, s->body)->type != SC_REAL ||
      s->nindex == s->nfree)
    return false;
  if ((ex_is(m, s->body, OP_ADD) || ex_is(m, s->body, OP_SUB)) && fits_rank(free_set(s)) &&
      holds_contraction(n, s->body)) {
    Product none = {.outer = NONE, .guard = NONE};
    bool mean = s->red == RED_MEAN;
    s->red = RED_SUM;
    Id e = sum_of_terms(n, s->body);
    if (mean) s->red = RED_MEAN;
    normal_finish(n, RED_NONE, around(n, &none, e));
    return true;
  }
  Product p = product_of(n, s->body, false), q = p;
  if (p.ok && (q.weak ? checked(n, &q) : contract(n, &q))) return true;
  if (!p.ok || p.weak) p = product_of(n, s->body, true);
  return p.ok && pull_factors(n, &p);
}
