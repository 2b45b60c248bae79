// Saving checkpoints and exports. All ranks call these functions together, unless said otherwise, and get the same
// status; of those that fail, one has the message.
#ifndef DTC_RUNTIME_SAVER_H
#define DTC_RUNTIME_SAVER_H

#include "runtime/base/behind.h"
#include "runtime/files/manifest.h"
#include "runtime/files/save.h"

// A checkpoint that is complete, and the time that it took.
typedef struct DtSaved {
  int64_t step;    // -1: none yet
  double seconds;  // from the end of this step until the checkpoint was there
  double blocked;  // of them, in which the steps stood still
} DtSaved;

// How far a checkpoint is that is written behind the steps: all ranks write their parts; the first one completes it. It is the
// same on all ranks.
typedef enum DtSaverPhase { DT_SAVER_IDLE, DT_SAVER_PARTS, DT_SAVER_MANIFEST } DtSaverPhase;

// What writes checkpoints and exports.
typedef struct DtSaver {
  char folder[PATH_MAX]; // "": exports only
  int lock;
  DtSave save;
  DtPartInfo *part; // of each rank
  DtSaved last;
  // The checkpoint under way.
  DtProgress at;
  char temporary[PATH_MAX], path[PATH_MAX], own[PATH_MAX]; // its folder until it is complete, and then; this rank's part
  DtPartInfo mine;
  int64_t keep;
  double began, ended, blocked; // seconds
  DtSaverPhase phase;
  DtBehind behind;
  atomic_bool stop; // another rank has failed: what is written is of no use
  bool late;        // that the run had to wait for one was said
} DtSaver;

// Sets r->behind_steps and r->snapshot_bytes: where --save-every asks for checkpoints behind the steps. Before
// dt_memory_allocate, once r->zero is open; by any rank alone. 71.
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

// The same behind the following steps, where r->behind_steps: takes a snapshot of the state and returns. One that is still on
// its way is waited for, and fails here if it does.
int dt_checkpoint_begin(DtSaver *s, int64_t keep, DtError *e);
// At the end of each step, after dt_step: looks at what ranks said of their parts in the step's own exchange, without waiting.
// Where all parts are there, the first rank begins to complete the checkpoint; where that is done, s->last is it. 73 or 74
// where a rank has failed.
int dt_checkpoint_step(DtSaver *s, DtError *e);
// Waits until it is complete.
int dt_checkpoint_finish(DtSaver *s, DtError *e);

// Writes the parameters to a safetensors file, by rank 0. 73, 74.
int dt_export(DtSaver *s, const char *path, DtRegion what, DtError *e);

#endif
