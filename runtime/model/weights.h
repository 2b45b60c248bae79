// Parameters as tensors by name, and their initial values.
#ifndef DTC_RUNTIME_WEIGHTS_H
#define DTC_RUNTIME_WEIGHTS_H

#include "runtime/train/run.h"
#include "runtime/files/safetensors.h"

// The tensors of files: one for each parameter, and for a stacked one one for each layer
// ("blocks.3.attn.qkv.weight"), in the order of DtUnits.instance; then the same of each moment
// ("moment0/blocks.3.attn.qkv.weight": no parameter's name has a slash).
typedef struct DtNames {
  DtTensor *tensor; // whole; data unused
  int64_t each, n;  // of one kind, of all
  char *text;
} DtNames;

// Of the parameters and `moments` moments. 71 where memory is out.
int dt_names_make(DtNames *names, const DtProgram *p, int moments, DtError *e);
void dt_names_free(DtNames *names);

// Fills what this rank holds of the masters with initial values, which are functions of seed, name and
// element in the whole; and of the parameters with the same, rounded to their type. Fails where offloaded state does.
int dt_weights_init(DtRun *r, DtError *e);

#endif
