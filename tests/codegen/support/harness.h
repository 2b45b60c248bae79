// Runs a function of a module compiled and in the interpreter, and compares.
#ifndef DTC_TESTS_CODEGEN_HARNESS_H
#define DTC_TESTS_CODEGEN_HARNESS_H

#include "codegen/lower/kernel.h"

// Parses IR text; NULL after diagnostics on stdout.
Module *harness_parse(Arena *a, const char *path);
// Compiles the module with function fn as its only entry; warnings are errors. Runs it on reals
// that are small integers (so that sums are exact) or not, and compares every result and in-out
// argument with the interpreter. False after a line on stdout that names what differs.
bool harness_run(Module *m, Id fn, bool integers);

#endif
