// XXH64 (seed 0): finds damage in the parts of a checkpoint at the speed of memory. Not a defence
// against forgery.
#ifndef DTC_RUNTIME_HASH_H
#define DTC_RUNTIME_HASH_H

#include <stddef.h>
#include <stdint.h>

typedef struct DtHash {
  uint64_t lane[4], bytes;
  unsigned char rest[32]; // input that does not yet fill a stripe
  size_t nrest;
} DtHash;

void dt_hash_begin(DtHash *h);
void dt_hash_add(DtHash *h, const void *bytes, size_t n);
uint64_t dt_hash_end(const DtHash *h);
uint64_t dt_hash(const void *bytes, size_t n);

#endif
