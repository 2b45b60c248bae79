// --emit schedule: a pipeline's timeline; and the proof that it runs.
#ifndef DTC_SCHEDULE_H
#define DTC_SCHEDULE_H

#include "codegen/lower/kernel.h"
#include "runtime/pipeline/pipeline.h"

// The pipeline's table for `micro` microbatches a rank, under unit costs or the plan's.
// dt_pipe_free.
DtPipe *schedule_make(const Plan *p, int32_t micro, bool unit);

// Whether the pipeline runs through with that many microbatches, and with few: how many there are
// is known at launch, where it is checked again. False after a message that names two ranks.
bool schedule_check(const Plan *p, int32_t micro);

// Timelines under both, with bubbles.
void schedule_print(const Plan *p, int32_t micro, Buf *out);

#endif
