// The loss scale of training in fp16, whose adjoints would often be too small for it: the adjoint of the loss, and so
// every gradient, is multiplied by a power of two, and gradients are divided by it before they are used (Micikevicius et
// al., Mixed precision training, 2018). The scale is as great as it can be: doubled after GROWTH steps without an
// overflow, halved by a step whose gradients are not finite, which is skipped.
#ifndef DTC_RUNTIME_LOSS_SCALE_H
#define DTC_RUNTIME_LOSS_SCALE_H

#include <stdbool.h>
#include <stdint.h>

enum {
  DT_SCALE_FIRST = 1 << 16,
  DT_SCALE_GROWTH = 2000, // steps
  DT_SCALE_SKIPS = 10     // at scale 1 in a row: then it is no matter of the scale
};
#define DT_SCALE_MOST 0x1p32 // its inverse times any rate of clipping is a normal float

// Part of a run's state, and of its checkpoints; the same on all ranks.
typedef struct DtLossScale {
  double scale;    // a power of two from 1 to DT_SCALE_MOST; 1 in programs without loss scaling
  int64_t clean;   // steps since it changed, below DT_SCALE_GROWTH
  int64_t skipped; // steps of the run
  int64_t in_row;  // skipped at scale 1, the last ones
} DtLossScale;

// That of the first step.
DtLossScale dt_loss_scale_first(bool scaling);
// A step has been made with finite gradients.
void dt_loss_scale_clean(DtLossScale *s);
// A step's gradients were not finite: it is to be skipped. False: that has not helped.
bool dt_loss_scale_skip(DtLossScale *s);
// Whether these numbers, from a file, can be a state.
bool dt_loss_scale_valid(const DtLossScale *s);

#endif
