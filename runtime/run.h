// The state of a training run, shared by the files of the training program.
#ifndef DTC_RUNTIME_RUN_H
#define DTC_RUNTIME_RUN_H

#include "runtime/data.h"
#include "runtime/options.h"
#include "runtime/program.h"

typedef struct DtRun {
  const DtProgram *p;
  DtOptions o;
  DtDataset train, val;
  bool has_val;
  double
      val_total[DT_MAX_TOTALS]; // over the whole validation set; they are functions of data alone
  bool val_totalled;
  // Memory: allocated once, before the first step.
  void *param, *grad, *moment[DT_MAX_MOMENTS]; // regions of param_count reals
  void *frame, *buffer[DT_MAX_DATA];           // a microbatch of each data argument
  int64_t micro;                               // samples in a microbatch
  // What a checkpoint holds besides regions.
  int64_t step;    // optimizer steps done
  int64_t samples; // training samples used
  uint64_t seed;
} DtRun;

static inline size_t dt_type_size(DtType type) { return type == DT_TYPE_F64 ? 8 : 4; }
static inline double dt_get(const DtProgram *p, const void *at, int64_t i) {
  return p->type == DT_TYPE_F64 ? ((const double *)at)[i] : (double)((const float *)at)[i];
}
static inline void dt_set(const DtProgram *p, void *at, int64_t i, double v) {
  if (p->type == DT_TYPE_F64) ((double *)at)[i] = v;
  else ((float *)at)[i] = (float)v;
}

// runtime/memory.c
typedef struct DtMemory {
  int64_t params, grads, moments, frame, batches, total; // bytes
} DtMemory;
DtMemory dt_memory(const DtProgram *p);
// Allocates and touches what `r` needs: all of it, or without gradients and moments for a run of no
// steps. 71 where the machine has less.
int dt_memory_allocate(DtRun *r, bool training, DtError *e);
void dt_memory_free(DtRun *r);
int64_t dt_memory_resident(void);         // the process's high-water mark in bytes
// By all threads, past the caches; p is aligned to 16 bytes.
void dt_fill_zero(void *p, size_t bytes);

// runtime/step.c
typedef struct DtResult {
  double loss, metric[DT_MAX_METRICS];
  double norm, rate; // of a step: gradient norm before clipping, learning rate
  int64_t samples;
  double seconds;
} DtResult;
// One optimizer step over the next `batch` samples. 79 where loss or norm is not finite: then
// nothing is stepped.
int dt_step(DtRun *r, DtResult *result, DtError *e);
// The loss and metrics over the validation set. Gives up (75) where a signal asks for a stop.
int dt_evaluate(DtRun *r, DtResult *result, DtError *e);

// runtime/sample.c: writes o.sample tokens of text to stdout.
int dt_sample(DtRun *r, DtError *e);

// runtime/info.c
int dt_info(const DtProgram *p, const DtOptions *o, DtError *e); // JSON on stdout
void dt_plan(const DtRun *r);                                    // --dry-run's text on stdout

double dt_seconds(void); // monotonic

#endif
