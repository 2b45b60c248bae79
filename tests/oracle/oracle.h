// What tests of whole functions share: arguments, running in the interpreter, comparing, finite
// differences.
#ifndef DTC_TESTS_ORACLE_H
#define DTC_TESTS_ORACLE_H

#include "ir/interp/interp.h"

// A function's arguments, and its results once it ran.
typedef struct Activation {
  const Module *m;
  Id fn;
  uint32_t narg, nresult;
  Tensor **arg, **result; // result: NULL before it ran
} Activation;

typedef struct ArgOptions {
  uint64_t seed;
  bool small; // reals are integers within -3 .. 3
  double spread; // reals lie within +- spread; 0 means 1
  bool zero_inout; // in-out arguments start from 0, else from other numbers
} ArgOptions;

// Random arguments for a function. They depend on the seed and on names and places only, so two
// versions of a function get the same; ints are within Module.range by their position among the
// first Module.ndata arguments, `first` is 0 and `batch` is train.batch.
Activation activation_new(const Module *m, Id fn, const ArgOptions *o);
void activation_free(Activation *a);
// False with a message in error.
bool activation_run(Activation *a, const InterpOptions *o, Buf *error);

// Every result and in-out argument of `got` against `want`, which ran with `scale`: within factor *
// unit * scale. Elements without a bound (uncertain outcomes) are left out. False after a message
// that names the first difference.
bool activation_same(const Activation *want, const Activation *got, double factor, double unit,
                     Buf *error);

// The gradients that `step` adds to its in-out arguments grad.NAME against central differences of
// `loss`, result 0, along random directions within one parameter and within all. Both have the same
// arguments otherwise (they may be functions of different modules), named alike.
typedef struct FiniteOptions {
  ArgOptions arg;
  int directions; // for each parameter; 0 means 1
  double tolerance; // relative to the norm of gradient times direction; 0 means 1e-6
} FiniteOptions;
typedef enum FiniteResult {
  FINITE_SAME,
  FINITE_DIFFERS,
  FINITE_KINK, // all tries fell on a kink: nothing was learnt of some parameter
  FINITE_FAILS // a run failed
} FiniteResult;
FiniteResult finite_check(const Module *loss_m, Id loss, const Module *step_m, Id step,
                          const FiniteOptions *o, Buf *error);

// The same gradients against tangents of `loss` (ir/interp/interp.h): exact, also at ties and kinks, so
// that what is allowed is what rounding does. *worst, where not NULL, grows to the largest
// difference, in parts of what is allowed. A wrong element is named.
FiniteResult tangent_check(const Module *loss_m, Id loss, const Module *step_m, Id step,
                           const ArgOptions *o, double *worst, Buf *error);
// Of function fn at arg; gradient[i], with its `scale`, is that of arg[i], or NULL.
FiniteResult tangent_compare(const Module *m, Id fn, Tensor *const *arg, Tensor *const *gradient,
                             const InterpOptions *io, uint64_t seed, double *worst, Buf *error);

// The position of an argument, or NONE.
uint32_t arg_named(const Fn *f, const char *name);

// Function fn of a program in the global form, run as the program of one rank, against its local
// form on all ranks of the mesh: every rank gets its share of the same arguments, and the shares of
// results and in-out arguments are put together again. *worst becomes the greatest difference
// relative to the greatest element of its tensor (or to 1e-3, if that is more). False after a message
// where a run fails or ranks do not agree on what they all hold.
bool ranks_compare(const Module *whole, const Module *local, Id fn, const ArgOptions *a,
                   const InterpOptions *o, double *worst, Buf *error);
// The same, but it is a function of a program before it was cut that says what is right: pass shard
// has put other statements in the place of some (rings, factors, folded sequences).
bool ranks_compare_to(const Module *plain, Id plain_fn, const Module *whole, const Module *local,
                      Id fn, const ArgOptions *a, const InterpOptions *o, double *worst,
                      Buf *error);

#endif
