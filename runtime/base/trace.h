// The current activity of the program: printed for USR2, and recorded for --profile.
//
// Emitted host code brackets each kernel with dt_trace_begin and dt_trace_end. Off, the pair costs
// a store and a predicted branch. Only the thread that runs the steps may call them; the
// communication thread has a separate row.
#ifndef DTC_RUNTIME_TRACE_H
#define DTC_RUNTIME_TRACE_H

#include "runtime/base/error.h"

#include <stdbool.h>
#include <stdint.h>

extern bool dt_tracing;                  // set by dt_trace_start; read here only
extern const char *volatile dt_activity; // the innermost name begun: a string that lives forever

// The name under which the steps' waits for the communication thread are recorded.
extern const char dt_trace_wait[];

int64_t dt_nanoseconds(void); // monotonic; may be called in a signal handler
void dt_trace_record(const char *name, bool begin);

static inline void dt_trace_begin(const char *name) {
  __atomic_store_n(&dt_activity, name, __ATOMIC_RELAXED); // another thread may print it
  if (dt_tracing) dt_trace_record(name, true);
}

static inline void dt_trace_end(const char *name) {
  if (dt_tracing) dt_trace_record(name, false);
}

static inline const char *dt_activity_now(void) {
  return __atomic_load_n(&dt_activity, __ATOMIC_RELAXED);
}

// 1: records from here on are those of the second of two microbatches in flight, which has a separate
// row. 0: all else.
void dt_trace_row(int row);

// An operation of the communication thread. Strings live forever; `what` and `source` may be NULL,
// layer and micro -1.
typedef struct DtTransfer {
  const char *op, *what, *source, *axes;
  int64_t layer, micro, step, bytes;
  int64_t posted, begin, end; // nanoseconds
  bool receive; // beside other operations; it begins when data comes or somebody waits for it
} DtTransfer;
void dt_trace_comm(const DtTransfer *t); // it is complete now, whatever its `end`

// Starts recording, and writes all of it to `path` as a Chrome trace (chrome://tracing, Perfetto):
// what every rank recorded, a process each. After the events, "ranks" has for each of them the
// seconds recorded, those in which it computed or waited for others, those of communication and how
// many of them were beside computation, and a table of operations. Ranks record all or none, and
// call dt_trace_write together; rank 0 writes, and says what failed: the others have its status
// without a text. Events past a bound of some millions are dropped, and the file says how many.
int dt_trace_start(DtError *e);
int dt_trace_write(const char *path, DtError *e);

#endif
