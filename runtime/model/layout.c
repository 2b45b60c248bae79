#include "runtime/model/layout.h"

#include <string.h>

static void add_split(DtLayout *l, int dim, DtSplit s) {
  int at = l->nsplit[dim]++;
  for (; at > 0 && l->split[dim][at - 1].block < s.block; at--)
    l->split[dim][at] = l->split[dim][at - 1];
  l->split[dim][at] = s;
}

static int64_t places(const DtLayout *l, int dim) {
  int64_t extent = l->extent[dim];
  for (int i = 0; i < l->nsplit[dim]; i++) {
    const DtSplit *s = &l->split[dim][i];
    // Where two axes split a dimension they divide it.
    int64_t turn = s->block * s->n;
    if (l->nsplit[dim] > 1) extent /= s->n;
    else extent = (extent + turn - 1) / turn * s->block;
  }
  return extent;
}

void dt_layout_make(DtLayout *l, int rank, const int64_t *extent,
                    const DtShard shard[DT_STATIC_AXES], const int n[DT_STATIC_AXES],
                    const int at[DT_STATIC_AXES]) {
  memset(l, 0, sizeof *l);
  l->rank = rank;
  l->count = l->local = 1;
  for (int a = 0; a < DT_STATIC_AXES; a++)
    if (shard[a].block > 0 && n[a] > 1)
      add_split(l, shard[a].dim, (DtSplit){shard[a].block, n[a], at[a]});
  for (int d = 0; d < rank; d++) {
    l->extent[d] = extent[d];
    l->place[d] = places(l, d);
    l->count *= l->extent[d];
    l->local *= l->place[d];
  }
}

// The position in the whole of a place; at or past the extent: padding.
static int64_t position(const DtLayout *l, int dim, int64_t place) {
  for (int i = l->nsplit[dim]; i-- > 0;) {
    const DtSplit *s = &l->split[dim][i];
    place = (place / s->block * s->n + s->at) * s->block + place % s->block;
  }
  return place;
}

// The first place at `wanted` or behind it.
static int64_t place_of(const DtLayout *l, int dim, int64_t wanted) {
  if (!l->nsplit[dim]) return wanted;
  int64_t lo = 0, hi = l->place[dim];
  while (lo < hi) {
    int64_t mid = lo + (hi - lo) / 2;
    if (position(l, dim, mid) < wanted) lo = mid + 1;
    else hi = mid;
  }
  return lo;
}

bool dt_layout_empty(const DtLayout *l) {
  for (int d = 0; d < l->rank; d++)
    if (position(l, d, 0) >= l->extent[d]) return true;
  return l->local == 0;
}

int64_t dt_layout_first(const DtLayout *l, int64_t element) {
  int64_t right = l->count, local = l->local, first = 0;
  if (element >= l->count) return l->local;
  for (int d = 0; d < l->rank; d++) {
    right /= l->extent[d];
    local /= l->place[d];
    int64_t wanted = element / right, place = place_of(l, d, wanted);
    element %= right;
    first += place * local;
    // Not here: all that lies behind, from the next place (or the next row) on.
    if (place == l->place[d] || position(l, d, place) != wanted) break;
  }
  return first;
}

int64_t dt_layout_trim(const DtLayout *l, int64_t end) {
  while (end > 0) {
    int64_t local = l->local, left = end - 1, before = 0;
    int d = 0;
    for (; d < l->rank; d++) {
      local /= l->place[d];
      int64_t place = left / local;
      if (position(l, d, place) >= l->extent[d]) {
        end = before + place_of(l, d, l->extent[d]) * local;
        break;
      }
      before += place * local;
      left %= local;
    }
    if (d == l->rank) break;
  }
  return end;
}

int64_t dt_layout_run(const DtLayout *l, int64_t i, int64_t most, int64_t *element) {
  // Right of the last dimension that is split, neighbours are neighbours.
  int last = l->rank - 1;
  int64_t inner = 1, at = 0, stride, left = i;
  while (last >= 0 && !l->nsplit[last]) inner *= l->extent[last--];
  if (last < 0) {
    *element = i;
    return most;
  }
  stride = inner;
  int64_t within = left % inner, n = 0;
  left /= inner;
  bool padding = false;
  for (int d = last; d >= 0; d--) {
    int64_t place = left % l->place[d], p = position(l, d, place);
    if (d == last) {
      const DtSplit *s = &l->split[d][l->nsplit[d] - 1];
      n = s->block - place % s->block;
      if (p < l->extent[d] && n > l->extent[d] - p) n = l->extent[d] - p;
      if (n > l->place[d] - place) n = l->place[d] - place;
    }
    padding |= p >= l->extent[d];
    at += p * stride;
    stride *= l->extent[d];
    left /= l->place[d];
  }
  n = n * inner - within;
  *element = padding ? -1 : at + within;
  return n < most ? n : most;
}
