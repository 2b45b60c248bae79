// Output of a run in progress: the log of records, and the line of progress on stdout.
#ifndef DTC_RUNTIME_LOG_H
#define DTC_RUNTIME_LOG_H

#include "runtime/files/saver.h"
#include "runtime/train/run.h"

#include <stdio.h>

typedef struct DtLog {
  FILE *file; // NULL: no --log
  const char *path;
  bool terminal, quiet, live; // live: the cursor stands behind a live line
  double began, last;         // seconds: of the run, of the last plain line
  int64_t first;              // step that the run began at
} DtLog;

// Opens the log of a run that begins after r->step steps, and writes the record of the run. In a log
// that is there already a fresh run follows the others; a resumed one goes on in the last of them,
// whose records past r->step are cut off. 73 where it cannot be created.
int dt_log_open(DtLog *l, const DtRun *r, DtError *e);
// A training record and progress. `done`: the step was made (else it was skipped).
int dt_log_step(DtLog *l, const DtRun *r, const DtResult *s, bool done, DtError *e);
// Progress within the step that comes next, `seconds` after its beginning.
void dt_log_micro(DtLog *l, const DtRun *r, int64_t done, int64_t all, double seconds);
int dt_log_eval(DtLog *l, const DtRun *r, const DtResult *s, DtError *e);
// A checkpoint is complete.
int dt_log_saved(DtLog *l, const DtSaved *s, DtError *e);
int dt_log_close(DtLog *l, DtError *e);

// Ends a live line, so that something else may be printed.
void dt_log_break(DtLog *l);

#endif
