// Where the elements of a split value live: arithmetic on the Shards of ir/ir.h.
//
// Along one axis of size n with block B, position p of a dimension belongs to rank p / B % n (on a
// folded axis, n - 1 less that in every second turn of n blocks), which keeps it at place
// p / (B * n) * B + p % B. Two axes may split one dimension where their blocks nest: the greater
// block is a multiple of the smaller one times its axis's size (twice that where it is folded). A
// rank then finds its places by one axis after the other. A rank has ceil(extent / (B * n)) * B
// places of each dimension; those past the end of the whole hold 0; there are such only with one
// block a rank (B * n >= extent).
#ifndef DTC_LAYOUT_H
#define DTC_LAYOUT_H

#include "ir/ir.h"

// NULL, or what is wrong with the Shards of a value or parameter of this shape.
const char *layout_fault(const Module *m, const Shard *shard, uint32_t rank, const int64_t *extent);
// NULL, or what is wrong with splitting `extent` over an axis in blocks.
const char *layout_block_fault(const Module *m, uint32_t axis, int64_t extent, int64_t block);
// The axes that split the dimension, the greatest block first; how many.
uint32_t layout_axes(const Module *m, const Shard *shard, uint32_t dim, uint32_t axis[MAX_AXIS]);
// Places that a rank has of the dimension: `extent` where nothing splits it.
int64_t layout_extent(const Module *m, const Shard *shard, uint32_t dim, int64_t extent);
// The block of an axis that splits its dimension, counted in places of an array that is split over
// the other axes only.
int64_t layout_block(const Module *m, const Shard *shard, uint32_t axis);
// The position in the whole of a rank's place; -1: past the end. coord: the rank's number along
// each axis.
int64_t layout_global(const Module *m, const Shard *shard, uint32_t dim, int64_t extent,
                      const int64_t *coord, int64_t place);
bool layout_same(const Module *m, const Shard *a, const Shard *b);

#endif
