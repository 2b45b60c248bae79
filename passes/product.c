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

typedef struct Operands {
  uint32_t indices[32]; // of each read
  uint32_t n;
} Operands;

static void add_operand(const Module *m, Id read, void *ctx) {
  Operands *o = ctx;
  if (o->n < 32) o->indices[o->n++] = ex_indices(m, read);
}

bool stmt_is_product(const Module *m, const Fn *f, const Stmt *s) {
  Operands o = {.n = 0};
  uint32_t several = 0, bound = 0;
  (void)f;
  if (s->kind != ST_COMP || s->red != RED_SUM) return false;
  for (uint32_t i = 0; i < s->nindex; i++) {
    bool sample = i == 0 && s->nfree > 0 && m->train.microbatch == 1;
    if (s->index[i].extent > 1 || sample) several |= 1u << i;
    if (i >= s->nfree) bound |= 1u << i;
  }
  ex_reads(m, s->body, add_operand, &o);
  for (uint32_t i = 0; i < o.n; i++)
    for (uint32_t j = 0; j < i; j++) {
      ProductSets p = product_sets(o.indices[i], o.indices[j], bound);
      if ((p.row & several) && (p.column & several) && p.sum) return true;
    }
  return false;
}
