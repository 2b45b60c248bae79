// What is a matrix product before its statement is brought into the normal form.
#include "passes/precision/types.h"

enum { MOST = 16 };
typedef struct Factors {
  Id at[MOST];
  uint32_t n;
} Factors;

static bool is_zero(const Module *m, Id e) { return ex_is(m, e, OP_REAL) && ex(m, e)->real == 0; }

static void add_factors(const Module *m, Id e, Factors *f) {
  if (ex_is(m, e, OP_MUL) || ex_is(m, e, OP_DIV)) {
    add_factors(m, ex_arg(m, e, 0), f);
    add_factors(m, ex_arg(m, e, 1), f);
  } else if (ex_is(m, e, OP_NEG)) {
    add_factors(m, ex_arg(m, e, 0), f);
  } else if (ex_is(m, e, OP_WHERE) && is_zero(m, ex_arg(m, e, 2))) {
    add_factors(m, ex_arg(m, e, 1), f);
  } else if (f->n < MOST) {
    f->at[f->n++] = e;
  }
}

static bool has_two_sides(const Module *m, const Stmt *s, const Factors *f) {
  uint32_t free = (uint32_t)((UINT64_C(1) << s->nfree) - 1);
  for (uint32_t i = 0; i < f->n; i++)
    for (uint32_t j = 0; j < i; j++) {
      uint32_t a = ex_indices(m, f->at[i]), b = ex_indices(m, f->at[j]);
      if ((a & ~b & free) && (b & ~a & free) && (a & b & ~free)) return true;
    }
  return false;
}

typedef void Term(const Module *m, const Factors *f, void *ctx);

// Visits the terms that are products; returns whether there are any.
static bool each_term(const Module *m, const Stmt *s, Id e, Term *visit, void *ctx) {
  if (ex_is(m, e, OP_ADD) || ex_is(m, e, OP_SUB)) {
    bool a = each_term(m, s, ex_arg(m, e, 0), visit, ctx);
    return each_term(m, s, ex_arg(m, e, 1), visit, ctx) || a;
  }
  Factors f = {.n = 0};
  add_factors(m, e, &f);
  if (!has_two_sides(m, s, &f)) return false;
  if (visit) visit(m, &f, ctx);
  return true;
}

bool is_product(const Module *m, const Stmt *s) {
  return s->kind == ST_COMP && (s->red == RED_SUM || s->red == RED_MEAN) &&
         ex(m, s->body)->type == SC_REAL && each_term(m, s, s->body, NULL, NULL);
}

typedef struct Visit {
  void (*visit)(Id value, void *ctx);
  void *ctx;
} Visit;

static void visit_reads(const Module *m, const Factors *f, void *ctx) {
  const Visit *v = ctx;
  for (uint32_t i = 0; i < f->n; i++)
    if (ex_is(m, f->at[i], OP_READ)) v->visit((Id)ex(m, f->at[i])->integer, v->ctx);
}

void product_operands(const Module *m, const Stmt *s, void (*visit)(Id value, void *ctx), void *ctx) {
  if (is_product(m, s)) each_term(m, s, s->body, visit_reads, &(Visit){visit, ctx});
}

bool is_renaming(const Module *m, const Fn *f, const Stmt *s) {
  return s->kind == ST_COMP && !s->acc && s->red == RED_NONE && ex_is(m, s->body, OP_READ) &&
         is_real(&f->value.at[s->lhs]);
}
