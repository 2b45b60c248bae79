// A least plan for one level: dynamic programming over its items. A state is, for each slot that is
// still of use, the set of types in which it is at hand (for a parameter: the types that it may still
// live in), so that what was reduced or gathered once is not paid for again. Three things keep the
// states few, and none of them loses the optimum:
//   - a state is dropped if another, with conversions to all that the first has, costs no more;
//   - a state is dropped if its cost and a lower bound of the rest are no less than a known plan's.
//     The bound of the rest is the same problem from there on, with everything at hand in every type;
//   - the known plan comes from a first run that keeps few states.
// Costs compare lexicographically; that order is kept by sums, so bounds add up. The problem is solved
// by their first components first, which makes many states equal, then among the plans that are least
// by those.
#include "passes/shard.h"

#include <stdlib.h>

enum { BEAM = 48, STATES = 30000, BOUND_STEP = 6, KEPT = 12, MENDS = 32, COARSE = 3 };
#define UNKNOWN UINT32_MAX

typedef struct Record {
  uint32_t back;
  Pick pick;
} Record;

typedef struct State {
  Cost cost;
  uint32_t back; // record
  Pick pick;
  uint64_t group; // hash of what can't be converted
  Cost ahead; // for ranking only
} State;

typedef struct Frontier {
  uint32_t n, cap, width;
  State *state;
  uint32_t *mask; // n rows of `width` sets, one for each slot alive
  uint32_t *table, room; // hash table of rows, NONE where empty
} Frontier;

// What it costs to have all of `to` in a slot, given `from`.
typedef struct Mend {
  uint32_t from, to;
  bool ok;
  Cost cost;
} Mend;

typedef struct Search {
  Sharder *z;
  Level *l;
  const uint32_t *var; // types of the variables
  uint32_t **alive, *nalive; // after each item, [0] before the first
  Cost **conv; // for each slot, from * ntype + to
  bool **convertible;
  bool *rigid; // for each slot: what it has can't be converted
  Mend (*mend)[MENDS]; // for each slot, the last ones asked for
  Cost *bound; // from each item on
  int depth; // how many components of a cost count
  bool limited, has_best;
  Cost limit, best; // on the first COARSE components; the known plan
  uint32_t from, keep; // first item; how many states to keep
  bool exact;
  uint32_t *work; // sets of all slots
  Frontier now, next;
  VEC(Record) record;
  Arena *arena;
  // while expanding one state by one choice
  uint32_t item, back, row;
  Pick pick;
} Search;

// ---- types at hand

static Slot *slot_at(const Search *s, Id slot) { return &s->l->slot.at[slot]; }

static const Cost *conv_at(const Search *s, Id slot, uint32_t from, uint32_t to) {
  uint32_t k = from * slot_at(s, slot)->ntype + to;
  return s->convertible[slot][k] ? &s->conv[slot][k] : NULL;
}

// The least conversion from a set of types to one; NULL where there is none.
static const Cost *least_conv(const Search *s, Id slot, uint32_t set, uint32_t to) {
  const Cost *best = NULL;
  for (uint32_t f = 0; set >> f; f++) {
    if (!(set >> f & 1)) continue;
    const Cost *c = conv_at(s, slot, f, to);
    if (c && (!best || cost_order(c, best, NCOST) < 0)) best = c;
  }
  return best;
}

// A parameter that has no home yet keeps the set of those that are left.
static bool is_homeless(const Search *s, Id slot) {
  const Slot *q = slot_at(s, slot);
  return q->param != NONE && !q->grad && !q->is_fixed[s->z->axis] && q->var == NONE;
}

static bool is_rigid(const Search *s, Id slot) {
  const Slot *q = slot_at(s, slot);
  return q->memory != NONE || q->grad || (is_homeless(s, slot) && q->counted);
}

static bool is_partial(const Slot *s, uint32_t type) { return s->type[type].kind == SHARD_PARTIAL; }

static int64_t resident(const Search *s, const Slot *q, uint32_t set) {
  int64_t least = INT64_MAX, bytes = slot_bytes(q);
  for (uint32_t t = 0; t < q->ntype; t++) {
    if (!(set >> t & 1)) continue;
    Shard h = q->type[t];
    int64_t n = h.kind == SHARD_SPLIT ? share_of(bytes, q->of.extent[h.dim], h.block, s->z->n) : bytes;
    if (n < least) least = n;
  }
  return least;
}

// Narrows a parameter's homes to those in `to`.
static bool narrow(Search *s, Id slot, uint32_t to, Cost *cost) {
  uint32_t left = s->work[slot] & to;
  const Slot *q = slot_at(s, slot);
  if (!left) return false;
  if (q->counted) cost->at[COST_RESIDENT] += resident(s, q, left) - resident(s, q, s->work[slot]);
  s->work[slot] = left;
  return true;
}

// ---- states

static uint64_t mix(uint64_t h, uint64_t v) { return (h ^ v) * UINT64_C(0x9e3779b97f4a7c15) ^ (h >> 29); }

static void frontier_room(Frontier *f) {
  if (f->n < f->cap) return;
  f->cap = f->cap ? 2 * f->cap : 256;
  f->state = realloc(f->state, f->cap * sizeof *f->state);
  f->mask = realloc(f->mask, (size_t)f->cap * (f->width + 1) * sizeof *f->mask);
  CHECK(f->state && f->mask);
}

static void frontier_rehash(Frontier *f) {
  f->room = f->room ? 2 * f->room : 1024;
  f->table = realloc(f->table, f->room * sizeof *f->table);
  CHECK(f->table);
  memset(f->table, 0xff, f->room * sizeof *f->table);
  for (uint32_t i = 0; i < f->n; i++) {
    uint64_t h = 1;
    for (uint32_t k = 0; k < f->width; k++) h = mix(h, f->mask[(size_t)i * f->width + k]);
    uint32_t at = (uint32_t)(h >> 20) & (f->room - 1);
    while (f->table[at] != NONE) at = (at + 1) & (f->room - 1);
    f->table[at] = i;
  }
}

static void frontier_start(Frontier *f, uint32_t width) {
  f->n = 0;
  if (width > f->width || !f->cap) {
    f->width = width;
    f->cap = 0;
    free(f->state);
    free(f->mask);
    f->state = NULL;
    f->mask = NULL;
    frontier_room(f);
  }
  f->width = width;
  if (f->room) memset(f->table, 0xff, f->room * sizeof *f->table);
}

// The row that is the same as row f->n, or NONE after entering that.
static uint32_t frontier_find(Frontier *f) {
  const uint32_t *row = f->mask + (size_t)f->n * f->width;
  uint64_t h = 1;
  if (2 * f->n >= f->room) frontier_rehash(f);
  for (uint32_t k = 0; k < f->width; k++) h = mix(h, row[k]);
  uint32_t at = (uint32_t)(h >> 20) & (f->room - 1);
  for (; f->table[at] != NONE; at = (at + 1) & (f->room - 1))
    if (!memcmp(f->mask + (size_t)f->table[at] * f->width, row, f->width * sizeof *row)) return f->table[at];
  f->table[at] = f->n;
  return NONE;
}

// Whether what costs so much after the item can still lead to a better plan than the known one.
static bool hopeful(const Search *s, const Cost *cost) {
  Cost least = *cost;
  cost_add(&least, &s->bound[s->item + 1]);
  if (s->limited && cost_order(&least, &s->limit, COARSE) > 0) return false;
  return !s->has_best || cost_order(&least, &s->best, s->depth) < 0;
}

static void emit(Search *s, const Cost *cost) {
  Frontier *f = &s->next;
  if (!hopeful(s, cost)) return;
  frontier_room(f);
  uint32_t *row = f->mask + (size_t)f->n * f->width;
  for (uint32_t k = 0; k < f->width; k++) row[k] = s->work[s->alive[s->item + 1][k]];
  uint32_t old = frontier_find(f);
  State *to = &f->state[old == NONE ? f->n : old];
  if (old != NONE && cost_order(&to->cost, cost, s->depth) <= 0) return;
  *to = (State){.cost = *cost, .back = s->back, .pick = s->pick};
  f->n += old == NONE;
}

// ---- one choice

static void do_outs(Search *s, const Choice *c, uint32_t k, Cost cost);

// The accumulator takes type `to`; the term comes as `from`.
static void add_as(Search *s, const Choice *c, uint32_t k, uint32_t from, uint32_t to, Cost cost) {
  Id slot = c->out[k].slot;
  Slot *q = slot_at(s, slot);
  uint32_t old = s->work[slot], old_home = q->partner == NONE ? 0 : s->work[q->partner];
  if (from != to) {
    bool masked = c->assign.kind == ASSIGN_NONE && q->type[from].kind == SHARD_WHOLE && is_partial(q, to);
    const Cost *conv = conv_at(s, slot, from, to);
    if (masked) cost.at[COST_MASKS]++;
    else if (conv) cost_add(&cost, conv);
    else return;
  }
  if (q->grad && q->partner != NONE) {
    const Slot *p = slot_at(s, q->partner);
    Shard at = q->type[to].kind == SHARD_SPLIT ? q->type[to] : shard_whole();
    uint32_t home = slot_find(p, at);
    if (p->is_fixed[s->z->axis] && !shard_same(p->fixed[s->z->axis], at)) return;
    if (home == MAX_TYPES || (is_homeless(s, q->partner) && !narrow(s, q->partner, 1u << home, &cost))) return;
  } else if (q->grad && q->type[to].kind == SHARD_SPLIT) {
    return;
  }
  if (q->grad && !old && is_partial(q, to)) { // reduced once a step
    const Train *t = &s->z->m->train;
    int64_t times = t->microbatch > 0 && t->batch > t->microbatch ? t->batch / t->microbatch : 1;
    const Cost *conv = conv_at(s, slot, to, 0);
    if (conv) cost.at[s->z->traffic] += conv->at[COST_COMM] / times;
  }
  s->work[slot] = 1u << to;
  s->pick.target = to;
  do_outs(s, c, k + 1, cost);
  s->work[slot] = old;
  if (q->partner != NONE) s->work[q->partner] = old_home;
}

static void add_to(Search *s, const Choice *c, uint32_t k, Cost cost) {
  Id slot = c->out[k].slot;
  const Slot *q = slot_at(s, slot);
  uint32_t from = c->out[k].type;
  bool call = s->l->item.at[s->item].kind != ITEM_COMP;
  for (uint32_t to = 0; to < q->ntype; to++) {
    if (call && to != from) continue;
    if (q->var != NONE && to != s->var[q->var]) continue;
    if (s->work[slot] && s->work[slot] != 1u << to) continue;
    add_as(s, c, k, from, to, cost);
  }
}

static void do_outs(Search *s, const Choice *c, uint32_t k, Cost cost) {
  while (k < c->nout && c->out[k].slot == NONE) k++;
  if (k == c->nout) {
    emit(s, &cost);
    return;
  }
  if (s->l->item.at[s->item].to.at[k].add) {
    add_to(s, c, k, cost);
    return;
  }
  Id slot = c->out[k].slot;
  uint32_t old = s->work[slot];
  s->work[slot] = 1u << c->out[k].type;
  do_outs(s, c, k + 1, cost);
  s->work[slot] = old;
}

static void do_needs(Search *s, const Choice *c, uint32_t j, Cost cost);

static void need_home(Search *s, const Choice *c, uint32_t j, Cost cost) {
  Id slot = c->need[j].slot;
  uint32_t type = c->need[j].type, old = s->work[slot];
  if (is_partial(slot_at(s, slot), type)) return;
  if (narrow(s, slot, 1u << type | 1u, &cost)) do_needs(s, c, j + 1, cost);
  s->work[slot] = old;
}

// Reaching a split type through WHOLE costs no more than directly, if something else needs the whole.
static void need_via(Search *s, const Choice *c, uint32_t j, Cost cost) {
  Id slot = c->need[j].slot;
  uint32_t old = s->work[slot];
  const Cost *conv = least_conv(s, slot, old, 0);
  if (!conv || (old & 1) || slot_at(s, slot)->last <= s->item || j >= 32) return;
  cost_add(&cost, conv);
  s->work[slot] = old | 1u | 1u << c->need[j].type;
  s->pick.via |= 1u << j;
  do_needs(s, c, j + 1, cost);
  s->pick.via &= ~(1u << j);
  s->work[slot] = old;
}

static void do_needs(Search *s, const Choice *c, uint32_t j, Cost cost) {
  if (j == c->nneed) {
    do_outs(s, c, 0, cost);
    return;
  }
  Id slot = c->need[j].slot;
  uint32_t type = c->need[j].type, old = s->work[slot];
  if (is_homeless(s, slot)) {
    need_home(s, c, j, cost);
    return;
  }
  if (old >> type & 1) {
    do_needs(s, c, j + 1, cost);
    return;
  }
  if (is_partial(slot_at(s, slot), type)) return;
  const Cost *conv = least_conv(s, slot, old, type);
  if (!conv || (conv->at[COST_COMM] && slot_at(s, slot)->still && !s->z->moves)) return;
  if (type) need_via(s, c, j, cost);
  cost_add(&cost, conv);
  s->work[slot] = old | 1u << type;
  do_needs(s, c, j + 1, cost);
  s->work[slot] = old;
}

// A repeat's choice goes on from what the earlier repeats of its cluster fixed; the last one pays.
static bool enter_repeat(Search *s, const Item *it, const Choice *c, Cost *cost) {
  const Cluster *k = &s->l->cluster.at[it->cluster];
  uint32_t before = s->work[k->memory], ways = 1;
  for (uint32_t i = 0; i < k->in->var.n; i++)
    if (k->in->var.at[i].repeat == it->at) ways *= k->in->var.at[i].type.n;
  if (before != UNKNOWN && before != c->prefix / ways) return false;
  if (it->at + 1 == k->item.n) {
    const Plan *p = &k->plan[c->prefix];
    if (!p->ok) return false;
    for (int i = 0; i < NCOST; i++) cost->at[i] += p->cost.at[i] * k->in->count;
  }
  s->work[k->memory] = c->prefix;
  return true;
}

static void do_choice(Search *s, uint32_t number, const Choice *c, Cost cost) {
  const Item *it = &s->l->item.at[s->item];
  s->pick = (Pick){.choice = number};
  cost_add(&cost, &c->cost);
  if (!hopeful(s, &cost)) return;
  if (it->kind != ITEM_REPEAT) {
    do_needs(s, c, 0, cost);
    return;
  }
  Id memory = s->l->cluster.at[it->cluster].memory;
  uint32_t old = s->work[memory];
  if (enter_repeat(s, it, c, &cost)) do_needs(s, c, 0, cost);
  s->work[memory] = old;
}

// What a body must hand back, and how: results of an entry whole, others as the variables say.
static Choice return_choice(const Search *s, const Item *it) {
  Choice c = {.class = NONE};
  c.need = NEWN(s->arena, Need, it->in.n + 1);
  for (uint32_t i = 0; i < it->in.n; i++) {
    Need n = {it->in.at[i], 0};
    for (uint32_t k = 0; k < s->l->var.n; k++) {
      const Var *v = &s->l->var.at[k];
      if (v->repeat != it->body || (v->kind == VAR_CARRY ? v->last : v->slot) != n.slot) continue;
      n.type = slot_find(slot_at(s, n.slot), slot_at(s, v->slot)->type[s->var[k]]);
      CHECK(n.type < MAX_TYPES);
    }
    c.need[c.nneed++] = n;
  }
  return c;
}

// ---- dropping states

static bool mend_afresh(const Search *s, Id slot, uint32_t from, uint32_t to, Cost *cost) {
  uint32_t lacks = to & ~from;
  const Slot *q = slot_at(s, slot);
  for (uint32_t t = 0; lacks >> t; t++) {
    if (!(lacks >> t & 1)) continue;
    if (is_homeless(s, slot)) { // it may live whole, and its gradient be gathered
      const Cost *c = conv_at(s, slot, t, 0);
      if (!t || !(from & 1) || !c) return false;
      cost_add(cost, c);
      continue;
    }
    const Cost *c = least_conv(s, slot, from, is_partial(q, t) && !(from & 1) ? 0 : t);
    if (!c) return false;
    cost_add(cost, c);
    from |= 1u << t;
  }
  return true;
}

// What it costs to have in slot all that `to` has, given `from`; NULL where that can't be.
static const Cost *mend(const Search *s, Id slot, uint32_t from, uint32_t to) {
  Mend *m = &s->mend[slot][(from * 31 + to * 7) % MENDS];
  if (m->from != from || m->to != to) {
    *m = (Mend){.from = from, .to = to};
    m->ok = mend_afresh(s, slot, from, to, &m->cost);
  }
  return m->ok ? &m->cost : NULL;
}

static bool dominates(const Search *s, const Frontier *f, uint32_t a, uint32_t b, const uint32_t *alive) {
  const uint32_t *x = f->mask + (size_t)a * f->width, *y = f->mask + (size_t)b * f->width;
  Cost cost = f->state[a].cost;
  for (uint32_t k = 0; k < f->width; k++) {
    if (x[k] == y[k]) continue;
    if (s->rigid[alive[k]]) return false;
    if (!(y[k] & ~x[k])) continue;
    const Cost *more = mend(s, alive[k], x[k], y[k]);
    if (!more) return false;
    cost_add(&cost, more);
    if (cost_order(&cost, &f->state[b].cost, s->depth) > 0) return false;
  }
  return cost_order(&cost, &f->state[b].cost, s->depth) <= 0;
}

// Order of trust: what is kept partial will have to be reduced.
static void rank_state(const Search *s, Frontier *f, uint32_t i, const uint32_t *alive) {
  State *st = &f->state[i];
  st->ahead = st->cost;
  st->group = 7;
  for (uint32_t k = 0; k < f->width; k++) {
    uint32_t set = f->mask[(size_t)i * f->width + k];
    const Slot *q = slot_at(s, alive[k]);
    if (s->rigid[alive[k]]) {
      st->group = mix(st->group, (uint64_t)k << 32 | set);
      continue;
    }
    bool partial = set != 0;
    for (uint32_t t = 0; t < q->ntype; t++) partial &= !(set >> t & 1) || is_partial(q, t);
    const Cost *c = partial && !is_homeless(s, alive[k]) ? least_conv(s, alive[k], set, 0) : NULL;
    if (c) cost_add(&st->ahead, c);
  }
}

static const Frontier *sorting;
static int by_ahead(const void *a, const void *b) {
  uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
  int c = cost_order(&sorting->state[i].ahead, &sorting->state[j].ahead, NCOST);
  return c ? c : i < j ? -1 : 1;
}
static int by_cost(const void *a, const void *b) {
  uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
  int c = cost_order(&sorting->state[i].cost, &sorting->state[j].cost, NCOST);
  return c ? c : i < j ? -1 : 1;
}

// The first states of each group, against which later ones are held.
typedef struct Groups {
  uint64_t *key;
  uint32_t *at, *n, room; // rows of KEPT states
} Groups;

static uint32_t group_of(Groups *g, uint64_t key) {
  uint32_t i = (uint32_t)(key >> 17) & (g->room - 1);
  key |= 1;
  while (g->key[i] && g->key[i] != key) i = (i + 1) & (g->room - 1);
  g->key[i] = key;
  return i;
}

// Fills order[] with the states to keep, least first; returns how many.
static uint32_t prune(Search *s, uint32_t *order) {
  Frontier *f = &s->next;
  const uint32_t *alive = s->alive[s->item + 1];
  Groups g = {.room = 64};
  while (g.room < 2 * f->n) g.room *= 2;
  g.key = calloc(g.room, sizeof *g.key);
  g.n = calloc(g.room, sizeof *g.n);
  g.at = malloc((size_t)g.room * KEPT * sizeof *g.at);
  CHECK(g.key && g.n && g.at);
  for (uint32_t i = 0; i < f->n; i++) {
    rank_state(s, f, i, alive);
    order[i] = i;
  }
  sorting = f;
  qsort(order, f->n, sizeof *order, by_cost);
  uint32_t kept = 0;
  for (uint32_t i = 0; i < f->n; i++) {
    uint32_t b = order[i], at = group_of(&g, f->state[b].group);
    bool drop = false;
    for (uint32_t k = 0; !drop && k < g.n[at]; k++) drop = dominates(s, f, g.at[at * KEPT + k], b, alive);
    if (drop) continue;
    if (g.n[at] < KEPT) g.at[at * KEPT + g.n[at]++] = b;
    order[kept++] = b;
  }
  free(g.key);
  free(g.n);
  free(g.at);
  if (kept <= s->keep) return kept;
  s->exact = false;
  qsort(order, kept, sizeof *order, by_ahead);
  return s->keep;
}

// Makes the kept states the current ones.
static void advance(Search *s) {
  Frontier *f = &s->next, *to = &s->now;
  uint32_t *order = malloc((f->n + 1) * sizeof *order);
  CHECK(order);
  uint32_t n = prune(s, order);
  frontier_start(to, f->width);
  for (uint32_t i = 0; i < n; i++) {
    frontier_room(to);
    State st = f->state[order[i]];
    PUSH(s->arena, s->record, (Record){st.back, st.pick});
    st.back = s->record.n - 1;
    to->state[i] = st;
    memcpy(to->mask + (size_t)i * to->width, f->mask + (size_t)order[i] * f->width, f->width * sizeof *f->mask);
    to->n++;
  }
  free(order);
}

// ---- a run

static void step(Search *s) {
  const Item *it = &s->l->item.at[s->item];
  Choice back = return_choice(s, it);
  const Choice *choice = it->kind == ITEM_RETURN ? &back : it->choice.at;
  uint32_t n = it->kind == ITEM_RETURN ? 1 : it->choice.n;
  frontier_start(&s->next, s->nalive[s->item + 1]);
  for (uint32_t i = 0; i < s->now.n; i++) {
    for (uint32_t k = 0; k < s->l->slot.n; k++) s->work[k] = 0;
    for (uint32_t k = 0; k < s->now.width; k++)
      s->work[s->alive[s->item][k]] = s->now.mask[(size_t)i * s->now.width + k];
    s->back = s->now.state[i].back;
    for (uint32_t k = 0; k < n; k++) do_choice(s, k, &choice[k], s->now.state[i].cost);
  }
  advance(s);
}

static uint32_t all_types(const Slot *q, bool partial) {
  uint32_t set = 0;
  for (uint32_t t = 0; t < q->ntype; t++)
    if (partial || !is_partial(q, t)) set |= 1u << t;
  return set;
}

static bool adds_later(const Search *s, Id slot) {
  for (uint32_t i = s->from; i < s->l->item.n; i++)
    for (uint32_t k = 0; k < s->l->item.at[i].to.n; k++)
      if (s->l->item.at[i].to.at[k].slot == slot && s->l->item.at[i].to.at[k].add) return true;
  return false;
}

// What is at hand before item s->from: arguments as they come; of a later item, everything.
static uint32_t initial(const Search *s, Id slot) {
  const Slot *q = slot_at(s, slot);
  if (q->memory != NONE) return s->from ? UNKNOWN : 0;
  if (q->var != NONE) return 1u << s->var[q->var];
  if (is_homeless(s, slot)) return all_types(q, false);
  if (q->grad || adds_later(s, slot)) return 0;
  if (q->is_fixed[s->z->axis]) {
    uint32_t t = slot_find(q, q->fixed[s->z->axis]);
    CHECK(t < MAX_TYPES);
    return 1u << t;
  }
  return s->from && !q->whole ? all_types(q, true) : 1u;
}

static void start(Search *s) {
  frontier_start(&s->now, s->nalive[s->from]);
  frontier_room(&s->now);
  s->now.n = 1;
  for (uint32_t k = 0; k < s->now.width; k++) s->now.mask[k] = initial(s, s->alive[s->from][k]);
  s->now.state[0] = (State){.back = NONE};
}

// The least state after the last item, or NULL.
static const State *run(Search *s, uint32_t from, uint32_t keep) {
  s->from = from;
  s->keep = keep;
  s->exact = true;
  s->record.n = 0;
  start(s);
  for (s->item = from; s->item < s->l->item.n && s->now.n; s->item++) step(s);
  const State *best = NULL;
  for (uint32_t i = 0; i < s->now.n; i++)
    if (!best || cost_order(&s->now.state[i].cost, &best->cost, s->depth) < 0) best = &s->now.state[i];
  return best;
}

static void take(Search *s, const State *end, Plan *plan) {
  plan->ok = true;
  plan->cost = end->cost;
  uint32_t r = end->back;
  for (uint32_t i = s->l->item.n; i-- > s->from;) {
    plan->pick[i] = s->record.at[r].pick;
    r = s->record.at[r].back;
  }
  s->has_best = true;
  s->best = end->cost;
}

// A plan from an item on, few states first; false where there is none.
static bool solve_from(Search *s, uint32_t from, Plan *plan) {
  *plan = (Plan){.pick = plan->pick};
  s->has_best = false;
  for (uint32_t keep = BEAM; keep <= STATES; keep *= 25) {
    const State *end = run(s, from, keep);
    bool exact = s->exact;
    if (end) take(s, end, plan);
    plan->exact = exact;
    if (exact) break;
  }
  return plan->ok;
}

// ---- a level

static void find_alive(Search *s) {
  const Level *l = s->l;
  s->alive = NEWN(s->arena, uint32_t *, l->item.n + 1);
  s->nalive = NEWN(s->arena, uint32_t, l->item.n + 1);
  for (uint32_t i = 0; i <= l->item.n; i++) {
    s->alive[i] = NEWN(s->arena, uint32_t, l->slot.n + 1);
    for (uint32_t k = 0; k < l->slot.n; k++) {
      const Slot *q = &l->slot.at[k];
      if (q->first == NONE || q->last < i || (!q->given && q->first >= i)) continue;
      s->alive[i][s->nalive[i]++] = k;
    }
  }
}

static void find_conversions(Search *s) {
  const Level *l = s->l;
  s->conv = NEWN(s->arena, Cost *, l->slot.n + 1);
  s->convertible = NEWN(s->arena, bool *, l->slot.n + 1);
  s->rigid = NEWN(s->arena, bool, l->slot.n + 1);
  s->mend = arena_alloc(s->arena, (l->slot.n + 1) * sizeof *s->mend);
  for (uint32_t k = 0; k < l->slot.n; k++) {
    const Slot *q = &l->slot.at[k];
    uint32_t n = q->ntype;
    s->rigid[k] = is_rigid(s, k);
    s->conv[k] = NEWN(s->arena, Cost, n * n + 1);
    s->convertible[k] = NEWN(s->arena, bool, n * n + 1);
    for (uint32_t a = 0; q->memory == NONE && a < n; a++)
      for (uint32_t b = 0; b < n; b++)
        s->convertible[k][a * n + b] = convert_cost(s->z, q, q->type[a], q->type[b], &s->conv[k][a * n + b]);
  }
}

// The bound from item i on is that from the next item for which one was found.
static void find_bounds(Search *s) {
  uint32_t n = s->l->item.n;
  Plan rest = {.pick = NEWN(s->arena, Pick, n + 1)};
  s->bound = NEWN(s->arena, Cost, n + 2);
  for (uint32_t i = n; i-- > 1;) {
    s->bound[i] = s->bound[i + 1];
    if ((n - i) % BOUND_STEP || !solve_from(s, i, &rest) || !rest.exact) continue;
    s->bound[i] = rest.cost;
    for (int k = COARSE; k < NCOST; k++) s->bound[i].at[k] = 0;
  }
  s->bound[0] = s->bound[1];
}

Plan level_solve(Sharder *z, Level *l, const uint32_t *var) {
  Search s = {.z = z, .l = l, .var = var, .arena = arena_new()};
  Plan plan = {.pick = NEWN(z->m->arena, Pick, l->item.n + 1)};
  s.work = NEWN(s.arena, uint32_t, l->slot.n + 1);
  find_alive(&s);
  find_conversions(&s);
  s.depth = COARSE;
  find_bounds(&s);
  if (solve_from(&s, 0, &plan)) {
    s.limited = plan.exact;
    s.limit = plan.cost;
    s.depth = NCOST;
    solve_from(&s, 0, &plan);
  }
  if (!plan.exact) z->cut = true;
  Frontier *f[] = {&s.now, &s.next};
  for (int i = 0; i < 2; i++) {
    free(f[i]->state);
    free(f[i]->mask);
    free(f[i]->table);
  }
  arena_free(s.arena);
  return plan;
}
