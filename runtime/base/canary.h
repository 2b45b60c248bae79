// With DT_MEMORY_CHECK=PREFIX, memory begins as a pattern, so that the last byte that was ever
// written in each region can be reported at the end, in a file PREFIX.RANK.
#ifndef DTC_RUNTIME_CANARY_H
#define DTC_RUNTIME_CANARY_H

#include <stdint.h>
#include <stdlib.h>

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

#endif
