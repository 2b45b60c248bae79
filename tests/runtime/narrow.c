// Floats that become 16-bit numbers in their own memory and come back, at any distance and length, on one thread and on
// several.
#include "runtime/base/parallel.h"
#include "runtime/base/real.h"
#include "runtime/device.h"
#include "support/check.h"

#include <stdlib.h>

static float value(int64_t i) { return (float)((i * 7919) % 100003 - 50000) / 37; }
static float rounded(int64_t i) { return dt_from_bf16(dt_to_bf16(value(i))); }

// The 16-bit numbers at a + from, of floats n, widened to floats at a + to bytes.
static void check(int64_t n, int64_t from, int64_t to) {
  char *a = calloc((size_t)(to + 4 * n + 64), 1);
  float *in = (float *)(void *)(a + from), *out = (float *)(void *)(a + to);
  for (int64_t i = 0; i < n; i++) in[i] = value(i);
  dt_device_narrow(DT_TYPE_BF16, in, in, n);
  int64_t wrong = 0;
  for (int64_t i = 0; i < n; i++) {
    uint16_t h;
    memcpy(&h, a + from + 2 * i, 2);
    wrong += h != dt_to_bf16(value(i));
  }
  CHECK(wrong == 0);
  dt_device_widen(DT_TYPE_BF16, out, in, n, false);
  for (int64_t i = 0; i < n; i++) wrong += out[i] != rounded(i);
  CHECK(wrong == 0);
  free(a);
}

static void check_add(int64_t n) {
  float *in = malloc((size_t)n * 4 + 4), *sum = malloc((size_t)n * 4 + 4);
  int64_t wrong = 0;
  for (int64_t i = 0; i < n; i++) {
    in[i] = value(i);
    sum[i] = (float)i;
  }
  dt_device_narrow(DT_TYPE_BF16, in, in, n);
  dt_device_widen(DT_TYPE_BF16, sum, in, n, true);
  for (int64_t i = 0; i < n; i++) wrong += sum[i] != (float)i + rounded(i);
  CHECK(wrong == 0);
  free(in);
  free(sum);
}

int main(void) {
  static const int64_t counts[] = {0, 1, 2, 1023, 1025, 16384, 16385, 40001, 100000, 300007};
  for (int threads = 1; threads <= 3; threads += 2) {
    dt_parallel_init(threads);
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
      int64_t n = counts[k];
      check(n, 0, 0);
      check(n, 4, 8);
      check(n, 0, n / 3 * 4);
      check(n, 0, n * 2 + 4 - n * 2 % 4);
      check_add(n);
    }
    dt_parallel_done();
  }
  return check_done();
}
