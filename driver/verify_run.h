// --verify-run: the first step of a compiled program, on its ranks, against the model as the front
// end made it, in float64 on one.
#ifndef DTC_VERIFY_RUN_H
#define DTC_VERIFY_RUN_H

#include "driver/compile.h"
#include "driver/source.h"
#include "runtime/files/safetensors.h"

typedef struct VerifyRun {
  Module *whole; // the model with one microbatch, after pass `optimizer`: what the runtime needs to
                 // know
  Module *rounded; // the same after pass `precision`, where 16 bits hold values or gradients on their way; else NULL
  bool reduces_bf16; // --reduce-dtype bf16
  bool offloads;     // --offload: the program needs a folder for its state
  Source *source;
  Str program, folder; // the compiled program; a folder for files of the run
  Str data;            // --data, or NULL
  Str precision;       // of the program
  int ranks;
} VerifyRun;

// Whether the interpreter can compute the model's first step in minutes, and the step is a function
// of the batch alone on `dp` data-parallel ranks (cut: the program's module). False after messages.
bool verify_possible(const Module *loss, const Module *step, const Module *cut, int dp, Str path);

// Prints a table of errors to out. Returns 0, or EXIT_MODEL where an error is larger than roundings
// explain.
int verify_run(VerifyRun *v, FILE *out);

// verify_data.c: random data of the shapes and ranges that the model needs (m: VerifyRun.whole), in
// files of the folder: what --data names them by. NULL after a message.
Str verify_data(const Module *m, Str folder);
// Whether a file that the train block names is not there; which one it is.
Str verify_missing(const Module *m);

// "blocks.3.w" of parameter "blocks.*.w": the instance number `at` of the stacks' layers, row-major.
Str verify_instance(const Param *p, int64_t at);
// How many instances the parameter has.
int64_t verify_instances(const Param *p);
// The gradient of such an instance, count elements, from a file that the program wrote. False after a message.
bool verify_read(const VerifyRun *v, const DtWeights *w, Str name, int64_t count, double *to);

// verify_half.c: what a step came to, in a program or in the interpreter.
typedef struct StepOutcome {
  DtWeights gradient;
  double loss, norm;
} StepOutcome;
// Compares a program that rounds to 16 bits, and the interpreter that rounds as its IR says (own), with float64. Returns
// as verify_run does.
int verify_half(const VerifyRun *v, const StepOutcome *got, const StepOutcome *own, FILE *out);

#endif
