// Parts a row of units into intervals of about equal cost.
#include "passes/pipeline/pipeline.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

// best[p][i]: of the first i units in p parts, the least that the dearest costs (over: then the
// least sum of squares among those that cost no more than `most`).
typedef struct Balance {
  const double *sum, *cross; // sum[i]: of the units before i
  uint32_t n, parts;
  double most;
} Balance;

static double part_cost(const Balance *b, uint32_t from, uint32_t to) {
  return b->sum[to] - b->sum[from] + (from ? b->cross[from] : 0) + (to < b->n ? b->cross[to] : 0);
}

static double solve(const Balance *b, bool squares, double *best, uint32_t *last) {
  uint32_t w = b->n + 1;
  for (uint32_t i = 0; i < w * (b->parts + 1); i++) best[i] = DBL_MAX;
  best[0] = 0;
  for (uint32_t p = 1; p <= b->parts; p++)
    for (uint32_t i = p; i <= b->n; i++)
      for (uint32_t j = i; j-- > p - 1;) {
        double before = best[(p - 1) * w + j], here = part_cost(b, j, i);
        if (before == DBL_MAX || (squares && here > b->most)) continue;
        double all = squares ? before + here * here : fmax(before, here);
        if (all >= best[p * w + i]) continue;
        best[p * w + i] = all;
        last[p * w + i] = j;
      }
  return best[b->parts * w + b->n];
}

void cost_balance(const double *cost, const double *cross, uint32_t n, uint32_t parts,
                  uint32_t *part) {
  CHECK(n >= parts && parts);
  size_t room = (size_t)(n + 1) * (parts + 1);
  double *sum = calloc(n + 1, sizeof *sum), *best = malloc(room * sizeof *best);
  uint32_t *last = calloc(room, sizeof *last);
  ALLOCATED(sum && best && last);
  for (uint32_t i = 0; i < n; i++) sum[i + 1] = sum[i] + cost[i];
  Balance b = {.sum = sum, .cross = cross, .n = n, .parts = parts};
  b.most = solve(&b, false, best, last) * (1 + 1e-9);
  solve(&b, true, best, last);
  for (uint32_t p = parts, i = n; p > 0; p--) {
    uint32_t from = last[p * (n + 1) + i];
    for (uint32_t k = from; k < i; k++) part[k] = p - 1;
    i = from;
  }
  free(sum);
  free(best);
  free(last);
}
