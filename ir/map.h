// A map from interned names to numbers, on an arena.
#ifndef DTC_MAP_H
#define DTC_MAP_H

#include "ir/util.h"

typedef struct StrMap { // {0} is empty
  Str *key;
  uint32_t *value;
  uint32_t n, cap; // cap: a power of two, or 0
} StrMap;

// The number at the name, or NONE.
uint32_t map_find(const StrMap *m, Str key);
// Puts the number there, in place of one that is there already.
void map_set(Arena *a, StrMap *m, Str key, uint32_t value);

// A map between ids for the length of one walk: of a few entries it is on the stack.
enum { ID_MAP_SMALL = 64 };
typedef struct IdMap {
  Id small[2 * ID_MAP_SMALL];
  Id *slot; // key and value in turn; NONE as a key: empty
  uint32_t n, cap;
} IdMap;
void id_map_init(IdMap *m);
void id_map_free(IdMap *m);
Id id_map_find(const IdMap *m, Id key); // NONE where absent
void id_map_set(IdMap *m, Id key, Id value); // of a key that is not there

#endif
