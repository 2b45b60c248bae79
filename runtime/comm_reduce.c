// Elementwise reductions in the order of the sources. Of two numbers the later one is taken as a
// maximum where it is greater or is not a number, so that NaN wins wherever it stands; likewise
// minima. This is what the IR's max and min do.
#include "runtime/comm_op.h"

#include <string.h>

enum { TILE = 4096 }; // bytes: the running result stays in the first cache

#define SUM(a, b) ((a) + (b))
#define MAX(a, b) ((b) > (a) || (b) != (b) ? (b) : (a))
#define MIN(a, b) ((b) < (a) || (b) != (b) ? (b) : (a))

// to may be a or b: element i is read before it is written.
#define PAIR(name, T, OP)                                                                          \
  static void name(void *to, const void *a, const void *b, int64_t n) {                            \
    T *z = to;                                                                                     \
    const T *x = a, *y = b;                                                                        \
    for (int64_t i = 0; i < n; i++) z[i] = OP(x[i], y[i]);                                         \
  }
PAIR(sum_f32, float, SUM)
PAIR(max_f32, float, MAX)
PAIR(min_f32, float, MIN)
PAIR(sum_f64, double, SUM)
PAIR(max_f64, double, MAX)
PAIR(min_f64, double, MIN)
PAIR(sum_i32, uint32_t, SUM) // wraps
PAIR(max_i32, int32_t, MAX)
PAIR(min_i32, int32_t, MIN)

typedef void Pair(void *to, const void *a, const void *b, int64_t n);
static Pair *const pair[3][3] = {{sum_f32, max_f32, min_f32},
                                 {sum_f64, max_f64, min_f64},
                                 {sum_i32, max_i32, min_i32}};

void dt_reduce(DtType type, DtReduce op, void *out, const void *const *source, int n,
               int64_t count) {
  _Alignas(64) char tile[TILE];
  Pair *f = pair[type][op];
  size_t size = dt_op_size(type);
  int64_t most = TILE / (int64_t)size;
  if (n == 1) {
    if (out != source[0]) memmove(out, source[0], (size_t)count * size);
  } else if (n == 2) {
    f(out, source[0], source[1], count);
  } else {
    for (int64_t i = 0; i < count; i += most) {
      size_t at = (size_t)i * size;
      int64_t m = dt_least(most, count - i);
      f(tile, (const char *)source[0] + at, (const char *)source[1] + at, m);
      for (int k = 2; k < n - 1; k++) f(tile, tile, (const char *)source[k] + at, m);
      f((char *)out + at, tile, (const char *)source[n - 1] + at, m);
    }
  }
}
