// Copies, and what the runtime computes of arrays in the GPU's memory.
#include "runtime/device/cuda/gpu.h"

#include "runtime/base/real.h"
#include "runtime/device/cuda/sizes.h"

static CUresult row_copy(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t bytes, int64_t rows) {
  CUDA_MEMCPY2D c = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                     .srcDevice = dt_gpu_address(from),
                     .srcPitch = from_pitch,
                     .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                     .dstDevice = dt_gpu_address(to),
                     .dstPitch = to_pitch,
                     .WidthInBytes = bytes,
                     .Height = (size_t)rows};
  return dt_gpu.driver->cuMemcpy2DAsync_v2(&c, dt_gpu.stream);
}

void dt_device_zero(void *p, size_t bytes) {
  if (dt_rehearsing || !bytes) return;
  dt_gpu_enter();
  dt_gpu_check(dt_gpu.driver->cuMemsetD8Async(dt_gpu_address(p), 0, bytes, dt_gpu.stream), "cannot fill memory", NULL);
}

void dt_device_copy(void *to, const void *from, size_t bytes) {
  if (dt_rehearsing || !bytes) return;
  dt_gpu_enter();
  dt_gpu_check(dt_gpu.driver->cuMemcpyDtoDAsync_v2(dt_gpu_address(to), dt_gpu_address(from), bytes, dt_gpu.stream),
               "cannot copy", NULL);
}

void dt_device_copy_rows(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t bytes, int64_t rows) {
  if (dt_rehearsing || !bytes || rows < 1) return;
  dt_gpu_enter();
  dt_gpu_check(row_copy(to, to_pitch, from, from_pitch, bytes, rows), "cannot copy rows", NULL);
}

// ---- kernels of arrays.h

// Enough blocks for all elements, or to fill the GPU some times over.
static void run_on(CUstream stream, DtCudaKernel *k, int64_t points, void **arg) {
  int64_t most = (int64_t)dt_gpu.processors * 16, blocks = (points + k->x - 1) / k->x;
  k->blocks = blocks < 1 ? 1 : blocks < most ? blocks : most;
  dt_cuda_run_on(stream, k, arg);
}

static void run(DtCudaKernel *k, int64_t points, void **arg) { run_on(dt_gpu.stream, k, points, arg); }

#define KERNEL(name, threads) static DtCudaKernel name = {"dt_" #name, 1, threads, 1, NULL}
KERNEL(add_f32, 256);
KERNEL(add_f64, 256);
KERNEL(divide_f32, 256);
KERNEL(divide_f64, 256);
KERNEL(squares_f32, 256);
KERNEL(squares_f64, 256);
KERNEL(sum_parts, 256);
KERNEL(reduce_f32, 256);
KERNEL(reduce_f64, 256);
KERNEL(reduce_i32, 256);
KERNEL(reduce_bf16, 256);
KERNEL(reduce_f16, 256);
KERNEL(narrow_bf16, 256);
KERNEL(narrow_f16, 256);
KERNEL(widen_bf16, 256);
KERNEL(widen_f16, 256);
KERNEL(narrow_block_bf16, DT_IN_PLACE);
KERNEL(narrow_block_f16, DT_IN_PLACE);
KERNEL(widen_block_bf16, DT_IN_PLACE);
KERNEL(widen_block_f16, DT_IN_PLACE);

void dt_device_add(DtType type, void *to, const void *from, int64_t n) {
  void *arg[] = {&to, (void *)&from, &n};
  if (!dt_rehearsing && n > 0) run(type == DT_TYPE_F64 ? &add_f64 : &add_f32, n, arg);
}

void dt_device_divide(DtType type, void *v, double by, int64_t n) {
  void *arg[] = {&v, &by, &n};
  if (!dt_rehearsing && n > 0) run(type == DT_TYPE_F64 ? &divide_f64 : &divide_f32, n, arg);
}

void dt_device_squares(DtType type, const void *v, int64_t n, double *work, double *sum) {
  int64_t parts = (n + DT_SQUARES_BLOCK - 1) / DT_SQUARES_BLOCK;
  void *square[] = {(void *)&v, &n, &work}, *add[] = {&work, &parts, &sum};
  if (dt_rehearsing) return;
  if (parts) run(type == DT_TYPE_F64 ? &squares_f64 : &squares_f32, parts * 256, square);
  dt_cuda_run(&sum_parts, add);
}

// By the communication thread alone: a kernel's number of blocks is of its launch.
void dt_cuda_reduce(DtType type, CUstream stream, int64_t n, void **arg) {
  static DtCudaKernel *const of[] = {[DT_TYPE_F32] = &reduce_f32, [DT_TYPE_F64] = &reduce_f64,   [DT_TYPE_I32] = &reduce_i32,
                                     [DT_TYPE_BF16] = &reduce_bf16, [DT_TYPE_F16] = &reduce_f16};
  run_on(stream, of[type], n, arg);
}

// ---- 16 bits

static void narrow_range(DtType type, void *to, const float *from, int64_t first, int64_t n) {
  void *arg[] = {&to, (void *)&from, &first, &n};
  run(type == DT_TYPE_BF16 ? &narrow_bf16 : &narrow_f16, n - first, arg);
}

void dt_device_narrow(DtType type, void *to, const float *from, int64_t n) {
  if (dt_rehearsing || n < 1) return;
  if ((const void *)to != from) {
    narrow_range(type, to, from, 0, n);
    return;
  }
  int64_t done = n < DT_IN_PLACE ? n : DT_IN_PLACE;
  void *arg[] = {&to, (void *)&from, &done};
  dt_cuda_run(type == DT_TYPE_BF16 ? &narrow_block_bf16 : &narrow_block_f16, arg);
  while (done < n) { // elements [n, 2n) go to where [n/2, n) were, which are done
    int64_t next = 2 * done < n ? 2 * done : n;
    narrow_range(type, to, from, done, next);
    done = next;
  }
}

static void widen_range(DtType type, float *to, const void *from, int64_t first, int64_t n, int64_t add) {
  void *arg[] = {&to, (void *)&from, &first, &n, &add};
  run(type == DT_TYPE_BF16 ? &widen_bf16 : &widen_f16, n - first, arg);
}

// From the end: elements from `first` on may be written in any order where their floats lie behind all of the 16-bit
// numbers that are left.
void dt_device_widen(DtType type, float *to, const void *from, int64_t n, bool add) {
  const char *wide = (const char *)to, *narrow = from;
  bool apart = wide >= narrow + 2 * n || wide + 4 * n <= narrow;
  if (dt_rehearsing || n < 1) return;
  if (apart) {
    widen_range(type, to, from, 0, n, add);
    return;
  }
  int64_t gap = (wide - narrow) / 4;
  while (n > DT_IN_PLACE) {
    int64_t first = (n + 1) / 2 - gap;
    widen_range(type, to, from, first < 0 ? 0 : first, n, 0);
    n = first < 0 ? 0 : first;
  }
  void *arg[] = {&to, (void *)&from, &n};
  if (n > 0) dt_cuda_run(type == DT_TYPE_BF16 ? &widen_block_bf16 : &widen_block_f16, arg);
}
