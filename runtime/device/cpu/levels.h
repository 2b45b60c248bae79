// The template DT_BODY, a file's name in quotes, at each level of processor, for the type that DT_F64 and DT_HALF
// select (vector.h). Included once for each type, so it has no guard.
#undef DT_LEVEL
#define DT_LEVEL 1
#include "runtime/device/cpu/vector.h"
#include DT_BODY
#if defined(__x86_64__)
#undef DT_LEVEL
#define DT_LEVEL 3
#include "runtime/device/cpu/vector.h"
#include DT_BODY
#undef DT_LEVEL
#define DT_LEVEL 4
#include "runtime/device/cpu/vector.h"
#include DT_BODY
#endif
