// Tensors that lie in pieces over the ranks into files, whole. Each tensor of a file has one writer,
// which gathers it a chunk at a time; all ranks write at once.
#ifndef DTC_RUNTIME_SAVE_H
#define DTC_RUNTIME_SAVE_H

#include "runtime/model/weights.h"

#include <stdatomic.h>

// The chunk that a writer is at: elements [from, to) of a tensor; item -1: it has written all.
typedef struct DtChunk {
  int64_t item, from, to;
} DtChunk;

// What saving needs, all of it made before the first step.
typedef struct DtSave {
  DtRun *r;
  DtNames names;
  DtRegion first;  // of the first names.each tensors: masters, but for an export of gradients
  DtTensor *mine;  // the tensors that this rank writes into its part
  int64_t nmine;
  int *writer;     // of each of names.tensor: a rank
  DtChunk *at;     // of each rank
  int64_t chunk, room; // elements of the longest, of what is received for one
  char *gathered[2], *received[2]; // a chunk, the host's; the pieces that others send, the device's
  char *sending[2]; // offloaded elements on their way to a writer, the device's
  DtTicket sent[2]; // 0: that one is free
  int turn;         // which is used next
  char *snapshot;    // r->snapshot: the data of this rank's part, as its file holds it
  int64_t *place;    // of each tensor of `mine`, by its number in names.tensor: its first element there
  int64_t nsnapshot; // elements of all of them
  DtOut out;
} DtSave;

// Elements in a chunk, at most; tests make it small.
extern int64_t dt_save_chunk;

// Bytes that gathering needs, of the host's memory and of the device's.
int64_t dt_save_collected(const DtProgram *p);
int64_t dt_save_received(const DtProgram *p, const DtCut *cut);
int64_t dt_save_sending(const DtProgram *p, const DtCut *cut); // 0, but for offloaded state
// Whether these options ask for checkpoints behind the steps. State in a file is there to save memory, which a snapshot of it
// would take again.
bool dt_save_behind(const DtProgram *p, const DtOptions *o);
// Bytes of the host's memory that a snapshot takes: of the rank of `stage` that writes most, in a launch of `ranks`. 71.
int dt_save_snapshot_bytes(const DtProgram *p, const DtStages *s, int stage, const DtCut *cut, int ranks, int64_t *bytes,
                           DtError *e);

// Chooses writers, so that each rank writes about as many bytes, and takes r->collected and
// r->received. `parts`: for dt_save_part too; else for dt_save_export alone. By any rank alone.
int dt_save_open(DtSave *s, DtRun *r, bool parts, DtError *e);
void dt_save_close(DtSave *s);

// What was written of a part.
typedef struct DtPartInfo {
  int64_t bytes; // 0: this rank writes nothing
  uint64_t hash;
} DtPartInfo;

// Writes the tensors of which this rank is the writer, parameters and moments, as a safetensors file.
// All ranks call it. If it fails here (73, 74), the others still get their data.
int dt_save_part(DtSave *s, const char *path, DtPartInfo *info, DtError *e);

// The same in two steps, where there is a snapshot. All ranks call the first one, which leaves no rank waiting for a file. The
// second one is by any rank alone, on any thread; it gives up (74, without a message) where *stop becomes true.
int dt_save_take(DtSave *s, DtError *e);
int dt_save_taken(DtSave *s, const char *path, const atomic_bool *stop, DtPartInfo *info, DtError *e);

// Writes all parameters (DT_MASTER), or their gradients (DT_GRAD), on rank 0. All ranks call it.
int dt_save_export(DtSave *s, const char *path, DtRegion what, DtError *e);

#endif
