// What the program is doing right now: told to USR2, and recorded for --profile.
//
// Emitted host code brackets each kernel with dt_trace_begin and dt_trace_end. Off, the pair costs
// a store and a predicted branch. Only the thread that runs the steps may call them.
#ifndef DTC_RUNTIME_TRACE_H
#define DTC_RUNTIME_TRACE_H

#include "runtime/error.h"

#include <stdbool.h>
#include <stdint.h>

extern bool dt_tracing;                  // set by dt_trace_start; read here only
extern const char *volatile dt_activity; // the innermost name begun: a string that lives forever

int64_t dt_nanoseconds(void); // monotonic; may be called in a signal handler
void dt_trace_record(const char *name, bool begin);

static inline void dt_trace_begin(const char *name) {
  dt_activity = name;
  if (dt_tracing) dt_trace_record(name, true);
}

static inline void dt_trace_end(const char *name) {
  if (dt_tracing) dt_trace_record(name, false);
}

// Starts recording, and writes all of it to `path` as a Chrome trace (chrome://tracing, Perfetto).
// Events past a bound of some millions are dropped, and the file says how many.
int dt_trace_start(DtError *e);
int dt_trace_write(const char *path, DtError *e);

#endif
