// Where the elements of a rank's local array of a parameter lie in the whole: the runtime's side of
// ir/layout.h.
//
// Along an axis of size n with block B, position p of a dimension belongs to rank p / B % n, which
// keeps it at place p / (B * n) * B + p % B. Two axes may split one dimension where their blocks
// nest; a rank finds its places by the greater block first. Every rank has ceil(extent / (B * n)) * B
// places; those past the end of the whole are padding and hold 0.
//
// Places are in the order of positions in every dimension, so the elements of a local array, counted
// row by row, are in the order of the whole's: what a range of the whole has of a rank is one range
// of its local array.
#ifndef DTC_RUNTIME_LAYOUT_H
#define DTC_RUNTIME_LAYOUT_H

#include "runtime/program.h"

// One axis that splits a dimension.
typedef struct DtSplit {
  int64_t block, n, at; // size of the axis, this rank's number along it
} DtSplit;

typedef struct DtLayout {
  int rank;
  int64_t extent[DT_MAX_RANK], place[DT_MAX_RANK]; // of the whole, of the local array
  DtSplit split[DT_MAX_RANK][DT_STATIC_AXES];      // by block, the greatest first
  int nsplit[DT_MAX_RANK];
  int64_t count, local; // elements of the whole, of the local array (padding included)
} DtLayout;

// The local array of a tensor of this shape: shard[i] along an axis of size n[i] (below 2: none) on
// the rank that is number at[i] of it.
void dt_layout_make(DtLayout *l, int rank, const int64_t *extent,
                    const DtShard shard[DT_STATIC_AXES], const int n[DT_STATIC_AXES],
                    const int at[DT_STATIC_AXES]);

// The first local element of those that lie at `element` of the whole or behind it, and l->local
// where there are none. (Padding may follow, and does not lie anywhere.)
int64_t dt_layout_first(const DtLayout *l, int64_t element);

// The local elements before `end`, without padding at their end: how many.
int64_t dt_layout_trim(const DtLayout *l, int64_t end);

// Local elements from `i` on that are neighbours in the whole, at most `most` of them: how many.
// *element is where the first lies in the whole, or -1 where they are padding.
int64_t dt_layout_run(const DtLayout *l, int64_t i, int64_t most, int64_t *element);

// Whether the local array is nothing but padding.
bool dt_layout_empty(const DtLayout *l);

#endif
