// Two microbatches under way at once on one thread: one computes while the other one waits for what
// ranks exchange inside it (with tp or cp a layer needs the sum of all ranks before it can go on).
// Known as two-batch overlap, and from DeepSpeed Domino (Wang et al., 2024) as half batches.
//
// Each of the two calls of the program has a stack. They take turns at every dt_wait_aside, whatever
// has arrived by then. So all ranks post the same operations in the same order, and of each statement
// the first microbatch's comes before the second one's: a gradient to which a microbatch adds at one
// place only is summed as it is where they run one after the other.
#ifndef DTC_RUNTIME_FLIGHT_H
#define DTC_RUNTIME_FLIGHT_H

#include "runtime/base/error.h"
#include "runtime/program.h"

enum { DT_MOST_IN_FLIGHT = 2 };

// Makes the second call's stack, once, before the first step. 71 where there is no memory.
int dt_flight_open(DtError *e);
void dt_flight_close(void);

// Calls the entry for microbatch `micro` of the step and for the one after it, and returns when both
// have. The calls share no frame, result or data. In the profile the second one is `name`, on
// a separate row.
void dt_flight_run(DtEntry *entry, const char *name, const DtCall *first, const DtCall *after,
                   int64_t micro);

#endif
