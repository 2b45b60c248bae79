// What the tests of passes share: reading IR text, running passes and the interpreter on it.
#ifndef DTC_TEST_LOAD_H
#define DTC_TEST_LOAD_H

#include "ir/interp/interp.h"
#include "ir/text/text.h"

// The file's text, with "@B" replaced by `batch` and "@4" by four times it (batch 0: left alone).
// malloc'd; NULL if it can't be read.
char *load_text(const char *path, int batch);
void use_cpu(Module *m); // it is compiled for that target
// Parses text and checks it; NULL after a message.
Module *load_module(Arena *a, const char *path, const char *text);
// Runs a pass by name and verifies; false after a message.
bool run_pass(Module *m, const char *pass, const char *path);
// Names of the files in dir that end in `tail`, sorted; returns how many.
int list_files(const char *dir, const char *tail, char name[][256], int max);

// Deterministic random numbers.
typedef struct Rng {
  uint64_t state;
} Rng;
double rng_uniform(Rng *r); // [0, 1)
double rng_normal(Rng *r);

// A tensor for argument `at` of f: reals normal, ints uniform in the range that the module declares
// for that data argument, or in [0, 2).
Tensor *random_arg(const Module *m, const Fn *f, uint32_t at, Rng *r);
// Runs fn; false after a message. `ways` (or NULL): see InterpOptions.
bool run_fn(const Module *m, Id fn, Tensor *const *arg, Tensor **result, uint64_t *ways);

#endif
