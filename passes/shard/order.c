// The order in which the items of a level are solved. Any order is valid in which an accumulator is
// complete before it is read. The number of states is at most the product of the numbers of types
// of the open slots, and an item multiplies it by at most its number of choices. So from each item
// the next one is taken that leads to the fewest states by this estimate. The first item is the one
// whose order has the fewest states in all. (Attention, whose few choices fix many layouts, then
// comes before the items that lead to it.)
#include <math.h>

#include "passes/shard/shard.h"

// Weights of the choice of the next item, beside the estimate. No set is the best for all models.
typedef struct TieBreak {
  double growth; // of the open slots
  double away; // for an item that touches nothing that is open
  double type, choice; // how much of the logarithms of types and choices counts
} TieBreak;
static const TieBreak tie_break[ORDERS] = {{1, 2, 0.7, 0.5}, {0.25, 0.5, 0.5, 0.5}, {3, 0.5, 1, 1}};

typedef struct Order {
  Arena *arena;
  const Level *l;
  const TieBreak *tie_break;
  Id **touched; // for each item, slots; NONE at the end
  uint32_t *total; // for each slot, items that touch it
  double *weight; // for each slot, about the logarithm of its states
  double *ways; // for each item, that of its choices
  uint32_t *left; // items to come that touch a slot, and that add to it
  uint32_t *adds;
  bool *done;
} Order;

static void touch(Order *o, uint32_t item, Id slot, uint32_t *n) {
  Id *list = o->touched[item];
  if (slot == NONE) return;
  for (uint32_t k = 0; k < *n; k++)
    if (list[k] == slot) return;
  list[(*n)++] = slot;
  o->total[slot]++;
  Id partner = o->l->slot.at[slot].grad ? o->l->slot.at[slot].partner : NONE;
  touch(o, item, partner, n);
}

static void find_touched(Order *o) {
  const Level *l = o->l;
  for (uint32_t i = 0; i < l->item.n; i++) {
    const Item *it = &l->item.at[i];
    uint32_t n = 0, room = it->in.n + 2 * it->to.n + 1;
    o->touched[i] = NEWN(o->arena, Id, room + 1);
    for (uint32_t k = 0; k < it->in.n; k++) touch(o, i, it->in.at[k], &n);
    for (uint32_t k = 0; k < it->to.n; k++) touch(o, i, it->to.at[k].slot, &n);
    o->touched[i][n] = NONE;
  }
}

// Whether all that adds to what the item reads, and the cluster's earlier repeats, are done.
static bool ready(const Order *o, uint32_t item) {
  const Item *it = &o->l->item.at[item];
  if (o->done[item]) return false;
  for (uint32_t k = 0; k < it->in.n; k++)
    if (o->adds[it->in.at[k]]) return false;
  if (it->kind != ITEM_REPEAT) return true;
  const Cluster *c = &o->l->cluster.at[it->cluster];
  for (uint32_t k = 0; k < it->at; k++)
    if (!o->done[c->item.at[k]]) return false;
  return true;
}

// The weight that the item adds to the open slots.
static double growth(const Order *o, uint32_t item) {
  double g = 0;
  for (const Id *s = o->touched[item]; *s != NONE; s++) {
    bool opens = o->left[*s] == o->total[*s], closes = o->left[*s] == 1;
    if (opens && !closes) g += o->weight[*s];
    if (!opens && closes) g -= o->weight[*s];
  }
  return g;
}

static void finish(Order *o, uint32_t item) {
  const Item *it = &o->l->item.at[item];
  o->done[item] = true;
  for (const Id *s = o->touched[item]; *s != NONE; s++) o->left[*s]--;
  for (uint32_t k = 0; k < it->to.n; k++)
    if (it->to.at[k].slot != NONE && it->to.at[k].add) o->adds[it->to.at[k].slot]--;
}

static void restart(Order *o) {
  const Level *l = o->l;
  memset(o->done, 0, l->item.n * sizeof *o->done);
  memset(o->adds, 0, l->slot.n * sizeof *o->adds);
  if (l->slot.n) memcpy(o->left, o->total, l->slot.n * sizeof *o->left);
  for (uint32_t i = 0; i < l->item.n; i++)
    for (uint32_t k = 0; k < l->item.at[i].to.n; k++)
      if (l->item.at[i].to.at[k].slot != NONE && l->item.at[i].to.at[k].add)
        o->adds[l->item.at[i].to.at[k].slot]++;
}

// Whether the item touches an open slot.
static bool adjoins(const Order *o, uint32_t item) {
  for (const Id *s = o->touched[item]; *s != NONE; s++)
    if (o->left[*s] < o->total[*s]) return true;
  return false;
}

// The logarithm of the number of states after the item.
static double estimate(const Order *o, uint32_t item, double open, double states) {
  return fmin(states + o->ways[item], open + growth(o, item));
}

// An order that begins with `first`; about how many states it will see, or infinity past `limit`.
static double try_order(Order *o, uint32_t first, double limit, uint32_t *order) {
  double open = 0, states = 0, sum = 0;
  restart(o);
  for (uint32_t n = 0; n < o->l->item.n; n++) {
    uint32_t best = NONE;
    double least = INFINITY;
    for (uint32_t i = 0; i < o->l->item.n; i++) {
      if (!ready(o, i) || (!n && i != first)) continue;
      double r = estimate(o, i, open, states) + o->tie_break->growth * growth(o, i) +
                 (adjoins(o, i) ? 0 : o->tie_break->away);
      if (r >= least) continue;
      best = i;
      least = r;
    }
    if (best == NONE) return INFINITY;
    states = estimate(o, best, open, states);
    open += growth(o, best);
    finish(o, best);
    order[n] = best;
    sum += exp2(states);
    if (sum >= limit) return INFINITY;
  }
  return sum;
}

void level_order(Arena *a, const Level *l, uint32_t which, uint32_t *order, uint32_t *first,
                 uint32_t *last) {
  Order o = {a,
             l,
             &tie_break[which],
             NEWN(a, Id *, l->item.n + 1),
             NEWN(a, uint32_t, l->slot.n + 1),
             NEWN(a, double, l->slot.n + 1),
             NEWN(a, double, l->item.n + 1),
             NEWN(a, uint32_t, l->slot.n + 1),
             NEWN(a, uint32_t, l->slot.n + 1),
             NEWN(a, bool, l->item.n + 1)};
  uint32_t *now = NEWN(a, uint32_t, l->item.n + 1);
  double least = INFINITY;
  find_touched(&o);
  for (uint32_t k = 0; k < l->slot.n; k++)
    o.weight[k] = l->slot.at[k].ntype ? 0.1 + o.tie_break->type * log2(l->slot.at[k].ntype) : 1;
  for (uint32_t i = 0; i < l->item.n; i++) {
    uint32_t n = l->item.at[i].choice.n;
    o.ways[i] = o.tie_break->choice * log2(n > 1 ? n : 1);
  }
  for (uint32_t i = 0; i < l->item.n; i++) {
    double states = try_order(&o, i, least, now);
    if (states >= least) continue;
    least = states;
    memcpy(order, now, l->item.n * sizeof *order);
  }
  CHECK(!l->item.n || least < INFINITY);
  for (uint32_t k = 0; k < l->slot.n; k++) first[k] = last[k] = NONE;
  for (uint32_t n = 0; n < l->item.n; n++)
    for (const Id *s = o.touched[order[n]]; *s != NONE; s++) {
      if (first[*s] == NONE) first[*s] = n;
      last[*s] = n;
    }
}
