// Subscripts as linear forms of a statement's indices.
#ifndef DTC_AFFINE_H
#define DTC_AFFINE_H

#include "codegen/lower/kernel.h"

// base + sum of coef[i] * index i + sum of rest: parts that are no linear form (gathers, //, %).
typedef struct Affine {
  int64_t base;
  int64_t coef[MAX_INDEX];
  uint32_t nrest;
  struct { Id expr; int64_t coef; } rest[2 * MAX_RANK];
} Affine;

// *a += scale * the subscript e.
void affine_add(const Module *m, const Stmt *s, Id e, int64_t scale, Affine *a);
// The subscript alone.
Affine affine_of(const Module *m, const Stmt *s, Id e);
// The element of the buffer that a READ node, or the statement's left side, touches.
Affine affine_read(const Module *m, const Layout *l, const Stmt *s, Id read);
Affine affine_lhs(const Module *m, const Fn *f, const Layout *l, const Stmt *s);
// True if the subscript is linear and stays within [0, extent) for all values of the indices.
bool affine_inside(const Module *m, const Stmt *s, Id e, int64_t extent);
// Indices that occur in rest.
uint32_t affine_rest_indices(const Module *m, const Affine *a);

#endif
