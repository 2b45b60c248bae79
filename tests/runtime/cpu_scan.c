// Running sums against plain ones: every kind, strides that nest and that do not, more columns than
// go along together; the same bits on 1, 2 and 3 threads; a million elements are no trouble.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/device/cpu/scan.h"
#include "runtime/base/parallel.h"

static uint64_t state = 88172645463325252u;
static int failures;

static double random_unit(void) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return (double)(state >> 11) * 0x1p-52 - 1;
}

// Point p of the dimensions beside the one summed along: where it begins.
static void point(const DtScan *s, int64_t p, int64_t *x, int64_t *y) {
  *x = p % s->count * s->x_col;
  *y = p % s->count * s->y_col;
  p /= s->count;
  for (int k = s->nloop; k-- > 0; p /= s->loop[k].count) {
    *x += p % s->loop[k].count * s->loop[k].x;
    *y += p % s->loop[k].count * s->loop[k].y;
  }
}

static int64_t points(const DtScan *s) {
  int64_t n = s->count;
  for (int k = 0; k < s->nloop; k++) n *= s->loop[k].count;
  return n;
}

static double plain(const DtScan *s, const double *x, int64_t i) {
  double sum = 0;
  for (int64_t k = 0; k < s->n; k++) {
    int64_t j = s->reverse ? s->n - 1 - k : k;
    bool in = s->reverse ? j > i : j < i;
    if (in || (j == i && !s->exclusive)) sum += x[j * s->x];
  }
  return sum;
}

static void check(DtScan s, int64_t nx, int64_t ny) {
  double *x = malloc(8 * (size_t)nx), *want = malloc(8 * (size_t)ny), *y = malloc(8 * (size_t)ny);
  float *xf = malloc(4 * (size_t)nx), *yf = malloc(4 * (size_t)ny), *first = malloc(4 * (size_t)ny);
  int32_t *xi = malloc(4 * (size_t)nx), *yi = malloc(4 * (size_t)ny);
  for (int64_t i = 0; i < nx; i++) {
    xf[i] = (float)random_unit();
    x[i] = xf[i];
    xi[i] = (int32_t)(random_unit() * 0x1p31);
  }
  for (int kind = 0; kind < 8; kind++) {
    s.reverse = kind & 1, s.exclusive = kind & 2, s.add = kind & 4;
    for (int threads = 1; threads <= 3; threads++) {
      dt_parallel_init(threads);
      for (int64_t i = 0; i < ny; i++) y[i] = yf[i] = 0.5, yi[i] = 7;
      memcpy(want, y, 8 * (size_t)ny);
      dt_scan_f64(&s, x, y);
      dt_scan_f32(&s, xf, yf);
      dt_scan_i32(&s, xi, yi);
      if (threads == 1) memcpy(first, yf, 4 * (size_t)ny);
      if (memcmp(first, yf, 4 * (size_t)ny))
        failures++, printf("other bits on %d threads\n", threads);
    }
    for (int64_t p = 0; p < points(&s); p++)
      for (int64_t i = 0; i < s.n; i++) {
        int64_t at, to;
        point(&s, p, &at, &to);
        double sum = plain(&s, x + at, i), base = s.add ? 0.5 : 0;
        uint32_t wrapped = s.add ? 7 : 0;
        for (int64_t j = 0; j < s.n; j++)
          if ((s.reverse ? j > i : j < i) || (j == i && !s.exclusive))
            wrapped += (uint32_t)xi[at + j * s.x];
        to += i * s.y;
        want[to] = y[to];
        bool ok = y[to] == base + sum && yf[to] == (float)base + (float)sum &&
                  yi[to] == (int32_t)wrapped;
        if (!ok && failures++ < 5)
          printf("kind %d, point %lld, %lld: %.17g %.9g %d, should be %.17g %d\n", kind,
                 (long long)p, (long long)i, y[to], yf[to], yi[to], base + sum, (int32_t)wrapped);
      }
    if (memcmp(want, y, 8 * (size_t)ny)) failures++, printf("wrote between the elements\n");
  }
  free(x), free(want), free(y), free(xf), free(yf), free(first), free(xi), free(yi);
}

static void check_long(void) {
  enum { N = 1000000 };
  int32_t *x = malloc(4 * N), *y = malloc(4 * N);
  for (int i = 0; i < N; i++) x[i] = i % 7 - 2;
  dt_scan_i32(&(DtScan){.n = N, .x = 1, .y = 1, .count = 1}, x, y);
  if (y[N - 1] != 999997 || y[6] != 7) failures++, printf("a long one ends in %d\n", y[N - 1]);
  free(x), free(y);
}

int main(void) {
  check((DtScan){.n = 70, .x = 1, .y = 1, .count = 1}, 70, 70);
  check((DtScan){.n = 1, .x = 1, .y = 1, .count = 1}, 1, 1);
  check((DtScan){.n = 33, .x = 37, .y = 37, .count = 37, .x_col = 1, .y_col = 1}, 33 * 37, 33 * 37);
  check((DtScan){.n = 19, .x = 1, .y = 1, .count = 50, .x_col = 19, .y_col = 20}, 950, 1000);
  check((DtScan){.n = 9, .x = 4, .y = 70, .count = 5, .x_col = 40, .y_col = 2, .nloop = 2,
                 .loop = {{3, 1, 650}, {7, 0, 10}}}, 250, 2000);
  check_long();
  dt_parallel_done();
  return failures != 0;
}
