#include "passes/bounds.h"

#include "passes/util.h"

static bool fits32(int64_t v) { return v >= INT32_MIN && v <= INT32_MAX; }
static int64_t floor_div(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static Bounds exact(int64_t lo, int64_t hi) { return (Bounds){lo, hi, fits32(lo) && fits32(hi)}; }

static Bounds group_bounds(const Module *m, const Stmt *s, Id id) {
  const Expr *e = ex(m, id);
  Bounds r = expr_bounds(m, s, ex_arg(m, id, 0));
  for (uint32_t i = 1; i < e->narg && r.known; i++) {
    int64_t n = s->index[ex(m, ex_arg(m, id, i))->integer].extent;
    r = exact(r.lo * n, r.hi * n + n - 1);
  }
  return r;
}

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

static Bounds product_bounds(Bounds a, Bounds b) {
  int64_t p = a.lo * b.lo, q = a.lo * b.hi, r = a.hi * b.lo, s = a.hi * b.hi;
  return exact(min64(min64(p, q), min64(r, s)), max64(max64(p, q), max64(r, s)));
}

// Bounds of an int expression that does not wrap.
Bounds expr_bounds(const Module *m, const Stmt *s, Id id) {
  const Expr *e = ex(m, id);
  Bounds a = {0, 0, false}, b = a;
  if (e->op == OP_INT) return exact(e->integer, e->integer);
  if (e->op == OP_INDEX) return exact(0, s->index[e->integer].extent - 1);
  if (e->op == OP_GROUP) return group_bounds(m, s, id);
  if (e->op == OP_WHERE && e->type == SC_INT) {
    a = expr_bounds(m, s, ex_arg(m, id, 1)), b = expr_bounds(m, s, ex_arg(m, id, 2));
    return a.known && b.known ? exact(min64(a.lo, b.lo), max64(a.hi, b.hi))
                              : (Bounds){0, 0, false};
  }
  if (e->op == OP_READ || e->type != SC_INT || !e->narg || e->narg > 2) return a;
  a = expr_bounds(m, s, ex_arg(m, id, 0));
  b = e->narg > 1 ? expr_bounds(m, s, ex_arg(m, id, 1)) : a;
  if (!a.known || !b.known) return (Bounds){0, 0, false};
  switch (e->op) {
  case OP_NEG: return exact(-a.hi, -a.lo);
  case OP_ADD: return exact(a.lo + b.lo, a.hi + b.hi);
  case OP_SUB: return exact(a.lo - b.hi, a.hi - b.lo);
  case OP_MUL: return product_bounds(a, b);
  case OP_MIN: return exact(min64(a.lo, b.lo), min64(a.hi, b.hi));
  case OP_MAX: return exact(max64(a.lo, b.lo), max64(a.hi, b.hi));
  case OP_IDIV:
    return b.lo == b.hi && b.lo > 0 ? exact(floor_div(a.lo, b.lo), floor_div(a.hi, b.lo))
                                    : (Bounds){0, 0, false};
  case OP_MOD:
    if (b.lo != b.hi || b.lo <= 0) return (Bounds){0, 0, false};
    return a.lo >= 0 && a.hi < b.lo ? a : exact(0, b.lo - 1);
  default: return (Bounds){0, 0, false};
  }
}

Id reduction_identity(Module *m, const Stmt *s, Id body) {
  bool max = s->red == RED_MAX;
  Scalar type = (Scalar)ex(m, body)->type;
  if (!max && s->red != RED_MIN) return ex_zero(m, type);
  if (type == SC_REAL) return ex_real(m, max ? -__builtin_inf() : __builtin_inf());
  Bounds b = expr_bounds(m, s, body);
  if (b.known) return ex_int(m, max ? b.lo : b.hi);
  return ex_int(m, max ? INT32_MIN : INT32_MAX);
}

static bool subscript_inside(const Module *m, const Stmt *s, Id sub, int64_t extent) {
  Bounds b = expr_bounds(m, s, sub);
  return b.known && b.lo >= 0 && b.hi < extent;
}

bool expr_safe(const Module *m, const Fn *f, const Stmt *s, Id id) {
  const Expr *e = ex(m, id);
  for (uint32_t i = 0; i < e->narg; i++) {
    Id a = ex_arg(m, id, i);
    if (e->op == OP_READ && !subscript_inside(m, s, a, f->value.at[e->integer].extent[i]))
      return false;
    if (!expr_safe(m, f, s, a)) return false;
  }
  return true;
}
