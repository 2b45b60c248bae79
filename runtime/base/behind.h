// A thread that does one job at a time, behind the steps of a run.
#ifndef DTC_RUNTIME_BEHIND_H
#define DTC_RUNTIME_BEHIND_H

#include "runtime/base/counter.h"
#include "runtime/base/error.h"

#include <pthread.h>

typedef void DtBehindJob(void *of, DtError *e);

typedef enum DtBehindState { DT_BEHIND_IDLE, DT_BEHIND_BUSY, DT_BEHIND_DONE, DT_BEHIND_FAILED } DtBehindState;

// All but `done` is the owner's, which is one thread; the job and its error are the thread's while it is busy.
typedef struct DtBehind {
  pthread_t thread;
  bool open, under_way, leaving;
  DtCounter asked, done; // jobs, and at the end one more
  DtBehindJob *job;
  void *of;
  DtError error;
} DtBehind;

// Starts the thread, which no signal reaches and which gives way to others on its processor; nothing is allocated later. 71.
int dt_behind_open(DtBehind *b, DtError *e);
// Waits for its job, and ends it.
void dt_behind_close(DtBehind *b);

// Begins a job; none is under way.
void dt_behind_begin(DtBehind *b, DtBehindJob *job, void *of);
DtBehindState dt_behind_state(DtBehind *b);
// Waits for the job, if one is under way, and returns its status and message.
int dt_behind_end(DtBehind *b, DtError *e);

#endif
