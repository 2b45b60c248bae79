// How a K_LOOPS kernel runs its statements: what fuse decides and a target's printer follows.
//
// A kernel is a grid of independent points. At each point its nests run in order; a nest is the
// loops over what is left of a statement's indices, or of several statements that share all loops
// and so pass over memory once. Every element that a point writes is read by no other point, so
// points may run in any order and on any thread.
//
// Rounding. The order in which a reduction adds is a function of its statement and of the vector
// width, never of the kernel that it landed in: `vec` is chosen from the statement alone
// (fuse_vec).
//   vec is bound: block n of `width` elements along vec goes to accumulator n % LOOPS_ACC (the tail
//     is one more, masked, block); other bound indices run outside, row-major; then the
//     accumulators are folded pairwise, then the lanes by halves.
//   vec is free, or there is none: one accumulator, bound indices row-major.
// Chains of additions are kept short: a bound loop of more than Limits.chain rounds (along vec: of
// more than twice as many rounds of LOOPS_ACC blocks) adds up each `chain` rounds on their own
// first.
#ifndef DTC_LOOPS_H
#define DTC_LOOPS_H

#include "codegen/lower/kernel.h"

enum { LOOPS_ACC = 4, MAX_VAR = 48, MAX_ZIPPED = 4, NO_VAR = 0xff };

typedef struct LoopVar {
  Str name;
  int64_t extent;
} LoopVar;

// One statement in a nest.
typedef struct NestStmt {
  Id stmt; // position in Fn.stmt
  // For each index its variable, or NO_VAR where it is merged into an inner one: two neighbours
  // whose every use is row-major run as one loop, over both.
  uint8_t var[MAX_INDEX];
  bool init; // `+=` that stores without reading: the first to write its value, each element once
} NestStmt;

typedef struct Nest {
  VEC(NestStmt)
  stmt; // several (reductions: up to MAX_ZIPPED) if all are pointwise, or all reductions
  uint32_t nfree, nloop; // loop[0, nfree) run over free indices, the rest over bound ones
  uint8_t loop[MAX_INDEX]; // variables, outermost first; those of the grid are not among them
  uint8_t vec; // the variable that runs across vector lanes (of loop, or the tiled one), or NO_VAR
} Nest;

typedef struct Loops {
  VEC(LoopVar) var;
  uint32_t ngrid; // variables [0, ngrid) make the grid, row-major
  int64_t
      tile; // > 0: the last of them is cut: a grid point has `tile` values of it (the last fewer)
  VEC(Nest) nest;
} Loops;

#endif
