// Small kernels written by hand, run on the CPU in one order of threads. FAULT plants a mistake in one of them; 0: none.
// Prints what differs from the plain loops; status 1 where something does.
#include "runtime/device/cuda/kernel.h"

#ifndef FAULT
#define FAULT 0
#endif
#define FAULTY(n) (FAULT == (n))

enum { ROWS = 37, COLUMNS = 100, BLOCK = 128 };

// The sum of a row, by a block that folds halves in shared memory.
extern "C" __global__ void __launch_bounds__(BLOCK) block_sum(const float *__restrict__ x, float *__restrict__ y) {
  __shared__ float part[BLOCK];
  const int t = (int)threadIdx.x;
  x += (int)blockIdx.x * COLUMNS;
  part[t] = t < COLUMNS + FAULTY(1) ? x[t] : 0.0f;
  __syncthreads();
  for (int half = BLOCK / 2; half; half /= 2) {
    if (t < half) part[t] += part[t + half];
    if (!FAULTY(2)) __syncthreads();
  }
  if (t == 0) y[blockIdx.x] = part[FAULTY(3) ? BLOCK : 0];
}

// x - max(x) of a row, in place: the row is kept in shared memory.
extern "C" __global__ void __launch_bounds__(BLOCK) row_kernel(float *x) {
  __shared__ float row[COLUMNS];
  const int t = (int)threadIdx.x;
  x += (int)blockIdx.x * COLUMNS;
  float most = -INFINITY;
  for (int d = t; d < COLUMNS; d += BLOCK) row[d] = x[d];
  if (!FAULTY(4)) __syncthreads();
  for (int d = 0; d < COLUMNS; d++) most = dt_max(most, row[d]);
  for (int d = t; d < COLUMNS; d += BLOCK) x[d] = row[COLUMNS - 1 - d] - most;
}

// Each row adds to the one before where FAULT is 5: a race between blocks.
extern "C" __global__ void __launch_bounds__(32) scale_rows(const float *x, float *y) {
  const int row = (int)blockIdx.x;
  for (int d = (int)threadIdx.x; d < COLUMNS; d += 32) {
    y[row * COLUMNS + d] = 2.0f * x[row * COLUMNS + d];
    if (FAULTY(5) && row) y[(row - 1) * COLUMNS + d] += y[row * COLUMNS + d];
  }
}

// The library's reductions, of all types.
extern "C" __global__ void __launch_bounds__(256) reductions(const float *__restrict__ x, float *__restrict__ y, int *__restrict__ at) {
  const int t = (int)threadIdx.x;
  const float v = x[t];
  const float sum = dt_block_reduce<DtSum, 256>(v), most = dt_block_reduce<DtMax, 256>(v), least = dt_block_reduce<DtMin, 256>(v);
  if (FAULTY(6) && t < 64) __syncthreads();
  const DtArg<float> best = dt_block_reduce<DtArgmax, 256>(DtArg<float>{v, t});
  const float warp = dt_warp_reduce<DtSum>(v);
  if (t == 0) y[0] = sum, y[1] = most, y[2] = least, at[0] = best.at;
  if (t % 32 == 0) y[3 + t / 32] = warp;
}

// Sums of columns by 8 threads each.
extern "C" __global__ void __launch_bounds__(256) column_sums(const float *__restrict__ x, bf16 *__restrict__ y) {
  const int d = (int)(blockIdx.x * 32 + threadIdx.x), column = d < COLUMNS ? d : COLUMNS - 1;
  float sum = 0;
  for (int row = (int)threadIdx.y; row < ROWS; row += 8) sum += x[row * COLUMNS + column];
  sum = dt_column_reduce<DtSum, 8>(sum);
  if (threadIdx.y == 0 && d < COLUMNS) y[d] = (bf16)sum;
}

static int bad;
static void expect(const char *what, int i, double got, double want) {
  if (got == want) return;
  if (!bad++) printf("%s[%d] is %.9g, not %.9g\n", what, i, got, want);
}

static float *numbers(int n) {
  float *x = (float *)malloc(sizeof(float) * (size_t)n);
  for (int i = 0; i < n; i++) x[i] = (float)((unsigned)i * 2654435761u >> 24) - 128;
  return x;
}

static float *room(int n) { // holds what no kernel writes
  float *y = (float *)malloc(sizeof(float) * (size_t)n);
  memset(y, 0x7f, sizeof(float) * (size_t)n);
  return y;
}

static void check_rows() {
  float *x = numbers(ROWS * COLUMNS), *y = room(ROWS), *z = room(ROWS * COLUMNS);
  dt_launch(ROWS, BLOCK, [&] { block_sum(x, y); });
  dt_launch(ROWS, 32, [&] { scale_rows(x, z); });
  for (int r = 0; r < ROWS; r++) {
    double sum = 0;
    for (int d = 0; d < COLUMNS; d++) {
      sum += x[r * COLUMNS + d];
      expect("scaled", r * COLUMNS + d, z[r * COLUMNS + d], 2.0 * x[r * COLUMNS + d]);
    }
    expect("block_sum", r, y[r], sum);
  }
  float *w = numbers(ROWS * COLUMNS);
  dt_launch(ROWS, BLOCK, [&] { row_kernel(w); });
  for (int r = 0; r < ROWS; r++) {
    float most = x[r * COLUMNS];
    for (int d = 0; d < COLUMNS; d++) most = x[r * COLUMNS + d] > most ? x[r * COLUMNS + d] : most;
    for (int d = 0; d < COLUMNS; d++)
      expect("row_kernel", r * COLUMNS + d, w[r * COLUMNS + d], x[r * COLUMNS + COLUMNS - 1 - d] - most);
  }
  free(x), free(y), free(z), free(w);
}

static void check_reductions() {
  float *x = numbers(256), *y = room(11);
  int at = -1;
  dt_launch(1, 256, [&] { reductions(x, y, &at); });
  float sum = 0, most = x[0], least = x[0];
  int first = 0;
  for (int i = 0; i < 256; i++) {
    sum += x[i];
    if (x[i] > most) most = x[i], first = i;
    if (x[i] < least) least = x[i];
  }
  expect("sum", 0, y[0], sum), expect("max", 0, y[1], most), expect("min", 0, y[2], least);
  expect("argmax", 0, at, first);
  for (int w = 0; w < 8; w++) {
    float part = 0;
    for (int i = 0; i < 32; i++) part += x[32 * w + i];
    expect("warp", w, y[3 + w], part);
  }
  free(x), free(y);
}

static void check_columns() {
  float *x = numbers(ROWS * COLUMNS);
  bf16 *y = (bf16 *)malloc(COLUMNS * sizeof *y);
  dt_launch((COLUMNS + 31) / 32, dim3(32, 8), [&] { column_sums(x, y); });
  for (int d = 0; d < COLUMNS; d++) {
    float sum = 0;
    for (int r = 0; r < ROWS; r++) sum += x[r * COLUMNS + d];
    expect("column_sums", d, (float)y[d], (float)(bf16)sum);
  }
  free(x), free(y);
}

int main() {
  check_rows();
  check_reductions();
  check_columns();
  if (bad) printf("%d numbers differ\n", bad);
  return bad != 0;
}
