// Elementwise reductions in the order of the sources; 16-bit numbers are reduced in float, and the result is rounded
// once. Of two numbers the later one is taken as a maximum where it is greater or is not a number, so that NaN wins
// wherever it stands; likewise minima. This is what the IR's max and min do.
#include "runtime/comm/comm_op.h"

#include "runtime/base/processor.h"

#include <string.h>

enum { TILE = 4096 }; // bytes: the running result stays in the first cache

#define SUM(a, b) ((a) + (b))
#define MAX(a, b) ((b) > (a) || (b) != (b) ? (b) : (a))
#define MIN(a, b) ((b) < (a) || (b) != (b) ? (b) : (a))

typedef void Pair(void *to, const void *a, const void *b, int64_t n);

// to may be a or b: element i is read before it is written.
#define PAIR(name, T, OP, ...)                                                      \
  __VA_ARGS__ static void name(void *to, const void *a, const void *b, int64_t n) { \
    T *z = to;                                                                      \
    const T *x = a, *y = b;                                                         \
    for (int64_t i = 0; i < n; i++) z[i] = OP(x[i], y[i]);                          \
  }
// Sums of int32 wrap. The table is by DtType and DtReduce; 16-bit types have no pairs.
#define PAIRS(level, ...)                                                                       \
  PAIR(sum_f32_##level, float, SUM, __VA_ARGS__)                                                \
  PAIR(max_f32_##level, float, MAX, __VA_ARGS__)                                                \
  PAIR(min_f32_##level, float, MIN, __VA_ARGS__)                                                \
  PAIR(sum_f64_##level, double, SUM, __VA_ARGS__)                                               \
  PAIR(max_f64_##level, double, MAX, __VA_ARGS__)                                               \
  PAIR(min_f64_##level, double, MIN, __VA_ARGS__)                                               \
  PAIR(sum_i32_##level, uint32_t, SUM, __VA_ARGS__)                                             \
  PAIR(max_i32_##level, int32_t, MAX, __VA_ARGS__)                                              \
  PAIR(min_i32_##level, int32_t, MIN, __VA_ARGS__)                                              \
  static Pair *const pair_##level[3][3] = {{sum_f32_##level, max_f32_##level, min_f32_##level}, \
                                           {sum_f64_##level, max_f64_##level, min_f64_##level}, \
                                           {sum_i32_##level, max_i32_##level, min_i32_##level}};

PAIRS(base, )
#if DT_VECTORS
// Wider, with the same results: each element is one operation.
PAIRS(wide, DT_FOR_256)
static Pair *pair(DtType type, DtReduce op) {
  return (dt_vector_bits() >= 256 ? pair_wide : pair_base)[type][op];
}
#else
static Pair *pair(DtType type, DtReduce op) { return pair_base[type][op]; }
#endif

enum { WIDE = TILE / sizeof(float) };

static void reduce_16_bit(DtType type, DtReduce op, void *out, const void *const *source, int n,
                          int64_t count) {
  _Alignas(64) float sum[WIDE], next[WIDE];
  Pair *f = pair(DT_TYPE_F32, op);
  for (int64_t i = 0; i < count; i += WIDE) {
    int64_t m = dt_least(WIDE, count - i);
    dt_widen(type, sum, (const uint16_t *)source[0] + i, m);
    for (int k = 1; k < n; k++) {
      dt_widen(type, next, (const uint16_t *)source[k] + i, m);
      f(sum, sum, next, m);
    }
    dt_narrow(type, (uint16_t *)out + i, sum, m);
  }
}

void dt_reduce(DtType type, DtReduce op, void *out, const void *const *source, int n,
               int64_t count) {
  _Alignas(64) char tile[TILE];
  size_t size = dt_type_size(type);
  int64_t most = TILE / (int64_t)size;
  if (n == 1) {
    if (out != source[0]) memmove(out, source[0], (size_t)count * size);
  } else if (dt_is_16_bit(type)) {
    reduce_16_bit(type, op, out, source, n, count);
  } else if (n == 2) {
    pair(type, op)(out, source[0], source[1], count);
  } else {
    Pair *f = pair(type, op);
    for (int64_t i = 0; i < count; i += most) {
      size_t at = (size_t)i * size;
      int64_t m = dt_least(most, count - i);
      f(tile, (const char *)source[0] + at, (const char *)source[1] + at, m);
      for (int k = 2; k < n - 1; k++) f(tile, tile, (const char *)source[k] + at, m);
      f((char *)out + at, tile, (const char *)source[n - 1] + at, m);
    }
  }
}
