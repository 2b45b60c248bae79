// Products of fragments, matrices from shared memory and copies that go on (runtime/device/cuda/tensor.h), in one order of
// threads, against plain loops: exact, since all numbers are small integers. FAULT plants a mistake; 0: none.
#include "runtime/device/cuda/tensor.h"

#ifndef FAULT
#define FAULT 0
#endif
#define FAULTY(n) (FAULT == (n))

enum { WARPS = 2, ROWS = 16 * WARPS, SUM = 32, COLUMNS = 16 };

// c = a * b, or a * b^T: a warp for 16 rows. Rows of 24 or 40 elements in shared memory.
template <class T, bool transposed> DT_DEVICE void multiply(const T *a, const T *b, float *c) {
  constexpr int rows = transposed ? COLUMNS : SUM, columns = transposed ? SUM : COLUMNS, pitch = columns + 8;
  alignas(16) __shared__ T tile_a[ROWS][SUM + 8], tile_b[rows][pitch];
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, g = lane / 4, t = lane % 4;
  for (int i = (int)threadIdx.x; i < ROWS * SUM / 8; i += 32 * WARPS)
    dt_copy_async(&tile_a[i / (SUM / 8)][i % (SUM / 8) * 8], a + i * 8, true);
  for (int i = (int)threadIdx.x; i < rows * columns / 8; i += 32 * WARPS)
    dt_copy_async(&tile_b[i / (columns / 8)][i % (columns / 8) * 8], b + i * 8, true);
  if (!FAULTY(1)) dt_copies_wait();
  if (!FAULTY(2)) __syncthreads();
  float sum[2][4] = {};
  for (int k = 0; k < SUM; k += 16) {
    uint32_t fa[4], fb[4];
    dt_load_matrices<false>(fa, &tile_a[warp * 16 + lane % 16][k + lane / 16 * 8]);
    if (transposed) dt_load_matrices<false>(fb, &tile_b[lane / 16 * 8 + lane % 8][k + lane / 8 % 2 * 8]);
    else dt_load_matrices<!FAULTY(3)>(fb, &tile_b[k + lane % 16][lane / 16 * 8]);
    if (FAULTY(4)) { // rows and columns of the fragment in the other order
      const uint32_t swap = fa[1];
      fa[1] = fa[2], fa[2] = swap;
    }
    dt_multiply(sum[0], fa, fb[FAULTY(5)], fb[!FAULTY(5)], T());
    dt_multiply(sum[1], fa, fb[2], fb[3], T());
  }
  for (int n = 0; n < 2; n++)
    for (int i = 0; i < 4; i++)
      c[(warp * 16 + g + i / 2 * 8) * COLUMNS + n * 8 + 2 * (FAULTY(6) ? g % 4 : t) + i % 2] = sum[n][i];
}

static float integer(int i, int n) { return (float)(int)(((unsigned)i * 2654435761u >> 16) % (unsigned)n) - (float)(n / 2); }

template <class T, bool transposed> static int check(const char *name) {
  T a[ROWS * SUM], b[SUM * COLUMNS];
  float c[ROWS * COLUMNS];
  for (int i = 0; i < ROWS * SUM; i++) a[i] = (T)integer(i, 11);
  for (int i = 0; i < SUM * COLUMNS; i++) b[i] = (T)integer(i + 1000, 7);
  memset(c, 0xff, sizeof c);
  dt_launch(1, 32 * WARPS, [&] { multiply<T, transposed>(a, b, c); });
  for (int i = 0; i < ROWS; i++)
    for (int j = 0; j < COLUMNS; j++) {
      float want = 0;
      for (int k = 0; k < SUM; k++) want += (float)a[i * SUM + k] * (float)(transposed ? b[j * SUM + k] : b[k * COLUMNS + j]);
      if (c[i * COLUMNS + j] == want) continue;
      printf("%s: c[%d, %d] is %g, not %g\n", name, i, j, c[i * COLUMNS + j], want);
      return 1;
    }
  return 0;
}

int main() {
  return check<bf16, false>("bf16") | check<bf16, true>("bf16, transposed") | check<fp16, false>("fp16") |
         check<fp16, true>("fp16, transposed");
}
