// Sets of chunks, one for each value of a function.
#ifndef DTC_PASSES_PIPELINE_SETS_H
#define DTC_PASSES_PIPELINE_SETS_H

#include "ir/ir.h"

typedef struct ChunkSets {
  uint32_t words; // of a set
  uint64_t *bit;
} ChunkSets;

// Empty sets of values 0 .. n - 1.
static inline ChunkSets sets_new(Module *m, uint32_t nchunk, uint32_t n) {
  ChunkSets s = {.words = nchunk / 64 + 1};
  s.bit = NEWN(m->arena, uint64_t, (size_t)s.words * n);
  return s;
}

static inline uint64_t *set_at(const ChunkSets *s, Id v) { return &s->bit[(size_t)s->words * v]; }

static inline void set_add(const ChunkSets *s, Id v, uint32_t chunk) {
  set_at(s, v)[chunk / 64] |= UINT64_C(1) << chunk % 64;
}

static inline bool set_has(const ChunkSets *s, Id v, uint32_t chunk) {
  return set_at(s, v)[chunk / 64] >> chunk % 64 & 1;
}

// Whether it has a chunk from `from` to before `end`.
static inline bool set_meets(const ChunkSets *s, Id v, uint32_t from, uint32_t end) {
  for (uint32_t k = from; k < end; k++)
    if (set_has(s, v, k)) return true;
  return false;
}

// Set v of `to` keeps what set `u` of `s` has too; gets what it has. Of the same number of chunks.
static inline void set_keep(const ChunkSets *to, Id v, const ChunkSets *s, Id u) {
  for (uint32_t i = 0; i < s->words; i++) set_at(to, v)[i] &= set_at(s, u)[i];
}
static inline void set_join(const ChunkSets *to, Id v, const ChunkSets *s, Id u) {
  for (uint32_t i = 0; i < s->words; i++) set_at(to, v)[i] |= set_at(s, u)[i];
}
static inline void set_fill(const ChunkSets *to, Id v, uint64_t with) { // 0, or all bits
  for (uint32_t i = 0; i < to->words; i++) set_at(to, v)[i] = with;
}

#endif
