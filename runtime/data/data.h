// The data of a model: samples by number, from files of tokens, of bytes, or of arrays.
#ifndef DTC_RUNTIME_DATA_H
#define DTC_RUNTIME_DATA_H

#include "runtime/data/npy.h"
#include "runtime/program.h"
#include "runtime/data/tokens.h"

// Data files up to this size are looked through before the first step: 64 MiB take under a tenth of
// a second.
enum { DT_LOOK_THROUGH = 64 << 20 };

typedef struct DtDataset {
  const DtProgram *program;
  DtDataKind kind;
  int64_t count;       // samples
  int64_t tokens_each; // tokens in one sample; 1 where samples are no sequences
  DtTokens tokens;
  DtNpy array[DT_MAX_DATA];
  char path[DT_MAX_DATA][PATH_MAX]; // tokens and bytes: [0]
} DtDataset;

// Opens the program's training data (val: its validation data). `given` is the value of the option,
// or NULL: a file; for arrays a folder that holds the model's files, or
// "NAME=FILE[,NAME=FILE...]". Checks headers and shapes and that there is at least one sample.
// dt_dataset_close in either case.
int dt_dataset_open(DtDataset *d, const DtProgram *p, bool val, const char *given, DtError *e);
void dt_dataset_close(DtDataset *d);

// Puts `sample` into row `row` of microbatches in the host's memory (int32 or the program's real type). An
// integer that is out of its range is an error (65) with file, position and value.
int dt_dataset_row(const DtDataset *d, int64_t sample, int64_t row, void *const *buffer,
                   DtError *e);

// Looks at every element of every sample. Where `most_bytes` is positive, only if the files are no
// larger.
int dt_dataset_check(const DtDataset *d, int64_t most_bytes, DtError *e);

// The sample at position i of a run: shuffled in each epoch by `seed`, or in file order.
int64_t dt_dataset_sample(const DtDataset *d, int64_t i, uint64_t seed, bool shuffle);

// Tells one version of file k of a set (of tokens and bytes: 0) from another: a hash of its size
// and of all of it; or, above DT_LOOK_THROUGH bytes, of 16 KiB at each of 1,024 evenly spaced
// places and at the end, so that a change of a stretch of 1/1023 of the file is always seen.
uint64_t dt_dataset_hash(const DtDataset *d, int k);

// Elements in one row of a microbatch of data argument k.
int64_t dt_data_row(const DtData *data);
// Bytes of a microbatch of it.
size_t dt_data_bytes(const DtData *data);

#endif
