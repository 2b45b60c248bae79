// Products as pass precision sees them: of any extents.
#include "passes/precision/types.h"
#include "passes/product.h"

bool is_product(const Module *m, const Stmt *s) { return product_terms(m, s, ~0u, NULL, NULL); }

typedef struct Visit {
  void (*visit)(Id value, void *ctx);
  void *ctx;
} Visit;

static void visit_reads(const Module *m, const ProductTerm *t, void *ctx) {
  const Visit *v = ctx;
  for (uint32_t i = 0; i < t->n; i++)
    if (ex_is(m, t->factor[i], OP_READ)) v->visit((Id)ex(m, t->factor[i])->integer, v->ctx);
}

void product_operands(const Module *m, const Stmt *s, void (*visit)(Id value, void *ctx), void *ctx) {
  product_terms(m, s, ~0u, visit_reads, &(Visit){visit, ctx});
}

bool is_renaming(const Module *m, const Fn *f, const Stmt *s) {
  return s->kind == ST_COMP && !s->acc && s->red == RED_NONE && ex_is(m, s->body, OP_READ) &&
         is_real(&f->value.at[s->lhs]);
}
