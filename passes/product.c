#include "passes/product.h"

ProductSets product_sets(uint32_t a, uint32_t b, uint32_t summed) {
  return (ProductSets){.row = a & ~b & ~summed,
                       .column = b & ~a & ~summed,
                       .sum = a & b & summed,
                       .batch = a & b & ~summed,
                       .alone = summed & ~(a & b)};
}

bool product_is_large(const Limits *least, double rows, double columns, double terms, double work) {
  return rows >= (double)least->product_side && columns >= (double)least->product_side &&
         terms >= (double)least->product_sum && work >= (double)least->product_work;
}

enum { MOST = sizeof((ProductTerm){0}.factor) / sizeof(Id) };

static bool is_zero(const Module *m, Id e) { return ex_is(m, e, OP_REAL) && ex(m, e)->real == 0; }

static void add_factors(const Module *m, Id e, ProductTerm *t) {
  if (ex_is(m, e, OP_MUL) || ex_is(m, e, OP_DIV)) {
    add_factors(m, ex_arg(m, e, 0), t);
    add_factors(m, ex_arg(m, e, 1), t);
  } else if (ex_is(m, e, OP_NEG)) {
    add_factors(m, ex_arg(m, e, 0), t);
  } else if (ex_is(m, e, OP_WHERE) && is_zero(m, ex_arg(m, e, 2))) {
    add_factors(m, ex_arg(m, e, 1), t);
  } else if (t->n < MOST) {
    t->factor[t->n++] = e;
  }
}

static bool has_two_sides(const Module *m, const ProductTerm *t, uint32_t summed, uint32_t counted) {
  for (uint32_t i = 0; i < t->n; i++)
    for (uint32_t j = 0; j < i; j++) {
      ProductSets p = product_sets(ex_indices(m, t->factor[i]), ex_indices(m, t->factor[j]), summed);
      if ((p.row & counted) && (p.column & counted) && p.sum) return true;
    }
  return false;
}

typedef struct Walk {
  const Module *m;
  uint32_t summed, counted;
  ProductVisit *visit;
  void *ctx;
} Walk;

static bool each_term(const Walk *w, Id e) {
  const Module *m = w->m;
  if (ex_is(m, e, OP_ADD) || ex_is(m, e, OP_SUB)) {
    bool a = each_term(w, ex_arg(m, e, 0));
    return each_term(w, ex_arg(m, e, 1)) || a;
  }
  ProductTerm t = {.n = 0};
  add_factors(m, e, &t);
  if (!has_two_sides(m, &t, w->summed, w->counted)) return false;
  if (w->visit) w->visit(m, &t, w->ctx);
  return true;
}

bool product_terms(const Module *m, const Stmt *s, uint32_t counted, ProductVisit *visit, void *ctx) {
  uint32_t free = (uint32_t)((UINT64_C(1) << s->nfree) - 1);
  if (s->kind != ST_COMP || (s->red != RED_SUM && s->red != RED_MEAN) || ex(m, s->body)->type != SC_REAL) return false;
  return each_term(&(Walk){m, ~free, counted, visit, ctx}, s->body);
}

bool stmt_is_product(const Module *m, const Stmt *s) {
  uint32_t several = 0;
  for (uint32_t i = 0; s->kind == ST_COMP && i < s->nindex; i++) {
    bool sample = i == 0 && s->nfree > 0 && m->train.microbatch == 1;
    if (s->index[i].extent > 1 || sample) several |= 1u << i;
  }
  return product_terms(m, s, several, NULL, NULL);
}
