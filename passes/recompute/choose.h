// Which values of a function to keep and which statements to run again: the choice apart from the IR.
#ifndef DTC_RECOMPUTE_CHOOSE_H
#define DTC_RECOMPUTE_CHOOSE_H

#include "ir/util.h"

typedef struct KeepValue {
  int64_t bytes; // that keeping it takes
  uint32_t def; // the step that makes it; NONE: it can only be kept
  bool needed; // it must be at hand
  bool passing; // it cannot be kept: the step that makes it runs again where it is needed
} KeepValue;

// One or more statements that run again together.
typedef struct KeepStep {
  int64_t cost; // of running it again
  bool once; // it may not run again
  uint32_t nread;
  uint32_t *read; // values that it reads
} KeepStep;

typedef struct Keep {
  Arena *arena;
  uint32_t nvalue, nstep;
  int64_t nodes; // of a search by keep_within, at most
  KeepValue *value;
  KeepStep *step;
} Keep;

typedef struct Choice {
  bool *again; // by step: it runs again
  bool *kept; // by value
  int64_t bytes, cost; // sums over both
  int64_t bound; // no choice within the budget costs less than this
} Choice;

// The choice that keeps the fewest bytes, and of those one that costs least. False where what is needed can be neither kept nor
// made. A minimum cut: exact.
bool keep_least(const Keep *k, Choice *c);
// The choice of least cost that keeps at most `budget` bytes; false where none does. Branch and bound: the problem without its
// budget, each byte at a price, is a minimum cut, and the best price bounds the cost from below. Exact where
// bound == cost, which only a search that stops after `nodes` nodes leaves open.
bool keep_within(const Keep *k, int64_t budget, Choice *c);

#endif
