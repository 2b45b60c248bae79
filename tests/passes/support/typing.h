// Random layouts for a program: whatever the rule of ir/shard.h accepts, sensible or not.
#ifndef DTC_TEST_TYPING_H
#define DTC_TEST_TYPING_H

#include "load.h"

// What was drawn, for a table of what a run covered.
typedef struct TypingCount {
  int indices, writes, reduced, uneven, cyclic, partial_reads, conversions, accumulated;
} TypingCount;

// Turns a module without axes into one in the global form over the axes given: parameters get
// homes, statements get assignments, conversions go between them.
void random_typing(Module *m, const Axis *axis, uint32_t naxis, Rng *rng, TypingCount *count);

#endif
