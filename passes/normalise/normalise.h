// Private to passes/normalise*.c: statements on their way to the normal form.
#ifndef DTC_PASSES_NORMAL_H
#define DTC_PASSES_NORMAL_H

#include "ir/ir.h"

typedef struct Norm {
  Module *m;
  Fn *f;
  VEC(Stmt) out; // the new list
  Stmt s; // the statement at hand: its indices are what expressions name
} Norm;

static inline uint32_t free_set(const Stmt *s) { return (1u << s->nfree) - 1; }
static inline uint32_t all_set(const Stmt *s) { return (uint32_t)((1ull << s->nindex) - 1); }
double normal_points(const Stmt *s, uint32_t set); // product of the extents

// A new statement `name[i in free] = red(j in bound: body)`, body in the indices of n->s; returns a
// read of it there. A value that an earlier one computed is not computed again.
Id normal_value(Norm *n, Str name, uint32_t free, Red red, uint32_t bound, Id body);
// The same in another type than is computed in, where the body is real.
Id normal_operand(Norm *n, Str name, Dtype real, uint32_t free, Red red, uint32_t bound, Id body);
// Appends a statement with the left side of n->s.
void normal_finish(Norm *n, Red red, Id body);
// Appends n->s with another body and, of its bound indices, only those in `bound`, moved together.
void normal_keep(Norm *n, uint32_t bound, Id body);

// sum.c: products inside a sum. True if it appended all that n->s says.
bool normal_sum(Norm *n);

// residual.c: residuals of products are added before biases, in n->out.
void normal_residuals(Norm *n);

#endif
