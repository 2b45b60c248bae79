// Where the samples of the batch are in every value of a function: the analysis behind
// passes/batch.c.
#ifndef DTC_SAMPLES_H
#define DTC_SAMPLES_H

#include "passes/util.h"

typedef enum SampleKind {
  SAMPLE_NONE, // the same for all samples
  SAMPLE_SPLIT, // element p of dimension dim belongs to sample (p / inner) % microbatch
  SAMPLE_TOTAL, // a sum over the samples of data only: known before the first forward pass
  SAMPLE_PART // a sum over the samples of a microbatch, to be added up at the end
} SampleKind;
typedef struct SampleType {
  SampleKind kind;
  uint8_t dim;
  bool params; // depends on parameters
  bool total; // depends on a total
  bool stack; // is a result of a stack with parameters, or depends on one
  bool local; // depends on a local reduction: another value in each microbatch
  int64_t inner;
  int64_t other[MAX_RANK]; // of dimensions that a local index made: like inner; 0: not over samples
} SampleType;

// The index of a statement that runs over samples: index value i belongs to sample
// (i / inner) % microbatch. index < 0: there is none.
typedef struct SampleIndex {
  int index;
  int64_t inner;
} SampleIndex;

// All of a statement: `own` says which sample a point is about; the local ones run over the others
// of the microbatch, whatever `own` does.
typedef struct SampleIndices {
  SampleIndex own;
  uint32_t nlocal;
  SampleIndex local[MAX_INDEX];
} SampleIndices;

typedef struct Samples {
  Module *m;
  int64_t size; // of a microbatch; 0: the model has no data
  bool failed; // an error has been reported
} Samples;

// Fills type[] for all values of fn, given those of its arguments. An argument that turns out to
// run over samples is changed to SPLIT, once its reader is known to. False after an error.
bool samples_of(Samples *b, Id fn, SampleType *type, bool entry);
// The sample indices of a comprehension.
SampleIndices sample_indices(Samples *b, const Fn *f, const Stmt *s, const SampleType *type);
// The types of a callee's values, given those of its caller. False after an error.
bool samples_of_callee(Samples *b, const Fn *f, const Stmt *s, SampleType *type,
                       SampleType **callee);
// Reports that a statement couples the samples (once a module); returns false.
bool samples_couple(Samples *b, Id loc, const char *what);
bool samples_couple_sum(Samples *b, const Stmt *s, const SampleType *type, const char *what);
// Whether e reads a partial sum; whether it reads what differs between microbatches.
bool reads_part(const Module *m, Id e, const SampleType *type);
bool reads_local(const Module *m, Id e, const SampleType *type);

#endif
