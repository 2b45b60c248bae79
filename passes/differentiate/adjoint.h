// The parts of reverse mode (passes/differentiate.c): the derivative of one expression, and turning
// the left sides of adjoint statements into free indices.
#ifndef DTC_ADJOINT_H
#define DTC_ADJOINT_H

#include "ir/ir.h"

// A product of factors that counts only where `guard` holds (NONE: everywhere). Guards stay outside
// of the product: where(x > 0, sqrt(x), 0) has a factor 1 / sqrt(x) that must not be evaluated at
// 0.
typedef struct Term {
  Id guard, value;
} Term;
typedef VEC(Term) Terms;

// The adjoint of all occurrences of one read, as a sum of terms.
typedef struct ReadAdjoint {
  Id read;
  Terms term;
} ReadAdjoint;
typedef VEC(ReadAdjoint) ReadAdjoints;

// Calls visit for each READ in e that e depends on differentiably: not through comparisons,
// conditions, subscripts, integers, stop_gradient, floor.
void ex_differentiable_reads(const Module *m, Id e, void (*visit)(Id read, void *ctx), void *ctx);
// For each differentiable read of a value v with active[v]: seed * d body / d read. `self`, unless
// NONE, is a read of where the body's value is stored.
ReadAdjoints expr_adjoint(Module *m, Id body, Term seed, Id self, const bool *active);

// One contribution to an adjoint: dT[sub] = sum(index[nfree..nindex): body), or += if scatter.
typedef struct Form {
  Index index[MAX_INDEX]; // free ones first
  uint32_t nfree, nindex;
  Id sub[MAX_RANK];
  Id body;
  bool scatter; // may hit an element twice, or miss some: needs an accumulator
  Id loc;
} Form;
typedef VEC(Form) Forms;

// What to invert: dT[sub] += terms, over all indices of a statement.
typedef struct Scatter {
  const Value *target;
  const Id *sub;
  const Index *index;
  uint32_t nindex;
  Terms term;
  const Str *name; // for each dimension, the model's name of its index; NULL where unknown
  bool accumulate; // the target is an accumulator anyway: forms need not cover it
  Id loc;
} Scatter;
// Appends to *out one form, or one for each term where subscripts on the left need its guard.
void invert(Module *m, const Scatter *s, Forms *out);

// The sum of terms; a term and its complement make one where.
Id terms_sum(Module *m, const Terms *t);

#endif
