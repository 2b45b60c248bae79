// Runs a pipeline's schedule: the microbatches of a batch through this rank's chunks, with what
// comes from the stages beside it and goes to them.
#ifndef DTC_RUNTIME_WALK_H
#define DTC_RUNTIME_WALK_H

#include "runtime/comm.h"
#include "runtime/base/error.h"
#include "runtime/pipeline/pipeline.h"

struct DtRun;

// A table, and where its slots and messages lie in the walk's memory.
typedef struct DtRoute {
  DtPipe *pipe;
  // By chunk, if it is this stage's: number of the first slot of its pool; bytes to its first buffer.
  int64_t *slot[DT_SPANS], *in[DT_PIPE_MESSAGES], *out[DT_PIPE_MESSAGES];
  int64_t *slot_at; // by number of a slot: bytes to it
  int64_t bytes, least; // least: dt_walk_least
  const char **names; // of the pipe's messages
  DtTicket *arrived[DT_PIPE_MESSAGES], *gone[DT_PIPE_MESSAGES]; // by chunk and buffer
} DtRoute;

enum { DT_WALK_TRAIN, DT_WALK_EVAL, DT_WALK_REST, DT_WALK_SAMPLE, DT_WALKS };
typedef struct DtWalk {
  // Of a step; of validation: of `group` microbatches, and of those left; of one text.
  DtRoute route[DT_WALKS];
  int64_t group, groups, rest;
  char *memory, *tied; // dt_walk_bytes; a gradient that other stages hold too
  // Gradients on their way: of the first tie, before the passes end; sums that come back, the first
  // and the last; the last that is sent back. Or 0.
  DtTicket tie_ahead, tie_first, tie_last, tie_sent;
} DtWalk;

// Makes the tables for `train` and `eval` microbatches a rank (0: none), and for a text where
// `sample` asks for it, and proves that they run.
// 70 with what is wrong where one does not; 71.
int dt_walk_open(DtWalk *w, const DtProgram *p, int stage, int64_t train, int64_t eval, bool sample,
                 DtError *e);
void dt_walk_close(DtWalk *w);
int64_t dt_walk_bytes(const DtWalk *w);
// Bytes of messages, and of slots that are in use at one time at most: no places of slots need less.
int64_t dt_walk_least(const DtWalk *w);

// Fills r->buffer with microbatch `micro` of the rank's.
typedef int DtWalkLoad(struct DtRun *r, const void *batch, int64_t micro, DtError *e);

typedef struct DtWalkJob {
  DtWalkLoad *load; // NULL: `data` is the first data argument, and there are no others
  const void *data;
  const void *batch; // for load
  const void *total;
  int64_t first; // of the rank's microbatches, in samples of the batch
  int64_t count; // samples in the batch
  int forward; // DT_FORWARD: with what follows in a step; DT_EVAL, DT_SAMPLE
  int nresult;
  void *out; // NULL, or where the last chunk's results go instead
  double *sum; // results are added to it, in the order of microbatches; by the last stage alone
} DtWalkJob;

// Microbatches [from, from + those of the route) of the rank's. A step's gradients are not yet
// reduced (dt_zero_finish), nor summed over stages (dt_walk_tie).
int dt_walk(struct DtRun *r, int route, int64_t from, const DtWalkJob *job, DtError *e);

// Gradients that several stages hold become their sum, in the order of stages, on the first of them.
// By all ranks.
void dt_walk_tie(struct DtRun *r);
// Begins to send the sums to the other holders; dt_walk_tie_wait waits until they have arrived. Until
// then gradients may not be written, and units that wait for a sum may not be read.
void dt_walk_tie_back(struct DtRun *r);
bool dt_walk_awaits(const struct DtRun *r, int64_t unit);
void dt_walk_tie_wait(struct DtRun *r);

#endif
