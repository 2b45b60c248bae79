// Proves that every subscript of a program is in range, and follows the ranges of int values.
#ifndef DTC_RANGE_H
#define DTC_RANGE_H

#include "ir/prover.h"

// A subscript that could not be proved in range.
typedef struct RangeIssue {
  Id fn;
  uint32_t stmt; // of fn
  Id value; // read or written
  bool write;
  uint32_t dim;
  Id sub; // expression
  bool low, high; // what is missing: sub >= 0, sub < extent
  Interval known; // bounds found, at that place
} RangeIssue;

typedef struct RangeResult {
  VEC(RangeIssue) issue;
  VEC(DataRange) range; // Module.range, made narrower by what `infer` found
} RangeResult;

// Checks every function that an entry reaches; without entries, every function that none calls.
// With `infer`, a subscript that is an element of a data argument (plus what has bounds) and can't
// be proved otherwise becomes a requirement on the data, in result->range.
void range_check(const Module *m, bool infer, RangeResult *result);

#endif
