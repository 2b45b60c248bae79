// The learning rate and Adam's bias corrections as functions of the step. Free of the rest of the
// runtime, so that the compiler's interpreter computes the same numbers.
#ifndef DTC_RUNTIME_SCHEDULE_H
#define DTC_RUNTIME_SCHEDULE_H

#include "runtime/program.h"

#include <math.h>

// The rate of the step that follows `done` steps. Warm-up is linear, peak * (done + 1) / warmup,
// and reaches the peak at its last step (as in llm.c). After it, with x in [0, 1] the part of the
// steps between warm-up and `steps` that is done:
//   constant  peak
//   linear    peak * (1 - x * (1 - final))
//   cosine    peak * (final + (1 - final) * (1 + cos(pi * x)) / 2)
//   invsqrt   peak * sqrt(w / (done + 1)), w = max(warmup, 1); never under peak * final
// Past `steps` x stays 1.
static inline double dt_rate(DtSchedule kind, double peak, int64_t warmup, int64_t steps,
                             double final, int64_t done) {
  if (done < warmup) return peak * (double)(done + 1) / (double)warmup;
  double x = steps > warmup ? (double)(done - warmup) / (double)(steps - warmup) : 1;
  if (x > 1) x = 1;
  switch (kind) {
  case DT_LINEAR: return peak * (1 - x * (1 - final));
  case DT_COSINE: return peak * (final + (1 - final) * 0.5 * (1 + cos(3.14159265358979323846 * x)));
  case DT_INVSQRT: {
    double part = sqrt((double)(warmup > 1 ? warmup : 1) / (double)(done + 1));
    return peak * (part < final ? final : part);
  }
  default: return peak;
  }
}

// 1 - beta^step, by which Adam divides a moment; step is 1 in the first update.
static inline double dt_bias_correction(double beta, int64_t step) {
  return 1 - pow(beta, (double)step);
}

#endif
