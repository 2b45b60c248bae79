// The manifest of a checkpoint: the run's progress, and the parts with their sizes and hashes. Its
// last line guards the lines before.
#ifndef DTC_RUNTIME_MANIFEST_H
#define DTC_RUNTIME_MANIFEST_H

#include "runtime/files/json.h"
#include "runtime/train/run.h"
#include "runtime/files/save.h"

typedef struct DtManifestPart {
  const char *file; // a name without slashes
  int64_t bytes;
  uint64_t hash; // XXH64
} DtManifestPart;

// Version 1 had a part for the parameters and one for each moment, all under the parameters' names.
typedef struct DtManifest {
  int64_t version, step, samples, seed, train_samples, moments;
  const char *precision; // of the run, or NULL
  DtLossScale scaling;   // scale 0: it had none
  DtManifestPart *part;
  const char **file; // of each part
  int64_t nparts;
  uint64_t check; // hash of the text
  DtJson json;    // the strings
} DtManifest;

// "part-00003.safetensors", the part that a rank writes.
enum { DT_PART_NAME = 40 };
void dt_part_name(char out[DT_PART_NAME], int rank);

// What a checkpoint holds besides tensors.
typedef struct DtProgress {
  int64_t step, samples;
  uint64_t seed;
  DtLossScale scaling;
} DtProgress;

// Writes folder/manifest.json of the parts info[0 .. n), of which those without bytes are not there. On any thread.
int dt_manifest_write(const char *folder, const DtRun *r, const DtProgress *at, const DtPartInfo *info, int n, DtError *e);

// Reads one from any source. 65 where it does not have the writer's form; dt_manifest_free in
// either case. `path` is its name in messages.
int dt_manifest_parse(DtManifest *m, const char *text, size_t size, const char *path, DtError *e);
int dt_manifest_read(DtManifest *m, const char *folder, DtError *e);
void dt_manifest_free(DtManifest *m);

// Whether parts first, first + stride, ... of a folder hold what the manifest says, and whether all
// are there in the right size. 65, 74.
int dt_manifest_check(const DtManifest *m, const char *folder, int64_t first, int64_t stride,
                      DtError *e);

#endif
