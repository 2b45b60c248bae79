#include "runtime/train/narrow.h"

#include "runtime/base/parallel.h"

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
void dt_narrow_in_place(DtType type, void *data, int64_t n) {
  Conversion c = {type, data, data, false};
  int64_t first = 0, last = least(CHUNK, n);
  void *arg[] = {&c, &first};
  if (dt_rehearsing) return;
  narrow_part(arg, 0, last);
  for (first = last; first < n; first += last) {
    last = least(first, n - first);
    dt_parallel(narrow_part, arg, last, CHUNK);
  }
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
void dt_widen_into(DtType type, float *to, const void *from, int64_t n, bool add) {
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
