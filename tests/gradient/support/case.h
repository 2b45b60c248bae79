// One model of the gradient test: compiling it, inputs for it, and what a step over one batch
// gives, in the interpreter and compiled.
#ifndef DTC_TESTS_CASE_H
#define DTC_TESTS_CASE_H

#include "ir/interp/interp.h"
#include "runtime/program.h"

enum { MAX_DEFINES = 16, MAX_OUT = 1 + DT_MAX_METRICS };

typedef struct Case {
  Str name, path;
  Str define[MAX_DEFINES];
  uint32_t ndefine;
  uint64_t seed;
} Case;

// The model's module as the front end makes it. With `whole`, a microbatch is the whole batch. NULL
// after messages.
Module *case_compile(Arena *a, const Case *c, Str precision, bool whole);

// Runs the passes from `from` to `until`, both included (NULL: the first, the last), and after
// each: verifies, proves ranges from pass `range` on, prints, parses, prints again. False after a
// message.
bool case_passes(const Case *c, Module *m, Str from, Str until);

// The module through its text, which must be the same when printed again. NULL after a message.
Module *case_copy(const Case *c, Arena *a, const Module *m, Str after);

// A batch and parameters: random, exact in float32.
typedef struct Inputs {
  uint32_t ndata, nparam;
  int64_t batch, micro, parts; // parts: microbatches, the last one padded
  Tensor **data; // parts * micro samples
  Tensor **param;
} Inputs;
Inputs inputs_new(const Module *m, uint64_t seed); // of a module after pass `differentiate`
void inputs_free(Inputs *in);
// Samples [from, from + n) of data argument i; the caller frees it.
Tensor *inputs_slice(const Inputs *in, uint32_t i, int64_t from, int64_t n);

// What all calls of ENTRY_STEP or ENTRY_EVAL over a batch give.
typedef struct Outcome {
  uint32_t nout; // loss, metrics
  int64_t parts;
  double *out, *out_scale; // of each part
  Tensor **grad; // for each parameter; NULL of ENTRY_EVAL
  uint32_t nparam;
  const Param *param; // the module's, or NULL
} Outcome;
void outcome_free(Outcome *r);

// In the interpreter, after pass `optimizer`: count, then step or eval for each part. False after a
// message.
bool oracle_run(const Case *c, const Module *m, Entry e, const Inputs *in, const InterpOptions *o,
                Outcome *r);

// Gradients against tangents and central differences of the loss as the front end gave it (a
// module compiled `whole`).
typedef struct FiniteCount {
  uint32_t probes, kinks;
  double worst, tangent; // error, in parts of what is allowed: of slopes, of tangents
} FiniteCount;
bool finite_gradients(const Case *c, const Module *loss, const Inputs *in, const Outcome *step,
                      FiniteCount *n);

// A compiled program in this process.
typedef struct Native {
  void *lib;
  const DtProgram *program;
  void (*threads)(int n);
  int (*scratch)(size_t bytes);
} Native;
bool native_build(const Case *c, Module *m, Native *n); // of a module after the last pass
bool native_run(const Case *c, const Native *n, Entry e, const Inputs *in, int threads, Outcome *r);

// What roundings of this unit do to an outcome: the greatest difference of each element over some
// runs with noise (InterpOptions.noise), in an Outcome's arrays.
bool oracle_spread(const Case *c, const Module *m, Entry e, const Inputs *in, double unit,
                   const Outcome *want, Outcome *spread);

// How far what is compiled may be from the interpreter: `bound` times the interpreter's bound of the
// element, which grows faster with depth than errors do, and `noise` times its spread. Without a
// spread: bit for bit.
typedef struct Tolerance {
  double bound, noise;
  const Outcome *spread;
} Tolerance;

typedef struct SameCount {
  uint64_t elements, left_out;
  double worst; // error, in parts of what is allowed
} SameCount;
// Element by element; uncertain ones are left out and counted. `what` goes into the message.
bool outcome_same(const Case *c, const Outcome *want, const Outcome *got, Tolerance t, Str what,
                  SameCount *n);

#endif
