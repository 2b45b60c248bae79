// The runtime's own kernels, for programs of the tests that have no others.
#include "runtime/device/cuda/emulate_driver.h"

#include "runtime/device/cuda/arrays.h"

extern "C" const DtEmulatedKernel dt_cuda_image[] = {DT_ARRAY_KERNELS(DT_EMULATED), {}};
