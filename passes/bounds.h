// Bounds of integers by the extents of a statement's indices alone: quick and simple. ir/prover.h
// also knows conditions and data.
#ifndef DTC_PASSES_BOUNDS_H
#define DTC_PASSES_BOUNDS_H

#include "ir/ir.h"

typedef struct Bounds {
  int64_t lo, hi; // lo <= e <= hi, no step of e wraps
  bool known;
} Bounds;

Bounds expr_bounds(const Module *m, const Stmt *s, Id e);
// A value that changes no reduction of the statement in place of its body: 0, or of a largest or
// least int a bound of the body, so that the result is known to lie where it did before.
Id reduction_identity(Module *m, const Stmt *s, Id body);
// Every read in e is in range for all values of the indices, whatever guards it.
bool expr_safe(const Module *m, const Fn *f, const Stmt *s, Id e);

#endif
