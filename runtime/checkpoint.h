// Checkpoints: folders DIR/step-00000100 of safetensors parts and a manifest, complete or not there
// at all.
#ifndef DTC_RUNTIME_CHECKPOINT_H
#define DTC_RUNTIME_CHECKPOINT_H

#include "runtime/run.h"

// A checkpoint found valid: where it is, and what its manifest says.
typedef struct DtCheckpoint {
  char path[PATH_MAX]; // "": none, start fresh
  int64_t step, samples, seed, train_samples;
  int nmoment;
} DtCheckpoint;

// The folder that a run saves to: created, locked against a second run, and cleared of what a run
// that was killed while saving has left.
typedef struct DtSaver {
  char folder[PATH_MAX];
  int lock;
} DtSaver;

int dt_saver_open(DtSaver *s, const char *folder, DtError *e); // 73 where it cannot be written
void dt_saver_close(DtSaver *s);

// Writes the run's state as step-NNNNNNNN (all ranks call it, rank 0 writes): into a temporary folder, synchronised, renamed, the
// folder above synchronised; and then removes all but the newest `keep` (0: none) up to this step.
// On failure (73, 74) the checkpoints before are as they were.
int dt_checkpoint_save(DtSaver *s, DtRun *r, int64_t keep, DtError *e);

// The newest checkpoint below `folder` whose parts are all there with the right hashes (each that
// is not is told on stderr), or `folder` itself where it is one. 65 where there are only damaged
// ones.
int dt_checkpoint_find(DtCheckpoint *c, const char *folder, DtError *e);

// Fills the run's regions, those that are allocated. 65 where it is another model's.
int dt_checkpoint_load(const DtCheckpoint *c, DtRun *r, DtError *e);

// The newest step that `folder` has a checkpoint of, valid or not; -1: none.
int64_t dt_checkpoint_newest(const char *folder);

#endif
