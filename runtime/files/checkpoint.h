// Checkpoints: folders DIR/step-00000100 of safetensors parts and a manifest, complete or not there
// at all. Parts hold whole tensors, so a program of any layout goes on from them. All ranks call
// these functions together, unless said otherwise, and get the same status; of those that fail, one
// has the message.
#ifndef DTC_RUNTIME_CHECKPOINT_H
#define DTC_RUNTIME_CHECKPOINT_H

#include "runtime/train/run.h"
#include "runtime/files/save.h"

// A valid checkpoint: its path and its manifest.
typedef struct DtCheckpoint {
  char path[PATH_MAX]; // "": none, start fresh
  int64_t step, samples, seed, train_samples;
  char precision[16]; // of the run that saved it; "": unknown
  DtLossScale scaling; // scale 0: the run had none
} DtCheckpoint;

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

// The newest checkpoint below `folder` whose parts are all there with the right hashes (each that
// is not is reported on stderr), or `folder` itself where it is one. 65 where there are only damaged
// ones; 71 or 74 where the system does not let a rank read one: it may be whole.
int dt_checkpoint_find(DtCheckpoint *c, const char *folder, DtError *e);

// For --init: the same, but none where `path` is no folder, and 66 where it has no checkpoint.
int dt_checkpoint_find_weights(DtCheckpoint *c, const char *path, DtError *e);

// Fills what this rank holds of the parameters and masters, and of the moments if they are allocated, and
// sets step, samples, seed and, where checkpoint and program have one, the loss scale. Of another precision weights and
// moments are converted. 65 where it is another model's. By any rank alone.
int dt_checkpoint_load(const DtCheckpoint *c, DtRun *r, DtError *e);

// The parameters alone, of a checkpoint or (where c has no path) of a file of weights. By any rank
// alone.
int dt_checkpoint_init(const DtCheckpoint *c, const char *path, DtRun *r, DtError *e);

// The newest step that `folder` has a checkpoint of, valid or not; -1: none. By any rank alone.
int dt_checkpoint_newest(const char *folder, int64_t *step, DtError *e);

#endif
