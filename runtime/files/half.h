// IEEE half precision, for files that hold it.
#ifndef DTC_RUNTIME_HALF_H
#define DTC_RUNTIME_HALF_H

#include <stdint.h>
#include <string.h>

static inline float dt_from_f16(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 1023;
  float v;
  if (exponent == 0) {
    v = (float)fraction * 0x1p-24f; // zero and subnormal numbers, exactly
    return sign ? -v : v;
  }
  uint32_t bits = sign | (exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13;
  memcpy(&v, &bits, 4);
  return v;
}

#endif
