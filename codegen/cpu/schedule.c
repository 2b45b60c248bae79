// The CPU's schedule of a group: which index runs across vector lanes and what an access costs there, how the grid is cut
// into tiles, and how many points make a task.
#include "codegen/cpu/target.h"
#include "codegen/lower/fuse.h"
#include "codegen/lower/lane.h"

// ---- loops

static const Stmt *stmt_of(const Schedule *x, const NestStmt *ns) { return &x->u->f->stmt.at[ns->stmt]; }

// The free index of a lone pointwise statement that lanes suit best is one of the grid's.
static bool lane_in_grid(const Schedule *x, const Member *y) {
  const Stmt *s = &x->u->f->stmt.at[y->stmt];
  double least = lane_none_cost(x->u, s);
  bool grid = false;
  for (uint32_t i = 0; i < s->nfree; i++) {
    double cost = s->index[i].extent > 1 ? lane_cost(x->u, s, i, s->index[i].extent) : -1;
    if (cost >= 0 && cost <= least) grid = fuse_in_grid(x->g, y, i), least = cost;
  }
  return grid;
}

// True if one dimension of the grid can run in lanes for all members: their free indices are all of
// the grid, and every reduction has its lanes there.
static bool lane_mode(const Schedule *x) {
  int dim = -1;
  for (uint32_t i = 0; i < x->g->member.n; i++) {
    const Member *y = &x->g->member.at[i];
    const Stmt *s = &x->u->f->stmt.at[y->stmt];
    if (x->g->member.n == 1 && s->red == RED_NONE) return lane_in_grid(x, y);
    if (x->g->member.n == 1) return y->vec != NO_VAR && fuse_in_grid(x->g, y, y->vec);
    if (s->nfree != x->g->ngrid || !s->nfree) return false;
    if (s->red == RED_NONE) continue;
    if (y->vec == NO_VAR || y->vec >= s->nfree) return false;
    for (int k = 0; k < (int)x->g->ngrid; k++) {
      if (y->grid[k] != y->vec) continue;
      if (dim >= 0 && dim != k) return false;
      dim = k;
    }
  }
  return x->g->ngrid > 0;
}

// The variable of least cost for all pointwise statements of a nest, among `candidate`.
static uint8_t pointwise_vec(const Schedule *x, const Nest *n, const uint8_t *candidate, uint32_t count) {
  uint8_t best = NO_VAR;
  double least = 0;
  for (uint32_t j = 0; j < n->stmt.n; j++)
    least += lane_none_cost(x->u, stmt_of(x, &n->stmt.at[j]));
  for (uint32_t i = 0; i < count; i++) {
    double cost = 0;
    if (x->loops->var.at[candidate[i]].extent < 2) continue;
    for (uint32_t j = 0; j < n->stmt.n && cost >= 0; j++) {
      uint32_t index = nest_index_of(&n->stmt.at[j], candidate[i]);
      double c = index == NONE ? -1
                               : lane_cost(x->u, stmt_of(x, &n->stmt.at[j]), index,
                                           x->loops->var.at[candidate[i]].extent);
      cost = c < 0 ? -1 : cost + c;
    }
    if (cost >= 0 && cost <= least) best = candidate[i], least = cost;
  }
  return best;
}

// In lane mode: the dimension that all nests run in lanes, or NO_VAR.
static uint8_t choose_lane(const Schedule *x) {
  for (uint32_t i = 0; i < x->loops->nest.n; i++)
    if (stmt_of(x, &x->loops->nest.at[i].stmt.at[0])->red != RED_NONE) return x->loops->nest.at[i].vec;
  uint8_t best = NO_VAR;
  double least = 0;
  for (uint32_t v = 0; v < x->ngrid; v++) {
    double cost = 0;
    for (uint32_t i = 0; i < x->loops->nest.n && cost >= 0; i++)
      for (uint32_t j = 0; j < x->loops->nest.at[i].stmt.n && cost >= 0; j++) {
        const NestStmt *ns = &x->loops->nest.at[i].stmt.at[j];
        double c = lane_cost(x->u, stmt_of(x, ns), nest_index_of(ns, x->grid[v]),
                             x->loops->var.at[x->grid[v]].extent);
        cost = c < 0 ? -1 : cost + c;
      }
    if (x->loops->var.at[x->grid[v]].extent > 1 && cost >= 0 && (best == NO_VAR || cost <= least))
      best = x->grid[v], least = cost;
  }
  return best;
}

// A tile that divides the extent where one near the wanted size does.
static int64_t tile_size(int64_t extent, int64_t want, int64_t lanes) {
  if (extent <= want) return extent;
  for (int64_t t = want; t >= want / 2; t -= lanes)
    if (extent % t == 0) return t;
  return want;
}

// Loops inside of a grid point: what its lanes do is much more than one pass.
static bool has_loops(const Loops *l) {
  for (uint32_t i = 0; i < l->nest.n; i++)
    if (l->nest.at[i].nloop) return true;
  return false;
}

// The variable becomes the grid's last, and is cut into tiles.
static void tile_grid(Schedule *x, uint8_t lane) {
  const Limits *l = &x->u->m->limits;
  uint32_t i = 0;
  while (i < x->ngrid && x->grid[i] != lane) i++;
  CHECK(i < x->ngrid);
  memmove(x->grid + i, x->grid + i + 1, x->ngrid - i - 1);
  x->grid[x->ngrid - 1] = lane;
  x->loops->tile = tile_size(x->loops->var.at[lane].extent,
                             has_loops(x->loops) ? l->reduce_tile : l->lane_tile, l->lanes);
}

void cpu_schedule(Schedule *x) {
  bool lanes = lane_mode(x);
  uint8_t lane = lanes ? choose_lane(x) : NO_VAR;
  for (uint32_t i = 0; i < x->loops->nest.n; i++) {
    Nest *n = &x->loops->nest.at[i];
    bool red = stmt_of(x, &n->stmt.at[0])->red != RED_NONE;
    if (lanes) n->vec = lane;
    else if (!red) n->vec = pointwise_vec(x, n, n->loop, n->nfree);
  }
  if (lane != NO_VAR) tile_grid(x, lane);
}

// ---- tasks

void cpu_tasks(const Module *m, Kernel *k) {
  const Limits *l = &m->limits;
  if (k->fill != NONE) {
    k->chunk = k->grid < l->fill_elements ? k->grid : l->fill_elements;
    return;
  }
  // A rough clock: 8 GB/s, and 4 lanes of any operation a nanosecond.
  double seconds = k->bytes / 8e9 + k->flops / 4e9;
  int64_t chunk = (int64_t)((double)l->task_ns / 1e9 / (seconds / (double)k->grid));
  int64_t most = (k->grid + 7) / 8;
  if (seconds > (double)l->share_ns / 1e9 && chunk > most) chunk = most;
  k->chunk = chunk < 1 ? 1 : chunk > k->grid ? k->grid : chunk;
}
