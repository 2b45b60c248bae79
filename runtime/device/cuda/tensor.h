// Tensor cores, and what feeds them: products of 16-bit fragments that a warp holds, matrices from shared memory to
// fragments, and copies to shared memory that go on while others compute (sm_80 and newer).
//
// Fragments, of lane 4 g + t (two neighbouring elements to a register, the lower one first):
//   a (16 x 16)   a[0]: row g, columns 2t, 2t + 1; a[1]: row g + 8; a[2], a[3]: the same 8 columns further
//   b (16 x 8)    b[0]: rows 2t, 2t + 1 of column g; b[1]: rows 8 further
//   c (16 x 8)    c[0], c[1]: row g, columns 2t, 2t + 1; c[2], c[3]: row g + 8
#ifndef DT_CUDA_TENSOR_H
#define DT_CUDA_TENSOR_H

#include "runtime/device/cuda/kernel.h"

#ifdef __CUDACC__
DT_DEVICE uint32_t dt_pair_of(float low, float high, bf16) {
  const __nv_bfloat162 p = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t *>(&p);
}
DT_DEVICE uint32_t dt_pair_of(float low, float high, fp16) {
  const __half2 p = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t *>(&p);
}

DT_DEVICE void dt_multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, bf16) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
DT_DEVICE void dt_multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, fp16) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four matrices of 8 x 8: lane 8 m + i has the place of row i of matrix m in shared memory, and gets to[m]: elements 2t
// and 2t + 1 of row g; or, transposed, rows 2t and 2t + 1 of column g.
template <bool transposed, class T> DT_DEVICE void dt_load_matrices(uint32_t (&to)[4], const T *row) {
  const uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
  if (transposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at) : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at) : "memory");
}

// 16 bytes to shared memory, or zeros where not `some`. They are there after the thread's dt_copies_wait, for other
// threads after a barrier behind it.
DT_DEVICE void dt_copy_async(void *to, const void *from, bool some) {
  const uint32_t at = (uint32_t)__cvta_generic_to_shared(to);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(some ? 16 : 0) : "memory");
}
DT_DEVICE void dt_copies_wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }

#else
template <class T> DT_DEVICE uint32_t dt_pair_of(float low, float high, T) {
  return (uint32_t)((T)low).bits | (uint32_t)((T)high).bits << 16;
}
template <class T> DT_DEVICE float dt_half_of(uint32_t pair, int which) {
  T v;
  v.bits = (uint16_t)(pair >> 16 * which);
  return (float)v;
}
#define dt_multiply(c, a, b0, b1, type) dt_emulate_multiply(c, a, b0, b1, type, DT_PLACE)
#define dt_load_matrices dt_emulate_matrices
#define dt_copy_async dt_emulate_copy
#define dt_copies_wait dt_emulate_copies_wait

// Each lane hands over its fragments and computes its elements of c, in float, in the order of columns of a.
template <class T>
DT_DEVICE void dt_emulate_multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, T, const char *at) {
  const uint32_t hand[6] = {a[0], a[1], a[2], a[3], b0, b1};
  DtSlots *slots = dt_meet(hand, sizeof hand, at);
  const int g = (int)dt_self->lane / 4, t = (int)dt_self->lane % 4;
  for (int k = 0; k < 16; k++) {
    uint32_t of_a[6], of_b[2][6];
    memcpy(of_a, (*slots)[g * 4 + k % 8 / 2], sizeof of_a);
    for (int j = 0; j < 2; j++) memcpy(of_b[j], (*slots)[(2 * t + j) * 4 + k % 8 / 2], sizeof of_b[j]);
    for (int i = 0; i < 4; i++)
      c[i] += dt_half_of<T>(of_a[i / 2 + 2 * (k / 8)], k % 2) * dt_half_of<T>(of_b[i % 2][4 + k / 8], k % 2);
  }
}

template <bool transposed, class T> DT_DEVICE void dt_emulate_matrices(uint32_t (&to)[4], const T *row) {
  DT_ALIGNED(row, 16);
  DtSlots *slots = dt_meet(row, 16, "dt_load_matrices");
  const int g = (int)dt_self->lane / 4, t = (int)dt_self->lane % 4;
  for (int m = 0; m < 4; m++) {
    uint16_t low, high;
    memcpy(&low, (*slots)[8 * m + (transposed ? 2 * t : g)] + 2 * (transposed ? g : 2 * t), 2);
    memcpy(&high, (*slots)[8 * m + (transposed ? 2 * t + 1 : g)] + 2 * (transposed ? g : 2 * t + 1), 2);
    to[m] = (uint32_t)low | (uint32_t)high << 16;
  }
}

// The copied bytes are NaN until the thread waits.
struct DtCopy {
  void *to;
  unsigned char bytes[16];
};
enum { DT_MOST_COPIES = 128 };
static DtCopy dt_copies[DT_MOST_THREADS][DT_MOST_COPIES];
static int dt_copy_count[DT_MOST_THREADS];
DT_DEVICE void dt_emulate_copy(void *to, const void *from, bool some) {
  const int thread = (int)(dt_self - dt_block.fiber), n = dt_copy_count[thread]++;
  if (n >= DT_MOST_COPIES) abort();
  DT_ALIGNED(to, 16);
  if (some) DT_ALIGNED(from, 16);
  dt_copies[thread][n].to = to;
  if (some) memcpy(dt_copies[thread][n].bytes, from, 16);
  else memset(dt_copies[thread][n].bytes, 0, 16);
  memset(to, 0xff, 16);
}
DT_DEVICE void dt_emulate_copies_wait() {
  const int thread = (int)(dt_self - dt_block.fiber);
  for (int i = 0; i < dt_copy_count[thread]; i++) memcpy(dt_copies[thread][i].to, dt_copies[thread][i].bytes, 16);
  dt_copy_count[thread] = 0;
}
#endif

#endif
