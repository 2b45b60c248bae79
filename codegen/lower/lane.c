// Which index of a statement suits lanes: neighbouring points that neighbouring lanes of a vector, or threads, compute.
#include "codegen/lower/lane.h"

#include "codegen/lower/fuse.h"

// Of one vector of points along an index, in units of a contiguous load: a gather of 16 lanes is
// some ten of them, a load for all lanes a quarter.
typedef struct LaneCost {
  uint32_t index;
  double cost;
  bool impossible;
} LaneCost;

static void lane_access(const Fuse *u, const Stmt *s, Id read, const Affine *a, void *ctx) {
  LaneCost *c = ctx;
  bool rest = affine_rest_indices(u->m, a) >> c->index & 1, lhs = read == NONE;
  int64_t coef = a->coef[c->index];
  if (lhs && (rest || (!coef && c->index < s->nfree))) c->impossible = true;
  else if (rest) c->cost += 10;
  else if (coef == 1) c->cost += 1;
  else if (!coef) c->cost += lhs ? 0 : 0.25;
  else c->cost += lhs ? 16 : 10;
}

double lane_cost(const Fuse *u, const Stmt *s, uint32_t index, int64_t extent) {
  LaneCost c = {.index = index};
  if (index < s->nfree && s->acc && !fuse_owned(u->m, u->f, s, index)) return -1;
  fuse_accesses(u, s, lane_access, &c);
  if (c.impossible) return -1;
  int64_t lanes = u->m->limits.lanes;
  double n = (double)extent, blocks = (double)((extent + lanes - 1) / lanes);
  double cost = (c.cost + 1) * blocks * (double)lanes / n;
  return index < s->nfree ? cost : cost + 24 / n; // a bound one ends in a fold of the lanes
}

static void count_access(const Fuse *u, const Stmt *s, Id read, const Affine *a, void *ctx) {
  (void)u, (void)s, (void)read, (void)a;
  *(double *)ctx += 1;
}

double lane_none_cost(const Fuse *u, const Stmt *s) {
  double n = 1;
  fuse_accesses(u, s, count_access, &n);
  return n * (double)u->m->limits.lanes;
}

uint8_t lane_best(const Fuse *u, const Stmt *s) {
  uint8_t best = NO_VAR;
  double least = lane_none_cost(u, s);
  for (uint32_t i = 0; i < s->nindex; i++) {
    if (s->index[i].extent < 2) continue;
    double cost = lane_cost(u, s, i, s->index[i].extent);
    if (cost >= 0 && cost <= least) best = (uint8_t)i, least = cost;
  }
  return best;
}
