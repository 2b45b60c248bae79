#include "codegen/lower/affine.h"

static void add_rest(Affine *a, Id e, int64_t scale) {
  CHECK(a->nrest < 2 * MAX_RANK);
  a->rest[a->nrest].expr = e;
  a->rest[a->nrest++].coef = scale;
}

// (a b c): every index counts by the product of the extents to its right.
static void add_group(const Module *m, const Stmt *s, Id id, int64_t scale, Affine *a) {
  for (uint32_t i = ex(m, id)->narg; i-- > 0;) {
    Id arg = ex_arg(m, id, i);
    affine_add(m, s, arg, scale, a);
    if (i) scale *= s->index[ex(m, arg)->integer].extent;
  }
}

void affine_add(const Module *m, const Stmt *s, Id id, int64_t scale, Affine *a) {
  const Expr *e = ex(m, id);
  switch (e->op) {
  case OP_INT: a->base += scale * e->integer; return;
  case OP_INDEX: a->coef[e->integer] += scale; return;
  case OP_GROUP: add_group(m, s, id, scale, a); return;
  case OP_NEG: affine_add(m, s, ex_arg(m, id, 0), -scale, a); return;
  case OP_ADD:
  case OP_SUB:
    affine_add(m, s, ex_arg(m, id, 0), scale, a);
    affine_add(m, s, ex_arg(m, id, 1), e->op == OP_ADD ? scale : -scale, a);
    return;
  case OP_MUL:
    for (uint32_t i = 0; i < 2; i++) {
      const Expr *c = ex(m, ex_arg(m, id, i));
      if (c->op == OP_INT) {
        affine_add(m, s, ex_arg(m, id, 1 - i), scale * c->integer, a);
        return;
      }
    }
    add_rest(a, id, scale);
    return;
  default: add_rest(a, id, scale); return;
  }
}

Affine affine_of(const Module *m, const Stmt *s, Id e) {
  Affine a = {0};
  affine_add(m, s, e, 1, &a);
  return a;
}

Affine affine_read(const Module *m, const Layout *layout, const Stmt *s, Id read) {
  const Expr *e = ex(m, read);
  const Layout *l = &layout[e->integer];
  Affine a = {.base = l->offset};
  for (uint32_t d = 0; d < e->narg; d++) affine_add(m, s, ex_arg(m, read, d), l->stride[d], &a);
  return a;
}

Affine affine_lhs(const Module *m, const Fn *f, const Layout *layout, const Stmt *s) {
  const Layout *l = &layout[s->lhs];
  Affine a = {.base = l->offset};
  for (uint32_t d = 0; d < f->value.at[s->lhs].rank; d++)
    affine_add(m, s, s->sub[d], l->stride[d], &a);
  return a;
}

bool affine_inside(const Module *m, const Stmt *s, Id e, int64_t extent) {
  Affine a = affine_of(m, s, e);
  if (a.nrest) return false;
  int64_t lo = a.base, hi = a.base;
  for (uint32_t i = 0; i < s->nindex; i++) {
    int64_t span = a.coef[i] * (s->index[i].extent - 1);
    if (span > 0) hi += span;
    else lo += span;
  }
  return lo >= 0 && hi < extent;
}

uint32_t affine_rest_indices(const Module *m, const Affine *a) {
  uint32_t set = 0;
  for (uint32_t r = 0; r < a->nrest; r++) set |= ex_indices(m, a->rest[r].expr);
  return set;
}
