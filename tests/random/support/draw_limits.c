// Limits at which a program of a few elements takes the paths of large ones.
#include "codegen/target.h"
#include "tests/random/support/generate.h"

// Most values are near the least legal one, where sizes of random programs lie on both sides.
static int64_t draw(Rng *r, int64_t usual, int64_t least, int64_t most) {
  static const uint32_t within[] = {1, 2, 4, 8, 16, 64, 300};
  int64_t v = least + rng_below(r, within[rng_below(r, 7)]);
  return rng_chance(r, 35) ? usual : v > most ? most : v;
}

Limits draw_limits(uint64_t seed) {
  Rng r = {seed * UINT64_C(0x9e3779b97f4a7c15) + 5};
  Limits l = target_named("cpu")->limits;
  if (rng_chance(&r, 15)) return l;
#define X(name, usual, least, most, meaning) l.name = draw(&r, l.name, (least), (most));
  COMPILER_LIMITS(X)
#undef X
#define X(name, least, most, meaning) l.name = draw(&r, l.name, (least), (most));
  TARGET_LIMITS(X)
#undef X
  if (rng_chance(&r, 50)) { // any sum of products is a matrix product
    l.product_side = l.product_sum = 1;
    l.product_work = 1 + rng_below(&r, 8);
  }
  return l;
}
