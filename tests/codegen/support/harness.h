// Runs a function of a module compiled and in the interpreter, and compares.
#ifndef DTC_TESTS_CODEGEN_HARNESS_H
#define DTC_TESTS_CODEGEN_HARNESS_H

#include "codegen/lower/kernel.h"

// Parses IR text; NULL after diagnostics on stdout.
Module *harness_parse(Arena *a, const char *path);
// The compiled function, loaded; warnings are errors. NULL after a message.
typedef void TestFn(void *const *arg, void *const *result, char *frame, const uint64_t *key);
TestFn *harness_build(const Plan *p, Id fn, Str arch);
// Compiles the module, for its target or the CPU, with function fn as its only entry; warnings are errors. Runs it on reals
// that are small integers (so that sums are exact) or not, and compares every result and in-out
// argument with the interpreter. False after a line on stdout that names what differs.
bool harness_run(Module *m, Id fn, bool integers);

// Where it is set: kernels are emitted as CUDA and run on the CPU, in each order of threads.
extern bool harness_cuda;
extern const char *harness_limits; // that differ from the target's, as DTC_LIMITS says them; or NULL
// The roundoff that results are compared by, where values inside are of 16 bits; 0: that of the type that is computed in.
extern double harness_unit;

#endif
