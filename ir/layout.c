#include "ir/layout.h"

static int64_t ceil_div(int64_t a, int64_t b) { return (a - 1) / b + 1; }

const char *layout_block_fault(const Module *m, uint32_t axis, int64_t extent, int64_t block) {
  int64_t n = m->axis.at[axis].size, turn;
  if (block < 1 || block > extent || !mul_ok(block, n, &turn)) return "a block of a bad size";
  if (extent % turn && turn < extent)
    return "blocks that neither divide the extent evenly nor are one a rank";
  return NULL;
}

static const char *split_fault(const Module *m, const Shard *shard, uint32_t dim, int64_t extent) {
  uint32_t axis[MAX_AXIS], n = layout_axes(m, shard, dim, axis);
  for (uint32_t i = 0; i < n; i++) {
    const char *fault = layout_block_fault(m, axis[i], extent, shard[axis[i]].block);
    if (fault) return fault;
    if (n > 1 && extent % (shard[axis[i]].block * m->axis.at[axis[i]].size))
      return "two axes on a dimension that they do not divide evenly";
    if (i && shard[axis[i - 1]].block % (shard[axis[i]].block * axis_period(m, axis[i])))
      return "two axes on one dimension, and their blocks do not nest";
  }
  return NULL;
}

const char *layout_fault(const Module *m, const Shard *shard, uint32_t rank,
                         const int64_t *extent) {
  for (uint32_t a = 0; a < MAX_AXIS; a++) {
    const Shard *s = &shard[a];
    if (s->kind == SHARD_WHOLE) continue;
    if (a >= m->axis.n || s->kind > SHARD_PARTIAL) return "a layout over no axis";
    if (s->kind == SHARD_PARTIAL && s->op != RED_SUM && s->op != RED_MAX && s->op != RED_MIN)
      return "partial by no such reduction";
    if (s->kind == SHARD_SPLIT && s->dim >= rank) return "a split of no dimension";
  }
  for (uint32_t d = 0; d < rank; d++) {
    const char *fault = split_fault(m, shard, d, extent[d]);
    if (fault) return fault;
  }
  return NULL;
}

uint32_t layout_axes(const Module *m, const Shard *shard, uint32_t dim, uint32_t axis[MAX_AXIS]) {
  uint32_t n = 0;
  for (uint32_t a = 0; a < m->axis.n; a++) {
    if (shard[a].kind != SHARD_SPLIT || shard[a].dim != dim) continue;
    uint32_t at = n++;
    for (; at && shard[axis[at - 1]].block < shard[a].block; at--) axis[at] = axis[at - 1];
    axis[at] = a;
  }
  return n;
}

int64_t layout_extent(const Module *m, const Shard *shard, uint32_t dim, int64_t extent) {
  uint32_t axis[MAX_AXIS], n = layout_axes(m, shard, dim, axis);
  if (n == 1) {
    int64_t block = shard[axis[0]].block;
    return ceil_div(extent, block * m->axis.at[axis[0]].size) * block;
  }
  for (uint32_t i = 0; i < n; i++) extent /= m->axis.at[axis[i]].size;
  return extent;
}

int64_t layout_block(const Module *m, const Shard *shard, uint32_t axis) {
  uint32_t all[MAX_AXIS], n = layout_axes(m, shard, shard[axis].dim, all);
  int64_t block = shard[axis].block;
  for (uint32_t i = n; i-- > 0 && all[i] != axis;) block /= m->axis.at[all[i]].size;
  return block;
}

int64_t layout_global(const Module *m, const Shard *shard, uint32_t dim, int64_t extent,
                      const int64_t *coord, int64_t place) {
  uint32_t axis[MAX_AXIS], n = layout_axes(m, shard, dim, axis);
  for (uint32_t i = n; i-- > 0;) {
    int64_t block = shard[axis[i]].block, size = m->axis.at[axis[i]].size, rank = coord[axis[i]];
    if (m->axis.at[axis[i]].folded && place / block % 2) rank = size - 1 - rank;
    place = (place / block * size + rank) * block + place % block;
  }
  return place < extent ? place : -1;
}

bool layout_same(const Module *m, const Shard *a, const Shard *b) {
  for (uint32_t i = 0; i < m->axis.n; i++) {
    if (a[i].kind != b[i].kind) return false;
    if (a[i].kind == SHARD_PARTIAL && a[i].op != b[i].op) return false;
    if (a[i].kind == SHARD_SPLIT && (a[i].dim != b[i].dim || a[i].block != b[i].block))
      return false;
  }
  return true;
}
