// What statements cost, in units of a floating-point operation in a matrix product.
#ifndef DTC_PASSES_COST_H
#define DTC_PASSES_COST_H

#include "ir/ir.h"

// Work of a statement, or of one call of a function, the bytes that its kernels move included.
double cost_stmt(const Module *m, const Fn *f, const Stmt *s);
double cost_fn(const Module *m, Id fn);
// The same of running it again: its operations, and what ranks exchange, whose bytes count limits.sent_flops each.
double cost_again(const Module *m, const Fn *f, const Stmt *s);
double cost_again_fn(const Module *m, Id fn);

#endif
