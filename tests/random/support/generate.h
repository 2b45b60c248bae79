// Random well-typed programs.
//
// A program is a Module whose ENTRY_UPDATE is `main`: its arguments are ints and reals that are
// data, then reals that are parameters; its results have any shape. Nothing that it reaches is out
// of range, and every scalar function stays in its domain.
#ifndef DTC_TESTS_GENERATE_H
#define DTC_TESTS_GENERATE_H

#include "ir/ir.h"

typedef struct GenerateOptions {
  uint64_t seed;
  bool exact; // small integers and operations that keep them exact: results must agree to the last
              // bit
  bool awkward; // a subscript may turn out to be out of range: to see whether the range pass finds
                // out
} GenerateOptions;

Module *generate(Arena *a, const GenerateOptions *o);
// Adds ENTRY_LOSS over the same arguments: a weighted sum of all that main returns in reals.
void generate_loss(Module *m);

// Limits of the compiler, some of them low; default for some seeds.
Limits draw_limits(uint64_t seed);

// The random numbers of tests: splitmix64.
typedef struct Rng {
  uint64_t state;
} Rng;
static inline uint64_t rng_next(Rng *r) {
  uint64_t z = r->state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}
static inline uint32_t rng_below(Rng *r, uint32_t n) { return (uint32_t)(rng_next(r) >> 33) % n; }
static inline bool rng_chance(Rng *r, int percent) { return rng_below(r, 100) < (uint32_t)percent; }
static inline double rng_real(Rng *r) { return (double)(rng_next(r) >> 11) * 0x1p-53; }

#endif
