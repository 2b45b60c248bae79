// Initial values of parameters: functions of seed, parameter and element alone, and the same bits
// on every processor and thread.
#ifndef DT_INIT_H
#define DT_INIT_H

#include "runtime/program.h"

// out[i] = the initial value of element first + i of `a`, for i in [0, n). `out` is float or double
// as `type` says.
void dt_init_fill(const DtParam *a, uint64_t seed, DtType type, int64_t first, int64_t n,
                  void *out);

#endif
