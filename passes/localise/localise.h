// Private to passes/localise*.c.
#ifndef DTC_LOCALISE_H
#define DTC_LOCALISE_H

#include "ir/ir.h"

// One function on its way to the local form.
typedef struct Local {
  Module *m;
  Fn *f; // its values have local extents already
  const Value *old; // the values of the global form, by number
  uint32_t nold;
  bool rank_used[MAX_AXIS];
  bool guarded; // some statement has a condition that the global form has not
} Local;

// The rank's number along an axis, an int; the function gets it as an argument.
Id local_rank(Local *x, uint32_t axis);
// Which rank has a block: of turn number `turn`, that which stands at place `at` in it.
Id local_turn(Module *m, uint32_t axis, Id turn, Id at);
// Where the element at global position `at` of a dimension is: *place, and the condition under
// which this rank has it, for the axes of the set only; the dimension is split by shard.
Id local_place(Local *x, const Shard *shard, uint32_t dim, int64_t extent, uint32_t axes, Id at,
               Id *place);

// The position of place `at` of the `extent` places of rank number `rank`, in an array that is not
// split over the axis.
Id local_position(Module *m, uint32_t axis, Id rank, Id at, int64_t extent, int64_t block);

// The same as a Positions, but for its `arg`; false where that takes more than a Positions says.
bool local_positions(const Module *m, uint32_t axis, int64_t extent, int64_t block, Positions *to);

// ring.c: for each function that is attention on shares of keys, a new one that is a step
// of the ring, in the local form; NONE for others. Then the statements of such a function.
Id *local_ring_parts(Module *m);
void local_ring(Local *x, Id part);

// move.c: what a conversion becomes, appended.
void local_convert(Local *x, const Stmt *s);
// Of two conversions in a row over the factors of one axis, with nothing else reading what is
// between them, one is left, over both: a reduction, a gather or a reduce-scatter is then one.
void local_merge(const Module *m, const Fn *f, Stmt *s, uint32_t *n);

#endif
