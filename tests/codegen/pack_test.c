// plan_pack on random lifetimes, by brute force: nothing alive together overlaps, every offset is
// aligned, and the total is close to what is alive at the worst moment.
#include <stdlib.h>

#include "codegen/lower/plan.h"

static uint64_t state = 88172645463325252u;
static uint32_t below(uint32_t n) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return (uint32_t)(state >> 33) % n;
}

static int64_t aligned(int64_t n) { return (n + 63) / 64 * 64; }

static bool overlap(const Block *a, const Block *b) {
  bool together = a->first <= b->last && b->first <= a->last;
  return together && a->bytes && b->bytes && a->offset < b->offset + b->bytes &&
         b->offset < a->offset + a->bytes;
}

static int64_t worst_moment(const Block *b, uint32_t n, uint32_t moments) {
  int64_t most = 0;
  for (uint32_t t = 0; t < moments; t++) {
    int64_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
      if (b[i].first <= t && t <= b[i].last) sum += aligned(b[i].bytes);
    if (sum > most) most = sum;
  }
  return most;
}

int main(void) {
  double waste = 0;
  enum { TRIALS = 2000, MOST = 60 };
  for (int trial = 0; trial < TRIALS; trial++) {
    Block b[MOST];
    uint32_t n = below(MOST), moments = 1 + below(40);
    for (uint32_t i = 0; i < n; i++) {
      uint32_t first = below(moments), length = below(3) ? below(4) : below(moments);
      b[i] = (Block){below(5) ? (int64_t)(1 + below(1 << (4 + below(14)))) : 0, -1, first,
                     first + length < moments ? first + length : moments - 1};
    }
    int64_t total = plan_pack(b, n, 64), least = worst_moment(b, n, moments);
    for (uint32_t i = 0; i < n; i++) {
      if (b[i].offset % 64 || b[i].offset < 0 || b[i].offset + b[i].bytes > total)
        return printf("trial %d: block %u at %lld\n", trial, i, (long long)b[i].offset), 1;
      for (uint32_t j = 0; j < i; j++)
        if (overlap(&b[i], &b[j]))
          return printf("trial %d: blocks %u and %u overlap\n", trial, i, j), 1;
    }
    if (total < least)
      return printf("trial %d: %lld bytes for %lld alive\n", trial, (long long)total,
                    (long long)least),
             1;
    if (least) waste += (double)total / (double)least - 1;
  }
  printf("%.2f%% more than what is alive at the worst moment, on average\n", 100 * waste / TRIALS);
  return waste / TRIALS > 0.05;
}
