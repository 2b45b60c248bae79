// Private to the generator (generate.c, gen_expr.c).
#ifndef DTC_TESTS_GEN_H
#define DTC_TESTS_GEN_H

#include "tests/random/support/generate.h"

// A dimension: the product of these extents (a group where there is more than one).
typedef struct Dim {
  uint8_t n;
  int64_t extent[3];
} Dim;

// What is known of a value that may be read.
typedef struct Known {
  Id id;
  Scalar type;
  uint32_t rank;
  Dim dim[MAX_RANK];
  double size; // no element of a real is greater in magnitude
  int64_t lo, hi; // of an int: lo <= element <= hi
} Known;

typedef VEC(Known) KnownList;

typedef struct Gen {
  Module *m;
  Id fn; // being made
  Rng r;
  bool exact, awkward;
  bool stops; // uses stop_gradient, which finite differences do not know
  int64_t palette[6]; // extents to draw from
  KnownList known; // values of fn
  uint32_t site; // next random site
} Gen;

// A statement being made. Indices are created as reads ask for them.
typedef struct Comp {
  Gen *g;
  Index index[MAX_INDEX];
  uint32_t n, most; // how many there may be
  int64_t points;
} Comp;

// An int expression with its bounds; a real one with a bound of its magnitude.
typedef struct Int {
  Id e;
  int64_t lo, hi;
} Int;
typedef struct Real {
  Id e;
  double size;
} Real;

enum { MAX_POINTS = 20000 };

int64_t dim_extent(const Dim *d);
int64_t pick_extent(Gen *g);
static inline Fn *gen_fn(const Gen *g) { return &g->m->fn.at[g->fn]; }
const Known *pick_known(Gen *g, Scalar type); // NULL where there is none

// An index of this extent, new or not; NONE where there is no room.
Id comp_index(Comp *c, int64_t extent, bool fresh);
Int gen_int(Comp *c, int depth);
Real gen_real(Comp *c, int depth);
Id gen_bool(Comp *c, int depth);
// Brings the size under `most`, by an operator that the mode allows.
Real limit(Comp *c, Real x, double most);
// An int in [0, extent), whatever it takes.
Id clamp_to(Comp *c, Int x, int64_t extent);

#endif
