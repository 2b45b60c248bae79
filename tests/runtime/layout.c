// Local arrays of split parameters: every element of the whole is on the ranks that the rule says, in
// the order of the whole, and ranges and runs say where.
#include "runtime/model/layout.h"
#include "support/check.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
  int rank;
  int64_t extent[3];
  DtShard shard[DT_STATIC_AXES];
  int n[DT_STATIC_AXES];
} Case;

static const Case cases[] = {
    {1, {7}, {{0, 0}, {0, 0}}, {1, 1}},
    {1, {8}, {{0, 4}, {0, 0}}, {2, 1}},
    {2, {6, 4}, {{0, 3}, {0, 0}}, {2, 1}},
    {2, {4, 6}, {{1, 3}, {0, 0}}, {2, 1}},
    {2, {3, 12}, {{1, 2}, {0, 0}}, {2, 1}},  // an inner factor
    {2, {5, 3}, {{0, 2}, {0, 0}}, {3, 1}},   // the last has one of two
    {2, {3, 5}, {{1, 2}, {0, 0}}, {3, 1}},
    {2, {2, 2}, {{0, 1}, {0, 0}}, {4, 1}},   // two have nothing
    {3, {4, 6, 5}, {{1, 2}, {0, 2}}, {3, 2}},
    {3, {4, 3, 6}, {{2, 3}, {0, 1}}, {2, 3}}, // ranks with padding in one dimension of two
    {3, {3, 5, 4}, {{1, 2}, {2, 3}}, {3, 2}}, // padding in both
    {2, {10, 3}, {{0, 8}, {0, 0}}, {2, 1}},   // a block greater than it need be
    {2, {2, 24}, {{1, 12}, {1, 3}}, {2, 2}},  // nested in one dimension
    {2, {24, 2}, {{0, 2}, {0, 6}}, {3, 4}},
    {2, {2, 24}, {{1, 3}, {1, 6}, {1, 12}}, {2, 2, 2}}, // three in one dimension
    {3, {4, 2, 6}, {{2, 3}, {1, 1}, {0, 2}}, {2, 2, 2}},
};
enum { CASES = sizeof cases / sizeof *cases };

static bool owns(const Case *c, const int64_t *at, int axis, int number) {
  const DtShard *s = &c->shard[axis];
  return !s->block || c->n[axis] < 2 || at[s->dim] / s->block % c->n[axis] == number;
}

// Elements of the whole that a rank has, in order; how many.
static int64_t list(const Case *c, const int *me, int64_t *out) {
  int64_t n = 0, count = 1;
  for (int d = 0; d < c->rank; d++) count *= c->extent[d];
  for (int64_t i = 0; i < count; i++) {
    int64_t at[3], left = i;
    for (int d = c->rank; d-- > 0; left /= c->extent[d]) at[d] = left % c->extent[d];
    bool mine = true;
    for (int a = 0; a < DT_STATIC_AXES; a++) mine &= owns(c, at, a, me[a]);
    if (mine) out[n++] = i;
  }
  return n;
}

static void check_rank(const Case *c, const int *me) {
  DtLayout l;
  int64_t want[1000], element, n = list(c, me, want), at = 0;
  dt_layout_make(&l, c->rank, c->extent, c->shard, c->n, me);
  CHECK(dt_layout_empty(&l) == (n == 0));
  int64_t *where = malloc((size_t)l.local * sizeof *where);
  for (int64_t i = 0, run; i < l.local; i += run) {
    run = dt_layout_run(&l, i, l.local - i, &element);
    CHECK(run > 0 && run <= l.local - i);
    for (int64_t k = 0; k < run; k++) {
      where[i + k] = element < 0 ? -1 : element + k;
      if (element >= 0) CHECK(at < n && want[at] == element + k), at++;
    }
    // From anywhere in it, and cut.
    int64_t e2;
    CHECK(dt_layout_run(&l, i + run / 2, 1, &e2) == 1);
    CHECK(e2 == (element < 0 ? -1 : element + run / 2));
  }
  CHECK(at == n);
  for (int64_t e = 0; e <= l.count + 1; e++) {
    int64_t first = dt_layout_first(&l, e);
    CHECK(first >= 0 && first <= l.local);
    for (int64_t i = 0; i < l.local; i++)
      if (where[i] >= 0) CHECK((i >= first) == (where[i] >= e));
    CHECK(first == l.local || where[first] >= e || where[first] < 0);
  }
  for (int64_t i = 0; i <= l.local; i++) {
    int64_t end = i;
    while (end > 0 && where[end - 1] < 0) end--;
    CHECK(dt_layout_trim(&l, i) == end);
  }
  free(where);
}

int main(void) {
  for (int i = 0; i < CASES; i++) {
    int me[DT_STATIC_AXES] = {0};
    const int *n = cases[i].n, last = n[2] > 1 ? n[2] : 1;
    for (me[2] = 0; me[2] < last; me[2]++)
      for (me[1] = 0; me[1] < n[1]; me[1]++)
        for (me[0] = 0; me[0] < n[0]; me[0]++) check_rank(&cases[i], me);
  }
  return check_done();
}
