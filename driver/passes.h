// The order of the passes, and running them.
#ifndef DTC_PIPELINE_H
#define DTC_PIPELINE_H

#include "ir/ir.h"

// Facts about a module. A pass names the facts that it requires and those that hold after it.
enum Fact {
  FACT_FLAT = 1, // no calls but of intrinsics and repeats
  FACT_RANGED = 2, // every subscript proved in range
  FACT_BATCHED = 4, // count, eval and the batch-aware loss
  FACT_STEP = 8, // step: forward and backward
  FACT_UPDATE = 16, // norm and update
  FACT_STORED = 32, // every value has a storage type
  FACT_NORMAL = 64, // normal form for lowering
  FACT_KERNELS = 128, // Module.lowered: kernels that compute the statements
  FACT_WAITS = 256, // collectives are waited for
  FACT_ADDRESSES = 512 // every local buffer has an address in its function's frame
};

typedef struct Pass {
  const char *name, *help;
  bool (*run)(Module *m);
  unsigned requires, guarantees;
} Pass;
extern const Pass pass_table[];
extern const int pass_count;

typedef struct PipelineOptions {
  Str dump_after; // "all", comma-separated names, or NULL
  FILE *dump; // where dumps go
  bool places; // dumps say where in the source things are from
  bool time; // seconds of each pass to stderr
  bool verify; // after every pass
  Str after, until; // the passes after `after` (NULL: from the first on) up to `until` (NULL: to the last)
} PipelineOptions;

// Runs the passes in order. False after the user's errors were reported.
bool pipeline_run(Module *m, const PipelineOptions *o);
// Runs the named passes only; false with a message where a name is unknown.
bool pipeline_run_named(Module *m, Str names, const PipelineOptions *o, Str *unknown);

#endif
