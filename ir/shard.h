// The rule of sharding: how values lie over the ranks of a mesh axis, what a comprehension needs of
// what it reads and what it makes of it. One rule for all statements, forward and backward alike;
// it looks at one axis at a time, as the axes do not know of one another (but see shard_value_ok).
//
// In "form A" a program is global: a value has the extents of the whole, Value.shard says how it
// lies, Stmt.assign what each comprehension does with an axis, and ST_CONVERT changes a layout.
// Without those three it is the program of one rank, and means the same.
//
//   index i assigned; read with i bare or in a group   needs SPLIT(dim, block * extents right of i)
//   index i assigned; any other read                   needs WHOLE
//   index i assigned                                   no read is PARTIAL
//   i bound by sum, mean / max / min                   makes PARTIAL(sum) / (max) / (min)
//   i bare or in a group on the left                   makes SPLIT(dim, block * extents right of i)
//   i elsewhere on the left of a `+=`                  makes PARTIAL(sum)
//   write by dim d of a `+=`, whose subscript there is
//     no index                                         needs WHOLE, makes SPLIT(d, block)
//   nothing, all reads WHOLE                           makes WHOLE
//   nothing, some reads PARTIAL(sum)                   makes PARTIAL(sum), if it is linear in them
//   nothing, a read SPLIT along a dimension whose
//     subscript is no index                            a guarded read: zero where it is not held,
//                                                      so an operand of type PARTIAL(sum)
//
// A folded axis (ir.h, Shard) changes no clause, but for indices left of i in a group: i must have
// an even number of turns, so that each row begins with the same rank.
//
// Linear: p + q, p - q, -p, p * w, p / w, where(w, p, q), stop_gradient(p); no reduction, sum or
// mean. With p partial and w whole, in p + w, p - w and where(c, p, w) the term w is counted on
// rank 0 only (a select: a product with zero would keep inf and NaN).
#ifndef DTC_SHARD_H
#define DTC_SHARD_H

#include "ir/ir.h"

// ---- layouts

static inline Shard shard_whole(void) { return (Shard){.kind = SHARD_WHOLE}; }
static inline Shard shard_split(uint32_t dim, int64_t block) {
  return (Shard){.kind = SHARD_SPLIT, .dim = (uint8_t)dim, .block = block};
}
static inline Shard shard_partial(Red op) {
  return (Shard){.kind = SHARD_PARTIAL, .op = (uint8_t)op};
}
bool shard_same(Shard a, Shard b);
// "whole", "split 1/384", "a partial sum".
void shard_text(Shard s, Buf *out);

// Whether blocks of this size deal out an extent over n ranks: the extent is a multiple of block *
// n, or there is at most one block a rank (the last ranks have less, or nothing).
bool shard_deals(int64_t extent, int64_t block, int64_t n);
// The plain split's block: extent / n, rounded up.
int64_t shard_block(int64_t extent, int64_t n);
// How many places a rank keeps for a dimension so dealt out: the most that any rank has.
int64_t shard_local(int64_t extent, int64_t block, int64_t n);
// Whether two axes may deal out one extent in these blocks: without a remainder, and with the
// blocks of one within those of the other.
bool shard_nest(const Module *m, int64_t extent, uint32_t axis_a, int64_t block_a, uint32_t axis_b,
                int64_t block_b);
// Whether a value may lie so: SPLIT along a dimension that it has, in blocks that deal it out;
// PARTIAL of reals or ints; and where two axes split one dimension, blocks that nest. Else appends
// the clause to why (may be NULL).
bool shard_value_ok(const Module *m, const Value *v, Buf *why);
// Whether one conversion leads from a to b (they differ): from whole to anything but a partial max
// or min, from split to whole or split, from partial to whole or split. `to` must be dealt out.
bool shard_convertible(Shard a, Shard b);

// ---- one comprehension on one axis

typedef struct ShardAsk {
  const Module *m;
  const Fn *f;
  const Stmt *s;
  uint32_t axis;
  const Shard *type; // of each value of f on this axis
} ShardAsk;

// The layout that subscripts give to what they index, where index i is dealt out in blocks: WHOLE
// where i is neither bare nor in a group. Where i stands bare or in a group in two dimensions, the
// first. False where a group's inner factor does not divide. period: of the axis, in blocks.
bool shard_subscripts(const Module *m, const Stmt *s, const Id *sub, uint32_t rank, uint32_t index,
                      int64_t block, int64_t period, Shard *out);
// The layout that a READ node needs when index or write `a` is assigned.
bool shard_need(const ShardAsk *q, Id read, Assign a, Shard *out);
// With nothing assigned: whether a READ of a split value is guarded, that is, zero where it is not
// held: the subscript of the split dimension is no index and no group.
bool shard_guarded(const ShardAsk *q, Id read);
// The layout of what the statement makes of reads laid out as in q->type. False where the rule
// refuses; why (may be NULL) gets the clause.
bool shard_result(const ShardAsk *q, Assign a, Shard *out, Buf *why);
// The same for an index or a write, taking it that the reads lie as it needs them.
bool shard_makes(const ShardAsk *q, Assign a, Shard *out, Buf *why);
// With nothing assigned: the body in which each whole term that is added to a partial one counts on
// rank 0 only: `where(rank0, term, 0)`. The body itself where nothing is to be masked. Also where
// all of it is whole and the left side, of a `+=`, is partial (shard_added). *masks (may be NULL)
// is their number; rank0 may be NONE to count them only.
Id shard_mask(Module *m, const ShardAsk *q, bool whole_into_partial, Id rank0, uint32_t *masks);
// Whether a term laid out so may be added to an accumulator laid out so: alike; or to a partial sum
// a whole one (with nothing assigned), masked, or a split one (with an index assigned): each rank
// adds to the places that are its own.
bool shard_added(Assign a, Shard term, Shard accumulator);

// ---- a whole module

// Fills `type` (room for f->value.n) with the values' layouts on one axis.
void shard_types(const Fn *f, uint32_t axis, Shard *type);
// Whether every statement of a form A module keeps the rule on every axis, calls fit their callees,
// and entries have the layouts that callers expect. Else appends function, statement, axis, clause
// and place to why.
bool shard_verify(const Module *m, Buf *why);

#endif
