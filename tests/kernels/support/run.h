// Compiles a module's kernels into a shared object, runs a function's plan with them, and compares
// with the interpreter.
#ifndef TEST_KERNELS_RUN_H
#define TEST_KERNELS_RUN_H

#include "codegen/lower/kernel.h"

typedef struct CheckOptions {
  const char *arch; // NULL: native
  uint32_t seed; // of the arguments
  bool small; // arguments are small integers
  bool edges; // floats are such that conversions to 16 bits may go wrong
  double tolerance; // times unit roundoff and the interpreter's bound; 0: 2
} CheckOptions;

// Parses `text`, runs the entry `step` in both ways. Returns the number of K_LOOPS kernels of the
// entry (those of functions it calls not counted), or -1 after a message.
int kernels_check(const char *name, const char *text, const CheckOptions *o);
// The same for a module that is there already (lowered; its entry step is run).
int kernels_check_module(const char *name, Module *m, const CheckOptions *o);
// Parses, and fails the test where that is not possible.
Module *kernels_parse(const char *name, const char *text);
int kernel_count(const Plan *p, const FnPlan *f, KernelKind kind);

#endif
