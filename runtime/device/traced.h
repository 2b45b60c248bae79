// Around each launch in emitted host code, on any target: its name in the trace. A rehearsal launches nothing.
#ifndef DTC_RUNTIME_TRACED_H
#define DTC_RUNTIME_TRACED_H

#include "runtime/base/parallel.h"
#include "runtime/base/trace.h"

#define DT_TRACED(name, ...)                                                                       \
  do {                                                                                             \
    if (dt_rehearsing) break;                                                                      \
    dt_trace_begin(#name);                                                                         \
    __VA_ARGS__;                                                                                   \
    dt_trace_end(#name);                                                                           \
  } while (0)

#endif
