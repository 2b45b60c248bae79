// The state of a training run, shared by the files of the training program.
#ifndef DTC_RUNTIME_RUN_H
#define DTC_RUNTIME_RUN_H

#include "runtime/base/behind.h"
#include "runtime/base/real.h"
#include "runtime/data/data.h"
#include "runtime/comm/flight.h"
#include "runtime/train/loss_scale.h"
#include "runtime/train/options.h"
#include "runtime/device.h"
#include "runtime/program.h"
#include "runtime/pipeline/walk.h"
#include "runtime/train/offload.h"
#include "runtime/train/zero.h"

// A rank's device, and where it is: the same number for ranks of one machine, of which it has local_size.
typedef struct DtRankDevice {
  uint64_t machine;
  int32_t local_size, unused;
  DtDeviceName device;
} DtRankDevice;

typedef struct DtRun {
  const DtProgram *p;
  DtRankDevice *device; // of each rank
  DtOptions o;
  int argc; // the command line, for the log
  char **argv;
  DtDataset train, val;
  bool has_val;
  double
      val_total[DT_MAX_TOTALS]; // over the whole validation set; they are functions of data alone
  bool val_totalled;
  // Memory: allocated once, before the first step.
  DtZero zero;                       // parameters, gradients and moments, or this rank's pieces
  DtOffload offload;                 // what is in a file instead
  DtWalk walk;                       // of a pipeline
  void *frame, *buffer[DT_MAX_DATA]; // a microbatch of each data argument
  void *other_frame, *other_buffer[DT_MAX_DATA]; // likewise, of the second of two in flight
  DtScalars *scalars; // the device's, of two calls: those in flight, or updates without and with weight decay
  char *results;      // the device's, likewise: DT_MOST_RESULTS reals of each
  double *norm, *shared;             // the device's, for the gradient's norm; the host's, which ranks sum once a step
  int64_t nshared;
  // Chunks of tensors from which files are written, in the host's memory; what other ranks send of them; or NULL.
  void *collected, *received;
  void *sending; // where offloaded elements are when they are sent to who writes them; or NULL
  // The part of a checkpoint that this rank writes behind the following steps, in the host's memory; or NULL.
  void *snapshot;
  int64_t snapshot_bytes;
  bool behind_steps; // whether --save-every's checkpoints are written so
  DtBehind *behind;  // by it; NULL where they are not
  int64_t micro; // samples in a microbatch
  // What a checkpoint holds besides regions.
  int64_t step;    // optimizer steps done
  int64_t samples; // training samples used
  uint64_t seed;
  DtLossScale scaling;
  double grad_scale; // that the gradients in memory, of the last step, are multiplied by
  // What the ranks have agreed on at the end of the last step: a signal that asks for a stop, and a
  // rank's own failure (to write the log), each 0 or the number. `trouble` is this rank's.
  int stop, trouble, failed;
  // And ranks whose job for a checkpoint behind the steps has ended; those of them where it has failed.
  int written, unwritten;
  // Within a step of several ranks: when all of them look for signals together (runtime/train/step.c).
  struct {
    int64_t every, next, last; // microbatches from one look to the next; at which the next and the last one are
    double began, since;       // seconds: of the step, of the last look
  } look;
  // Called within a step, after `done` of this rank's `all` microbatches; NULL: nothing.
  void (*tick)(void *of, int64_t done, int64_t all);
  void *tick_of;
  // Totals of the batch from sample next_from on, if they are counted.
  bool counted;
  int64_t next_from;
  double next_total[DT_MAX_TOTALS];
} DtRun;

static inline double dt_get(const DtProgram *p, const void *at, int64_t i) {
  return p->type == DT_TYPE_F64 ? ((const double *)at)[i] : (double)((const float *)at)[i];
}
static inline void dt_set(const DtProgram *p, void *at, int64_t i, double v) {
  dt_put_real(p->type, at, i, v);
}

// The scalars of this rank in its step and batch of `batch` samples, with loss scale 1; totals may be NULL.
DtScalars dt_scalars(const DtRun *r, uint64_t step, int64_t batch, const void *total);
static inline char *dt_results(const DtRun *r, int call) {
  return r->results + (size_t)call * DT_MOST_RESULTS * sizeof(double);
}
// The first n results of a call, and zeros in place of all before it.
void dt_results_clear(const DtRun *r, int call);
void dt_results_get(const DtRun *r, int call, double *v, int n);

// runtime/base/memory.c: bytes of one rank
typedef struct DtMemory {
  int64_t params, masters, grads, moments; // the model's state, as ZeRO cuts it; 0: in a file
  int64_t gathered, reducing;     // parameters, and gradients, that are whole for a while
  int64_t buckets;                // small ones on their way (runtime/train/bucket.h)
  int64_t frame, batches, norm, collected;
  int64_t pipeline, tied; // activations and messages of a pipeline; a gradient that stages sum
  int64_t snapshot;       // of the state, that is written behind the steps
  int64_t scratch, exchange; // what kernels need besides regions; this rank's part in exchanging data
  int64_t staging; // buffers through which offloaded state passes
  int64_t total;
  int64_t host; // of it, what is in the host's memory: all of it, where that is the device's too
  int64_t file; // beside it: masters and moments in a file
} DtMemory;
// What a launch decides: the device's limits, dt_device_work_bytes, dt_exchange_bytes and dt_save_snapshot_bytes.
typedef struct DtHost {
  const DtDeviceLimits *limits;
  int64_t work, exchange, snapshot;
} DtHost;
// Of a rank of `stage`; `walk` is NULL without a pipeline.
DtMemory dt_memory(const DtStages *s, int stage, const DtProgram *p, const DtCut *cut, bool saves,
                   const DtWalk *walk, DtHost host);
// Of this rank, with its threads and ranks.
DtMemory dt_memory_of(const DtRun *r);
// Allocates and touches what `r` needs: all of it, or without gradients and moments for a run of no
// steps. 71 where the machine has less.
int dt_memory_allocate(DtRun *r, bool training, DtError *e);
int dt_memory_check(DtRun *r, DtError *e); // 70 where something was written past a region's end
void dt_memory_free(DtRun *r);
int64_t dt_memory_resident(void);         // the process's high-water mark in bytes

// runtime/train/update.c
// part[i * stride] += the sum of squares, in double, of this rank's piece of the gradient of the
// model's instance i, if this stage answers for it.
void dt_norm_parts(const DtRun *r, double *part, int64_t stride);
// Doubles of DtRun.norm.
int64_t dt_norm_count(const DtUnits *u, const DtCut *cut, const DtDeviceLimits *limits);
// Steps what this rank owns by the optimizer's formula; gradients are multiplied by `scale` first. Fails where offloaded
// state does: then some of the parameters are updated.
int dt_update(DtRun *r, double rate, double scale, DtError *e);
// The slices of offloaded state that an update visits, in order: malloc's; NULL where there is no memory.
int64_t *dt_update_order(DtRun *r, int64_t *n);
// Divides this rank's gradients by r->grad_scale, a power of two, where they are to be seen as they are.
void dt_unscale_gradients(DtRun *r);

// runtime/train/step.c
typedef struct DtResult {
  double loss, metric[DT_MAX_METRICS];
  double norm, rate; // of a step: gradient norm before clipping, learning rate
  double loss_scale; // that the step used
  bool skipped;      // its gradients were not finite: only the loss scale has changed
  int64_t samples;
  double seconds;
  double exposed; // of them, in which kernels waited for what ranks exchange
  double away;    // of them, in which the update waited for offloaded state
} DtResult;
// Numbers that ranks sum at the end of a step: results, flags, squares of the gradient's norm.
int64_t dt_shared_count(const DtUnits *u, const DtProgram *p, const DtCut *cut);
// Makes what steps and validations need besides memory, once the data is open: a pipeline's
// schedules.
int dt_step_prepare(DtRun *r, bool training, DtError *e);
// One optimizer step over the next `batch` samples. 79 where loss or norm is not finite: then
// nothing is stepped. With loss scaling a step whose norm is not finite is skipped: it counts as a step,
// its samples are used, and no parameter changes; 79 where many have been skipped at scale 1. 75, and likewise, where a
// signal asks for a stop before the last microbatch; a pipeline's step is finished first.
int dt_step(DtRun *r, DtResult *result, DtError *e);
// The loss and metrics over the validation set. Gives up (75) where a signal asks for a stop.
int dt_evaluate(DtRun *r, DtResult *result, DtError *e);

// The signal that this process got, or its parent of --ranks, and that asks for a stop; or 0.
int dt_stop_wanted(void);

// runtime/comm/handshake.c
// 76 where another rank runs another program or has other options: all that moves the loss, or
// decides which operations ranks exchange. Then, with everything read: another state, or other data.
int dt_handshake_options(const DtRun *r, DtError *e);
int dt_handshake_state(const DtRun *r, DtError *e);
// A failure of any rank fails all of them: returns and sets the least status of all. The text stays
// where it came from, and is empty on the other ranks.
int dt_agree_on(DtError *e);

// runtime/train/sample.c: writes o.sample tokens of text to stdout.
int dt_sample(DtRun *r, DtError *e);
// By all ranks, once devices are open: fills r->device. 78 where two ranks have the same device, unless DT_DEVICE_SHARE is
// set. Notes where ranks of a tensor-parallel group are on several machines.
int dt_devices_compare(DtRun *r, DtError *e);

// Whether all ranks must call it: they share parameters or work.
bool dt_sample_needs_all(const DtRun *r);

// runtime/train/info.c
// runtime/base/environment.c: 64 where a variable that the program reads has a value that means nothing.
int dt_environment_check(DtError *e);
int dt_info(const DtProgram *p, const DtOptions *o, DtError *e); // JSON on stdout
void dt_plan(const DtRun *r);                                    // --dry-run's text on stdout

double dt_seconds(void); // monotonic

#endif
