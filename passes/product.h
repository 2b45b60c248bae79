// The definition of a matrix product, for all that ask: precision, whose products take 16-bit operands; shard, which
// cuts products first; normalise, which brings sums into their form; codegen/lower, which hands them to a library.
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

// Whether a product with these rows, columns and terms is worth a library's call: below some
// thousand multiplications loops are as fast, and fuse with what surrounds them. Each side needs a
// few elements that the other lacks, or it is a matrix-vector product in disguise, bound by memory.
bool product_is_large(const Limits *least, double rows, double columns, double terms, double work);

// A term of a sum: its factors.
typedef struct ProductTerm {
  Id factor[16];
  uint32_t n;
} ProductTerm;
// Visits (unless that is NULL) the terms of a sum or mean in which two factors each have an index that the other lacks,
// one of the set `counted`, and share a summed one. Whether there are any.
typedef void ProductVisit(const Module *m, const ProductTerm *t, void *ctx);
bool product_terms(const Module *m, const Stmt *s, uint32_t counted, ProductVisit *visit, void *ctx);

// Whether the statement, of any size, has such a term by indices that count. Of extents over 1; and a microbatch of one
// sample counts as many: its index is the first of a result.
bool stmt_is_product(const Module *m, const Stmt *s);

#endif
