// How emitted host code launches kernels that run on the CPU (emulate.h): in place of runtime/device/cpu/launch.h, by
// `cc -include`. For tests.
#ifndef DTC_RUNTIME_CPU_LAUNCH_H
#define DTC_RUNTIME_CPU_LAUNCH_H

#include "runtime/device/cpu/gemm.h"
#include "runtime/device/cpu/scan.h"
#include "runtime/layers.h"

// codegen/cuda/emit.h: launches kernel NAME.
typedef void DtEmulated(void *const *arg, double beta);
#define DT_EMULATED(name, beta, ...)                                                                                   \
  do {                                                                                                                 \
    extern DtEmulated dt_emulate_##name;                                                                               \
    dt_emulate_##name((void *const *)(const void *const[]){__VA_ARGS__}, beta);                                        \
  } while (0)

#define DT_KERNEL(name) DtEmulated dt_emulate_##name
#define dt_launch(kernel, grid, chunk, ...) DT_EMULATED(kernel, 0, __VA_ARGS__)
#define dt_matmul(gemm, a, b, c, beta) DT_EMULATED(gemm, beta, a, b, c)
#define dt_matmul_bias(gemm, a, b, bias, c) DT_EMULATED(gemm, 0, a, b, bias, c)
#define dt_scan(scan, x, y) DT_EMULATED(scan, 0, x, y)
#define dt_device_copy(to, from, bytes) __builtin_memcpy(to, from, bytes)
#define DT_LAYER_NUMBER(name, layer) const int32_t name[1] = {(int32_t)(layer)}

#endif
