// The schedule of a pipeline: which stage computes what, and when it sends and receives.
//
// The model is cut into P * V chunks: chunk c is stage c % P's. For each microbatch a chunk is run
// forward (F), which fills a slot of saved activations, and backward (B), which reads it. Schedule
// zb parts the backward pass into B, the gradient of the chunk's input, and W, that of its weights:
// then there are slots for each span (DtSpan), so that B frees what W does not read. F sends an
// activation to the next chunk's stage, B a gradient to the one before.
//
// All schedules are made by one event-driven list scheduler under a cap on live activations: a
// stage that is idle takes F if it is ready and the cap allows it, else B, else W. They differ in
// the cap:
//   gpipe        none, and no B before the last F (Huang et al. 2019)
//   1f1b         stage s holds at most P - s activations (PipeDream-Flush, Narayanan et al. 2021),
//                and all but the last stage one more: with P - s alone the next F waits for a
//                gradient to come and is waited for in turn, so that a message's time is added to
//                every microbatch (the same is done by eager-1F1B, Zhuang et al. 2023)
//   interleaved  V chunks a stage; stage s holds at most 2 (P - s - 1) + (V - 1) P + 1; microbatches
//                go in groups of P (the same, section 2.2), of which the last may be smaller
//   zb           at most P - s microbatches between F and B, and s between B and W (ZB-H1, Qi et al.
//                2023), or fewer, so that no stage needs more memory than 1f1b's first
//   forward      F alone, for validation
// Each stage runs F, B and W of a chunk in the order of microbatches, so that sums of gradients
// have the same bits in every schedule.
//
// A receive is posted when its buffer is free, ahead of its need, and waited for by the work that
// reads it. The order cannot deadlock, even where a send waits for its receive to be posted: work
// and sends are projections of one order in time on the stages. dt_pipe_check shows that of any
// table.
#ifndef DTC_RUNTIME_PIPELINE_H
#define DTC_RUNTIME_PIPELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/program.h"

extern const char *const dt_pipe_name[DT_PIPE_KINDS];

typedef enum DtPipeWork { DT_PIPE_F, DT_PIPE_B, DT_PIPE_W, DT_PIPE_SEND, DT_PIPE_RECV } DtPipeWork;
enum { DT_PIPE_COMPUTED = 3 }; // kinds of work that compute: F, B, W
enum { DT_PIPE_ACT, DT_PIPE_GRAD, DT_PIPE_MESSAGES }; // kinds of message
// The chunk that reads a chunk's message, and the one whose message it reads; -1, or one past the
// last: there is none.
static inline int dt_pipe_reader(int chunk, int message) {
  return message == DT_PIPE_ACT ? chunk + 1 : chunk - 1;
}
static inline int dt_pipe_source(int chunk, int message) {
  return message == DT_PIPE_ACT ? chunk - 1 : chunk + 1;
}

typedef struct DtPipeOp {
  uint8_t work; // DtPipeWork
  uint8_t message; // SEND, RECV: DT_PIPE_ACT or DT_PIPE_GRAD
  int32_t chunk; // that computes; SEND, RECV: that made the message
  int32_t micro;      // microbatch
  int32_t slot[DT_SPANS]; // F, B, W: that it fills or reads, of the chunk's pool; -1: none
  int32_t in; // F, B: buffer that holds what was received; RECV: that it fills; -1: none
  int32_t out; // F, B: buffer that it fills for a send; SEND: that it empties; -1: none
  int32_t peer; // SEND, RECV: the other stage
  int64_t start, end; // under the costs given
} DtPipeOp;

typedef struct DtPipeStage {
  DtPipeOp *op;
  int64_t n;
  int64_t busy; // time spent computing
} DtPipeStage;

typedef struct DtPipeShape {
  DtPipeKind kind;
  int stages, chunks; // P; V: 1 but for interleaved, and forward has what it validates
  int32_t micro;      // M
  // By chunk: time of F, B (without split, of both) and W, each at least 1; NULL: F 1, B 2 (zb: 1),
  // W 1.
  const int64_t *cost[DT_PIPE_COMPUTED];
  // By chunk: the pool that its slots come from, named by the first chunk of the stage that shares it (those whose
  // slots are of one size); NULL: each has its own.
  const int32_t *pool[DT_SPANS];
  // zb, by stage: most microbatches that are put off between B and W, at most s; NULL: s.
  const int32_t *put_off;
} DtPipeShape;

typedef struct DtPipe {
  DtPipeShape shape; // cost, pool, put_off: the table's own
  DtPipeStage *stage; // P of them
  int32_t *slots[DT_SPANS]; // by pool: how many it needs
  // By chunk: buffers for received messages, and for sent ones.
  int32_t *in[DT_PIPE_MESSAGES], *out[DT_PIPE_MESSAGES];
  int32_t *held; // by stage: most activations alive at one time
  // Set by the caller, for messages; NULL or by chunk: what its messages are, "activations x", and
  // where they are computed, "gpt2.dt:17" (or NULL).
  const char *const *what[DT_PIPE_MESSAGES], *const *source[DT_PIPE_MESSAGES];
  int64_t length; // from the first piece of work to the end of the last
  void *memory;
} DtPipe;

// Makes the table. NULL where there is no memory, or the shape is none (P, V, M below 1; V above 1
// without interleaving or with one stage).
DtPipe *dt_pipe_make(const DtPipeShape *shape);
void dt_pipe_free(DtPipe *p);
// Of all that the stages do, in order: ranks of a pipeline compare it before they start.
uint64_t dt_pipe_hash(const DtPipe *p);

// Chunks in all; whether a chunk runs W apart from B.
static inline int dt_pipe_chunks(const DtPipeShape *s) { return s->stages * s->chunks; }
static inline bool dt_pipe_splits(const DtPipeShape *s) { return s->kind == DT_PIPE_ZB; }
// Sets pool and put_off, where chunk c keeps bytes[c][span] of a microbatch: chunks of a stage share slots of one size,
// and zb puts off so much that no stage needs more than the one that needs most with 1f1b. `room` has DT_PIPE_ROOM
// numbers, which the shape refers to from then on.
#define DT_PIPE_ROOM(shape) ((size_t)DT_SPANS * (size_t)dt_pipe_chunks(shape) + (size_t)(shape)->stages)
void dt_pipe_fit(DtPipeShape *s, const int64_t (*bytes)[DT_SPANS], int32_t *room);
// Whether slots of this span are in use; the work that fills them, and the last one that reads them.
bool dt_pipe_span(const DtPipeShape *s, DtSpan span, DtPipeWork *first, DtPipeWork *last);

// Idle time as a part of all stages' time: a fraction in lowest terms.
typedef struct DtPipeBubble {
  int64_t idle, all;
} DtPipeBubble;
DtPipeBubble dt_pipe_bubble(const DtPipe *p);

// Runs the table with sends that wait until their receives are posted, and work that waits for what
// it reads: every message meets its receive in the same order on both sides, nothing waits for
// ever, each chunk does each microbatch once and in order, on what it needs, and no slot or buffer
// is filled while it is in use. False with a message
// that names the two ranks, the operations and their lines; stage s is rank `first + stride * s`.
bool dt_pipe_check(const DtPipe *p, int first, int stride, char *message, size_t size);

// "1f1b", "interleaved:4"; false where it is neither. V is 1 but for interleaved, 2 where it does
// not say.
bool dt_pipe_parse(const char *text, DtPipeKind *kind, int *chunks);

// The timeline as text, one line a stage, `columns` wide at most; with its bubble. In malloc's
// memory.
char *dt_pipe_draw(const DtPipe *p, int columns);

#endif
