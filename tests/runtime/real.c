// 16-bit numbers: every bf16 and f16 survives being widened and narrowed; the midpoints between neighbours go to the
// even one, what lies beside a midpoint to the nearer one; and the arrays' functions do as the elements'.
#include "runtime/base/real.h"
#include "support/check.h"

#include <math.h>
#include <stdlib.h>

static float widen(DtType t, unsigned h) {
  return t == DT_TYPE_BF16 ? dt_from_bf16((uint16_t)h) : dt_from_f16((uint16_t)h);
}
static unsigned narrow(DtType t, float v) {
  return t == DT_TYPE_BF16 ? dt_to_bf16(v) : dt_to_f16(v);
}

// Between the numbers h and h + 1, the latter the infinity where h is the greatest: half way to the next power of two.
static void check_between(DtType t, unsigned h, unsigned infinity) {
  float low = widen(t, h), below = widen(t, h - 1);
  double high = h + 1 == infinity ? 2.0 * (double)low - (double)below : (double)widen(t, h + 1);
  float middle = (float)(((double)low + high) / 2);
  unsigned even = h & 1 ? h + 1 : h;
  CHECK(narrow(t, middle) == even && narrow(t, -middle) == (even | 0x8000));
  CHECK(narrow(t, nextafterf(middle, 0)) == h);
  CHECK(narrow(t, nextafterf(middle, INFINITY)) == h + 1);
}

static void check_type(DtType t, unsigned infinity) {
  enum { ALL = 1 << 16 };
  uint16_t *half = malloc(ALL * sizeof *half), *again = malloc(ALL * sizeof *again);
  float *wide = malloc(ALL * sizeof *wide);
  for (unsigned h = 0; h < ALL; h++) {
    float v = widen(t, h);
    unsigned magnitude = h & 0x7fff, sign = h & 0x8000;
    half[h] = (uint16_t)h;
    CHECK((magnitude > infinity) == isnan(v) && (magnitude == infinity) == (isinf(v) != 0));
    if (isnan(v)) CHECK((narrow(t, v) & 0x7fff) > infinity && (narrow(t, v) & 0x8000) == sign);
    else CHECK(narrow(t, v) == h);
    if (magnitude && magnitude < infinity && !sign) check_between(t, h, infinity);
  }
  CHECK(narrow(t, 3.4e38f) == infinity && narrow(t, -INFINITY) == (infinity | 0x8000));
  CHECK(narrow(t, 0x1p-149f) == 0 && narrow(t, -0x1p-149f) == 0x8000);
  dt_widen(t, wide, half, ALL);
  dt_narrow(t, again, wide, ALL);
  for (unsigned h = 0; h < ALL; h++) {
    float v = widen(t, h);
    CHECK(memcmp(&wide[h], &v, sizeof v) == 0 && again[h] == narrow(t, v));
  }
  free(half);
  free(again);
  free(wide);
}

int main(void) {
  check_type(DT_TYPE_BF16, 0x7f80);
  check_type(DT_TYPE_F16, 0x7c00);
  CHECK(dt_from_bf16(0x3f80) == 1 && dt_from_f16(0x3c00) == 1 && dt_from_f16(1) == 0x1p-24f);
  CHECK(dt_type_size(DT_TYPE_BF16) == 2 && dt_type_size(DT_TYPE_F16) == 2);
  return check_done();
}
