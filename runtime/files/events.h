// --tensorboard: the run as event files, which TensorBoard reads.
#ifndef DTC_RUNTIME_EVENTS_H
#define DTC_RUNTIME_EVENTS_H

#include "runtime/train/run.h"

// One file a start of the program; TensorBoard joins those of a folder. A record is written whole
// and at once. Nothing is allocated.
typedef struct DtEvents {
  int fd; // -1: no --tensorboard
  char path[PATH_MAX];
  unsigned char buffer[8192];
  size_t used;
} DtEvents;

// Begins a file in --tensorboard's folder, with a text on the run. Of a resumed run, TensorBoard
// drops what earlier files hold beyond its step. 73 where the file cannot be created.
int dt_events_open(DtEvents *v, const DtRun *r, DtError *e);
int dt_events_step(DtEvents *v, const DtRun *r, const DtResult *s, DtError *e);
int dt_events_eval(DtEvents *v, const DtRun *r, const DtResult *s, DtError *e);
int dt_events_close(DtEvents *v, DtError *e);

#endif
