// What a rank sends during an optimizer step, for --report.
#ifndef DTC_TRAFFIC_H
#define DTC_TRAFFIC_H

#include "codegen/lower/kernel.h"
#include "runtime/train/zero.h"

typedef struct TrafficRow {
  const char *axis; // "tp", "cp", "data" (the ranks that share a parameter), "pp"
  const char *what; // "all-reduce" ..., "gradients", "parameters", "activations"
  double count; // collectives or messages; 0: not counted (how units are put together is the runtime's)
  double bytes; // that the rank sends
} TrafficRow;

enum { MAX_TRAFFIC = 16 };
typedef struct Traffic {
  TrafficRow row[MAX_TRAFFIC];
  int n;
} Traffic;

// Of a rank of `stage` that runs `micro` microbatches. A collective over n ranks on an array of s bytes
// (the largest that a member has of it) sends (n - 1) / n * s, an all-reduce twice that, as the
// algorithms do that send least (Thakur et al., 2005, section 4).
Traffic traffic_make(const Plan *p, const DtProgram *t, const DtStages *stages, const DtCut *cut,
                     int data_ranks, int stage, int64_t micro);

#endif
