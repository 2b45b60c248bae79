// The oracle: runs a function of a Module, at any stage of the compiler, in float64. It follows the
// meaning in ir/ir.h and shares no code with lowering.
//
// Everything real is computed and kept in double whatever its storage (option `round` rounds what
// is made to its Dtype instead, as the IR says: a collective's sum once). Sums are added plainly in the order of their indices, row-major;
// scatters (`+=`) in the order of the free indices.
//
// Tolerances (option `scale`). To say how far a compiled program may be from the oracle, each
// element carries a first-order bound of rounding errors in units of the unit roundoff u (running
// error analysis, Higham, "Accuracy and stability of numerical algorithms", section 3.3):
//   r = op(a, b)   e(r) = |dr/da| e(a) + |dr/db| e(b) + c |r|: c = 0 where the operation is exact,
//                  1 where it is rounded correctly, 8 for libm's functions (4 ulp). A product also
//                  has u e(a) e(b).
//   r = sum of n   e(r) = sum e(t) + (1 + log2 n + n / 8) sum |t|: a tree, or a chain whose
//                  roundings mostly cancel (those of equal terms do not, and add up to n / 4)
//   x += t         e(x) += e(t) + |x|
//   underflow      a result below the least normal number may be 0: |r| / u more
//   max, min       e(r) = the greatest of the terms' bounds
//   where          that of the branch taken; where the condition is uncertain, |a - b| / u more
//   rounded        with option `round`, a value of 16 bits: 0 where all that lies within 4 bounds
//                  rounds to the same, else the distance between their roundings
// A comparison, argmax, floor or int whose operands' bounds times `unit` reach across the place
// where the outcome changes is uncertain: infinite e, which spreads to all that depends on it
// (elements to be left out of a comparison); so is what has 0 times infinity for a bound. Arguments
// are exact unless they come with `scale`; a constant is rounded once.
//
// Tangents (option `tangent`). Forward mode: beside each real stands its derivative along the
// direction that the arguments' tangents give, so that a derivative of a program as it was written
// owes nothing to pass differentiate. Where there is none the language says which is meant, and the
// pass must say the same:
//   abs(x)            0 at 0
//   max(a, b), min    at a tie that of a, but of b where that is a constant: max(x, 0.0) has 0 at 0
//   max, min over     that of the first greatest (least) point, or of the first NaN
//     indices
//   where, and, or    that of the branch taken; none by way of the condition
//   pow(a, b)         by b, 0 where a is not above 0
//   a / b             by b, 0 where the quotient is 0: of an exp(x) that overflows in b, too
//   floor, int, comparisons, argmax, random, stop_gradient   none
// A tangent of 0 adds nothing, by however much it is multiplied. Sums of them are added in long
// double. Of programs of one rank only.
#ifndef DTC_INTERP_H
#define DTC_INTERP_H

#include "ir/ir.h"

// A dense row-major array. Reals are in `real`, ints and bools in `integer`; the other is NULL.
typedef struct Tensor {
  Dtype type;
  uint8_t rank;
  int64_t extent[MAX_RANK];
  double *real;
  int32_t *integer;
  double *scale; // e of each element (ints and bools: 0 or infinity); NULL: all 0
  double *tangent; // of each real; NULL: all 0
} Tensor;

// v as a value of type t holds it; what is less than 32 bits by way of float, in which it is computed.
double interp_round(Dtype t, double v);

Tensor *tensor_new(Dtype type, const int64_t *extent, uint32_t rank); // zeros, no scale
Tensor *tensor_like(const Value *v);
void tensor_free(Tensor *t); // NULL is fine
int64_t tensor_count(const Tensor *t);

typedef struct InterpOptions {
  uint64_t seed, step; // of random numbers: training steps count from 1
  bool round; // what a statement makes or adds is rounded to the value's Dtype, to nearest even
  bool scale; // carry error bounds: results and in-out arguments get `scale`
  bool tangent; // carry tangents: results and in-out arguments that are real get `tangent`
  double unit; // roundoff of the program compared with, for what is uncertain; 0 means 2^-24
  // Where not NULL (with `scale`): a generator's state. Each real that is stored is off by a random
  // part of what its own statement may lose, its operands taken as they are: a bound as above, but
  // sum |t| alone for a sum. So a run is a sample of what roundings do to the results, by their
  // actual sensitivities; `scale` is 0 but where an outcome was uncertain.
  uint64_t *noise;
  // Where not NULL: a hash of every outcome that makes a function not smooth (comparisons of reals,
  // winners of max, min and argmax, signs in abs, floors). Equal hashes: both runs went the same
  // ways.
  uint64_t *ways;
} InterpOptions;

// Runs function `fn`. arg[i] is a tensor of the type and shape of Fn.arg[i]; INOUT arguments are
// updated in place. Makes result[i] for each Fn.result (the caller frees them). False where a read
// that is reached is out of range, an integer is divided by 0, or an element is written twice: then
// `error` (may be NULL) names function, statement and place, results are not made and INOUT
// arguments are left half-updated.
bool interp_run(const Module *m, Id fn, Tensor *const *arg, Tensor **result,
                const InterpOptions *o, Buf *error);

// The same in parts, to run functions of one unchanging module often: statements are compiled once.
typedef struct Interp Interp;
Interp *interp_new(const Module *m);
bool interp_call(Interp *x, Id fn, Tensor *const *arg, Tensor **result, const InterpOptions *o,
                 Buf *error);
void interp_free(Interp *x);

// A module in the global form is run as the program of one rank: a conversion copies. One in the
// local form needs somebody who carries out collectives: `to` = the collective of all members'
// `from`. False with a message ends the run.
typedef bool Exchange(void *world, const Fn *f, const Stmt *s, Tensor *to, const Tensor *from,
                      Buf *error);
void interp_join(Interp *x, Exchange *exchange, void *world);

// ---- all ranks of a mesh (ir/interp/ranks.c)

int64_t mesh_size(const Module *m); // ranks: the product of the axes' sizes
// The rank's number along each axis; the first axis goes fastest.
void mesh_coord(const Module *m, int64_t rank, int64_t coord[MAX_AXIS]);
// What a rank holds of a tensor laid out so. Of a partial sum rank 0 holds all, the others 0.
Tensor *tensor_share(const Module *m, const Shard *shard, const Tensor *whole, int64_t rank);
// The tensor of this shape whose shares the ranks hold, partial ones reduced. NULL with a message
// where ranks that should hold the same elements do not, to the last bit, or a place past the end
// does not hold 0.
Tensor *tensor_gather(const Module *m, const Shard *shard, Tensor *const *share,
                      const int64_t *extent, Buf *error);

// Runs a function of programs in the local form on all ranks in lock step: one rank runs until it
// waits in a collective, then another. m[r] is rank r's program: all the same, or not. arg[r][i],
// result[r][i] as for interp_run; arguments that are the rank's place on the mesh are made here,
// and their arg[r][i] is not read. Sums are taken in the order of the ranks. False also where
// members of a group come to different collectives, or some never come: then `error` says which
// rank waits in what.
bool interp_ranks(const Module *const *m, Id fn, Tensor *const *const *arg, Tensor **const *result,
                  const InterpOptions *o, Buf *error);

#endif
