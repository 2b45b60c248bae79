// Private to runtime/device/cuda: the GPU of this rank.
#ifndef DTC_RUNTIME_CUDA_GPU_H
#define DTC_RUNTIME_CUDA_GPU_H

#include "runtime/device/cuda/blas.h"
#include "runtime/device/cuda/launch.h"

typedef struct DtGpu {
  const DtDriver *driver;
  const DtBlas *blas; // NULL where the program has no product for it
  CUdevice device;
  int ordinal, shown; // its number among those that the driver shows, and how many these are
  CUcontext context;
  CUstream stream; // of kernels and copies
  CUlibrary kernels; // the program's
  cublasLtHandle_t products;
  void *workspace; // scratch memory of cuBLASLt and attention, on the device
  int64_t workspace_bytes;
  int processors; // multiprocessors
} DtGpu;
extern DtGpu dt_gpu;

// The calling thread works on the GPU from here on.
void dt_gpu_enter(void);
// Ends the program with e's status, after its message and the rank's number.
_Noreturn void dt_gpu_end(DtError *e);
// Ends the program with 71 and the driver's message where `r` is no success; `doing` says what failed.
void dt_gpu_check(CUresult r, const char *doing, const char *name);
static inline CUdeviceptr dt_gpu_address(const void *p) { return (CUdeviceptr)(uintptr_t)p; }
// A launch; arg points to each argument.
void dt_cuda_run(DtCudaKernel *k, void **arg);
void dt_cuda_run_on(CUstream stream, DtCudaKernel *k, void **arg);
// The kernel dt_reduce_TYPE of arrays.h over n elements.
void dt_cuda_reduce(DtType type, CUstream stream, int64_t n, void **arg);
// The emitted kernels, as nvcc made them, or a table of functions for the stand-in of the driver.
extern const unsigned char dt_cuda_image[];

#endif
