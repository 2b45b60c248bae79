// Saving checkpoints and exports. All ranks call these functions together, unless said otherwise, and get the same
// status; of those that fail, one has the message.
#ifndef DTC_RUNTIME_SAVER_H
#define DTC_RUNTIME_SAVER_H

#include "runtime/files/save.h"

// What writes checkpoints and exports.
typedef struct DtSaver {
  char folder[PATH_MAX]; // "": exports only
  int lock;
  DtSave save;
  DtPartInfo *part; // of each rank
} DtSaver;

// Sets r->snapshot_bytes: where --save-every asks for checkpoints behind the steps. Before dt_memory_allocate, once r->zero is
// open; by any rank alone. 71.
int dt_saver_plan(DtRun *r, DtError *e);

// Takes what saving needs, and `folder` (NULL: none): created, locked against a second run, and
// cleared of what a run that was killed while saving has left. 73 where it cannot be written.
// dt_saver_close (by any rank alone) in either case.
int dt_saver_open(DtSaver *s, DtRun *r, const char *folder, DtError *e);
void dt_saver_close(DtSaver *s);

// Writes the run's state as step-NNNNNNNN: into a temporary folder, each part synchronised by its
// rank, and when all are there the manifest; renamed, the folder above synchronised; and then removes
// all but the newest `keep` (0: none) up to this step. On failure (73, 74) the checkpoints before are
// as they were.
int dt_checkpoint_save(DtSaver *s, int64_t keep, DtError *e);

// Writes the parameters to a safetensors file, by rank 0. 73, 74.
int dt_export(DtSaver *s, const char *path, DtRegion what, DtError *e);

#endif
