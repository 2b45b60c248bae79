// Private to pass precision: which values of a program in 16 bits have 16 bits.
#ifndef DTC_PASSES_PRECISION_TYPES_H
#define DTC_PASSES_PRECISION_TYPES_H

#include "ir/ir.h"

// What is known of a value. WIDE: float for a reason that lies with the value. STATISTIC: a result of a
// reduction that is no product, or made of such alone; WIDE as well. LINKED: an argument or result of a
// call, on either side. KEPT: read from memory, see keep.c. SAVED: the backward pass reads it, in this
// function or as a slice of what a stack leaves; if it is not kept besides, the forward pass reads it
// unrounded, and a rounded copy is what is saved. ASKED: of a layer whose precision is fp32; WIDE as well.
enum { WIDE = 1, STATISTIC = 2, PARAMETER = 4, LINKED = 8, KEPT = 16, SAVED = 32, ASKED = 64 };

typedef struct Types {
  Module *m;
  Id *first; // by function: the number of its value 0 among all values
  Id *same; // by number: one that must have the same type, or itself (union-find)
  uint8_t *fact; // by number; WIDE, STATISTIC and PARAMETER are those of the number's root
  bool *wide; // by function: all of it is float (the update, the totals)
} Types;

static inline Id number_of(const Types *t, Id fn, Id value) { return t->first[fn] + value; }
Id types_root(const Types *t, Id number);
static inline bool has_fact(const Types *t, Id number, unsigned facts) {
  return (t->fact[number] | t->fact[types_root(t, number)]) & facts;
}

static inline bool is_real(const Value *v) { return scalar_of(v->type) == SC_REAL; }
// y[..] = x[..], of reals.
bool is_renaming(const Module *m, const Fn *f, const Stmt *s);
// A sum of products of two factors, each with a free index that the other lacks, or of several such
// terms: a matrix product, whatever its size.
bool is_product(const Module *m, const Stmt *s);
// Calls visit for each value that such a product reads as a factor by itself.
void product_operands(const Module *m, const Stmt *s, void (*visit)(Id value, void *ctx), void *ctx);

// residual.c: makes the residual stream float. False: there is none.
bool types_residual(Types *t);

// keep.c: sets KEPT and SAVED on the function's values.
void types_keep(Types *t, Id fn);
// The first statement of the function that belongs to the backward pass: in the step the one after the
// last result, in others none.
uint32_t types_backward(const Module *m, Id fn);

#endif
