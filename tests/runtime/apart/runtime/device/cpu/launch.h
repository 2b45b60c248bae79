// Takes the place of runtime/device/cpu/launch.h in emitted C: kernels get the bytes behind the addresses.
#include_next "runtime/device/cpu/launch.h"

void *const *apart_args(const void **arg, int n);

#undef dt_launch
#define dt_launch(kernel, grid, chunk, ...)                                                        \
  DT_TRACED(kernel, dt_parallel(kernel,                                                            \
                                apart_args((const void *[]){__VA_ARGS__},                          \
                                           (int)(sizeof((const void *[]){__VA_ARGS__}) / sizeof(void *))), \
                                grid, chunk))
