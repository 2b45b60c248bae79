// The sizes of the types of elements, and 16-bit numbers: bf16 (8 bits of exponent, 7 of fraction) and f16 (IEEE half
// precision: 5 and 10). Both are computed with as float.
#ifndef DTC_RUNTIME_REAL_H
#define DTC_RUNTIME_REAL_H

#include "runtime/program.h"

#include <string.h>

// Bytes of an element.
static inline size_t dt_type_size(DtType type) {
  static const unsigned char size[] = {[DT_TYPE_F32] = 4,  [DT_TYPE_F64] = 8,  [DT_TYPE_I32] = 4,
                                       [DT_TYPE_BOOL] = 1, [DT_TYPE_BF16] = 2, [DT_TYPE_F16] = 2};
  return size[type];
}
static inline bool dt_is_16_bit(DtType type) { return type == DT_TYPE_BF16 || type == DT_TYPE_F16; }

static inline uint32_t dt_float_bits(float v) {
  uint32_t bits;
  memcpy(&bits, &v, 4);
  return bits;
}
static inline float dt_bits_float(uint32_t bits) {
  float v;
  memcpy(&v, &bits, 4);
  return v;
}

static inline float dt_from_bf16(uint16_t b) { return dt_bits_float((uint32_t)b << 16); }

// To the nearest, of two as near the one whose last bit is 0; past the greatest to infinity. NaN stays NaN.
static inline uint16_t dt_to_bf16(float v) {
  uint32_t bits = dt_float_bits(v), up = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : up);
}

// The exponent moves by 127 - 15; a subnormal number is the difference of two normal ones.
static inline float dt_from_f16(uint16_t h) {
  uint32_t bits = (uint32_t)(h & 0x7fff) << 13, exponent = bits & 0x0f800000;
  float small = dt_bits_float(bits + (113u << 23)) - 0x1p-14f;
  uint32_t normal = bits + (exponent == 0x0f800000 ? 224u << 23 : 112u << 23);
  uint32_t magnitude = exponent ? normal : dt_float_bits(small);
  return dt_bits_float(magnitude | (uint32_t)(h & 0x8000) << 16);
}

// As dt_to_bf16. Where the result is subnormal, adding 1/2 rounds at its last bit, 2^-24.
static inline uint16_t dt_to_f16(float v) {
  uint32_t bits = dt_float_bits(v), sign = bits >> 16 & 0x8000, a = bits & 0x7fffffff;
  uint32_t small = dt_float_bits(dt_bits_float(a) + 0.5f) - 0x3f000000;
  uint32_t normal = (a - (112u << 23) + 0xfff + (a >> 13 & 1)) >> 13;
  uint32_t special = a > 0x7f800000 ? 0x7e00 | (a >> 13 & 0x1ff) : 0x7c00;
  return (uint16_t)(sign | (a >= 0x47800000 ? special : a < 0x38800000 ? small : normal));
}

// n elements between float and a 16-bit type. The arrays lie apart.
void dt_narrow(DtType to, void *out, const float *in, int64_t n);
void dt_widen(DtType from, float *out, const void *in, int64_t n);
// Element i of an array of a real type becomes v; for a 16-bit type v is rounded to float first.
static inline void dt_put_real(DtType type, void *out, int64_t i, double v) {
  if (type == DT_TYPE_F64) ((double *)out)[i] = v;
  else if (type == DT_TYPE_BF16) ((uint16_t *)out)[i] = dt_to_bf16((float)v);
  else if (type == DT_TYPE_F16) ((uint16_t *)out)[i] = dt_to_f16((float)v);
  else ((float *)out)[i] = (float)v;
}

#endif
