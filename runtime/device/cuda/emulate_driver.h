// Kernels that run on the CPU in place of a GPU: the table that an emitted C++ file hands to the stand-in of the driver.
#ifndef DTC_RUNTIME_CUDA_EMULATE_DRIVER_H
#define DTC_RUNTIME_CUDA_EMULATE_DRIVER_H

#include <stddef.h>

typedef void DtEmulatedRun(void **arg, const unsigned grid[2], const unsigned block[2]); // arg points to each argument
typedef struct DtEmulatedKernel {
  const char *name;
  DtEmulatedRun *run;
  int nargs;
  size_t last; // bytes of the last argument; the others have 8
} DtEmulatedKernel; // of dt_cuda_image, whose last has no name

#ifdef __cplusplus
#include "runtime/device/cuda/emulate.h"

#include <utility>

template <class... A, size_t... i>
static void dt_run_with(void (*kernel)(A...), void **arg, const unsigned *grid, const unsigned *block,
                        std::index_sequence<i...>) {
  dt_launch(dim3(grid[0], grid[1]), dim3(block[0], block[1]), [&] { kernel(*(A *)arg[i]...); });
}
template <class... A> static void dt_run(void (*kernel)(A...), void **arg, const unsigned *grid, const unsigned *block) {
  dt_run_with(kernel, arg, grid, block, std::index_sequence_for<A...>());
}
template <class... A> constexpr int dt_count_args(void (*)(A...)) { return sizeof...(A); }
template <class... A> constexpr size_t dt_last_size(void (*)(A...)) {
  size_t last = 0;
  ((last = sizeof(A)), ...);
  return last;
}
#define DT_EMULATED(kernel)                                                                                            \
  {                                                                                                                    \
    #kernel, [](void **arg, const unsigned grid[2], const unsigned block[2]) { dt_run(kernel, arg, grid, block); },    \
        dt_count_args(kernel), dt_last_size(kernel)                                                                    \
  }
#endif

#endif
