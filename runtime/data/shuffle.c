// A Feistel network permutes the numbers of 2k bits, the least that hold n. An image past n is fed
// in again, until one falls into [0, n): that walks along a cycle of the permutation, so it ends
// (at n itself at the latest), and takes under 4 rounds on average, since 2^(2k) < 4n.
#include "runtime/data/shuffle.h"

enum { ROUNDS = 6 };

// The finisher of splitmix64: each output bit depends on each input bit.
static uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

int64_t dt_shuffle(int64_t i, int64_t n, uint64_t seed, uint64_t epoch) {
  int half = 1;
  while (half < 31 && ((int64_t)1 << (2 * half)) < n) half++;
  uint64_t mask = ((uint64_t)1 << half) - 1;
  uint64_t key = mix(seed + 0x9E3779B97F4A7C15u) ^ mix(epoch * 0xD1B54A32D192ED03u + 1);
  do {
    uint64_t left = (uint64_t)i >> half, right = (uint64_t)i & mask;
    for (uint64_t r = 0; r < ROUNDS; r++) {
      uint64_t next = left ^ (mix(right + key + (r << 56)) & mask);
      left = right;
      right = next;
    }
    i = (int64_t)(left << half | right);
  } while (i >= n);
  return i;
}
