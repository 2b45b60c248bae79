// Open addressing, at most half full. Names are interned, so equal means the same pointer.
#include "ir/map.h"

#include <stdlib.h>

static uint32_t slot_of(const StrMap *m, Str key) {
  uint64_t h = (uint64_t)(uintptr_t)key * 0x9e3779b97f4a7c15u;
  uint32_t at = (uint32_t)(h >> 32) & (m->cap - 1);
  while (m->key[at] && m->key[at] != key) at = (at + 1) & (m->cap - 1);
  return at;
}

uint32_t map_find(const StrMap *m, Str key) {
  if (!m->cap) return NONE;
  uint32_t at = slot_of(m, key);
  return m->key[at] ? m->value[at] : NONE;
}

static void grow(Arena *a, StrMap *m) {
  StrMap old = *m;
  m->cap = old.cap ? old.cap * 2 : 16;
  m->key = NEWN(a, Str, m->cap);
  m->value = NEWN(a, uint32_t, m->cap);
  for (uint32_t i = 0; i < old.cap; i++) {
    if (!old.key[i]) continue;
    uint32_t at = slot_of(m, old.key[i]);
    m->key[at] = old.key[i];
    m->value[at] = old.value[i];
  }
}

void map_set(Arena *a, StrMap *m, Str key, uint32_t value) {
  if (m->n * 2 >= m->cap) grow(a, m);
  uint32_t at = slot_of(m, key);
  m->n += !m->key[at];
  m->key[at] = key;
  m->value[at] = value;
}

void id_map_init(IdMap *m) {
  memset(m->small, 0xff, sizeof m->small);
  m->slot = m->small;
  m->n = 0;
  m->cap = ID_MAP_SMALL;
}

void id_map_free(IdMap *m) {
  if (m->slot != m->small) free(m->slot);
}

static uint32_t id_slot(const Id *slot, uint32_t cap, Id key) {
  uint32_t at = key * 0x9e3779b1u >> 7 & (cap - 1);
  while (slot[2 * at] != NONE && slot[2 * at] != key) at = (at + 1) & (cap - 1);
  return at;
}

Id id_map_find(const IdMap *m, Id key) {
  uint32_t at = id_slot(m->slot, m->cap, key);
  return m->slot[2 * at] == NONE ? NONE : m->slot[2 * at + 1];
}

void id_map_set(IdMap *m, Id key, Id value) {
  if (m->n * 2 >= m->cap) {
    Id *slot = malloc(4 * (size_t)m->cap * sizeof *slot);
    ALLOCATED(slot);
    memset(slot, 0xff, 4 * (size_t)m->cap * sizeof *slot);
    for (uint32_t i = 0; i < m->cap; i++) {
      if (m->slot[2 * i] == NONE) continue;
      uint32_t at = id_slot(slot, 2 * m->cap, m->slot[2 * i]);
      memcpy(slot + 2 * at, m->slot + 2 * i, 2 * sizeof *slot);
    }
    id_map_free(m);
    m->slot = slot;
    m->cap *= 2;
  }
  uint32_t at = id_slot(m->slot, m->cap, key);
  m->slot[2 * at] = key;
  m->slot[2 * at + 1] = value;
  m->n++;
}
