#include "runtime/base/real.h"

#include "runtime/base/processor.h"

typedef struct Conversions {
  void (*narrow)(uint16_t *out, const float *in, int64_t n);
  void (*widen)(float *out, const uint16_t *in, int64_t n);
} Conversions;

#define CONVERSIONS(name, level, ...)                                                           \
  __VA_ARGS__ static void to_##name##_##level(uint16_t *out, const float *in, int64_t n) {      \
    for (int64_t i = 0; i < n; i++) out[i] = dt_to_##name(in[i]);                               \
  }                                                                                             \
  __VA_ARGS__ static void from_##name##_##level(float *out, const uint16_t *in, int64_t n) {    \
    for (int64_t i = 0; i < n; i++) out[i] = dt_from_##name(in[i]);                             \
  }
#define LEVEL(level, ...)                                                            \
  CONVERSIONS(bf16, level, __VA_ARGS__)                                              \
  CONVERSIONS(f16, level, __VA_ARGS__)                                               \
  static const Conversions conversions_##level[2] = {{to_bf16_##level, from_bf16_##level}, \
                                                     {to_f16_##level, from_f16_##level}};

LEVEL(base, )
#if DT_VECTORS
// Wider, with the same results: each element is one operation after another of integers and of IEEE 754.
LEVEL(wide, DT_FOR_256)
static const Conversions *conversions(DtType type) {
  return (dt_vector_bits() >= 256 ? conversions_wide : conversions_base) + (type == DT_TYPE_F16);
}
#else
static const Conversions *conversions(DtType type) {
  return conversions_base + (type == DT_TYPE_F16);
}
#endif

void dt_narrow(DtType to, void *out, const float *in, int64_t n) {
  conversions(to)->narrow(out, in, n);
}

void dt_widen(DtType from, float *out, const void *in, int64_t n) {
  conversions(from)->widen(out, in, n);
}
