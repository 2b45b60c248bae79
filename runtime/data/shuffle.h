// The order of samples: a permutation of [0, n) that needs no memory, as a function of seed and
// epoch.
#ifndef DTC_RUNTIME_SHUFFLE_H
#define DTC_RUNTIME_SHUFFLE_H

#include <stdint.h>

// Where position i in [0, n) of an epoch leads; a permutation of [0, n) for each (seed, epoch). n
// >= 1.
int64_t dt_shuffle(int64_t i, int64_t n, uint64_t seed, uint64_t epoch);

#endif
