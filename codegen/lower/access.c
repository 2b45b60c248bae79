// What statements touch: their accesses as linear forms, the indices that they use otherwise, and their operations.
#include "codegen/lower/fuse.h"

typedef struct Accesses {
  const Fuse *u;
  const Stmt *s;
  AccessVisit *visit;
  void *ctx;
} Accesses;

static void visit_read(const Module *m, Id read, void *ctx) {
  Accesses *x = ctx;
  Affine a = affine_read(m, x->u->fp->layout, x->s, read);
  x->visit(x->u, x->s, read, &a, x->ctx);
}

void fuse_accesses(const Fuse *u, const Stmt *s, AccessVisit *visit, void *ctx) {
  Accesses x = {u, s, visit, ctx};
  comp_reads(u->m, u->f, s, visit_read, &x);
  Affine a = affine_lhs(u->m, u->f, u->fp->layout, s);
  visit(u, s, NONE, &a, ctx);
}

// INDEX and GROUP nodes that are not subscripts.
static uint32_t bare_values(const Module *m, Id id) {
  const Expr *e = ex(m, id);
  if (e->op == OP_READ) return 0; // its subscripts: see rest_of
  if (e->op == OP_INDEX || e->op == OP_GROUP) return ex_indices(m, id);
  uint32_t set = 0;
  for (uint32_t i = 0; i < e->narg; i++) set |= bare_values(m, ex_arg(m, id, i));
  return set;
}

static void rest_of(const Fuse *u, const Stmt *s, Id read, const Affine *a, void *ctx) {
  (void)s, (void)read;
  *(uint32_t *)ctx |= affine_rest_indices(u->m, a);
}

uint32_t fuse_value_indices(const Fuse *u, const Stmt *s) {
  uint32_t set = bare_values(u->m, s->body);
  fuse_accesses(u, s, rest_of, &set);
  return set;
}

double fuse_flops(const Module *m, Id id) {
  const Expr *e = ex(m, id);
  double n = 0;
  for (uint32_t i = 0; i < e->narg; i++) n += fuse_flops(m, ex_arg(m, id, i));
  if (e->op == OP_READ || e->op == OP_GROUP) return 0;
  return e->type == SC_REAL && op_info[e->op].rule != RULE_LEAF ? n + (e->op == OP_FMA ? 2 : 1) : n;
}

bool fuse_has_random(const Module *m, Id id) {
  const Expr *e = ex(m, id);
  if (e->op == OP_RANDOM) return true;
  for (uint32_t i = 0; i < e->narg; i++)
    if (fuse_has_random(m, ex_arg(m, id, i))) return true;
  return false;
}

Id nest_condition(const Module *m, const Stmt *s) {
  bool sum = s->red == RED_SUM || s->red == RED_MEAN;
  if (!sum || !ex_is(m, s->body, OP_WHERE)) return NONE;
  Id cond = ex_arg(m, s->body, 0), zero = ex_arg(m, s->body, 2);
  bool none = ex_is(m, zero, OP_REAL) ? ex(m, zero)->real == 0 : ex_is(m, zero, OP_INT) && !ex(m, zero)->integer;
  return none && !(ex_indices(m, cond) >> s->nfree) ? cond : NONE;
}
