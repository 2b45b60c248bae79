// Which index of a statement suits lanes: neighbouring points that neighbouring lanes of a vector, or threads, compute.
#ifndef DTC_LANE_H
#define DTC_LANE_H

#include "codegen/lower/nest.h"

struct Fuse;

// Of a point, in units of a contiguous load: with the index, of this extent, in lanes (< 0: not possible); without lanes.
double lane_cost(const struct Fuse *u, const Stmt *s, uint32_t index, int64_t extent);
double lane_none_cost(const struct Fuse *u, const Stmt *s);
// The index of least cost, or NO_VAR: a function of the statement alone.
uint8_t lane_best(const struct Fuse *u, const Stmt *s);

#endif
