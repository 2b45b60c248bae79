// How a K_LOOPS kernel runs its statements: what fuse and the target's schedule decide, and its printer follows.
//
// A kernel is a grid of independent points. At each point its nests run in order; a nest is the
// loops over what is left of a statement's indices, or of several statements that share all loops
// and so pass over memory once. Every element that a point writes is read by no other point, so
// points may run in any order and on any thread.
//
// Rounding. The order in which a reduction adds is a function of its statement and of the target, never of the kernel
// that it landed in: `vec` is chosen from the statement alone (Target.lane_index), and the target states the order for
// it (ReductionOrder of codegen/target.h).
#ifndef DTC_LOOPS_H
#define DTC_LOOPS_H

#include "codegen/lower/kernel.h"

enum { MAX_VAR = 48, MAX_ZIPPED = 4, NO_VAR = 0xff };

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
  uint8_t vec; // the variable whose points lie side by side in lanes (of loop, or the tiled one), or NO_VAR
} Nest;

typedef struct Loops {
  VEC(LoopVar) var;
  uint32_t ngrid; // variables [0, ngrid) make the grid, row-major
  int64_t
      tile; // > 0: the last of them is cut: a grid point has `tile` values of it (the last fewer)
  VEC(Nest) nest;
} Loops;

// The index of the statement that the variable stands for, or NONE.
static inline uint32_t nest_index_of(const NestStmt *ns, uint8_t var) {
  for (uint32_t i = 0; i < MAX_INDEX; i++)
    if (ns->var[i] == var) return i;
  return NONE;
}
// The condition, free of bound indices, under which a sum has any terms but 0: sum(k: where(c, .., 0)). NONE where there
// is none, and for other reductions.
Id nest_condition(const Module *m, const Stmt *s);
// Sets Kernel.grid from its loops, or from what it fills. False where that is no 64-bit number.
bool kernel_count_grid(const Fn *f, Kernel *k);

#endif
