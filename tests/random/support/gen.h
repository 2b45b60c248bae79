// Private to the generator (generate.c, gen_expr.c, gen_product.c, ...).
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
  int64_t most_points; // of a statement
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

int64_t dim_extent(const Dim *d);
int64_t pick_extent(Gen *g);
static inline Fn *gen_fn(const Gen *g) { return &g->m->fn.at[g->fn]; }
const Known *pick_known(Gen *g, Scalar type); // NULL where there is none

// An index of this extent, new or not; NONE where there is no room.
Id comp_index(Comp *c, int64_t extent, bool fresh);
Int gen_int(Comp *c, int depth);
Int gen_computed_int(Comp *c); // of an earlier statement, mostly
Real gen_real(Comp *c, int depth);
Id gen_bool(Comp *c, int depth);
// gen_guard.c: a sum of products that are tame only under a guard. False where the mode has none.
bool gen_guarded_sum(Gen *g, Known *k);
// gen_dense.c: a matrix product with a parameter, and what is added to it; of the main function.
bool gen_dense(Gen *g, Known *k);
// generate.c: a value of this type and shape; one that is a parameter, of the main function.
Id gen_value(Gen *g, const char *name, const Known *k, Role role);
void gen_param(Gen *g, Known *k, Str name);
// A read of the value (NULL: some number), under a guard where its subscripts need one.
Real gen_read(Comp *c, const Known *k, int depth);
// gen_product.c: a product of several operands, or a sum of some.
Real gen_product(Comp *c);
// Brings the size under `most`, by an operator that the mode allows.
Real limit(Comp *c, Real x, double most);
// An int in [0, extent), whatever it takes.
Id clamp_to(Comp *c, Int x, int64_t extent);

#endif
