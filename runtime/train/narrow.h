// Gradients on their way between ranks in a 16-bit type: DtProgram.reduce_type.
#ifndef DTC_RUNTIME_NARROW_H
#define DTC_RUNTIME_NARROW_H

#include "runtime/base/real.h"

// The n floats at `data` become n numbers of a 16-bit type there, in the first half of the bytes. By all threads.
void dt_narrow_in_place(DtType type, void *data, int64_t n);
// to[i] = from[i], or with `add` to[i] += from[i]. The arrays lie apart, or, without `add`, `to` begins where `from`
// does or after it. By all threads.
void dt_widen_into(DtType type, float *to, const void *from, int64_t n, bool add);

#endif
