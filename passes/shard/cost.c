// What statements, calls and conversions cost a rank.
//
// Collectives are counted at what rings send, q = (n - 1) / n of the array, twice that for an
// all-reduce, q / n for an all-to-all; their number and the bytes that statements move decide among
// equals only. So a plan does not depend on the machine, and a small model is cut as a large one
// is. Without the sequence on the axis, the number comes first: else the residual stream would be
// cut along its features and exchanged twice as often, to save elementwise work. With it, that work
// does: this is the purpose of a cut along the sequence.
#include "passes/shard/shard.h"

// ---- shares

int64_t slot_bytes(const Slot *s) {
  int64_t n = dtype_size(s->of.type);
  for (uint32_t d = 0; d < s->of.rank; d++) n *= s->of.extent[d];
  return n;
}

int64_t share_of(int64_t whole, int64_t extent, int64_t block, int64_t n) {
  int64_t local = shard_local(extent, block, n);
  return 2 * local * n <= 3 * extent ? whole / n : whole / extent * local;
}

static int64_t held(const Sharder *z, const Slot *s, Shard t) {
  int64_t n = slot_bytes(s);
  return t.kind == SHARD_SPLIT ? share_of(n, s->of.extent[t.dim], t.block, z->n) : n;
}

// ---- conversions

bool convert_cost(const Sharder *z, const Slot *s, Shard from, Shard to, Cost *cost) {
  *cost = (Cost){0};
  if (shard_same(from, to)) return true;
  if (!shard_convertible(from, to)) return false;
  if (from.kind == SHARD_WHOLE) {
    cost->at[to.kind == SHARD_SPLIT ? z->traffic : COST_MASKS] =
        to.kind == SHARD_SPLIT ? held(z, s, to) : 1;
    return true;
  }
  if (s->of.type == DT_BOOL) return false; // ranks exchange no bools
  int64_t bytes = slot_bytes(s) / (s->halved && from.kind == SHARD_PARTIAL ? 2 : 1);
  int64_t sent = (bytes * (z->n - 1) + z->n - 1) / z->n;
  if (from.kind == SHARD_PARTIAL && to.kind == SHARD_WHOLE) sent *= 2;
  if (from.kind == SHARD_SPLIT && to.kind == SHARD_SPLIT) sent /= z->n;
  cost->at[COST_COMM] = sent;
  cost->at[z->collectives] = 1;
  cost->at[z->traffic] = bytes;
  return true;
}

// ---- statements

static const Stmt *stmt_of(const Sharder *z, const Level *l, const Item *it, const Fn **f) {
  *f = &z->m->fn.at[l->body.at[it->body].fn];
  return &(*f)->stmt.at[it->stmt];
}

static int64_t points(const Stmt *s) {
  int64_t n = 1;
  for (uint32_t i = 0; i < s->nindex; i++) n *= s->index[i].extent;
  return n;
}

static void add_traffic(const Sharder *z, const Level *l, const Choice *c, Cost *cost) {
  for (uint32_t i = 0; i < c->nneed; i++) {
    const Slot *s = &l->slot.at[c->need[i].slot];
    cost->at[z->traffic] += held(z, s, s->type[c->need[i].type]);
  }
  for (uint32_t i = 0; i < c->nout; i++) {
    if (c->out[i].slot == NONE) continue;
    const Slot *s = &l->slot.at[c->out[i].slot];
    cost->at[z->traffic] += held(z, s, s->type[c->out[i].type]);
  }
}

int64_t stmt_points(const Sharder *z, const Stmt *s, Assign a) {
  int64_t n = points(s);
  return a.kind != ASSIGN_INDEX ? n : share_of(n, s->index[a.index].extent, a.block, z->n);
}

Cost comp_cost(const Sharder *z, const Level *l, const Item *it, const Choice *c) {
  const Fn *f;
  const Stmt *s = stmt_of(z, l, it, &f);
  Cost cost = {0};
  if (stmt_is_product(z->m, s)) cost.at[COST_FLOPS] = stmt_points(z, s, c->assign);
  add_traffic(z, l, c, &cost);
  return cost;
}

// All that an intrinsic reduces counts as a product: its scores are never stored.
Cost call_cost(const Sharder *z, const Level *l, const Item *it, const Choice *c) {
  const Fn *f;
  const Stmt *s = stmt_of(z, l, it, &f);
  const Fn *g = &z->m->fn.at[s->call->fn];
  Shard *type = NEWN(z->m->arena, Shard, g->value.n + 1);
  Assign *assign = NEWN(z->m->arena, Assign, g->stmt.n + 1);
  Cost cost = {0};
  if (c->class != NONE)
    CHECK(intrinsic_types(z, s->call->fn, c->class, c->assign.block, type, assign));
  for (uint32_t i = 0; i < g->stmt.n; i++)
    if (g->stmt.at[i].kind == ST_COMP && g->stmt.at[i].red != RED_NONE)
      cost.at[COST_FLOPS] += stmt_points(z, &g->stmt.at[i], assign[i]);
  if (c->class != NONE) cost.at[COST_COMM] += ring_bytes(z, s->call->fn);
  add_traffic(z, l, c, &cost);
  return cost;
}
