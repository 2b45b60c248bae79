// Solves the levels of an entry on one axis, the innermost first, and records the choices.
#include "passes/shard/shard.h"

// ---- variables

// Too many candidates: drops those of what is only read, then all but the first two.
static uint32_t limit_combos(Sharder *z, Level *in) {
  for (int round = 0;; round++) {
    uint64_t n = 1, most = (uint64_t)z->m->limits.search_combinations;
    for (uint32_t i = 0; i < in->var.n; i++) n = n > most ? n : n * in->var.at[i].type.n;
    if (n <= most) return (uint32_t)n;
    z->cut = true;
    for (uint32_t i = 0; i < in->var.n; i++) {
      uint32_t most = round || in->var.at[i].kind == VAR_IN ? 1 : 2;
      if (in->var.at[i].type.n > most) in->var.at[i].type.n = most;
    }
  }
}

// The types, by number of their slots, that combination `combo` gives to the variables.
static void combo_types(const Level *in, uint32_t combo, uint32_t *type) {
  for (uint32_t i = in->var.n; i-- > 0;) {
    const Var *v = &in->var.at[i];
    type[i] = slot_find(&in->slot.at[v->slot], v->type.at[combo % v->type.n]);
    combo /= v->type.n;
  }
}

static Shard stacked(Shard t, bool slice) {
  if (t.kind == SHARD_SPLIT && slice) t.dim++;
  return t;
}

// The ways of repeat `at`: all choices of the variables so far.
static void repeat_choices(Sharder *z, Level *l, Item *it) {
  const Cluster *c = &l->cluster.at[it->cluster];
  const Level *in = c->in;
  uint32_t ways = 1, *digit = NEWN(z->m->arena, uint32_t, in->var.n + 1);
  for (uint32_t i = 0; i < in->var.n; i++)
    if (in->var.at[i].repeat <= it->at) ways *= in->var.at[i].type.n;
  it->choice.n = 0;
  for (uint32_t p = 0; p < ways; p++) {
    Choice ch = {.class = NONE, .prefix = p};
    ch.need = NEWN(z->m->arena, Need, in->var.n + 1);
    ch.out = NEWN(z->m->arena, Need, in->var.n + 1);
    uint32_t rest = p;
    for (uint32_t i = in->var.n; i-- > 0;) {
      if (in->var.at[i].repeat > it->at) continue;
      digit[i] = rest % in->var.at[i].type.n;
      rest /= in->var.at[i].type.n;
    }
    for (uint32_t i = 0; i < in->var.n; i++) {
      const Var *v = &in->var.at[i];
      if (!repeat_uses(v, it->at)) continue;
      Shard t = stacked(v->type.at[digit[i]], v->slice);
      Need at = {v->outer, slot_find(&l->slot.at[v->outer], t)};
      bool seen = false;
      for (uint32_t k = 0; k < ch.nneed; k++)
        seen |= ch.need[k].slot == at.slot && ch.need[k].type == at.type;
      if (v->kind == VAR_OUT || v->kind == VAR_ACC) ch.out[ch.nout++] = at;
      else if (!seen) ch.need[ch.nneed++] = at;
      if (v->kind == VAR_CARRY)
        ch.out[ch.nout++] = (Need){v->outer_last, slot_find(&l->slot.at[v->outer_last], t)};
    }
    PUSH(z->m->arena, it->choice, ch);
  }
}

static void solve_inside(Sharder *z, Level *l) {
  for (uint32_t k = 0; k < l->cluster.n; k++) {
    Cluster *c = &l->cluster.at[k];
    solve_inside(z, c->in);
    c->ncombo = limit_combos(z, c->in);
    c->plan = NEWN(z->m->arena, Plan, c->ncombo + 1);
    uint32_t *type = NEWN(z->m->arena, uint32_t, c->in->var.n + 1);
    for (uint32_t i = 0; i < c->ncombo; i++) {
      combo_types(c->in, i, type);
      c->plan[i] = level_solve(z, c->in, type);
    }
    for (uint32_t i = 0; i < c->item.n; i++) repeat_choices(z, l, &l->item.at[c->item.at[i]]);
  }
}

// ---- recording

typedef struct Replay {
  Sharder *z;
  Level *l;
  const Plan *plan;
  const uint32_t *var;
  uint32_t *homes; // for each parameter's slot, those that are left
} Replay;

static Shard type_of(const Replay *r, Need n) { return r->l->slot.at[n.slot].type[n.type]; }

static void fix(const Replay *r, Id slot, Shard t) {
  r->l->slot.at[slot].fixed[r->z->axis] = t;
  r->l->slot.at[slot].is_fixed[r->z->axis] = true;
}

static Choice returned(const Replay *r, const Item *it) {
  Choice c = {.class = NONE, .need = NEWN(r->z->m->arena, Need, it->in.n + 1)};
  for (uint32_t i = 0; i < it->in.n; i++) {
    Need n = {it->in.at[i], 0};
    for (uint32_t k = 0; k < r->l->var.n; k++) {
      const Var *v = &r->l->var.at[k];
      if (v->repeat == it->body && (v->kind == VAR_CARRY ? v->last : v->slot) == n.slot)
        n.type = slot_find(&r->l->slot.at[n.slot], r->l->slot.at[v->slot].type[r->var[k]]);
    }
    c.need[c.nneed++] = n;
  }
  return c;
}

static void replay_item(Replay *r, uint32_t i) {
  Arena *a = r->z->m->arena;
  Item *it = &r->l->item.at[i];
  Decision *d = &it->done[r->z->axis];
  const Pick *p = &r->plan->pick[i];
  d->choice = it->kind == ITEM_RETURN ? returned(r, it) : it->choice.at[p->choice];
  d->need = NEWN(a, Shard, d->choice.nneed + 1);
  d->out = NEWN(a, Shard, d->choice.nout + 1);
  for (uint32_t k = 0; k < d->choice.nneed; k++) {
    Need n = d->choice.need[k];
    d->need[k] = type_of(r, n);
    if (k < 32 && (p->via >> k & 1)) r->l->slot.at[n.slot].via[r->z->axis] = true;
    r->homes[n.slot] &= 1u << n.type | 1u;
  }
  for (uint32_t k = 0; k < d->choice.nout; k++) {
    Need n = d->choice.out[k];
    if (n.slot == NONE) continue;
    d->out[k] = type_of(r, n);
    if (k < 32 && (p->made_via >> k & 1)) r->l->slot.at[n.slot].via[r->z->axis] = true;
    if (!it->to.at[k].add) continue;
    const Slot *q = &r->l->slot.at[n.slot];
    d->target = it->kind == ITEM_COMP ? q->type[p->target] : d->out[k];
    if (q->var == NONE) fix(r, n.slot, d->target);
    if (!q->grad || q->partner == NONE) continue;
    Shard home = d->target.kind == SHARD_SPLIT ? d->target : shard_whole();
    r->homes[q->partner] &= 1u << slot_find(&r->l->slot.at[q->partner], home);
  }
}

// A parameter lives where it takes least room, if that counts; else whole, if it may.
static void choose_home(const Replay *r, Id slot) {
  const Slot *q = &r->l->slot.at[slot];
  uint32_t best = MAX_TYPES;
  int64_t least = INT64_MAX;
  if (q->param == NONE || q->grad || q->is_fixed[r->z->axis] || q->first == NONE) return;
  for (uint32_t t = 0; t < q->ntype; t++) {
    if (!(r->homes[slot] >> t & 1) || q->type[t].kind == SHARD_PARTIAL) continue;
    Shard h = q->type[t];
    int64_t n = slot_bytes(q);
    if (q->counted && h.kind == SHARD_SPLIT) n = share_of(n, q->of.extent[h.dim], h.block, r->z->n);
    if (n < least) {
      least = n;
      best = t;
    }
  }
  CHECK(best < MAX_TYPES);
  fix(r, slot, q->type[best]);
}

static void record(Sharder *z, Level *l, const Plan *plan, uint32_t combo) {
  Replay r = {z, l, plan, NULL, NEWN(z->m->arena, uint32_t, l->slot.n + 1)};
  uint32_t *var = NEWN(z->m->arena, uint32_t, l->var.n + 1);
  combo_types(l, combo, var);
  r.var = var;
  l->combo[z->axis] = combo;
  for (uint32_t i = 0; i < l->slot.n; i++) r.homes[i] = UINT32_MAX;
  for (uint32_t i = 0; i < l->var.n; i++)
    fix(&r, l->var.at[i].slot, l->slot.at[l->var.at[i].slot].type[var[i]]);
  for (uint32_t i = 0; i < l->item.n; i++) replay_item(&r, i);
  for (uint32_t i = 0; i < l->slot.n; i++) choose_home(&r, i);
  for (uint32_t k = 0; k < l->cluster.n; k++) {
    const Cluster *c = &l->cluster.at[k];
    const Item *last = &l->item.at[c->item.at[c->item.n - 1]];
    uint32_t prefix = last->done[z->axis].choice.prefix;
    record(z, c->in, &c->plan[prefix], prefix);
  }
}

bool entry_solve(Sharder *z, Level *l) {
  level_choices(z, l);
  solve_inside(z, l);
  Plan p = level_solve(z, l, NULL);
  if (p.ok) record(z, l, &p, 0);
  if (p.ok && l == z->step) z->cost[z->axis] = p.cost;
  return p.ok;
}
