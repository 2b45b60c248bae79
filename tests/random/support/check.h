// What must hold of a program, in stages.
#ifndef DTC_TESTS_CHECK_H
#define DTC_TESTS_CHECK_H

#include "tests/oracle/oracle.h"
#include "tests/random/support/generate.h"

typedef enum Stage {
  STAGE_GENERATE, // it verifies and runs: otherwise the generator, the verifier or the interpreter
                  // is wrong
  STAGE_TEXT, // printed and parsed it is the same program
  STAGE_INLINE, // each pass: verifies, and means what the program as generated does
  STAGE_RANGE, // what is proved in range is in range
  STAGE_DIFFERENTIATE,
  STAGE_TANGENT, // the gradient is that of the loss before it, by forward mode
  STAGE_FINITE, // the gradient is that of central differences
  STAGE_PRECISION,
  STAGE_SIMPLIFY,
  STAGE_RECOMPUTE,
  STAGE_NORMALISE,
  STAGE_COMPILE, // fuse, plan, kernels, host code, link
  STAGE_FORWARD, // compiled, it computes what the interpreter does
  STAGE_BACKWARD,
  NSTAGE
} Stage;
extern const char *const stage_name[NSTAGE];

typedef struct CheckOptions {
  uint64_t seed; // of arguments
  bool exact;
  bool awkward;
  Dtype precision; // of what is compiled: DT_F32, DT_F64, DT_BF16 or DT_F16
  Limits limits; // of the passes
  unsigned stages; // set of stages to do, as bits
} CheckOptions;

typedef struct Failure {
  bool failed;
  Stage stage;
  char message[2000];
} Failure;
void fail_with(Failure *f, Stage stage, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

// A function ready for code generation, with its arguments and what it must give.
typedef struct Lowered {
  Module *m; // NULL: there is none
  Id fn;
  Activation start, want; // before, and after
  Activation origin; // after, of the program before any pass; for the step, before simplify
  bool exact; // results must agree to the last bit
  double unit;
  Stage stage; // FORWARD or BACKWARD
} Lowered;

typedef struct Tally {
  uint32_t programs, kinks, proved, unproved, inexact, large;
} Tally;

// Set before each stage, for whoever watches this process.
extern Stage *current_stage;
// All stages before COMPILE, on a module with ENTRY_UPDATE. out[0] is main, out[1] the training
// step.
bool check_program(const Module *source, const CheckOptions *o, Lowered out[2], Tally *t,
                   Failure *f);
// A copy through its text, in arena `a`. NULL where it does not parse.
Module *copy_module(Arena *a, const Module *m);

// A program among those to be compiled together.
typedef struct Job {
  Lowered low;
  uint64_t seed; // of its program
} Job;
typedef struct CompileOptions {
  const char *arch; // or "cuda": as CUDA kernels, run on the CPU in each order of threads
  int opt; // of LLVM, 0 to 3
  Limits limits; // of code generation
} CompileOptions;
// Compiles all jobs (of one precision) into one shared object, runs and compares them. False where
// compiling failed as a whole; `failure` is one for each job.
bool check_compiled(Arena *a, Job *job, uint32_t n, const CompileOptions *o, Failure *failure,
                    Buf *error);

// Makes a failing program smaller; `fails` says whether a candidate still fails in the same way.
// Returns text.
char *shrink(Arena *a, const Module *m, bool (*fails)(const Module *m, void *ctx), void *ctx,
             double seconds);

#endif
