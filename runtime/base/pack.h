// Places of blocks that share memory.
#ifndef DTC_RUNTIME_PACK_H
#define DTC_RUNTIME_PACK_H

#include <stdbool.h>
#include <stdint.h>

typedef struct DtBlock {
  int64_t bytes;
  int64_t offset;      // dt_pack sets it
  int64_t first, life; // when it is first alive, and how long it is alive in all: they decide the order of placing
} DtBlock;

// Whether blocks i and j are alive at one time.
typedef bool DtMeet(const void *ctx, uint32_t i, uint32_t j);

// Gives each block an offset, a multiple of the alignment, so that no two that are alive at one time overlap, and returns the
// bytes that all of them need; -1: no memory for the work. `least` is the largest sum of aligned bytes that are alive at one time:
// no places need less, and the search ends where it is reached. The result is a function of the arguments alone.
//
// A block takes the smallest gap that holds it between those that were placed before. Blocks are placed by size, by size
// and life, and by life; then local search places a block that ends last before an earlier one.
int64_t dt_pack(DtBlock *block, uint32_t n, int64_t alignment, int64_t least, DtMeet *meet, const void *ctx);

static inline int64_t dt_aligned(int64_t bytes, int64_t to) { return (bytes + to - 1) / to * to; }

#endif
