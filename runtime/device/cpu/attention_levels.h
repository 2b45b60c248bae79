// The kernels of attention.c at each level of processor, for the type that DT_F64 and DT_HALF select.
// Included once for each type, so it has no guard.
#undef DT_LEVEL
#define DT_LEVEL 1
#include "runtime/device/cpu/vector.h"
#include "runtime/device/cpu/gemm_kernel.h"
#include "runtime/device/cpu/tile_kernel.h"
#include "runtime/device/cpu/attention_kernel.h"
#if defined(__x86_64__)
#undef DT_LEVEL
#define DT_LEVEL 3
#include "runtime/device/cpu/vector.h"
#include "runtime/device/cpu/gemm_kernel.h"
#include "runtime/device/cpu/tile_kernel.h"
#include "runtime/device/cpu/attention_kernel.h"
#undef DT_LEVEL
#define DT_LEVEL 4
#include "runtime/device/cpu/vector.h"
#include "runtime/device/cpu/gemm_kernel.h"
#include "runtime/device/cpu/tile_kernel.h"
#include "runtime/device/cpu/attention_kernel.h"
#endif
