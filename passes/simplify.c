// simplify: the same program with less in it.
//
// Does: folds constants and what extents decide (guards that always or never hold, // and % of
//       indices), takes out statements that say what an earlier one said, values that are
//       constants, and what no result depends on.
// Requires: flat functions, not cut over a mesh.
// Guarantees: the same results to the last bit, but for the sign of a zero (x + 0 is x), a pow by
//       a small whole exponent (x^2, x^3, x^4 by multiplication: as exact as pow or more), and
//       reals folded in the precision that the program computes in. Nothing is folded that may be
//       NaN or infinite (x * 0).
// Invalidates: positions of statements and values.
#include "ir/layout.h"
#include "passes/bounds.h"
#include "passes/passes.h"
#include "passes/util.h"

#include <math.h>
#include <stdlib.h>

typedef struct Simplify {
  Module *m;
  Fn *f;
  const Stmt *s; // whose indices expressions name
  Id *memo; // for each expression of the statement: its replacement, or NONE
  uint32_t nmemo;
  Id *constant; // for each value: the constant that all its elements are, or NONE
  Id *same; // for each value: the earlier one that equals it, or NONE
} Simplify;

// An integer of any size that 32 bits hold: folding it does not depend on where it stands.
static bool fits32(int64_t v) { return v >= INT32_MIN && v <= INT32_MAX; }

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t floor_div(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static bool is_int(const Module *m, Id e, int64_t v) {
  return ex_is(m, e, OP_INT) && ex(m, e)->integer == v;
}
static bool is_real(const Module *m, Id e, double v) {
  return ex_is(m, e, OP_REAL) && ex(m, e)->real == v;
}

// ---- arithmetic on constants, rounded as the program would

static double round_real(const Module *m, double v) { return m->compute == DT_F32 ? (float)v : v; }

static Id fold_reals(Module *m, Op op, double a, double b) {
  switch (op) {
  case OP_ADD: return ex_real(m, round_real(m, a + b));
  case OP_SUB: return ex_real(m, round_real(m, a - b));
  case OP_MUL: return ex_real(m, round_real(m, a * b));
  case OP_DIV: return b != 0 ? ex_real(m, round_real(m, a / b)) : NONE;
  case OP_LT: return ex_bool(m, a < b);
  case OP_LE: return ex_bool(m, a <= b);
  case OP_GT: return ex_bool(m, a > b);
  case OP_GE: return ex_bool(m, a >= b);
  case OP_EQ: return ex_bool(m, a == b);
  case OP_NE: return ex_bool(m, a != b);
  default: return NONE;
  }
}

static Id int_or_none(Module *m, int64_t v) { return fits32(v) ? ex_int(m, v) : NONE; }

static Id fold_ints(Module *m, Op op, int64_t a, int64_t b) {
  switch (op) {
  case OP_ADD: return int_or_none(m, a + b);
  case OP_SUB: return int_or_none(m, a - b);
  case OP_MUL: return int_or_none(m, a * b);
  case OP_IDIV: return b ? int_or_none(m, floor_div(a, b)) : NONE;
  case OP_MOD: return b ? int_or_none(m, a - b * floor_div(a, b)) : NONE;
  case OP_MIN: return ex_int(m, min64(a, b));
  case OP_MAX: return ex_int(m, max64(a, b));
  default: return NONE;
  }
}

static Id fold_constants(Module *m, Op op, const Id *arg, uint32_t n) {
  const Expr *a = ex(m, arg[0]), *b = ex(m, arg[n - 1]);
  if (n == 1 && a->op == OP_REAL && op == OP_NEG) return ex_real(m, -a->real);
  if (n == 1 && a->op == OP_REAL && op == OP_SQRT && a->real >= 0)
    return ex_real(m, round_real(m, sqrt(round_real(m, a->real))));
  if (n == 1 && a->op == OP_INT && op == OP_NEG) return int_or_none(m, -a->integer);
  if (n == 1 && a->op == OP_INT && op == OP_TO_REAL)
    return ex_real(m, round_real(m, (double)a->integer));
  if (n == 1 && a->op == OP_BOOL && op == OP_NOT) return ex_bool(m, !a->integer);
  if (n == 1 && a->op == OP_BOOL && op == OP_TO_REAL) return ex_real(m, (double)a->integer);
  if (n == 1 && a->op == OP_BOOL && op == OP_TO_INT) return ex_int(m, a->integer);
  if (n != 2 || a->op != b->op) return NONE;
  if (a->op == OP_REAL) return fold_reals(m, op, round_real(m, a->real), round_real(m, b->real));
  return a->op == OP_INT ? fold_ints(m, op, a->integer, b->integer) : NONE;
}

// ---- identities

static Id compare(const Simplify *p, Op op, Id x, Id y) {
  if (ex(p->m, x)->type != SC_INT) return NONE;
  if (x == y) return ex_bool(p->m, op == OP_LE || op == OP_GE || op == OP_EQ);
  Bounds a = expr_bounds(p->m, p->s, x), b = expr_bounds(p->m, p->s, y);
  if (!a.known || !b.known) return NONE;
  bool below = a.hi < b.lo, above = a.lo > b.hi; // always
  bool most = a.hi <= b.lo, least = a.lo >= b.hi;
  switch (op) {
  case OP_LT: return below ? ex_bool(p->m, true) : least ? ex_bool(p->m, false) : NONE;
  case OP_LE: return most ? ex_bool(p->m, true) : above ? ex_bool(p->m, false) : NONE;
  case OP_GT: return above ? ex_bool(p->m, true) : most ? ex_bool(p->m, false) : NONE;
  case OP_GE: return least ? ex_bool(p->m, true) : below ? ex_bool(p->m, false) : NONE;
  case OP_EQ: return below || above ? ex_bool(p->m, false) : NONE;
  case OP_NE: return below || above ? ex_bool(p->m, true) : NONE;
  default: return NONE;
  }
}

// A sum of terms `multiple` times n, plus what lies within [0, n): the parts of // and %.
static bool split_by(const Simplify *p, Id x, int64_t n, Id *quotient, Id *rest) {
  Module *m = p->m;
  const Expr *e = ex(m, x);
  Bounds r = expr_bounds(m, p->s, x);
  if (r.known && r.lo >= 0 && r.hi < n) return *quotient = ex_int(m, 0), *rest = x, true;
  if (e->op == OP_MUL) {
    for (uint32_t i = 0; i < 2; i++) {
      Id c = ex_arg(m, x, i), other = ex_arg(m, x, 1 - i);
      if (!ex_is(m, c, OP_INT) || ex(m, c)->integer % n) continue;
      *quotient = fold_mul(m, ex_int(m, ex(m, c)->integer / n), other);
      return *rest = ex_int(m, 0), true;
    }
    return false;
  }
  if (e->op == OP_GROUP && e->narg == 2) {
    Id inner = ex_arg(m, x, 1);
    if (p->s->index[ex(m, inner)->integer].extent != n) return false;
    return *quotient = ex_arg(m, x, 0), *rest = inner, true;
  }
  if (e->op != OP_ADD || !r.known) return false;
  Id qa, ra, qb, rb, a = ex_arg(m, x, 0), b = ex_arg(m, x, 1);
  if (!split_by(p, a, n, &qa, &ra) || !split_by(p, b, n, &qb, &rb)) return false;
  *rest = fold_add(m, ra, rb);
  Bounds whole = expr_bounds(m, p->s, *rest);
  *quotient = fold_add(m, qa, qb);
  return whole.known && whole.lo >= 0 && whole.hi < n;
}

static Id int_identity(const Simplify *p, Op op, Id a, Id b) {
  Module *m = p->m;
  Id quotient, rest;
  switch (op) {
  case OP_ADD: return is_int(m, a, 0) ? b : is_int(m, b, 0) ? a : NONE;
  case OP_SUB: return is_int(m, b, 0) ? a : a == b ? ex_int(m, 0) : NONE;
  case OP_MUL:
    if (is_int(m, a, 0) || is_int(m, b, 0)) return ex_int(m, 0);
    return is_int(m, a, 1) ? b : is_int(m, b, 1) ? a : NONE;
  case OP_IDIV:
  case OP_MOD:
    if (is_int(m, b, 1)) return op == OP_IDIV ? a : ex_int(m, 0);
    if (!ex_is(m, b, OP_INT) || ex(m, b)->integer <= 0 || !expr_bounds(m, p->s, a).known)
      return NONE;
    if (!split_by(p, a, ex(m, b)->integer, &quotient, &rest)) return NONE;
    return op == OP_IDIV ? quotient : rest;
  default: return NONE;
  }
}

static bool power_of_two(double v) {
  int exponent;
  return isfinite(v) && fabs(frexp(v, &exponent)) == 0.5 && abs(exponent) < 64;
}

static Id power(Module *m, Id x, Id y) {
  if (is_real(m, y, 1)) return x;
  if (is_real(m, y, 2)) return ex2(m, OP_MUL, x, x);
  if (is_real(m, y, 3)) return ex2(m, OP_MUL, ex2(m, OP_MUL, x, x), x);
  if (is_real(m, y, 4)) return ex2(m, OP_MUL, ex2(m, OP_MUL, x, x), ex2(m, OP_MUL, x, x));
  if (is_real(m, y, -1)) return ex2(m, OP_DIV, ex_real(m, 1), x);
  if (is_real(m, y, 0)) return ex_real(m, 1);
  return NONE;
}

static Id real_identity(Module *m, Op op, Id a, Id b) {
  bool na = ex_is(m, a, OP_NEG), nb = ex_is(m, b, OP_NEG);
  switch (op) {
  case OP_ADD:
    if (is_real(m, a, 0)) return b;
    if (is_real(m, b, 0)) return a;
    return nb ? ex2(m, OP_SUB, a, ex_arg(m, b, 0)) : na ? ex2(m, OP_SUB, b, ex_arg(m, a, 0)) : NONE;
  case OP_SUB:
    if (is_real(m, b, 0)) return a;
    if (is_real(m, a, 0)) return ex1(m, OP_NEG, b);
    return nb ? ex2(m, OP_ADD, a, ex_arg(m, b, 0)) : NONE;
  case OP_MUL:
    if (is_real(m, a, 1)) return b;
    if (is_real(m, b, 1)) return a;
    if (is_real(m, a, -1)) return ex1(m, OP_NEG, b);
    if (is_real(m, b, -1)) return ex1(m, OP_NEG, a);
    return na && nb ? ex2(m, OP_MUL, ex_arg(m, a, 0), ex_arg(m, b, 0)) : NONE;
  case OP_DIV:
    if (is_real(m, b, 1)) return a;
    if (ex_is(m, b, OP_REAL) && power_of_two(ex(m, b)->real))
      return ex2(m, OP_MUL, a, ex_real(m, 1 / ex(m, b)->real));
    return NONE;
  case OP_POW: return power(m, a, b);
  default: return NONE;
  }
}

static Id bool_identity(Module *m, Op op, Id a, Id b) {
  for (int i = 0; i < 2; i++) {
    Id x = i ? b : a, other = i ? a : b;
    if (!ex_is(m, x, OP_BOOL)) continue;
    bool decides = ex(m, x)->integer == (op == OP_OR);
    return decides ? x : other;
  }
  return a == b ? a : NONE;
}

static Id where(Module *m, Id c, Id a, Id b) {
  if (ex_is(m, c, OP_BOOL)) return ex(m, c)->integer ? a : b;
  if (a == b) return a;
  if (ex_is(m, c, OP_NOT)) return ex3(m, OP_WHERE, ex_arg(m, c, 0), b, a);
  // The same condition again within a branch.
  if (ex_is(m, a, OP_WHERE) && ex_arg(m, a, 0) == c) return ex3(m, OP_WHERE, c, ex_arg(m, a, 1), b);
  if (ex_is(m, b, OP_WHERE) && ex_arg(m, b, 0) == c) return ex3(m, OP_WHERE, c, a, ex_arg(m, b, 2));
  return NONE;
}

static Id rewrite(const Simplify *p, Op op, const Id *arg, uint32_t n) {
  Module *m = p->m;
  Id r = fold_constants(m, op, arg, n);
  if (r != NONE) return r;
  if (op == OP_NEG && ex_is(m, arg[0], OP_NEG)) return ex_arg(m, arg[0], 0);
  if (op == OP_NOT && ex_is(m, arg[0], OP_NOT)) return ex_arg(m, arg[0], 0);
  if (op == OP_WHERE) return where(m, arg[0], arg[1], arg[2]);
  if (op == OP_AND || op == OP_OR) return bool_identity(m, op, arg[0], arg[1]);
  if (op >= OP_LT && op <= OP_NE) return compare(p, op, arg[0], arg[1]);
  if ((op == OP_MIN || op == OP_MAX) && arg[0] == arg[1]) return arg[0];
  if (n != 2) return NONE;
  return ex(m, arg[0])->type == SC_INT ? int_identity(p, op, arg[0], arg[1])
                                       : real_identity(m, op, arg[0], arg[1]);
}

// Constants are at hand; values of constants and of earlier statements are replaced.
static Id leaf(Simplify *p, Id id, const Expr *e, const Id *arg) {
  if (e->op != OP_READ) return ex_like(p->m, id, e->integer, arg);
  Id v = (Id)e->integer;
  if (p->constant[v] != NONE) return p->constant[v];
  return ex_like(p->m, id, p->same[v] != NONE ? p->same[v] : v, arg);
}

static Id simplify(Simplify *p, Id id) {
  if (id < p->nmemo && p->memo[id] != NONE) return p->memo[id];
  Expr e = *ex(p->m, id);
  Id arg[64], r;
  CHECK(e.narg <= 64);
  for (uint32_t i = 0; i < e.narg; i++) arg[i] = simplify(p, ex_arg(p->m, id, i));
  if (e.op == OP_GROUP) {
    r = e.narg == 1 ? arg[0] : ex_group(p->m, arg, e.narg);
  } else if (op_info[e.op].rule == RULE_LEAF) {
    r = leaf(p, id, &e, arg);
  } else {
    r = rewrite(p, e.op, arg, e.narg);
    if (r == NONE) r = ex_op(p->m, e.op, arg, e.narg);
    else if (ex(p->m, r)->narg)
      r = simplify(p, r); // ends: every identity makes the expression smaller, or a
  }                                                 // sum or product of what needs none
  if (id < p->nmemo) p->memo[id] = r;
  return r;
}

static Id simplify_in(Simplify *p, const Stmt *s, Id e) {
  p->s = s;
  p->nmemo = p->m->expr.n;
  p->memo = malloc(p->nmemo * sizeof(Id));
  ALLOCATED(p->memo);
  memset(p->memo, 0xff, p->nmemo * sizeof(Id));
  Id r = simplify(p, e);
  free(p->memo);
  return r;
}

// ---- statements

static bool is_result(const Fn *f, Id v) {
  for (uint32_t i = 0; i < f->result.n; i++)
    if (f->result.at[i] == v) return true;
  return false;
}

static bool constant_body(const Module *m, Id e) {
  return ex_is(m, e, OP_REAL) || ex_is(m, e, OP_INT) || ex_is(m, e, OP_BOOL);
}

static bool same_layout(const Simplify *p, const Stmt *a, const Stmt *b) {
  const Value *x = &p->f->value.at[a->lhs], *y = &p->f->value.at[b->lhs];
  for (uint32_t i = 0; i < p->m->axis.n; i++) {
    Assign g = a->assign[i], h = b->assign[i];
    if (g.kind != h.kind || g.index != h.index || g.block != h.block) return false;
  }
  return layout_same(p->m, x->shard, y->shard);
}

// A constant is whole: a part of it on each rank is something else.
static bool is_whole(const Simplify *p, const Value *v) {
  static const Shard whole[MAX_AXIS];
  return layout_same(p->m, v->shard, whole);
}

static bool same_statement(const Simplify *p, const Stmt *a, const Stmt *b) {
  const Value *x = &p->f->value.at[a->lhs], *y = &p->f->value.at[b->lhs];
  if (!same_layout(p, a, b)) return false;
  if (a->red != b->red || a->nfree != b->nfree || a->nindex != b->nindex || a->body != b->body)
    return false;
  if (x->type != y->type || x->rank != y->rank ||
      memcmp(x->extent, y->extent, x->rank * sizeof *x->extent))
    return false;
  for (uint32_t i = 0; i < a->nindex; i++)
    if (a->index[i].extent != b->index[i].extent || a->index[i].on != b->index[i].on ||
        a->index[i].off != b->index[i].off)
      return false;
  return !x->rank || !memcmp(a->sub, b->sub, x->rank * sizeof(Id));
}

// A later statement that repeats an earlier one gives its value up, unless the caller wants it.
static void find_same(Simplify *p, uint32_t at) {
  const Stmt *s = &p->f->stmt.at[at];
  if (s->kind != ST_COMP || s->acc || is_result(p->f, s->lhs)) return;
  for (uint32_t i = 0; i < at; i++) {
    const Stmt *t = &p->f->stmt.at[i];
    if (t->kind != ST_COMP || t->acc || p->same[t->lhs] != NONE || !same_statement(p, t, s))
      continue;
    p->same[s->lhs] = t->lhs;
    return;
  }
}

// The left side, unless an index would go from it: a repeated addition needs its index.
static void simplify_left(Simplify *p, Stmt *s) {
  uint32_t rank = p->f->value.at[s->lhs].rank, before = 0, after = 0;
  Id sub[MAX_RANK];
  for (uint32_t d = 0; d < rank; d++) {
    sub[d] = simplify_in(p, s, s->sub[d]);
    before |= ex_indices(p->m, s->sub[d]);
    after |= ex_indices(p->m, sub[d]);
  }
  if (before == after && rank) memcpy(s->sub, sub, rank * sizeof *sub);
}

static void simplify_stmt(Simplify *p, uint32_t at) {
  Stmt *s = &p->f->stmt.at[at];
  if (s->kind != ST_COMP) {
    for (uint32_t i = 0; i < s->call->narg; i++) {
      Id v = s->call->arg[i].value;
      if (v != NONE && p->same[v] != NONE) s->call->arg[i].value = p->same[v];
    }
    return;
  }
  s->body = simplify_in(p, s, s->body);
  simplify_left(p, s);
  find_same(p, at);
  const Value *v = &p->f->value.at[s->lhs];
  if (s->acc || s->red != RED_NONE || !constant_body(p->m, s->body) || !is_whole(p, v)) return;
  Id e = s->body;
  if (v->type == DT_F32 && ex_is(p->m, e, OP_REAL)) e = ex_real(p->m, (float)ex(p->m, e)->real);
  if (v->type != DT_BF16 && v->type != DT_F16) p->constant[s->lhs] = e;
}

static void simplify_fn(Module *m, Id id) {
  Simplify p = {.m = m, .f = &m->fn.at[id]};
  p.constant = NEWN(m->arena, Id, p.f->value.n);
  p.same = NEWN(m->arena, Id, p.f->value.n);
  memset(p.constant, 0xff, p.f->value.n * sizeof(Id));
  memset(p.same, 0xff, p.f->value.n * sizeof(Id));
  for (uint32_t i = 0; i < p.f->stmt.n; i++) simplify_stmt(&p, i);
  fn_remove_dead(m, p.f, NULL);
  fn_compact(m, p.f);
}

bool pass_simplify(Module *m) {
  for (Id f = 0; f < m->fn.n; f++) simplify_fn(m, f);
  return true;
}
