// How emitted host code runs a kernel on a GPU: each by its name, which is also its name in the trace, --info and reports.
// A launch returns before its kernel has run; kernels run in the order of their launches.
#ifndef DTC_RUNTIME_CUDA_LAUNCH_H
#define DTC_RUNTIME_CUDA_LAUNCH_H

#include "runtime/device.h"
#include "runtime/device/product.h"
#include "runtime/device/traced.h"
#include "runtime/layers.h"

// A kernel of kernels.cu, NAME_kernel: it runs as `blocks` blocks of x by y threads.
typedef struct DtCudaKernel {
  const char *name;
  int64_t blocks;
  int x, y;
  void *function; // found at the first launch
} DtCudaKernel;
#define DT_KERNEL(name, blocks, x, y) static DtCudaKernel name = {#name "_kernel", blocks, x, y, NULL}

// Where kernels read the number of a layer: an int32_t of the device.
#define DT_LAYER_NUMBER(name, layer) const int32_t *const name = dt_cuda_number(layer)
const int32_t *dt_cuda_number(int64_t n);

#define DT_POINTERS(...)                                                                                               \
  (const void *const[]){__VA_ARGS__}, (int)(sizeof((const void *const[]){__VA_ARGS__}) / sizeof(void *))

// Its buffers, in order.
#define dt_launch(kernel, ...) DT_TRACED(kernel, dt_cuda_launch(&kernel, DT_POINTERS(__VA_ARGS__)))
void dt_cuda_launch(DtCudaKernel *k, const void *const *arg, int n);

// Kernel number `part` of an array of them, and scratch memory that kernels have in turn.
#define dt_launch_part(kernel, part, ...) DT_TRACED(kernel, dt_cuda_launch(&kernel[part], DT_POINTERS(__VA_ARGS__)))
void *dt_cuda_scratch(void);

// A kernel over arrays of the call, param, grad and moments, of which it computes DtCall.count elements. DtCall.rounded
// gets the new param as elements of type `rounds`.
#define dt_launch_extent(kernel, rounds, call, ...)                                                                    \
  DT_TRACED(kernel, dt_cuda_extent(&kernel, (call)->count, DT_POINTERS(__VA_ARGS__));                                  \
            if ((call)->rounded) dt_device_narrow(rounds, (call)->rounded, (call)->param, (call)->count))
// `count` elements of its arrays.
#define dt_launch_count(kernel, count, ...) DT_TRACED(kernel, dt_cuda_extent(&kernel, count, DT_POINTERS(__VA_ARGS__)))
void dt_cuda_extent(DtCudaKernel *k, int64_t count, const void *const *arg, int n);

// The type of what p points to; 16 bits are uint16_t, whose type the shape knows.
#define DT_TYPE_AT(p, half) _Generic(*(p), float: DT_TYPE_F32, double: DT_TYPE_F64, uint16_t: half)

// A matrix product of the shape `shape` (a DtGemm) by cuBLASLt: c = beta * c + a * b; or plus bias, one of it for each
// column of c; or with the fields of a DtEpilogue, or the function of the shape alone.
#define dt_matmul(shape, a, b, c, beta)                                                                                \
  DT_TRACED(shape, dt_cuda_product(&shape, #shape, DT_TYPE_AT(a, (shape).operand), a, b, c, beta, &(DtEpilogue){0}))
#define dt_matmul_bias(shape, a, b, at, c) dt_matmul_then(shape, a, b, c, .bias = at)
#define dt_matmul_act(shape, a, b, c) dt_matmul(shape, a, b, c, 0)
#define dt_matmul_then(shape, a, b, c, ...)                                                                            \
  DT_TRACED(shape, dt_cuda_product(&shape, #shape, DT_TYPE_AT(a, (shape).operand), a, b, c, 0, &(DtEpilogue){__VA_ARGS__}))
void dt_cuda_product(const DtGemm *g, const char *name, DtType operand, const void *a, const void *b, void *c, double beta,
                     const DtEpilogue *e);

// The same by a kernel of the program, for strides and types that the library does not take.
#define dt_launch_product(kernel, a, b, c, beta)                                                                       \
  DT_TRACED(kernel, dt_cuda_launch_product(&kernel, a, b, c, sizeof *(a) == 8, beta))
void dt_cuda_launch_product(DtCudaKernel *k, const void *a, const void *b, const void *c, bool f64, double beta);

#endif
