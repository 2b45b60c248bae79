// What a matrix product is, for all that ask: pass shard, which cuts products first; normalise, which
// brings sums into their form; codegen/lower, which hands them to a library.
#ifndef DTC_PASSES_PRODUCT_H
#define DTC_PASSES_PRODUCT_H

#include "ir/ir.h"

// The indices of sum(summed: a * b), as sets, by which factors depend on them.
typedef struct ProductSets {
  uint32_t row, column; // free, of the first factor alone, of the second
  uint32_t sum; // summed, of both
  uint32_t batch; // free, of both
  uint32_t alone; // summed, and not of both: to be summed before the product
} ProductSets;
ProductSets product_sets(uint32_t a, uint32_t b, uint32_t summed);

// Whether the product of so many rows, columns and terms is worth a library's call: below some
// thousand multiplications loops are as fast, and fuse with what surrounds them. Each side needs a
// few elements that the other lacks, or it is a matrix-vector product in disguise, bound by memory.
bool product_is_large(const Limits *least, double rows, double columns, double terms, double work);

// Whether the statement, of any size, is a sum of a product of two reads that each have an index that
// the other lacks. A microbatch of one sample counts as many: its index is the first of a result.
bool stmt_is_product(const Module *m, const Fn *f, const Stmt *s);

#endif
