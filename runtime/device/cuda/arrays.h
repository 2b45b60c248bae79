// The runtime's own kernels over arrays (runtime/device.h): every emitted .cu file ends with them.
#ifndef DT_CUDA_ARRAYS_H
#define DT_CUDA_ARRAYS_H

#include "runtime/device/cuda/kernel.h"
#include "runtime/device/cuda/sizes.h"

// The elements of a thread, of n: i, then one for each round of the grid's threads.
#define DT_EACH(i, n)                                                                                                  \
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x)

#define DT_ARRAY_KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)

// to[i] += from[i]; v[i] /= by
DT_ARRAY_KERNEL(256) dt_add_f32(float *to, const float *from, int64_t n) { DT_EACH(i, n) to[i] += from[i]; }
DT_ARRAY_KERNEL(256) dt_add_f64(double *to, const double *from, int64_t n) { DT_EACH(i, n) to[i] += from[i]; }
DT_ARRAY_KERNEL(256) dt_divide_f32(float *v, double by, int64_t n) { DT_EACH(i, n) v[i] /= (float)by; }
DT_ARRAY_KERNEL(256) dt_divide_f64(double *v, double by, int64_t n) { DT_EACH(i, n) v[i] /= by; }

// part[b]: the sum of the squares of elements [4096 b, 4096 b + 4096), a block of threads for each b.
template <class T> DT_DEVICE void dt_square_block(const T *v, int64_t n, double *part) {
  for (int64_t b = blockIdx.x; b * DT_SQUARES_BLOCK < n; b += gridDim.x) {
    const int64_t first = b * DT_SQUARES_BLOCK, left = n - first;
    double sum = 0;
    for (int i = threadIdx.x; i < DT_SQUARES_BLOCK && i < left; i += 256) sum += (double)v[first + i] * (double)v[first + i];
    sum = dt_block_reduce<DtSum, 256>(sum);
    if (threadIdx.x == 0) part[b] = sum;
  }
}
DT_ARRAY_KERNEL(256) dt_squares_f32(const float *v, int64_t n, double *part) { dt_square_block(v, n, part); }
DT_ARRAY_KERNEL(256) dt_squares_f64(const double *v, int64_t n, double *part) { dt_square_block(v, n, part); }
// *to: the sum of n of them, by one block
DT_ARRAY_KERNEL(256) dt_sum_parts(const double *part, int64_t n, double *to) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += 256) sum += part[i];
  sum = dt_block_reduce<DtSum, 256>(sum);
  if (threadIdx.x == 0) *to = sum;
}

// out[i] = the reduction over members m, in their order, of own[i] where m is `me`, else parts[m * stride + i]; 16-bit
// numbers are added up in float, and rounded once. op: a DtReduce. NaN is the greatest and the least.
template <class A> DT_DEVICE A dt_reduced(A a, A b, int64_t op) {
  return op == 0 ? a + b : op == 1 ? (b > a || b != b ? b : a) : (b < a || b != b ? b : a);
}
DT_DEVICE int dt_reduced(int a, int b, int64_t op) {
  return op == 0 ? (int)((unsigned)a + (unsigned)b) : op == 1 ? (b > a ? b : a) : (b < a ? b : a);
}
template <class A, class T>
DT_DEVICE void dt_reduce_members(T *out, const T *own, const T *parts, int64_t stride, int64_t me, int64_t members, int64_t n,
                                 int64_t op) {
  DT_EACH(i, n) {
    A sum = (A)(me == 0 ? own[i] : parts[i]);
    for (int64_t m = 1; m < members; m++) sum = dt_reduced(sum, (A)(me == m ? own[i] : parts[m * stride + i]), op);
    out[i] = (T)sum;
  }
}
#define DT_REDUCTION(name, A, T)                                                                                       \
  DT_ARRAY_KERNEL(256) dt_reduce_##name(T *out, const T *own, const T *parts, int64_t stride, int64_t me,              \
                                        int64_t members, int64_t n, int64_t op) {                                      \
    dt_reduce_members<A>(out, own, parts, stride, me, members, n, op);                                                 \
  }
DT_REDUCTION(f32, float, float)
DT_REDUCTION(f64, double, double)
DT_REDUCTION(i32, int, int)
DT_REDUCTION(bf16, float, bf16)
DT_REDUCTION(f16, float, fp16)

// Elements [first, n) to 16 bits and back. Where both arrays begin at one place, the host calls with ranges whose
// elements lie apart, or, for the first DT_IN_PLACE elements, with one block, which reads all before it writes.
template <class H> DT_DEVICE void dt_narrow_all(H *to, const float *from, int64_t first, int64_t n) {
  DT_EACH(i, n - first) to[first + i] = (H)from[first + i];
}
template <class H> DT_DEVICE void dt_widen_all(float *to, const H *from, int64_t first, int64_t n, int add) {
  DT_EACH(i, n - first) to[first + i] = add ? to[first + i] + (float)from[first + i] : (float)from[first + i];
}
template <class To, class From> DT_DEVICE void dt_convert_block(To *to, const From *from, int n) {
  const int i = threadIdx.x;
  const From v = from[i < n ? i : 0];
  __syncthreads(); // all are read
  if (i < n) to[i] = (To)v;
}
#define DT_CONVERSIONS(name, H)                                                                                        \
  DT_ARRAY_KERNEL(256) dt_narrow_##name(H *to, const float *from, int64_t first, int64_t n) {                          \
    dt_narrow_all(to, from, first, n);                                                                                 \
  }                                                                                                                    \
  DT_ARRAY_KERNEL(256) dt_widen_##name(float *to, const H *from, int64_t first, int64_t n, int64_t add) {              \
    dt_widen_all(to, from, first, n, (int)add);                                                                        \
  }                                                                                                                    \
  DT_ARRAY_KERNEL(DT_IN_PLACE) dt_narrow_block_##name(H *to, const float *from, int64_t n) {                           \
    dt_convert_block(to, from, (int)n);                                                                                \
  }                                                                                                                    \
  DT_ARRAY_KERNEL(DT_IN_PLACE) dt_widen_block_##name(float *to, const H *from, int64_t n) {                            \
    dt_convert_block(to, from, (int)n);                                                                                \
  }
DT_CONVERSIONS(bf16, bf16)
DT_CONVERSIONS(f16, fp16)

#define DT_ARRAY_KERNELS(X)                                                                                            \
  X(dt_add_f32), X(dt_add_f64), X(dt_divide_f32), X(dt_divide_f64), X(dt_squares_f32), X(dt_squares_f64),              \
      X(dt_sum_parts), X(dt_reduce_f32), X(dt_reduce_f64), X(dt_reduce_i32), X(dt_reduce_bf16), X(dt_reduce_f16),      \
      X(dt_narrow_bf16), X(dt_narrow_f16), X(dt_widen_bf16), X(dt_widen_f16),                         \
      X(dt_narrow_block_bf16), X(dt_narrow_block_f16), X(dt_widen_block_bf16), X(dt_widen_block_f16)

#endif
