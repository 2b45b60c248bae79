// Finds a least plan for one level by dynamic programming over its items. The order of the items
// keeps few slots open at a time: the statements of a parameter, forward and backward, come close
// together, wherever they are in the program. A slot is open from the first to the last item that
// touches it. A state has two sets of types for each open slot:
//   - the types in which the slot is at hand, so that one reduction or gather is paid for once;
//   - before the item that makes the slot: the types in which it is asked for.
// For a parameter the set has the types that it may still be stored in. Two rules keep the states
// few, and neither loses the optimum:
//   - a state is dropped if another costs no more, conversions to all types that the first has (and
//     from all types that it asks for) included;
//   - a state is dropped if its cost and the least cost of the remaining items are no less than the
//     cost of a known plan, which comes from a first run that keeps few states.
// Costs compare lexicographically; sums keep that order.
#include "passes/shard/shard.h"

#include <stdlib.h>

enum { REPAIRS = 32 };

// The types in which a slot is at hand, and those in which it is asked for.
typedef struct Set {
  uint32_t have, ask;
} Set;

typedef struct Record {
  uint32_t back;
  Pick pick;
} Record;

typedef struct State {
  Cost cost;
  uint32_t back; // record
  Pick pick;
  uint64_t group; // hash of the slots that can't be converted
  Cost ahead; // for ranking only
} State;

typedef struct Frontier {
  uint32_t n, cap, width;
  State *state;
  Set *set; // n rows of `width`, one for each open slot
  uint32_t *table, room; // hash table of rows, NONE where empty
} Frontier;

// The cost of the conversions from one pair of a slot's sets to another.
typedef struct Repair {
  Set from, to;
  bool known, ok;
  Cost cost;
} Repair;

// An order of the items, and values that depend on it.
typedef struct Course {
  uint32_t *order;
  uint32_t **open, *nopen; // slots open after each item, [0] before the first
  uint32_t *first, *last; // for each slot, the places in the order of the items that touch it
  Cost *bound; // of the items from each place on
  uint64_t made; // states, in the last run
} Course;

typedef struct Search {
  Sharder *z;
  Level *l;
  const uint32_t *var; // types of the variables
  Course *c; // the one being followed
  Cost **conv; // for each slot, from * ntype + to
  bool **convertible;
  bool *rigid; // for each slot: its value can't be converted
  Repair (*repair)[REPAIRS]; // for each slot, the last ones asked for
  bool has_best;
  Cost best; // of the known plan
  uint32_t keep; // states after an item, at most
  uint64_t limit; // states in this run, at most, once a plan is known
  bool exact;
  Set *work; // of all slots
  Frontier now, next;
  VEC(Record) record;
  Arena *arena;
  // while expanding one state by one choice
  uint32_t at, item, back; // place in the order; the item there
  Pick pick;
  uint32_t through; // values that were tried to go through WHOLE
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
    if (c && (!best || cost_order(c, best) < 0)) best = c;
  }
  return best;
}

// A parameter whose layout is not chosen yet; its set holds the layouts that remain.
static bool has_no_layout(const Search *s, Id slot) {
  const Slot *q = slot_at(s, slot);
  return q->param != NONE && !q->grad && !q->is_fixed[s->z->axis] && q->var == NONE;
}

static bool is_rigid(const Search *s, Id slot) {
  const Slot *q = slot_at(s, slot);
  return q->memory != NONE || q->grad || (has_no_layout(s, slot) && q->counted);
}

static bool is_partial(const Slot *s, uint32_t type) { return s->type[type].kind == SHARD_PARTIAL; }

static int64_t resident(const Search *s, const Slot *q, uint32_t set) {
  int64_t least = INT64_MAX, bytes = slot_bytes(q);
  for (uint32_t t = 0; t < q->ntype; t++) {
    if (!(set >> t & 1)) continue;
    Shard h = q->type[t];
    int64_t n =
        h.kind == SHARD_SPLIT ? share_of(bytes, q->of.extent[h.dim], h.block, s->z->n) : bytes;
    if (n < least) least = n;
  }
  return least;
}

// Narrows a parameter's layouts to those in `to`.
static bool narrow(Search *s, Id slot, uint32_t to, Cost *cost) {
  uint32_t left = s->work[slot].have & to;
  const Slot *q = slot_at(s, slot);
  if (!left) return false;
  if (q->counted)
    cost->at[COST_RESIDENT] += resident(s, q, left) - resident(s, q, s->work[slot].have);
  s->work[slot].have = left;
  return true;
}

// ---- states

static uint64_t mix(uint64_t h, uint64_t v) {
  return (h ^ v) * UINT64_C(0x9e3779b97f4a7c15) ^ (h >> 29);
}

static uint64_t hashed(Set s) { return (uint64_t)s.ask << 32 | s.have; }

static void frontier_room(Frontier *f) {
  if (f->n < f->cap) return;
  f->cap = f->cap ? 2 * f->cap : 256;
  f->state = realloc(f->state, f->cap * sizeof *f->state);
  f->set = realloc(f->set, (size_t)f->cap * (f->width + 1) * sizeof *f->set);
  ALLOCATED(f->state && f->set);
}

static void frontier_rehash(Frontier *f) {
  f->room = f->room ? 2 * f->room : 1024;
  f->table = realloc(f->table, f->room * sizeof *f->table);
  ALLOCATED(f->table);
  memset(f->table, 0xff, f->room * sizeof *f->table);
  for (uint32_t i = 0; i < f->n; i++) {
    uint64_t h = 1;
    for (uint32_t k = 0; k < f->width; k++) h = mix(h, hashed(f->set[(size_t)i * f->width + k]));
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
    free(f->set);
    f->state = NULL;
    f->set = NULL;
    frontier_room(f);
  }
  f->width = width;
  if (f->room) memset(f->table, 0xff, f->room * sizeof *f->table);
}

// The row that is the same as row f->n, or NONE after entering that.
static uint32_t frontier_find(Frontier *f) {
  const Set *row = f->set + (size_t)f->n * f->width;
  uint64_t h = 1;
  if (2 * f->n >= f->room) frontier_rehash(f);
  for (uint32_t k = 0; k < f->width; k++) h = mix(h, hashed(row[k]));
  uint32_t at = (uint32_t)(h >> 20) & (f->room - 1);
  for (; f->table[at] != NONE; at = (at + 1) & (f->room - 1))
    if (!memcmp(f->set + (size_t)f->table[at] * f->width, row, f->width * sizeof *row))
      return f->table[at];
  f->table[at] = f->n;
  return NONE;
}

// Whether a state of this cost after the item can lead to a better plan than the known one.
static bool may_improve(const Search *s, const Cost *cost) {
  Cost least = *cost;
  cost_add(&least, &s->c->bound[s->at + 1]);
  return !s->has_best || cost_order(&least, &s->best) < 0;
}

static void emit(Search *s, const Cost *cost) {
  Frontier *f = &s->next;
  if (!may_improve(s, cost)) return;
  frontier_room(f);
  Set *row = f->set + (size_t)f->n * f->width;
  for (uint32_t k = 0; k < f->width; k++) row[k] = s->work[s->c->open[s->at + 1][k]];
  uint32_t old = frontier_find(f);
  State *to = &f->state[old == NONE ? f->n : old];
  if (old != NONE && cost_order(&to->cost, cost) <= 0) return;
  *to = (State){.cost = *cost, .back = s->back, .pick = s->pick};
  f->n += old == NONE;
}

// ---- one choice

static void do_outs(Search *s, const Choice *c, uint32_t k, Cost cost);

// Adds the cost of converting a slot from `type`, in which it is made, to all types asked for, and
// through WHOLE if `via`. False where no conversion exists. *have becomes the types at hand.
static bool provide(const Search *s, Id slot, uint32_t type, uint32_t ask, bool via, uint32_t *have,
                    Cost *cost) {
  *have = 1u << type;
  if (via) ask |= 1u;
  for (uint32_t t = 0; ask >> t; t++) { // WHOLE is type 0
    if (!(ask >> t & 1) || (*have >> t & 1)) continue;
    const Cost *c = is_partial(slot_at(s, slot), t) ? NULL : least_conv(s, slot, *have, t);
    if (!c) return false;
    cost_add(cost, c);
    *have |= 1u << t;
  }
  return true;
}

// Whether one more value may be tried to go through WHOLE: with each, a statement of many operands makes twice as many states
// of one.
static bool tries_via(Search *s) {
  const Limits *l = &s->z->m->limits;
  if (s->through++ < (uint32_t)l->search_ways && s->next.n < (uint32_t)l->search_last) return true;
  return s->exact = false;
}

// The k-th thing made takes `type`. Going through WHOLE costs no more than going to a split type
// directly, if something else needs the whole.
static void make(Search *s, const Choice *c, uint32_t k, uint32_t type, Cost cost) {
  Id slot = c->out[k].slot;
  Set old = s->work[slot];
  bool splits = false;
  for (uint32_t t = 1; old.ask >> t; t++) splits |= (old.ask >> t & 1) && t != type;
  for (int via = 0; via < 2; via++) {
    Cost all = cost;
    Set new = {0, 0};
    if (via && (!splits || !type || (old.ask & 1) || s->c->last[slot] <= s->at || !tries_via(s))) break;
    if (!provide(s, slot, type, old.ask, via, &new.have, &all)) continue;
    s->work[slot] = new;
    if (via) s->pick.made_via |= 1u << k;
    do_outs(s, c, k + 1, all);
    s->pick.made_via &= ~(1u << k);
    s->work[slot] = old;
  }
}

// A gradient's type says where its parameter lives.
static bool agree_home(Search *s, Id slot, uint32_t type, Cost *cost) {
  const Slot *q = slot_at(s, slot);
  bool split = q->type[type].kind == SHARD_SPLIT;
  if (!q->grad) return true;
  if (q->partner == NONE) return !split;
  const Slot *p = slot_at(s, q->partner);
  Shard at = split ? q->type[type] : shard_whole();
  uint32_t home = slot_find(p, at);
  if (p->is_fixed[s->z->axis]) return shard_same(p->fixed[s->z->axis], at);
  return home < MAX_TYPES &&
         (!has_no_layout(s, q->partner) || narrow(s, q->partner, 1u << home, cost));
}

// A gradient that is left partial is reduced once a step.
static int64_t step_traffic(const Search *s, Id slot, uint32_t type) {
  const Train *t = &s->z->m->train;
  int64_t times = t->microbatch > 0 && t->batch > t->microbatch ? t->batch / t->microbatch : 1;
  const Cost *conv = is_partial(slot_at(s, slot), type) ? conv_at(s, slot, type, 0) : NULL;
  return conv ? conv->at[COST_COMM] / times : 0;
}

// Whether a term that is converted to `to` may be so while it is cut by axes that are solved.
static bool term_goes(const Search *s, Id slot, uint32_t k, Shard to) {
  const Item *it = &s->l->item.at[s->item];
  const Module *m = s->z->m;
  for (uint32_t a = 0; to.kind == SHARD_SPLIT && a < m->axis.n; a++) {
    if (!s->z->solved[a]) continue;
    Shard o = it->done[a].out[k];
    if (o.kind == SHARD_SPLIT && o.dim == to.dim &&
        !shard_nest(m, slot_at(s, slot)->of.extent[to.dim], s->z->axis, to.block, a, o.block))
      return false;
  }
  return true;
}

// The accumulator takes type `to`; the term comes as `from`.
static void add_as(Search *s, const Choice *c, uint32_t k, uint32_t from, uint32_t to, Cost cost) {
  Id slot = c->out[k].slot;
  Slot *q = slot_at(s, slot);
  Set home = {0, 0};
  if (from != to) {
    const Cost *conv = conv_at(s, slot, from, to);
    if (shard_added(c->assign, q->type[from], q->type[to]))
      cost.at[COST_MASKS] += q->type[from].kind == SHARD_WHOLE;
    else if (conv && term_goes(s, slot, k, q->type[to])) cost_add(&cost, conv);
    else return;
  }
  if (q->partner != NONE) home = s->work[q->partner];
  if (agree_home(s, slot, to, &cost)) {
    s->pick.target = to;
    if (q->grad && !s->work[slot].have && is_partial(q, to)) {
      cost.at[s->z->collectives]++;
      cost.at[s->z->traffic] += step_traffic(s, slot, to);
    }
    if (s->work[slot].have) do_outs(s, c, k + 1, cost);
    else make(s, c, k, to, cost);
  }
  if (q->partner != NONE) s->work[q->partner] = home;
}

static void add_to(Search *s, const Choice *c, uint32_t k, Cost cost) {
  Id slot = c->out[k].slot;
  const Slot *q = slot_at(s, slot);
  uint32_t from = c->out[k].type;
  bool call = s->l->item.at[s->item].kind != ITEM_COMP;
  for (uint32_t to = 0; to < q->ntype; to++) {
    if (call && to != from) continue;
    if (q->var != NONE && to != s->var[q->var]) continue;
    if (s->work[slot].have && s->work[slot].have != 1u << to) continue;
    add_as(s, c, k, from, to, cost);
  }
}

static void do_outs(Search *s, const Choice *c, uint32_t k, Cost cost) {
  while (k < c->nout && c->out[k].slot == NONE) k++;
  if (k == c->nout) emit(s, &cost);
  else if (s->l->item.at[s->item].to.at[k].add) add_to(s, c, k, cost);
  else make(s, c, k, c->out[k].type, cost);
}

static void do_needs(Search *s, const Choice *c, uint32_t j, Cost cost);

static void need_home(Search *s, const Choice *c, uint32_t j, Cost cost) {
  Id slot = c->need[j].slot;
  uint32_t type = c->need[j].type;
  Set old = s->work[slot];
  if (is_partial(slot_at(s, slot), type)) return;
  if (narrow(s, slot, 1u << type | 1u, &cost)) do_needs(s, c, j + 1, cost);
  s->work[slot] = old;
}

static void need_via(Search *s, const Choice *c, uint32_t j, Cost cost) {
  Id slot = c->need[j].slot;
  Set old = s->work[slot];
  const Cost *conv = least_conv(s, slot, old.have, 0);
  if (!conv || (old.have & 1) || s->c->last[slot] <= s->at || !tries_via(s)) return;
  cost_add(&cost, conv);
  s->work[slot].have |= 1u | 1u << c->need[j].type;
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
  uint32_t type = c->need[j].type;
  Set old = s->work[slot];
  if (has_no_layout(s, slot)) {
    need_home(s, c, j, cost);
    return;
  }
  if (!old.have) { // it is still to be made
    s->work[slot].ask |= 1u << type;
    do_needs(s, c, j + 1, cost);
    s->work[slot] = old;
    return;
  }
  if (old.have >> type & 1) {
    do_needs(s, c, j + 1, cost);
    return;
  }
  if (is_partial(slot_at(s, slot), type)) return;
  const Cost *conv = least_conv(s, slot, old.have, type);
  if (!conv || (conv->at[COST_COMM] && slot_at(s, slot)->still && !s->z->moves)) return;
  if (type && j < 32) need_via(s, c, j, cost);
  cost_add(&cost, conv);
  s->work[slot].have |= 1u << type;
  do_needs(s, c, j + 1, cost);
  s->work[slot] = old;
}

// A repeat's choice starts from the types that earlier repeats of its cluster fixed; the last pays.
static bool enter_repeat(Search *s, const Item *it, const Choice *c, Cost *cost) {
  const Cluster *k = &s->l->cluster.at[it->cluster];
  uint32_t ways = 1;
  for (uint32_t i = 0; i < k->in->var.n; i++)
    if (k->in->var.at[i].repeat == it->at) ways *= k->in->var.at[i].type.n;
  if (s->work[k->memory].have != c->prefix / ways) return false;
  if (it->at + 1 == k->item.n) {
    const Plan *p = &k->plan[c->prefix];
    if (!p->ok) return false;
    for (int i = 0; i < NCOST; i++) cost->at[i] += p->cost.at[i] * k->in->count;
  }
  s->work[k->memory].have = c->prefix;
  return true;
}

static void do_choice(Search *s, uint32_t number, const Choice *c, Cost cost) {
  const Item *it = &s->l->item.at[s->item];
  s->pick = (Pick){.choice = number};
  s->through = 0;
  cost_add(&cost, &c->cost);
  if (!may_improve(s, &cost)) return;
  if (it->kind != ITEM_REPEAT) {
    do_needs(s, c, 0, cost);
    return;
  }
  Id memory = s->l->cluster.at[it->cluster].memory;
  Set old = s->work[memory];
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

// Adds the conversions by which `from` gets the types that `to` has at hand, and asks for no more.
// False where there are none.
static bool find_repair(const Search *s, Id slot, Set from, Set to, Cost *cost) {
  const Slot *q = slot_at(s, slot);
  for (uint32_t t = 0, lacks = to.have & ~from.have; lacks >> t; t++) {
    if (!(lacks >> t & 1)) continue;
    if (has_no_layout(s, slot)) { // it may live whole, and its gradient be gathered
      const Cost *c = conv_at(s, slot, t, 0);
      if (!t || !(from.have & 1) || !c) return false;
      cost_add(cost, c);
      continue;
    }
    const Cost *c = least_conv(s, slot, from.have, is_partial(q, t) && !(from.have & 1) ? 0 : t);
    if (!c) return false;
    cost_add(cost, c);
    from.have |= 1u << t;
  }
  for (uint32_t t = 0, more = from.ask & ~to.ask; more >> t; t++) {
    const Cost *c = more >> t & 1 && !is_partial(q, t) ? least_conv(s, slot, to.ask, t) : NULL;
    if (!(more >> t & 1)) continue;
    if (!c) return false;
    cost_add(cost, c);
  }
  return true;
}

// The cost of continuing from `from` as from `to`; NULL where no conversion allows it.
static const Cost *repair(const Search *s, Id slot, Set from, Set to) {
  uint32_t at = (from.have * 31 + to.have * 7 + from.ask * 5 + to.ask * 3) % REPAIRS;
  Repair *m = &s->repair[slot][at];
  if (!m->known || hashed(m->from) != hashed(from) || hashed(m->to) != hashed(to)) {
    *m = (Repair){.from = from, .to = to, .known = true};
    m->ok = find_repair(s, slot, from, to, &m->cost);
  }
  return m->ok ? &m->cost : NULL;
}

static bool dominates(const Search *s, const Frontier *f, uint32_t a, uint32_t b,
                      const uint32_t *open) {
  const Set *x = f->set + (size_t)a * f->width, *y = f->set + (size_t)b * f->width;
  Cost cost = f->state[a].cost;
  for (uint32_t k = 0; k < f->width; k++) {
    if (x[k].have == y[k].have && x[k].ask == y[k].ask) continue;
    if (s->rigid[open[k]]) return false;
    const Cost *more = repair(s, open[k], x[k], y[k]);
    if (!more) return false;
    cost_add(&cost, more);
    if (cost_order(&cost, &f->state[b].cost) > 0) return false;
  }
  return cost_order(&cost, &f->state[b].cost) <= 0;
}

// Ranks a state by its cost and the reductions of its partial slots, which are still to come.
static void rank_state(const Search *s, Frontier *f, uint32_t i, const uint32_t *open) {
  State *st = &f->state[i];
  st->ahead = st->cost;
  st->group = 7;
  for (uint32_t k = 0; k < f->width; k++) {
    uint32_t set = f->set[(size_t)i * f->width + k].have;
    const Slot *q = slot_at(s, open[k]);
    if (s->rigid[open[k]]) {
      st->group = mix(st->group, (uint64_t)k << 32 | set);
      continue;
    }
    bool partial = set != 0;
    for (uint32_t t = 0; t < q->ntype; t++) partial &= !(set >> t & 1) || is_partial(q, t);
    const Cost *c = partial && !has_no_layout(s, open[k]) ? least_conv(s, open[k], set, 0) : NULL;
    if (c) cost_add(&st->ahead, c);
  }
}

static const Frontier *sorting;
static int by_ahead(const void *a, const void *b) {
  uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
  int c = cost_order(&sorting->state[i].ahead, &sorting->state[j].ahead);
  return c ? c : i < j ? -1 : 1;
}
static int by_cost(const void *a, const void *b) {
  uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
  int c = cost_order(&sorting->state[i].cost, &sorting->state[j].cost);
  return c ? c : i < j ? -1 : 1;
}

// The first states of each group, `keep` of them, against which later ones are held.
typedef struct Groups {
  uint64_t *key;
  uint32_t *at, *n, room; // rows of `keep` states
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
  const uint32_t *open = s->c->open[s->at + 1];
  Groups g = {.room = 64};
  uint32_t keep = (uint32_t)s->z->m->limits.search_kept;
  while (g.room < 2 * f->n) g.room *= 2;
  g.key = calloc(g.room, sizeof *g.key);
  g.n = calloc(g.room, sizeof *g.n);
  g.at = malloc((size_t)g.room * keep * sizeof *g.at);
  ALLOCATED(g.key && g.n && g.at);
  for (uint32_t i = 0; i < f->n; i++) {
    rank_state(s, f, i, open);
    order[i] = i;
  }
  sorting = f;
  qsort(order, f->n, sizeof *order, by_cost);
  uint32_t kept = 0;
  for (uint32_t i = 0; i < f->n; i++) {
    uint32_t b = order[i], at = group_of(&g, f->state[b].group);
    bool drop = false;
    for (uint32_t k = 0; !drop && k < g.n[at]; k++)
      drop = dominates(s, f, g.at[at * keep + k], b, open);
    if (drop) continue;
    if (g.n[at] < keep) g.at[at * keep + g.n[at]++] = b;
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
  ALLOCATED(order);
  uint32_t n = prune(s, order);
  frontier_start(to, f->width);
  for (uint32_t i = 0; i < n; i++) {
    frontier_room(to);
    State st = f->state[order[i]];
    PUSH(s->arena, s->record, (Record){st.back, st.pick});
    st.back = s->record.n - 1;
    to->state[i] = st;
    memcpy(to->set + (size_t)i * to->width, f->set + (size_t)order[i] * f->width,
           f->width * sizeof *f->set);
    to->n++;
  }
  free(order);
}

// ---- a run

static Set initial(const Search *s, Id slot) {
  const Slot *q = slot_at(s, slot);
  if (q->memory != NONE) return (Set){0, 0};
  if (q->var != NONE && q->given) return (Set){1u << s->var[q->var], 0};
  if (has_no_layout(s, slot)) {
    uint32_t set = 0;
    for (uint32_t t = 0; t < q->ntype; t++)
      if (!is_partial(q, t)) set |= 1u << t;
    return (Set){set, 0};
  }
  if (q->grad || !q->given) return (Set){0, 0};
  uint32_t t = q->is_fixed[s->z->axis] ? slot_find(q, q->fixed[s->z->axis]) : 0;
  CHECK(t < MAX_TYPES);
  return (Set){1u << t, 0};
}

static bool too_long(const Search *s) {
  return s->has_best && s->c->made + s->next.n > s->limit;
}

// False where it takes too long.
static bool step(Search *s) {
  const Item *it = &s->l->item.at[s->item];
  Choice back = return_choice(s, it);
  const Choice *choice = it->kind == ITEM_RETURN ? &back : it->choice.at;
  uint32_t n = it->kind == ITEM_RETURN ? 1 : it->choice.n;
  frontier_start(&s->next, s->c->nopen[s->at + 1]);
  for (uint32_t k = 0; k < s->l->slot.n; k++)
    if (s->c->first[k] == s->at) s->work[k] = initial(s, k);
  for (uint32_t i = 0; i < s->now.n; i++) {
    if (too_long(s)) return false;
    for (uint32_t k = 0; k < s->now.width; k++)
      s->work[s->c->open[s->at][k]] = s->now.set[(size_t)i * s->now.width + k];
    s->back = s->now.state[i].back;
    for (uint32_t k = 0; k < n; k++) do_choice(s, k, &choice[k], s->now.state[i].cost);
  }
  if (too_long(s)) return false;
  s->c->made += s->next.n;
  advance(s);
  return true;
}

// The least state after the last item, or NULL: there is none, or it would take too long.
static const State *run(Search *s, uint32_t keep, uint64_t limit) {
  s->keep = keep;
  s->limit = limit;
  s->exact = true;
  s->record.n = 0;
  s->c->made = 0;
  frontier_start(&s->now, 0);
  frontier_room(&s->now);
  s->now.n = 1;
  s->now.state[0] = (State){.back = NONE};
  for (s->at = 0; s->at < s->l->item.n && s->now.n; s->at++) {
    s->item = s->c->order[s->at];
    if (step(s)) continue;
    s->c->made += s->next.n;
    s->exact = false;
    return NULL;
  }
  const State *best = NULL;
  for (uint32_t i = 0; i < s->now.n; i++)
    if (!best || cost_order(&s->now.state[i].cost, &best->cost) < 0) best = &s->now.state[i];
  return best;
}

static void take(Search *s, const State *end, Plan *plan) {
  plan->ok = true;
  plan->cost = end->cost;
  uint32_t r = end->back;
  for (uint32_t i = s->l->item.n; i-- > 0;) {
    plan->pick[s->c->order[i]] = s->record.at[r].pick;
    r = s->record.at[r].back;
  }
  s->has_best = true;
  s->best = end->cost;
}

// ---- a level

static void find_open(Search *s) {
  const Level *l = s->l;
  s->c->open = NEWN(s->arena, uint32_t *, l->item.n + 1);
  s->c->nopen = NEWN(s->arena, uint32_t, l->item.n + 1);
  for (uint32_t i = 0; i <= l->item.n; i++) {
    s->c->open[i] = NEWN(s->arena, uint32_t, l->slot.n + 1);
    for (uint32_t k = 0; k < l->slot.n; k++)
      if (s->c->first[k] != NONE && s->c->first[k] < i && s->c->last[k] >= i)
        s->c->open[i][s->c->nopen[i]++] = k;
  }
}

static void find_conversions(Search *s) {
  const Level *l = s->l;
  s->conv = NEWN(s->arena, Cost *, l->slot.n + 1);
  s->convertible = NEWN(s->arena, bool *, l->slot.n + 1);
  s->rigid = NEWN(s->arena, bool, l->slot.n + 1);
  s->repair = arena_alloc(s->arena, (l->slot.n + 1) * sizeof *s->repair);
  for (uint32_t k = 0; k < l->slot.n; k++) {
    const Slot *q = &l->slot.at[k];
    uint32_t n = q->ntype;
    s->rigid[k] = is_rigid(s, k);
    s->conv[k] = NEWN(s->arena, Cost, n * n + 1);
    s->convertible[k] = NEWN(s->arena, bool, n * n + 1);
    for (uint32_t a = 0; q->memory == NONE && a < n; a++)
      for (uint32_t b = 0; b < n; b++)
        s->convertible[k][a * n + b] =
            convert_cost(s->z, q, q->type[a], q->type[b], &s->conv[k][a * n + b]);
  }
}

// The least that an item itself costs.
static Cost least_item(const Search *s, const Item *it) {
  Cost least = {0};
  const Cluster *c = it->kind == ITEM_REPEAT ? &s->l->cluster.at[it->cluster] : NULL;
  for (uint32_t i = 0; !c && i < it->choice.n; i++)
    if (!i || cost_order(&it->choice.at[i].cost, &least) < 0) least = it->choice.at[i].cost;
  if (!c || it->at + 1 < c->item.n) return least;
  bool any = false;
  for (uint32_t i = 0; i < c->ncombo; i++) {
    if (!c->plan[i].ok || (any && cost_order(&c->plan[i].cost, &least) >= 0)) continue;
    least = c->plan[i].cost;
    any = true;
  }
  for (int i = 0; i < NCOST; i++) least.at[i] *= c->in->count;
  return least;
}

static void find_bounds(Search *s) {
  uint32_t n = s->l->item.n;
  s->c->bound = NEWN(s->arena, Cost, n + 2);
  for (uint32_t i = n; i-- > 0;) {
    s->c->bound[i] = s->c->bound[i + 1];
    Cost least = least_item(s, &s->l->item.at[s->c->order[i]]);
    cost_add(&s->c->bound[i], &least);
  }
}

static void find_course(Search *s, uint32_t which) {
  const Level *l = s->l;
  s->c->order = NEWN(s->arena, uint32_t, l->item.n + 1);
  s->c->first = NEWN(s->arena, uint32_t, l->slot.n + 1);
  s->c->last = NEWN(s->arena, uint32_t, l->slot.n + 1);
  level_order(s->arena, l, which, s->c->order, s->c->first, s->c->last);
  find_open(s);
  find_bounds(s);
}

static bool follow(Search *s, Course *c, uint32_t which, uint32_t keep, uint64_t limit,
                   Plan *plan) {
  s->c = c;
  if (!c->order) find_course(s, which);
  const State *end = run(s, keep, limit);
  s->z->made += c->made;
  if (end) take(s, end, plan);
  return plan->exact = s->exact;
}

// States that may still be made, in all searches of an axis together. Where there are none only
// the first, short run is made.
static uint64_t left(const Search *s) {
  uint64_t most = (uint64_t)s->z->m->limits.search_states;
  return s->z->made < most ? most - s->z->made : 0;
}

// Few states on the course that did best last time, for a plan to hold others against; then more on
// each, as long as it takes no more than the best one; then many on that. The first run alone may
// drop the states that can be gone on from, and find nothing where there is a plan.
static void search(Search *s, Plan *plan) {
  const Limits *l = &s->z->m->limits;
  uint32_t few = s->z->first, more = (uint32_t)l->search_orders, many = (uint32_t)l->search_last;
  Course course[ORDERS] = {{0}};
  uint32_t first = s->l->course, best = first;
  if (follow(s, &course[first], first, few, UINT64_MAX, plan)) return;
  if (!left(s)) {
    s->z->lost |= !plan->ok;
    return;
  }
  for (uint32_t k = 0; k < ORDERS && !plan->exact && left(s); k++) {
    uint32_t i = (first + k) % ORDERS;
    uint64_t limit = k && course[best].made < left(s) ? course[best].made : left(s);
    if (follow(s, &course[i], i, more, limit, plan) || course[i].made < course[best].made) best = i;
  }
  s->l->course = best;
  if (!plan->exact && left(s)) follow(s, &course[best], best, many, left(s), plan);
}

Plan level_solve(Sharder *z, Level *l, const uint32_t *var) {
  Search s = {.z = z, .l = l, .var = var, .arena = arena_new()};
  Plan plan = {.pick = NEWN(z->m->arena, Pick, l->item.n + 1)};
  s.work = NEWN(s.arena, Set, l->slot.n + 1);
  find_conversions(&s);
  search(&s, &plan);
  if (!plan.exact) z->cut = true;
  Frontier *f[] = {&s.now, &s.next};
  for (int i = 0; i < 2; i++) {
    free(f[i]->state);
    free(f[i]->set);
    free(f[i]->table);
  }
  arena_free(s.arena);
  return plan;
}
