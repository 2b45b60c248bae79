// An axis as two factors. With fewer groups of heads than ranks, an axis that deals out one index
// of a statement has either the groups or the heads of one: with 2 of keys and values, 4 heads each
// and 8 ranks, 2 ranks or 4 have work in attention. So the axis is planned as two as well, an outer
// one of 2 for the groups and an inner one of 4 for their heads, the outer one first, by the same
// rule. Whatever else is on the outer one, the inner one cuts its blocks again, so that it lies as
// on the axis whole; and what belongs to a group, its keys and values and their products, each rank
// of the inner one computes.
//
// The plan that costs less is kept, by points of products and bytes sent together, as each of them
// has less of one: a byte is worth `byte_points` points, about what one costs on an accelerator.
#include "ir/intrinsic.h"
#include "passes/shard/shard.h"

static int64_t gcd(int64_t a, int64_t b) { return b ? gcd(b, a % b) : a; }

// The queries of attention in groups, [b, t, g, r, e]; else NULL.
static const Value *queries(const Module *m, Id fn) {
  const Value *q = intrinsic_queries(&m->fn.at[fn]);
  return q && q->extent[2] > 1 && q->extent[3] > 1 ? q : NULL;
}

// Whether the model says itself what is on the axis.
static bool asked(const Module *m, AxisId named) {
  for (uint32_t i = 0; i < m->param.n; i++)
    if (m->param.at[i].asked[named]) return true;
  for (Id f = 0; f < m->fn.n; f++)
    for (uint32_t i = 0; i < m->fn.at[f].stmt.n; i++)
      for (uint32_t k = 0; k < m->fn.at[f].stmt.at[i].nindex; k++) {
        const Index *x = &m->fn.at[f].stmt.at[i].index[k];
        if ((x->on | x->off) >> named & 1) return true;
      }
  return false;
}

int64_t factor_next(const Module *m, uint32_t axis, int64_t last) {
  int64_t n = m->axis.at[axis].size, best = 0;
  if (is_factor(&m->axis.at[axis]) || m->axis.at[axis].id == AXIS_OTHER) return 0;
  if (asked(m, m->axis.at[axis].id)) return 0;
  for (uint32_t a = 0; a < m->axis.n; a++)
    if (m->axis.at[a].heads) return 0; // they are on another axis
  for (Id f = 0; f < m->fn.n; f++) {
    const Value *q = queries(m, f);
    int64_t outer = q ? gcd(q->extent[2], n) : 1;
    if (outer > 1 && outer < n && outer > last && (!best || outer < best)) best = outer;
  }
  return best;
}

void factor_axis(Module *m, uint32_t axis, int64_t outer) {
  Axis x = m->axis.at[axis];
  PUSH(m->arena, m->axis, x);
  for (uint32_t a = m->axis.n - 1; a > axis + 1; a--) m->axis.at[a] = m->axis.at[a - 1];
  m->axis.at[axis] = axis_factor(&x, AXIS_INNER, x.size / outer);
  m->axis.at[axis + 1] = axis_factor(&x, AXIS_OUTER, outer);
}

bool factor_heads(const Sharder *z, Id outer, Id inner) {
  for (Id f = 0; f < z->m->fn.n; f++) {
    if (!queries(z->m, f)) continue;
    Id q = z->m->fn.at[f].arg.at[0];
    if (class_of_dim(&z->class, f, q, 2) == outer && class_of_dim(&z->class, f, q, 3) == inner)
      return true;
  }
  return false;
}

// ---- what a plan costs

typedef struct Axes {
  Sharder *z;
  uint32_t at[2], n;
} Axes;

static void set_axis(Sharder *z, uint32_t a) {
  z->axis = a;
  z->n = z->m->axis.at[a].size;
}

static double comp_points(const Axes *x, const Item *it, const Fn *f) {
  const Stmt *s = &f->stmt.at[it->stmt];
  if (!stmt_is_product(x->z->m, s)) return 0;
  double all = (double)stmt_points(x->z, s, (Assign){0}), n = all;
  for (uint32_t k = 0; k < x->n; k++) {
    set_axis(x->z, x->at[k]);
    n *= (double)stmt_points(x->z, s, it->done[x->at[k]].choice.assign) / all;
  }
  return n;
}

static double call_points(const Axes *x, const Item *it, const Fn *f) {
  Id fn = f->stmt.at[it->stmt].call->fn;
  const Fn *g = &x->z->m->fn.at[fn];
  Shard *type = NEWN(x->z->m->arena, Shard, g->value.n + 1);
  Assign *assign[2];
  double sum = 0;
  for (uint32_t k = 0; k < x->n; k++) {
    const Choice *c = &it->done[x->at[k]].choice;
    set_axis(x->z, x->at[k]);
    assign[k] = NEWN(x->z->m->arena, Assign, g->stmt.n + 1);
    if (c->class != NONE)
      CHECK(intrinsic_types(x->z, fn, c->class, c->assign.block, type, assign[k]));
  }
  for (uint32_t i = 0; i < g->stmt.n; i++) {
    const Stmt *s = &g->stmt.at[i];
    if (s->kind != ST_COMP || s->red == RED_NONE) continue;
    double all = (double)stmt_points(x->z, s, (Assign){0}), n = all;
    for (uint32_t k = 0; k < x->n; k++) {
      set_axis(x->z, x->at[k]);
      n *= (double)stmt_points(x->z, s, assign[k][i]) / all;
    }
    sum += n;
  }
  return sum;
}

static double level_points(const Axes *x, const Level *l) {
  double sum = 0;
  for (uint32_t i = 0; i < l->item.n; i++) {
    const Item *it = &l->item.at[i];
    const Fn *f = &x->z->m->fn.at[l->body.at[it->body].fn];
    if (it->kind == ITEM_COMP) sum += comp_points(x, it, f);
    if (it->kind == ITEM_CALL) sum += call_points(x, it, f);
  }
  for (uint32_t i = 0; i < l->cluster.n; i++)
    sum += (double)l->cluster.at[i].in->count * level_points(x, l->cluster.at[i].in);
  return sum;
}

// On n = a b ranks an all-reduce sends 2 (n - 1) / n of an array; on b of them 2 (b - 1) / b, and
// the rest is that on a, of 1 / b of the array. So do gathers, and so is this counted.
double factor_cost(Sharder *z, const Level *l, uint32_t axis) {
  Axes x = {z, {axis, axis_other(z->m, axis)}, 1};
  double bytes = (double)z->cost[axis].at[COST_COMM];
  if (x.at[1] != NONE) {
    x.n = 2;
    bytes = (double)z->cost[x.at[1]].at[COST_COMM] + bytes / (double)z->m->axis.at[x.at[1]].size;
  }
  return level_points(&x, l) + (double)z->m->limits.byte_points * bytes;
}
