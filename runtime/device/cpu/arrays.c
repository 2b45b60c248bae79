// What the runtime computes of arrays in the device's memory: sums, quotients, squares, and conversions to and from
// 16 bits. All threads work; an element's bits depend on no thread.
#include "runtime/device.h"

#include "runtime/base/parallel.h"
#include "runtime/base/real.h"

enum { LANES = 8 };

static void add_part(void *const *arg, int64_t begin, int64_t end) {
  const DtType *type = arg[0];
  if (*type == DT_TYPE_F64) {
    double *to = arg[1];
    const double *from = arg[2];
    for (int64_t i = begin; i < end; i++) to[i] += from[i];
  } else {
    float *to = arg[1];
    const float *from = arg[2];
    for (int64_t i = begin; i < end; i++) to[i] += from[i];
  }
}

void dt_device_add(DtType type, void *to, const void *from, int64_t n) {
  void *arg[] = {&type, to, (void *)from};
  dt_parallel(add_part, arg, n, 1 << 14);
}

static void divide_part(void *const *arg, int64_t begin, int64_t end) {
  const DtType *type = arg[0];
  const double *by = arg[2];
  if (*type == DT_TYPE_F64) {
    double *v = arg[1];
    for (int64_t i = begin; i < end; i++) v[i] /= *by;
  } else {
    float *v = arg[1], divisor = (float)*by;
    for (int64_t i = begin; i < end; i++) v[i] /= divisor;
  }
}

void dt_device_divide(DtType type, void *v, double by, int64_t n) {
  void *arg[] = {&type, v, &by};
  dt_parallel(divide_part, arg, n, 1 << 14);
}

// ---- squares

static double squares_f64(const double *v, int64_t n) {
  double sum[LANES] = {0};
  for (int64_t i = 0; i < n / LANES * LANES; i += LANES)
    for (int l = 0; l < LANES; l++) sum[l] += v[i + l] * v[i + l];
  for (int64_t i = n / LANES * LANES; i < n; i++) sum[i % LANES] += v[i] * v[i];
  for (int l = 1; l < LANES; l++) sum[0] += sum[l];
  return sum[0];
}

static double squares_f32(const float *v, int64_t n) {
  double sum[LANES] = {0};
  for (int64_t i = 0; i < n / LANES * LANES; i += LANES)
    for (int l = 0; l < LANES; l++) sum[l] += (double)v[i + l] * (double)v[i + l];
  for (int64_t i = n / LANES * LANES; i < n; i++) sum[i % LANES] += (double)v[i] * (double)v[i];
  for (int l = 1; l < LANES; l++) sum[0] += sum[l];
  return sum[0];
}

typedef struct Squares {
  DtType type;
  const char *v;
  int64_t n, block;
  double *work;
} Squares;

static void square_blocks(void *const *arg, int64_t begin, int64_t end) {
  const Squares *s = arg[0];
  for (int64_t i = begin; i < end; i++) {
    int64_t first = i * s->block, n = s->n - first < s->block ? s->n - first : s->block;
    const void *at = s->v + (size_t)first * dt_type_size(s->type);
    s->work[i] = s->type == DT_TYPE_F64 ? squares_f64(at, n) : squares_f32(at, n);
  }
}

void dt_device_squares(DtType type, const void *v, int64_t n, double *work, double *sum) {
  Squares s = {type, v, n, dt_device_limits()->squares_block, work};
  int64_t blocks = (n + s.block - 1) / s.block;
  void *arg[] = {&s};
  if (dt_rehearsing) return;
  dt_parallel(square_blocks, arg, blocks, 1);
  *sum = 0;
  for (int64_t i = 0; i < blocks; i++) *sum += work[i];
}

// ---- 16 bits

enum { TILE = 1024, CHUNK = 1 << 14 }; // elements; of a tile that converts in place, of a thread's part

typedef struct Conversion {
  DtType type;
  char *wide, *narrow; // arrays of floats, of 16-bit numbers
  bool add;
} Conversion;

static float *wide_at(const Conversion *c, int64_t i) { return (float *)(void *)c->wide + i; }
static uint16_t *narrow_at(const Conversion *c, int64_t i) {
  return (uint16_t *)(void *)c->narrow + i;
}
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static void narrow_part(void *const *arg, int64_t begin, int64_t end) {
  const Conversion *c = arg[0];
  const int64_t *first = arg[1];
  uint16_t tile[TILE];
  for (int64_t i = *first + begin, stop = *first + end; i < stop; i += TILE) {
    int64_t n = least(TILE, stop - i);
    dt_narrow(c->type, tile, wide_at(c, i), n);
    memcpy(narrow_at(c, i), tile, (size_t)n * sizeof *tile);
  }
}

// Elements [n, 2n) go to where [n/2, n) were, which are done: each round may go in any order, and the first is one
// tile after the other.
static void narrow_in_place(DtType type, void *data, int64_t n) {
  Conversion c = {type, data, data, false};
  int64_t first = 0, last = least(CHUNK, n);
  void *arg[] = {&c, &first};
  narrow_part(arg, 0, last);
  for (first = last; first < n; first += last) {
    last = least(first, n - first);
    dt_parallel(narrow_part, arg, last, CHUNK);
  }
}

void dt_device_narrow(DtType type, void *to, const float *from, int64_t n) {
  Conversion c = {type, (char *)from, to, false};
  int64_t first = 0;
  void *arg[] = {&c, &first};
  if (dt_rehearsing) return;
  if (to == from) narrow_in_place(type, to, n);
  else dt_parallel(narrow_part, arg, n, CHUNK);
}

// From the end to the beginning.
static void widen_part(void *const *arg, int64_t begin, int64_t end) {
  const Conversion *c = arg[0];
  const int64_t *first = arg[1];
  uint16_t tile[TILE];
  float wide[TILE];
  for (int64_t stop = *first + end; stop > *first + begin;) {
    int64_t n = least(TILE, stop - (*first + begin)), i = stop - n;
    memcpy(tile, narrow_at(c, i), (size_t)n * sizeof *tile);
    if (c->add) {
      float *to = wide_at(c, i);
      dt_widen(c->type, wide, tile, n);
      for (int64_t k = 0; k < n; k++) to[k] += wide[k];
    } else {
      dt_widen(c->type, wide_at(c, i), tile, n);
    }
    stop = i;
  }
}

// Elements from `first` on may be written in any order where their floats lie behind all of the 16-bit numbers that are
// left.
void dt_device_widen(DtType type, float *to, const void *from, int64_t n, bool add) {
  Conversion c = {type, (char *)to, (char *)from, add};
  int64_t first = 0;
  void *arg[] = {&c, &first};
  if (dt_rehearsing) return;
  bool apart = c.wide >= c.narrow + 2 * n || c.wide + 4 * n <= c.narrow;
  for (int64_t left = n; left > 0; left = first) {
    int64_t gap = (c.wide - c.narrow) / 4;
    first = apart ? 0 : (left + 1) / 2 - gap;
    if (first < 0) first = 0;
    if (!apart && left - first < CHUNK) {
      first = left > CHUNK ? left - CHUNK : 0;
      widen_part(arg, 0, left - first);
    } else {
      dt_parallel(widen_part, arg, left - first, CHUNK);
    }
  }
}
