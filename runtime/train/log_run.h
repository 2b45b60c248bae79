// The first record of a run in a log: what runs, how, on which data and which machine.
#ifndef DTC_RUNTIME_LOG_RUN_H
#define DTC_RUNTIME_LOG_RUN_H

#include "runtime/train/run.h"

#include <stdio.h>

// Now, in UTC to the millisecond: "2026-01-31T08:15:00.123Z".
void dt_log_time(char out[32]);

// The record of the run that begins here, a line. 71 where memory is out.
int dt_log_run(FILE *f, const DtRun *r, DtError *e);

#endif
