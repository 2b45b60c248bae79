// Random numbers as functions of their place: Philox4x32-10, counter-based (Salmon et al., "Parallel random numbers: as
// easy as 1, 2, 3", SC'11, section 3.3). No state: the same key and counter give the same number on any
// rank, thread and target. Shared by the runtime and the interpreter, and mirrored by the kernel printers.
#ifndef DT_PHILOX_H
#define DT_PHILOX_H

#include <stdint.h>

enum { DT_PHILOX_ROUNDS = 10 };

// x: counter in, four random words out.
static inline void dt_philox(uint32_t x[4], uint32_t k0, uint32_t k1) {
  for (int round = 0; round < DT_PHILOX_ROUNDS; round++) {
    uint64_t a = (uint64_t)0xD2511F53u * x[0], b = (uint64_t)0xCD9E8D57u * x[2];
    uint32_t y0 = (uint32_t)(b >> 32) ^ x[1] ^ k0, y2 = (uint32_t)(a >> 32) ^ x[3] ^ k1;
    x[1] = (uint32_t)b;
    x[3] = (uint32_t)a;
    x[0] = y0;
    x[2] = y2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}

// The key of one training step: a bijection of (seed + a multiple of step), by the finaliser of splitmix64, so that steps of
// one seed do not meet those of a seed nearby.
static inline uint64_t dt_key(uint64_t seed, uint64_t step) {
  uint64_t z = seed + step * 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

// Uniform in [0, 1), a multiple of 2^-24, so that float and double agree exactly.
static inline double dt_uniform(uint64_t seed, uint64_t step, uint32_t site, uint32_t iteration, uint64_t element) {
  uint64_t key = dt_key(seed, step);
  uint32_t x[4] = {(uint32_t)element, (uint32_t)(element >> 32), site, iteration};
  dt_philox(x, (uint32_t)key, (uint32_t)(key >> 32));
  return (double)(x[0] >> 8) * 0x1p-24;
}

// FNV-1a of a parameter's name: its site.
static inline uint32_t dt_site(const char *name) {
  uint32_t h = 0x811c9dc5u;
  for (; *name; name++) h = (h ^ (unsigned char)*name) * 0x01000193u;
  return h;
}

#endif
