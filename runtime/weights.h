// Parameters as tensors by name: initial values, files of weights, and the parts of checkpoints.
#ifndef DTC_RUNTIME_WEIGHTS_H
#define DTC_RUNTIME_WEIGHTS_H

#include "runtime/run.h"
#include "runtime/safetensors.h"

// The names of files: one for each parameter, and for a stacked one one for each layer
// ("blocks.3.attn.qkv.weight"): the instances of runtime/units.h, in their order.
typedef struct DtNames {
  DtTensor *tensor; // data unused
  char *text;
  int64_t n;
} DtNames;

int dt_names_make(DtNames *names, const DtProgram *p, DtError *e);
void dt_names_free(DtNames *names);

// Initial values of what this rank holds of every parameter, as functions of seed, name and element.
void dt_weights_init(DtRun *r);

// Fills what this rank holds of a region from a file that must hold exactly the program's tensors, in
// their shapes, as real numbers of any precision. 65 names what is missing, unknown or of another
// shape.
int dt_weights_load(const DtNames *names, DtRun *r, DtRegion region, const char *path, DtError *e);

// Writes a region as a safetensors file; *bytes and *hash (either may be NULL) tell what was
// written. All ranks call it: rank 0 collects the tensors and writes, and its status is returned to
// it alone.
int dt_weights_save(const DtNames *names, DtRun *r, DtRegion region, const char *path,
                    int64_t *bytes, uint64_t *hash, DtError *e);

#endif
