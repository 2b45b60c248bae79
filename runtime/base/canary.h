// With DT_MEMORY_CHECK=PREFIX, memory begins as a pattern, so that the last byte that was ever
// written in each region can be reported at the end, in a file PREFIX.RANK.
#ifndef DTC_RUNTIME_CANARY_H
#define DTC_RUNTIME_CANARY_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { DT_CANARY = 0xa5 };

static inline const char *dt_watching(void) {
  const char *prefix = getenv("DT_MEMORY_CHECK");
  return prefix && *prefix ? prefix : NULL;
}

// Bytes up to the last one that is not the pattern any more.
static inline int64_t dt_written(const void *p, int64_t bytes) {
  const unsigned char *c = p;
  while (bytes > 0 && c[bytes - 1] == DT_CANARY) bytes--;
  return bytes;
}

// Fills memory with the pattern that shows which bytes were written. With `zeros` the memory holds numbers of `zeros` bytes
// that begin as 0: they are written as negative zeros. Arithmetic takes these for 0, and a sum is a negative zero only where
// all of its terms are.
static inline void dt_fill_pattern(void *p, int64_t bytes, int zeros) {
  unsigned char *c = p;
  memset(c, zeros ? 0 : DT_CANARY, (size_t)bytes);
  for (int64_t i = zeros - 1; zeros && i < bytes; i += zeros) c[i] = 0x80;
}

// Bytes up to the last number, or the last 4 bytes, that are not the pattern any more.
static inline int64_t dt_pattern_used(const void *p, int64_t bytes, int zeros) {
  unsigned char pattern[8];
  int64_t unit = zeros ? zeros : 4, n = bytes / unit * unit;
  dt_fill_pattern(pattern, sizeof pattern, zeros);
  while (n > 0 && !memcmp((const char *)p + n - unit, pattern, (size_t)unit)) n -= unit;
  return n;
}

#endif
