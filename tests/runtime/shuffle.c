// The order of samples is a permutation for every count, and another one in another epoch or with
// another seed.
#include "runtime/data/shuffle.h"
#include "support/check.h"

#include <stdlib.h>
#include <string.h>

static bool is_permutation(int64_t n, uint64_t seed, uint64_t epoch) {
  bool *seen = calloc((size_t)n, 1), good = true;
  for (int64_t i = 0; i < n; i++) {
    int64_t v = dt_shuffle(i, n, seed, epoch);
    good = good && v >= 0 && v < n && !seen[v];
    if (good) seen[v] = true;
  }
  free(seen);
  return good;
}

int main(void) {
  for (int64_t n = 1; n <= 300; n++) CHECK(is_permutation(n, (uint64_t)n * 77, (uint64_t)n % 5));
  CHECK(is_permutation(1000003, 3, 0));
  CHECK(is_permutation((1 << 20) + 1, 3, 1));
  // Of n = 1000, about one position stays where it was, in the order itself and from epoch to
  // epoch.
  int fixed = 0, same_epoch = 0, same_seed = 0;
  double distance = 0;
  for (int64_t i = 0; i < 1000; i++) {
    int64_t v = dt_shuffle(i, 1000, 1, 0);
    fixed += v == i;
    same_epoch += v == dt_shuffle(i, 1000, 1, 1);
    same_seed += v == dt_shuffle(i, 1000, 2, 0);
    distance += (double)llabs(v - i) / 1000;
  }
  CHECK(fixed < 10 && same_epoch < 10 && same_seed < 10);
  CHECK(distance > 300 && distance < 366); // a third of n where order is random
  // A set of many samples costs no memory and stays in range.
  for (int64_t i = 0; i < 1000; i++) {
    int64_t n = ((int64_t)1 << 40) + 12345, v = dt_shuffle(n - 1 - i, n, 9, 9);
    CHECK(v >= 0 && v < n);
  }
  return check_done();
}
