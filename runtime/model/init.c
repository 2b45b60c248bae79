// Normal numbers by Box and Muller (A note on the generation of random normal deviates, 1958), four
// from one block of Philox: elements 4b .. 4b+3 of a parameter are the two pairs that the four
// words of block b give.
//
// The functions are our own: additions, multiplications, divisions and square roots, which IEEE 754
// rounds in one way, so that weights do not depend on the processor or the C library; and loops
// over lanes without branches, which the compiler turns into vector code for each instruction set.
#include "runtime/model/init.h"

#include <string.h>

#include "runtime/base/processor.h"
#include "runtime/base/philox.h"
#include "runtime/base/real.h"

enum { LANES = 32 }; // blocks of Philox at a time

#define INLINE static inline __attribute__((always_inline))

INLINE double from_bits(uint64_t bits) {
  double x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

// An integer below 2^32 as a double, by way of 2^52: narrower vectors have no conversion.
INLINE double from_u32(uint32_t x) {
  return from_bits(0x4330000000000000u | x) - 0x1p52;
}

// ln of a normal number in (0, 1]: u = 2^e * m with m in [1/sqrt 2, sqrt 2), and the series of
// ln((1+s)/(1-s)) for s = (m-1)/(m+1). Relative error under 1e-14.
INLINE double natural_log(double u) {
  uint64_t bits;
  memcpy(&bits, &u, sizeof bits);
  uint64_t up = bits + (0x3ff0000000000000u - 0x3fe6a09e667f3bcdu); // carries where m >= 1/sqrt 2
  double e = from_bits(0x4330000000000000u | up >> 52) - (0x1p52 + 1023);
  double m = from_bits((up & 0x000fffffffffffffu) + 0x3fe6a09e667f3bcdu);
  double s = (m - 1) / (m + 1), z = s * s, p = 1.0 / 21;
  p = p * z + 1.0 / 19;
  p = p * z + 1.0 / 17;
  p = p * z + 1.0 / 15;
  p = p * z + 1.0 / 13;
  p = p * z + 1.0 / 11;
  p = p * z + 1.0 / 9;
  p = p * z + 1.0 / 7;
  p = p * z + 1.0 / 5;
  p = p * z + 1.0 / 3;
  return e * 0.69314718055994530942 + (2 * s + 2 * s * z * p);
}

// Cosine and sine of 2 pi v / 2^32, by Taylor's series about the nearest quarter of a turn.
INLINE void turn(uint32_t v, double *cosine, double *sine) {
  uint32_t quarter = (v + 0x20000000u) >> 30;
  double t = (from_u32(v - (quarter << 30) + 0x20000000u) - 0x1p29) *
             (6.28318530717958647693 * 0x1p-32);
  double z = t * t, c = -1.0 / 87178291200, s = -1.0 / 1307674368000;
  c = c * z + 1.0 / 479001600;
  c = c * z - 1.0 / 3628800;
  c = c * z + 1.0 / 40320;
  c = c * z - 1.0 / 720;
  c = c * z + 1.0 / 24;
  c = c * z - 1.0 / 2;
  c = c * z + 1;
  s = s * z + 1.0 / 6227020800;
  s = s * z - 1.0 / 39916800;
  s = s * z + 1.0 / 362880;
  s = s * z - 1.0 / 5040;
  s = s * z + 1.0 / 120;
  s = s * z - 1.0 / 6;
  s = s * z * t + t;
  double x = quarter & 1 ? s : c, y = quarter & 1 ? c : s;
  *cosine = (quarter + 1) & 2 ? -x : x;
  *sine = quarter & 2 ? -y : y;
}

// out[4 * l + i]: the four normal numbers of block first + l.
INLINE void normals(uint64_t seed, uint32_t site, uint64_t first, double out[4 * LANES]) {
  uint64_t key = dt_key(seed, 0);
  uint32_t word[4][LANES];
  for (int l = 0; l < LANES; l++) {
    uint64_t block = first + (uint64_t)l;
    uint32_t x[4] = {(uint32_t)block, (uint32_t)(block >> 32), site, 0};
    dt_philox(x, (uint32_t)key, (uint32_t)(key >> 32));
    for (int i = 0; i < 4; i++) word[i][l] = x[i];
  }
  for (int i = 0; i < 4; i += 2) {
    double c[LANES], s[LANES];
    for (int l = 0; l < LANES; l++) {
      double r = __builtin_sqrt(-2 * natural_log((from_u32(word[i][l]) + 1) * 0x1p-32));
      turn(word[i + 1][l], &c[l], &s[l]);
      c[l] *= r;
      s[l] *= r;
    }
    for (int l = 0; l < LANES; l++) out[4 * l + i] = c[l], out[4 * l + i + 1] = s[l];
  }
}

typedef void Normals(uint64_t seed, uint32_t site, uint64_t first, double out[4 * LANES]);

static void normals_128(uint64_t seed, uint32_t site, uint64_t first, double out[4 * LANES]) {
  normals(seed, site, first, out);
}
#if DT_VECTORS
DT_FOR_256_ALL static void normals_256(uint64_t seed, uint32_t site, uint64_t first, double out[4 * LANES]) {
  normals(seed, site, first, out);
}
DT_FOR_512 static void normals_512(uint64_t seed, uint32_t site, uint64_t first, double out[4 * LANES]) {
  normals(seed, site, first, out);
}
#endif

static Normals *variant(void) {
#if DT_VECTORS
  int bits = dt_vector_bits();
  if (bits == 512) return normals_512;
  if (bits == 256) return normals_256;
#endif
  return normals_128;
}

static void fill_normal(const DtParam *a, uint64_t seed, DtType type, int64_t first, int64_t n,
                        void *out) {
  Normals *normals_now = variant();
  uint32_t site = dt_site(a->name);
  double v[4 * LANES];
  for (int64_t i = 0; i < n;) {
    int64_t at = first + i, skip = at % 4, some = 4 * LANES - skip;
    if (some > n - i) some = n - i;
    normals_now(seed, site, (uint64_t)(at / 4), v);
    for (int64_t k = 0; k < some; k++) dt_put_real(type, out, i + k, a->init_a + a->init_b * v[skip + k]);
    i += some;
  }
}

static void fill_uniform(const DtParam *a, uint64_t seed, DtType type, int64_t first, int64_t n,
                         void *out) {
  uint32_t site = dt_site(a->name);
  for (int64_t i = 0; i < n; i++) {
    double u = dt_uniform(seed, 0, site, 0, (uint64_t)(first + i));
    dt_put_real(type, out, i, a->init_a + (a->init_b - a->init_a) * u);
  }
}

void dt_init_fill(const DtParam *a, uint64_t seed, DtType type, int64_t first, int64_t n,
                  void *out) {
  double v = a->init == DT_ONES ? 1 : a->init == DT_CONST ? a->init_a : 0;
  if (a->init == DT_NORMAL) fill_normal(a, seed, type, first, n, out);
  else if (a->init == DT_UNIFORM) fill_uniform(a, seed, type, first, n, out);
  else
    for (int64_t i = 0; i < n; i++) dt_put_real(type, out, i, v);
}
