// XXH64 as its specification gives it (github.com/Cyan4973/xxHash, doc/xxhash_spec.md).
#include "runtime/base/hash.h"

#include <string.h>

static const uint64_t P1 = 0x9E3779B185EBCA87u, P2 = 0xC2B2AE3D27D4EB4Fu, P3 = 0x165667B19E3779F9u,
                      P4 = 0x85EBCA77C2B2AE63u, P5 = 0x27D4EB2F165667C5u;

static uint64_t rotate(uint64_t x, int by) { return x << by | x >> (64 - by); }

static uint64_t word64(const unsigned char *p) {
  uint64_t v;
  memcpy(&v, p, 8); // little-endian machines only, as the files are
  return v;
}

static uint32_t word32(const unsigned char *p) {
  uint32_t v;
  memcpy(&v, p, 4);
  return v;
}

static uint64_t round64(uint64_t lane, uint64_t input) {
  return rotate(lane + input * P2, 31) * P1;
}

static void stripe(DtHash *h, const unsigned char *p) {
  for (int i = 0; i < 4; i++) h->lane[i] = round64(h->lane[i], word64(p + 8 * i));
}

void dt_hash_begin(DtHash *h) {
  memset(h, 0, sizeof *h);
  h->lane[0] = P1 + P2;
  h->lane[1] = P2;
  h->lane[3] = 0 - P1;
}

void dt_hash_add(DtHash *h, const void *bytes, size_t n) {
  const unsigned char *p = bytes;
  h->bytes += n;
  if (h->nrest) {
    size_t some = 32 - h->nrest < n ? 32 - h->nrest : n;
    memcpy(h->rest + h->nrest, p, some);
    h->nrest += some;
    p += some;
    n -= some;
    if (h->nrest < 32) return;
    stripe(h, h->rest);
    h->nrest = 0;
  }
  for (; n >= 32; p += 32, n -= 32) stripe(h, p);
  if (n) memcpy(h->rest, p, n);
  h->nrest = n;
}

uint64_t dt_hash_end(const DtHash *h) {
  uint64_t x;
  if (h->bytes >= 32) {
    x = rotate(h->lane[0], 1) + rotate(h->lane[1], 7) + rotate(h->lane[2], 12) +
        rotate(h->lane[3], 18);
    for (int i = 0; i < 4; i++) x = (x ^ round64(0, h->lane[i])) * P1 + P4;
  } else {
    x = P5;
  }
  x += h->bytes;
  const unsigned char *p = h->rest, *end = p + h->nrest;
  for (; end - p >= 8; p += 8) x = rotate(x ^ round64(0, word64(p)), 27) * P1 + P4;
  if (end - p >= 4) {
    x = rotate(x ^ word32(p) * P1, 23) * P2 + P3;
    p += 4;
  }
  for (; p < end; p++) x = rotate(x ^ *p * P5, 11) * P1;
  x = (x ^ x >> 33) * P2;
  x = (x ^ x >> 29) * P3;
  return x ^ x >> 32;
}

uint64_t dt_hash(const void *bytes, size_t n) {
  DtHash h;
  dt_hash_begin(&h);
  dt_hash_add(&h, bytes, n);
  return dt_hash_end(&h);
}
