// Launches of kernels, and of the runtime's own over arrays.
#include "runtime/device/cuda/gpu.h"

#include <stdlib.h>

enum { MOST_ARGS = 520 };

static CUfunction find(DtCudaKernel *k) {
  CUkernel kernel;
  CUfunction f = __atomic_load_n(&k->function, __ATOMIC_ACQUIRE);
  if (f) return f;
  dt_gpu_check(dt_gpu.driver->cuLibraryGetKernel(&kernel, dt_gpu.kernels, k->name), "cannot find kernel", k->name);
  dt_gpu_check(dt_gpu.driver->cuKernelGetFunction(&f, kernel), "cannot load kernel", k->name);
  __atomic_store_n(&k->function, f, __ATOMIC_RELEASE);
  return f;
}

void dt_cuda_run(DtCudaKernel *k, void **arg) { dt_cuda_run_on(dt_gpu.stream, k, arg); }

void dt_cuda_run_on(CUstream stream, DtCudaKernel *k, void **arg) {
  dt_gpu_enter();
  dt_gpu_check(dt_gpu.driver->cuLaunchKernel(find(k), (unsigned)k->blocks, 1, 1, (unsigned)k->x,
                                             (unsigned)k->y, 1, 0, stream, arg, NULL),
               "cannot launch kernel", k->name);
}

static void too_many(const DtCudaKernel *k) {
  DtError e = {0};
  dt_fail(&e, DT_EXIT_BUG, "kernel %s has more than %d arguments", k->name, MOST_ARGS);
  dt_report(&e);
  _Exit(DT_EXIT_BUG);
}

void dt_cuda_launch(DtCudaKernel *k, const void *const *arg, int n) {
  void *at[MOST_ARGS];
  if (n > MOST_ARGS) too_many(k);
  for (int i = 0; i < n; i++) at[i] = (void *)(arg + i);
  dt_cuda_run(k, at);
}

void *dt_cuda_scratch(void) { return dt_gpu.workspace; }

void dt_cuda_launch_product(DtCudaKernel *k, const void *a, const void *b, const void *c, bool f64, double beta) {
  float narrow = (float)beta;
  void *at[] = {&a, &b, &c, f64 ? (void *)&beta : (void *)&narrow};
  dt_cuda_run(k, at);
}

void dt_cuda_extent(DtCudaKernel *k, int64_t count, const void *const *arg, int n) {
  void *at[MOST_ARGS + 1];
  if (n > MOST_ARGS) too_many(k);
  for (int i = 0; i < n; i++) at[i] = (void *)(arg + i);
  at[n] = &count;
  k->blocks = (count + k->x - 1) / k->x;
  if (k->blocks) dt_cuda_run(k, at);
}
