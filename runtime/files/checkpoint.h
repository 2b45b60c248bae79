// Checkpoints: folders DIR/step-00000100 of safetensors parts and a manifest, complete or not there
// at all. Parts hold whole tensors, so a program of any layout goes on from them. All ranks call
// these functions together, unless said otherwise, and get the same status; of those that fail, one
// has the message.
#ifndef DTC_RUNTIME_CHECKPOINT_H
#define DTC_RUNTIME_CHECKPOINT_H

#include "runtime/train/run.h"

// A valid checkpoint: its path and its manifest.
typedef struct DtCheckpoint {
  char path[PATH_MAX]; // "": none, start fresh
  int64_t step, samples, seed, train_samples;
  char precision[16]; // of the run that saved it; "": unknown
  DtLossScale scaling; // scale 0: the run had none
} DtCheckpoint;

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
