// The device's own functions: copies of rows, zeros at any address, sums, quotients and squares of arrays at any length
// on one thread and on several, whose bits do not depend on threads; and regions that notice a write past their end.
#include "runtime/base/parallel.h"
#include "runtime/base/real.h"
#include "runtime/device.h"
#include "support/check.h"

#include <stdlib.h>

static float value(int64_t i) { return (float)((i * 7919) % 100003 - 50000) / 37; }

static void check_arithmetic(int64_t n) {
  float *a = calloc((size_t)n + 1, 4), *b = calloc((size_t)n + 1, 4);
  int64_t wrong = 0;
  for (int64_t i = 0; i < n; i++) a[i] = value(i), b[i] = value(i + 3);
  dt_device_add(DT_TYPE_F32, a, b, n);
  for (int64_t i = 0; i < n; i++) wrong += a[i] != value(i) + value(i + 3);
  dt_device_divide(DT_TYPE_F32, b, 8, n);
  for (int64_t i = 0; i < n; i++) wrong += b[i] != value(i + 3) / 8;
  CHECK(wrong == 0 && a[n] == 0 && b[n] == 0);
  free(a);
  free(b);
}

// The sum in blocks of squares_block, each in 8 lanes that are added in order.
static double squares(const double *v, int64_t n) {
  double sum = 0;
  int64_t block = dt_device_limits()->squares_block;
  for (int64_t at = 0; at < n; at += block) {
    double lane[8] = {0};
    for (int64_t i = at; i < n && i < at + block; i++) lane[(i - at) % 8] += v[i] * v[i];
    for (int l = 1; l < 8; l++) lane[0] += lane[l];
    sum += lane[0];
  }
  return sum;
}

static void check_squares(int64_t n) {
  double *v = calloc((size_t)n + 1, 8), *work = calloc((size_t)n + 1, 8), sum = -1;
  for (int64_t i = 0; i < n; i++) v[i] = 1 / (double)(i + 3);
  dt_device_squares(DT_TYPE_F64, v, n, work, &sum);
  CHECK(sum == squares(v, n));
  free(v);
  free(work);
}

static void check_rows(size_t bytes, int64_t rows) {
  size_t from_pitch = bytes + 3, to_pitch = bytes + 5, n = to_pitch * (size_t)rows + 64;
  unsigned char *from = malloc(n), *to = calloc(n, 1);
  for (size_t i = 0; i < n; i++) from[i] = (unsigned char)(1 + i % 255);
  dt_device_copy_rows(to, to_pitch, from, from_pitch, bytes, rows);
  int64_t wrong = 0;
  for (size_t i = 0; i < n; i++) {
    size_t row = i / to_pitch, at = i % to_pitch;
    bool copied = row < (size_t)rows && at < bytes;
    wrong += to[i] != (copied ? from[row * from_pitch + at] : 0);
  }
  CHECK(wrong == 0);
  free(from);
  free(to);
}

static void check_zeros(int64_t begin, int64_t n) {
  unsigned char *p = malloc((size_t)(begin + n + 64));
  int64_t wrong = 0;
  memset(p, 7, (size_t)(begin + n + 64));
  dt_device_zero(p + begin, (size_t)n);
  for (int64_t i = 0; i < begin + n + 64; i++) wrong += p[i] != (i < begin || i >= begin + n ? 7 : 0);
  CHECK(wrong == 0);
  free(p);
}

static void check_regions(void) {
  DtError e = {0};
  char *p = dt_device_alloc(1000, 0, &e), v[4] = {1, 2, 3, 4}, w[4] = {0};
  CHECK(p && !dt_device_overrun(p, 1000));
  dt_device_put(p + 996, v, 4);
  dt_device_get(w, p + 996, 4);
  CHECK(!memcmp(v, w, 4) && !dt_device_overrun(p, 1000));
  char *seen = dt_device_map(p, 1000, DT_READ);
  CHECK(!memcmp(seen + 996, v, 4));
  dt_device_unmap(p, seen, 1000, DT_READ);
  dt_device_zero(p, 1001);
  CHECK(dt_device_overrun(p, 1000));
  dt_device_free(p, 1000);
}

int main(void) {
  static const int64_t counts[] = {0, 1, 7, 9, 4095, 4096, 4097, 16385, 100003};
  for (int threads = 1; threads <= 3; threads += 2) {
    CHECK(!dt_device_open(NULL, threads, 0, 1, NULL));
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
      check_arithmetic(counts[k]);
      check_squares(counts[k]);
      for (int64_t begin = 0; begin < 18; begin += 3) check_zeros(begin, counts[k]);
      check_rows((size_t)counts[k] % 5000, 1 + counts[k] % 11);
    }
    check_zeros(1, (3 << 20) + 5);
    check_rows(12, 200000);
    check_regions();
    dt_device_close();
  }
  return check_done();
}
