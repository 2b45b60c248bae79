// --memory: whether a rank's memory is enough, and what would do with it.
#ifndef DTC_FITS_H
#define DTC_FITS_H

#include "codegen/lower/kernel.h"

// Whether a rank of a launch with `dp` data-parallel ranks needs at most `most` bytes (0: any). If
// not, prints on `err` the memory that it needs and other layouts that need less.
bool memory_fits(const Plan *p, Str input, int dp, int64_t most, FILE *err);

#endif
