#include "runtime/base/pack.h"

#include <stdlib.h>
#include <string.h>

enum {
  MOST_ROUNDS = 400,   // of local search
  MOST_PAIRS = 4000000 // that local search compares: milliseconds
};

typedef struct Packing {
  DtBlock *block;
  uint32_t n;
  int64_t alignment;
  DtMeet *meet;
  const void *ctx;
  uint32_t *order, *placed; // blocks as they are placed; those that are, by offset
  int64_t *best, top;       // the best offsets so far, and the bytes that they need
} Packing;

static int64_t size_of(const Packing *x, uint32_t block) { return dt_aligned(x->block[block].bytes, x->alignment); }

// The lower end of the smallest gap that holds block b between the first n that were placed.
static int64_t best_gap(const Packing *x, uint32_t n, uint32_t b) {
  int64_t end = 0, best = -1, best_size = INT64_MAX, size = size_of(x, b);
  for (uint32_t i = 0; i < n; i++) {
    uint32_t other = x->placed[i];
    if (!x->meet(x->ctx, b, other)) continue;
    int64_t gap = x->block[other].offset - end, next = x->block[other].offset + size_of(x, other);
    if (gap >= size && gap < best_size) best = end, best_size = gap;
    if (next > end) end = next;
  }
  return best < 0 ? end : best;
}

// Places all blocks in their order. Returns the bytes that they need.
static int64_t place_all(Packing *x) {
  int64_t top = 0;
  for (uint32_t i = 0; i < x->n; i++) {
    DtBlock *b = &x->block[x->order[i]];
    b->offset = best_gap(x, i, x->order[i]);
    uint32_t at = i;
    for (; at && x->block[x->placed[at - 1]].offset > b->offset; at--) x->placed[at] = x->placed[at - 1];
    x->placed[at] = x->order[i];
    int64_t end = b->offset + size_of(x, x->order[i]);
    if (end > top) top = end;
  }
  if (top < x->top) {
    x->top = top;
    for (uint32_t i = 0; i < x->n; i++) x->best[i] = x->block[i].offset;
  }
  return top;
}

typedef struct Key {
  int64_t key, first;
  uint32_t block;
} Key;

static int by_key(const void *x, const void *y) {
  const Key *a = x, *b = y;
  if (a->key != b->key) return a->key < b->key ? 1 : -1;
  if (a->first != b->first) return a->first < b->first ? -1 : 1;
  return a->block < b->block ? -1 : 1;
}

enum { BY_SIZE, BY_BOTH, BY_LIFE, ORDERS };

static void sort(Packing *x, Key *key, int order) {
  for (uint32_t i = 0; i < x->n; i++) {
    int64_t size = size_of(x, i) / x->alignment, life = x->block[i].life;
    key[i] = (Key){order == BY_SIZE ? size : order == BY_LIFE ? life : size * life, x->block[i].first, i};
  }
  qsort(key, x->n, sizeof *key, by_key);
  for (uint32_t i = 0; i < x->n; i++) x->order[i] = key[i].block;
}

// Moves a block that ends at the top before one of the blocks that were placed earlier and are alive with it. False where
// there is none.
static bool move_up(Packing *x, int64_t top, uint32_t round) {
  uint32_t p = 0, before = 0;
  while (x->block[x->order[p]].offset + size_of(x, x->order[p]) != top) p++;
  uint32_t b = x->order[p];
  for (uint32_t q = 0; q < p; q++) before += x->meet(x->ctx, b, x->order[q]);
  if (!before) return false;
  uint32_t nth = (uint32_t)((uint64_t)before * (round * 2654435761u) >> 32), q = 0;
  while (!x->meet(x->ctx, b, x->order[q]) || nth--) q++;
  memmove(&x->order[q + 1], &x->order[q], (p - q) * sizeof *x->order);
  x->order[q] = b;
  return true;
}

static void search(Packing *x, Key *key, int64_t least) {
  int64_t top = 0;
  for (int order = 0; order < ORDERS && x->top > least; order++) {
    sort(x, key, order);
    top = place_all(x);
  }
  uint64_t pairs = (uint64_t)x->n * x->n;
  for (uint32_t round = 1; round <= MOST_ROUNDS && round * pairs <= MOST_PAIRS && x->top > least; round++) {
    if (!move_up(x, top, round)) break;
    top = place_all(x);
  }
}

int64_t dt_pack(DtBlock *block, uint32_t n, int64_t alignment, int64_t least, DtMeet *meet, const void *ctx) {
  Packing x = {.block = block, .n = n, .alignment = alignment, .meet = meet, .ctx = ctx, .top = INT64_MAX};
  Key *key = malloc((n + 1) * (sizeof *key + sizeof *x.best + 2 * sizeof *x.order));
  if (!key) return -1;
  x.best = (int64_t *)(key + n + 1);
  x.order = (uint32_t *)(x.best + n + 1);
  x.placed = x.order + n + 1;
  search(&x, key, least);
  for (uint32_t i = 0; i < n; i++) block[i].offset = x.best[i];
  free(key);
  return x.top;
}
