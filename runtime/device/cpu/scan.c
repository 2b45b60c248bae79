#include "runtime/device/cpu/scan.h"

#include "runtime/base/parallel.h"

// Columns that are added up side by side: their additions do not wait for one another.
enum { WIDTH = 16 };

static int64_t blocks(const DtScan *s) { return (s->count + WIDTH - 1) / WIDTH; }

// Where the task's block of columns begins in x and y; returns how many columns it has.
static int64_t place(const DtScan *s, int64_t task, int64_t *x, int64_t *y) {
  int64_t first = task % blocks(s) * WIDTH, at = task / blocks(s);
  *x = first * s->x_col;
  *y = first * s->y_col;
  for (int k = s->nloop; k-- > 0; at /= s->loop[k].count) {
    *x += at % s->loop[k].count * s->loop[k].x;
    *y += at % s->loop[k].count * s->loop[k].y;
  }
  return s->count - first < WIDTH ? s->count - first : WIDTH;
}

// One block, `acc` its running sums; the compiler makes a separate loop of each kind.
#define BLOCK(T, SUM, OUT)                                                                         \
  SUM acc[WIDTH] = {0};                                                                            \
  int64_t dx = s->reverse ? -s->x : s->x, dy = s->reverse ? -s->y : s->y;                          \
  if (s->reverse) x += (s->n - 1) * s->x, y += (s->n - 1) * s->y;                                  \
  for (int64_t i = 0; i < s->n; i++, x += dx, y += dy)                                             \
    for (int64_t c = 0; c < columns; c++) {                                                        \
      SUM before = acc[c];                                                                         \
      acc[c] += (SUM)x[c * s->x_col];                                                              \
      T sum = (T)(s->exclusive ? before : acc[c]);                                                 \
      y[c * s->y_col] = s->add ? OUT(y[c * s->y_col], sum) : sum;                                  \
    }

#define SUM_OF(a, b) ((a) + (b))
#define WRAPPED_SUM_OF(a, b) ((int32_t)((uint32_t)(a) + (uint32_t)(b)))

#define SCAN(name, T, SUM, OUT)                                                                    \
  static void block_##name(const DtScan *s, const T *x, T *y, int64_t columns) {                   \
    BLOCK(T, SUM, OUT)                                                                             \
  }                                                                                                \
  static void tasks_##name(void *const *arg, int64_t begin, int64_t end) {                         \
    const DtScan *s = arg[0];                                                                      \
    for (int64_t t = begin; t < end; t++) {                                                        \
      int64_t x, y, columns = place(s, t, &x, &y);                                                 \
      block_##name(s, (const T *)arg[1] + x, (T *)arg[2] + y, columns);                            \
    }                                                                                              \
  }                                                                                                \
  void dt_scan_##name(const DtScan *s, const T *x, T *y) {                                         \
    void *arg[] = {(void *)s, (void *)x, y};                                                       \
    int64_t n = blocks(s), points = s->n * WIDTH;                                                  \
    for (int k = 0; k < s->nloop; k++) n *= s->loop[k].count;                                      \
    dt_parallel(tasks_##name, arg, n, points < 16384 ? 16384 / points : 1);                        \
  }

SCAN(f32, float, double, SUM_OF)
SCAN(f64, double, double, SUM_OF)
SCAN(i32, int32_t, uint32_t, WRAPPED_SUM_OF)
