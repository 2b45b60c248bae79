// --report: parameters, FLOPs and memory of a compiled model.
#ifndef DTC_REPORT_H
#define DTC_REPORT_H

#include "codegen/kernel.h"

typedef struct Report {
  int64_t parameters; // elements
  int64_t param_bytes, grad_bytes, moment_bytes, frame_bytes, data_bytes, total_bytes;
  double matrix_flops, other_flops; // of one microbatch, forward and backward
  int64_t microbatches; // of one optimizer step
  uint32_t kernels; // launched by one microbatch
} Report;

Report report_make(const Plan *p);
void report_text(const Report *r, const Module *m, FILE *out);
void report_json(const Report *r, const Module *m, FILE *out);

#endif
