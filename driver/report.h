// --report: parameters, FLOPs, memory and communication of a compiled model.
#ifndef DTC_REPORT_H
#define DTC_REPORT_H

#include "driver/report_parts.h"
#include "driver/traffic.h"
#include "runtime/pipeline/pipeline.h"

typedef struct Report {
  int64_t parameters; // elements
  int64_t param_bytes, master_bytes, grad_bytes, moment_bytes, frame_bytes, data_bytes, total_bytes; // of one rank
  int64_t state_bytes; // parameters, masters, gradients and moments: what ZeRO cuts
  int64_t gathered_bytes, reducing_bytes; // units that are held whole for a while
  int64_t other_bytes; // the norm's sums, a tensor collected to be written, small units together
  int64_t scratch_bytes, exchange_bytes; // of one thread; with all ranks on one machine
  int64_t staging_bytes; // buffers for offloaded state
  int64_t host_bytes, file_bytes; // of the total, what is in the host's memory; beside it, in a file
  int64_t snapshot_bytes; // beside the total, on the host: of a run with --save-every, but for --save-sync
  bool in_host; // the device's memory is the host's
  int stages, stage; // of a pipeline; the one whose rank needs most
  int64_t pipeline_bytes; // activations that wait for their backward pass, messages
  int64_t frame_bound, pipeline_bound; // of these two, what is alive at one time at most
  int ranks, zero, owners; // data-parallel ranks; those among which ZeRO cuts
  double matrix_flops, other_flops; // of one microbatch, forward and backward
  int64_t microbatches; // of one optimizer step, on all ranks
  int in_flight; // of them, that a rank has under way at once
  uint32_t kernels; // launched by one microbatch
  Recomputed again; // by the backward pass of one microbatch
  const struct Report *plain; // --checkpoint: of the program without recomputation; NULL where none was asked for
  Traffic traffic; // of a rank of `stage`, in a step
  DtPipeBubble bubble; // all 0: no pipeline
} Report;

// Of a launch with `ranks` data-parallel ranks.
Report report_make(const Plan *p, int ranks);

// Whether the program's update runs where --offload keeps the optimizer's state; whether it has such state.
bool offload_possible(const Plan *p);
bool offload_has_state(const Plan *p);

// The parts of a rank's memory, in all forms of the report: row 0 to REPORT_MEMORY - 1.
enum { REPORT_MEMORY = 19, REPORT_TOTAL = 14, REPORT_FILE = 17 };
typedef struct ReportBytes {
  const char *key, *label; // in JSON; for people
  int64_t bytes;
  bool sum; // of other rows, or a part of the total, or beside it
} ReportBytes;
ReportBytes report_bytes(const Report *r, int row);

void report_text(const Report *r, const Module *m, FILE *out);
void report_json(const Report *r, const Module *m, FILE *out);
// `pipe`: the schedule of a rank's microbatches under the plan's costs; NULL: no pipeline. `input` is
// the model's path. Text of neither dtc nor the language is escaped.
void report_html(const Report *r, const Plan *p, const DtPipe *pipe, const char *input, const RunFiles *run, FILE *out);

#endif
