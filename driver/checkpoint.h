// --checkpoint: programs of one model that differ in what their backward pass computes again.
#ifndef DTC_CHECKPOINT_H
#define DTC_CHECKPOINT_H

#include "driver/report.h"

// A module before pass recompute, as text, and what else its program's memory depends on.
typedef struct Checkpoint {
  const Module *m;
  Str text;
  size_t n; // of its bytes
  ZeroOptions zero;
  int in_flight, dp;
} Checkpoint;

// The module is to be as pass localise leaves it.
Checkpoint checkpoint_new(const Module *m, ZeroOptions zero, int in_flight, int dp);
// The report of the program with that recomputation.
Report checkpoint_report(const Checkpoint *c, Recompute recompute, int64_t keep);
// Chooses a recomputation with which a rank needs at most `memory` bytes and the least is computed again: with auto, the
// bytes that layers may save, *keep, to a thousandth of what lies between the fewest and the most that they can; where none of
// these fits, selective or full, which run layers inside of layers again. False where nothing fits. *least: the fewest bytes
// that were found to be enough for a rank, where nothing fits.
bool checkpoint_choose(const Checkpoint *c, int64_t memory, Recompute *recompute, int64_t *keep, int64_t *least);

#endif
