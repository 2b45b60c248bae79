// Tensors that lie in pieces over the ranks into files, whole. Each tensor of a file has one writer,
// which gathers it a chunk at a time; all ranks write at once.
#ifndef DTC_RUNTIME_SAVE_H
#define DTC_RUNTIME_SAVE_H

#include "runtime/model/weights.h"

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
  DtOut out;
} DtSave;

// Elements in a chunk, at most; tests make it small.
extern int64_t dt_save_chunk;

// Bytes that gathering needs, of the host's memory and of the device's.
int64_t dt_save_collected(const DtProgram *p);
int64_t dt_save_received(const DtProgram *p, const DtCut *cut);
int64_t dt_save_sending(const DtProgram *p, const DtCut *cut); // 0, but for offloaded state

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

// Writes all parameters (DT_MASTER), or their gradients (DT_GRAD), on rank 0. All ranks call it.
int dt_save_export(DtSave *s, const char *path, DtRegion what, DtError *e);

#endif
