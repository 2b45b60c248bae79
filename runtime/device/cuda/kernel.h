// What emitted CUDA kernels include: types, the operators that C++ lacks or leaves undefined, reductions of a warp
// and of a block, random numbers. Compiled by nvcc for a GPU, or by a C++ compiler to run on the CPU (emulate.h).
//
// Compile with -fmad=false (g++: -ffp-contract=off): a fused multiply-add is written where the program has one.
#ifndef DT_CUDA_KERNEL_H
#define DT_CUDA_KERNEL_H

#include <stdint.h>

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define DT_ALIGNED(p, bytes) // the hardware stops at a place that is not
#else
#include "runtime/device/cuda/emulate.h"
#endif

#define DT_DEVICE static __device__ __forceinline__

typedef __nv_bfloat16 bf16;
typedef __half fp16;

// ---- neighbouring elements, which a thread loads and stores in units of up to 16 bytes. The first lies at a multiple of
// their bytes, or of 16 where they are more.
template <class T, int n> struct alignas(n * sizeof(T) < 16 ? n * sizeof(T) : 16) DtVec {
  T at[n];
  __device__ __forceinline__ T &operator[](int i) { return at[i]; }
  __device__ __forceinline__ const T &operator[](int i) const { return at[i]; }
};
template <int n, class T> DT_DEVICE DtVec<T, n> dt_load(const T *p) {
  DT_ALIGNED(p, alignof(DtVec<T, n>));
  return *reinterpret_cast<const DtVec<T, n> *>(p);
}
template <int n, class T> DT_DEVICE void dt_store(T *p, const DtVec<T, n> &v) {
  DT_ALIGNED(p, alignof(DtVec<T, n>));
  *reinterpret_cast<DtVec<T, n> *>(p) = v;
}

// ---- ints of 32 bits that wrap
DT_DEVICE int dt_add(int a, int b) { return (int)((unsigned)a + (unsigned)b); }
DT_DEVICE int dt_sub(int a, int b) { return (int)((unsigned)a - (unsigned)b); }
DT_DEVICE int dt_mul(int a, int b) { return (int)((unsigned)a * (unsigned)b); }
DT_DEVICE int dt_abs(int a) { return a < 0 ? dt_sub(0, a) : a; }

// Division towards minus infinity. By zero it gives 0, and the least int by -1 wraps.
template <class T> DT_DEVICE T dt_floor_div(T a, T b) {
  if (b == 0) return 0;
  if (b == -1) return (T)(0 - (uint64_t)a);
  return a / b - (a % b != 0 && (a % b < 0) != (b < 0));
}
template <class T> DT_DEVICE T dt_floor_mod(T a, T b) {
  if (b == 0 || b == -1) return 0;
  const T r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

// Towards zero; NaN is 0, and what no int holds is the nearest one that there is.
template <class T> DT_DEVICE int dt_to_int(T x) {
  if (x != x) return 0;
  if (x >= (T)2147483648.0) return 2147483647;
  if (x <= (T)-2147483648.0) return -2147483647 - 1;
  return (int)x;
}

// ---- the greater and the less; NaN if one is, the first of equals
template <class T> DT_DEVICE T dt_max(T a, T b) { return b > a || b != b ? b : a; }
template <class T> DT_DEVICE T dt_min(T a, T b) { return b < a || b != b ? b : a; }

// An element and its number, for argmax.
template <class T> struct DtArg {
  T value;
  int at;
};
// The greater (NaN is greatest), of equals the earlier.
template <class T> DT_DEVICE DtArg<T> dt_argmax(DtArg<T> a, DtArg<T> b) {
  const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
  const bool greater = b.value > a.value || (b_nan && !a_nan);
  const bool equal = b.value == a.value || (b_nan && a_nan);
  return greater || (equal && b.at < a.at) ? b : a;
}

// ---- reductions. The tree is a function of the number of threads, and every thread gets the same bits: of two
// operands the one of the lower thread comes first.
struct DtSum {
  template <class T> static __device__ __forceinline__ T of(T a, T b) { return a + b; }
  static __device__ __forceinline__ int of(int a, int b) { return dt_add(a, b); }
};
struct DtMax {
  template <class T> static __device__ __forceinline__ T of(T a, T b) { return dt_max(a, b); }
};
struct DtMin {
  template <class T> static __device__ __forceinline__ T of(T a, T b) { return dt_min(a, b); }
};
struct DtArgmax {
  template <class T> static __device__ __forceinline__ DtArg<T> of(DtArg<T> a, DtArg<T> b) { return dt_argmax(a, b); }
};

template <class T> DT_DEVICE T dt_from_lane(T x, int by) { return __shfl_xor_sync(0xffffffffu, x, by); }
template <class T> DT_DEVICE DtArg<T> dt_from_lane(DtArg<T> x, int by) {
  return {__shfl_xor_sync(0xffffffffu, x.value, by), __shfl_xor_sync(0xffffffffu, x.at, by)};
}

// Over groups of `lanes` neighbours, a power of two. threadIdx.x counts the lanes of a warp.
template <class Op, int lanes, class T> DT_DEVICE T dt_lanes(T x) {
#pragma unroll
  for (int by = lanes / 2; by; by /= 2) {
    const T other = dt_from_lane(x, by);
    x = threadIdx.x & by ? Op::of(other, x) : Op::of(x, other);
  }
  return x;
}

template <class Op, class T> DT_DEVICE T dt_warp_reduce(T x) { return dt_lanes<Op, 32>(x); }

// Over all threads of a block of one dimension, a power of two of them. Ends with a barrier.
template <class Op, int threads, class T> DT_DEVICE T dt_block_reduce(T x) {
  __shared__ T part[threads / 32];
  x = dt_warp_reduce<Op>(x);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
  __syncthreads();
  x = dt_lanes<Op, threads / 32>(part[threadIdx.x % (threads / 32)]);
  __syncthreads(); // part is free for the next reduction
  return x;
}

// Over threads of the same threadIdx.x in a block of 32 by `threads`. Ends with a barrier.
template <class Op, int threads, class T> DT_DEVICE T dt_column_reduce(T x) {
  __shared__ T part[threads][32];
  part[threadIdx.y][threadIdx.x] = x;
  __syncthreads();
  x = part[0][threadIdx.x];
#pragma unroll
  for (int y = 1; y < threads; y++) x = Op::of(x, part[y][threadIdx.x]);
  __syncthreads(); // part is free for the next reduction
  return x;
}

// The numbers of those threads of a block (of one dimension) for which `holds`, in ascending order; returns how many.
// list: shared, room for all threads; complete when the function returns, and read before it is called again.
template <int threads> DT_DEVICE int dt_block_list(bool holds, int *list) {
  __shared__ int count[threads / 32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const unsigned lanes = __ballot_sync(0xffffffffu, holds);
  if (lane == 0) count[warp] = __popc(lanes);
  __syncthreads(); // count is complete, and list has been read
  int before = 0, all = 0;
#pragma unroll
  for (int w = 0; w < threads / 32; w++) {
    if (w < warp) before += count[w];
    all += count[w];
  }
  if (holds) list[before + __popc(lanes & ((1u << lane) - 1))] = (int)threadIdx.x;
  __syncthreads();
  return all;
}

// ---- random numbers: dt_uniform of runtime/base/philox.h. key: seed and step.
DT_DEVICE float dt_random(const uint64_t *key, int site, int iteration, int64_t element) {
  uint64_t z = key[0] + key[1] * 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  uint32_t k0 = (uint32_t)z, k1 = (uint32_t)(z >> 32);
  uint32_t x0 = (uint32_t)element, x1 = (uint32_t)((uint64_t)element >> 32), x2 = (uint32_t)site, x3 = (uint32_t)iteration;
#pragma unroll
  for (int round = 0; round < 10; round++) {
    const uint64_t p = (uint64_t)x0 * 0xd2511f53u, q = (uint64_t)x2 * 0xcd9e8d57u;
    x0 = (uint32_t)(q >> 32) ^ x1 ^ k0;
    x2 = (uint32_t)(p >> 32) ^ x3 ^ k1;
    x1 = (uint32_t)q;
    x3 = (uint32_t)p;
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
  }
  return (float)(x0 >> 8) * 0x1p-24f; // 24 bits: exact in float and double
}

#endif
