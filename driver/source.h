// A step of the model as the front end made it: in float64, on one rank, over the whole batch at
// once. No pass has touched the loss. Its gradient is pass differentiate's, and is held against
// tangents of the loss, which owe nothing to that pass (ir/interp/interp.h).
#ifndef DTC_SOURCE_H
#define DTC_SOURCE_H

#include "ir/interp/interp.h"
#include "runtime/program.h"

typedef struct Source {
  const Module *loss, *step; // the front end's; the same after inline and differentiate
  Interp *run_loss, *run_step;
  bool measure; // find `bound` and `spread`, too
  double unit;  // roundoff of the program that the step is compared with
  // Of the last step.
  double value, value_bound, value_spread; // the loss
  Tensor **grad;   // of each parameter; `scale` is the bound of each element
  double **spread; // of each element: what roundings of `unit` do to it
  double slope;    // the largest difference from a tangent, in units of the allowed error
} Source;

// Two modules of the front end, of the same model with a microbatch as large as the batch; `step`
// is made into the training step. NULL after errors.
Source *source_new(Arena *a, const Module *loss, Module *step);
void source_free(Source *s);

// Runs the step of a call: loss and metrics to c->out, gradients added to c->grad. A gradient that
// is not that of the tangents is a bug in dtc.
void source_step(Source *s, const DtProgram *p, const DtCall *c);

// Points that all statements of a step compute, stacks and calls included.
double source_points(const Module *m, Id fn);
// A statement's place and indices: of that which has the most points.
void source_largest(const Module *m, Buf *out);
// Whether the loss depends on the size of a microbatch: statistics over `local(b: ...)`.
bool source_is_local(const Module *m);

#endif
