// An entry as levels: which bodies are solved together, which of their values are one slot, and
// the types that they share with the level around them.
#include "passes/shard/shard.h"

typedef struct Build {
  Sharder *z;
  Level *l;
} Build;

static Id new_slot(Build *b, const Value *v) {
  Slot s = {.of = *v, .param = NONE, .partner = NONE, .var = NONE, .memory = NONE};
  PUSH(b->z->m->arena, b->l->slot, s);
  return b->l->slot.n - 1;
}

static Body new_body(Build *b, Id fn) {
  uint32_t n = b->z->m->fn.at[fn].value.n;
  Body body = {fn, NEWN(b->z->m->arena, Id, n + 1)};
  memset(body.slot, 0xff, n * sizeof *body.slot);
  return body;
}

static const Fn *fn_of(const Build *b, uint32_t body) {
  return &b->z->m->fn.at[b->l->body.at[body].fn];
}

// ---- items

typedef struct Collect {
  Build *b;
  Item *it;
  const Body *body;
} Collect;

static void add_in(Build *b, Item *it, Id slot) {
  for (uint32_t i = 0; i < it->in.n; i++)
    if (it->in.at[i] == slot) return;
  PUSH(b->z->m->arena, it->in, slot);
}

static void add_to(Build *b, Item *it, Id slot, bool add) {
  PUSH(b->z->m->arena, it->to, (Made){slot, add});
}

static void collect_use(Id value, void *ctx) {
  Collect *c = ctx;
  add_in(c->b, c->it, c->body->slot[value]);
}

static bool inout(const Module *m, const Call *c, uint32_t i) {
  const Fn *g = &m->fn.at[c->fn];
  return g->value.at[g->arg.at[i]].role == ROLE_INOUT;
}

// What a call reads in the order of its arguments, then what it makes: results, then what it adds
// to.
static void collect_call(Build *b, Item *it, const Body *body, const Call *c) {
  const Module *m = b->z->m;
  for (uint32_t i = 0; i < c->narg; i++)
    if (!inout(m, c, i)) add_in(b, it, body->slot[c->arg[i].value]);
  for (uint32_t i = 0; i < c->nresult; i++)
    add_to(b, it, c->result[i].value == NONE ? NONE : body->slot[c->result[i].value], false);
  for (uint32_t i = 0; i < c->narg; i++)
    if (inout(m, c, i)) add_to(b, it, body->slot[c->arg[i].value], true);
}

static void add_items(Build *b, uint32_t body) {
  const Module *m = b->z->m;
  const Fn *f = fn_of(b, body);
  for (uint32_t i = 0; i < f->stmt.n; i++) {
    const Stmt *s = &f->stmt.at[i];
    Item it = {.body = body, .stmt = i, .cluster = NONE};
    Collect c = {b, &it, &b->l->body.at[body]};
    it.kind = s->kind == ST_COMP ? ITEM_COMP : s->kind == ST_CALL ? ITEM_CALL : ITEM_REPEAT;
    if (it.kind == ITEM_COMP) {
      stmt_reads(m, f, s, collect_use, &c);
      add_to(b, &it, c.body->slot[s->lhs], s->acc);
    } else if (it.kind == ITEM_CALL) {
      collect_call(b, &it, c.body, s->call);
    }
    PUSH(m->arena, b->l->item, it);
  }
  Item end = {.kind = ITEM_RETURN, .body = body, .cluster = NONE};
  PUSH(m->arena, b->l->item, end);
}

// ---- clusters

static const Call *call_of(const Build *b, const Item *it) {
  return fn_of(b, it->body)->stmt.at[it->stmt].call;
}

// Repeats linked to earlier ones by the slots that they slice.
typedef struct Links {
  Id *owner; // for each slot, the first repeat that slices it
  Id *link; // for each item, an earlier one of its cluster, or itself
} Links;

static uint32_t root_of(const Links *k, uint32_t item) {
  while (k->link[item] != item) item = k->link[item];
  return item;
}

static void link_by(Links *k, Id slot, uint32_t item) {
  if (k->owner[slot] == NONE) k->owner[slot] = item;
  uint32_t a = root_of(k, k->owner[slot]), b = root_of(k, item);
  if (a != b) k->link[a > b ? a : b] = a < b ? a : b;
}

static void link_repeat(Build *b, Links *k, uint32_t item) {
  const Item *it = &b->l->item.at[item];
  const Call *c = call_of(b, it);
  const Body *body = &b->l->body.at[it->body];
  for (uint32_t i = 0; i < c->narg; i++)
    if (c->arg[i].mode == ACT_SLICE) link_by(k, body->slot[c->arg[i].value], item);
  for (uint32_t i = 0; i < c->nresult; i++)
    if (c->result[i].mode == RES_SLICE) link_by(k, body->slot[c->result[i].value], item);
}

static void find_clusters(Build *b) {
  Module *m = b->z->m;
  Level *l = b->l;
  Links k = {NEWN(m->arena, Id, l->slot.n + 1), NEWN(m->arena, Id, l->item.n + 1)};
  for (uint32_t i = 0; i < l->slot.n; i++) k.owner[i] = NONE;
  for (uint32_t i = 0; i < l->item.n; i++) k.link[i] = i;
  for (uint32_t i = 0; i < l->item.n; i++)
    if (l->item.at[i].kind == ITEM_REPEAT) link_repeat(b, &k, i);
  for (uint32_t i = 0; i < l->item.n; i++) {
    Item *it = &l->item.at[i];
    if (it->kind != ITEM_REPEAT) continue;
    uint32_t root = root_of(&k, i);
    if (root == i) {
      Value none = {.name = str_intern("plan")};
      Cluster c = {.memory = new_slot(b, &none)};
      l->slot.at[c.memory].memory = l->cluster.n;
      it->cluster = l->cluster.n;
      PUSH(m->arena, l->cluster, c);
    } else {
      it->cluster = l->item.at[root].cluster;
    }
    Cluster *c = &l->cluster.at[it->cluster];
    it->at = c->item.n;
    PUSH(m->arena, c->item, i);
  }
}

// ---- the level inside a cluster

typedef struct Inside {
  Build out, in;
  uint32_t cluster, repeat; // of out.l; of the cluster
  Id *child; // for each slot of the outer level, its slice here, or NONE
  bool *shared; // for each slot of the outer level: it is used by more than this cluster's slices
} Inside;

static Id add_var(Inside *w, Var v) {
  v.repeat = w->repeat;
  PUSH(w->in.z->m->arena, w->in.l->var, v);
  Id id = w->in.l->var.n - 1;
  w->in.l->slot.at[v.slot].var = id;
  return id;
}

// The slice of an outer slot: one slot here, however often it is passed.
static Id slice_of(Inside *w, Id outer, const Value *formal, VarKind kind) {
  if (w->child[outer] != NONE) return w->child[outer];
  Id id = w->child[outer] = new_slot(&w->in, formal);
  Slot *s = &w->in.l->slot.at[id];
  const Slot *o = &w->out.l->slot.at[outer];
  s->param = o->param;
  s->grad = o->grad;
  s->counted = o->counted;
  s->still = o->still;
  if (o->partner != NONE) s->partner = w->child[o->partner];
  if (w->shared[outer] || o->whole || o->var != NONE)
    add_var(w, (Var){.kind = kind,
                     .slot = id,
                     .last = NONE,
                     .outer = outer,
                     .outer_last = NONE,
                     .slice = true});
  return id;
}

static void inner_arg(Inside *w, Body *body, const Body *outer, const Call *c, uint32_t i) {
  const Fn *g = &w->in.z->m->fn.at[c->fn];
  Id formal = g->arg.at[i];
  const Value *v = &g->value.at[formal];
  const Actual *a = &c->arg[i];
  VarKind kind = v->role == ROLE_INOUT ? VAR_ACC : a->mode == ACT_CARRY ? VAR_CARRY : VAR_IN;
  if (a->mode == ACT_SLICE) {
    body->slot[formal] = slice_of(w, outer->slot[a->value], v, kind);
    return;
  }
  Id id = body->slot[formal] = new_slot(&w->in, v);
  if (a->mode == ACT_ITER) {
    w->in.l->slot.at[id].whole = true;
    return;
  }
  const Slot *o = &w->out.l->slot.at[outer->slot[a->value]];
  Slot *s = &w->in.l->slot.at[id];
  s->still = o->still;
  add_var(w, (Var){.kind = kind,
                   .slot = id,
                   .last = NONE,
                   .outer = outer->slot[a->value],
                   .outer_last = NONE});
}

static void inner_results(Inside *w, Body *body, const Body *outer, const Call *c) {
  const Fn *g = &w->in.z->m->fn.at[c->fn];
  uint32_t carry = 0;
  for (uint32_t i = 0; i < c->nresult; i++) {
    Id value = g->result.at[i], *slot = &body->slot[value];
    const Result *r = &c->result[i];
    if (r->mode == RES_SLICE) {
      Id o = outer->slot[r->value];
      if (*slot != NONE && w->child[o] == NONE && !w->shared[o]) w->child[o] = *slot;
      else *slot = slice_of(w, o, &g->value.at[value], VAR_OUT);
      continue;
    }
    if (*slot == NONE) *slot = new_slot(&w->in, &g->value.at[value]);
    if (r->mode != RES_CARRY) continue;
    while (c->arg[carry].mode != ACT_CARRY) carry++;
    Id formal = body->slot[g->arg.at[carry++]];
    Var *v = &w->in.l->var.at[w->in.l->slot.at[formal].var];
    v->last = *slot;
    v->outer_last = outer->slot[r->value];
  }
}

static void inner_body(Inside *w, const Item *it) {
  const Call *c = call_of(&w->out, it);
  Body *outer = &w->out.l->body.at[it->body];
  Body body = new_body(&w->in, c->fn);
  const Fn *g = &w->in.z->m->fn.at[c->fn];
  for (uint32_t i = 0; i < c->narg; i++)
    if (!inout(w->in.z->m, c, i)) inner_arg(w, &body, outer, c, i);
  for (uint32_t i = 0; i < c->narg; i++)
    if (inout(w->in.z->m, c, i)) inner_arg(w, &body, outer, c, i);
  inner_results(w, &body, outer, c);
  for (Id v = 0; v < g->value.n; v++)
    if (body.slot[v] == NONE) body.slot[v] = new_slot(&w->in, &g->value.at[v]);
  PUSH(w->in.z->m->arena, w->in.l->body, body);
}

// Slots of the outer level that others than the cluster's slices use.
static void find_shared(Inside *w) {
  const Level *l = w->out.l;
  for (uint32_t i = 0; i < l->item.n; i++) {
    const Item *it = &l->item.at[i];
    for (uint32_t k = 0; k < it->in.n; k++) w->shared[it->in.at[k]] = true;
    for (uint32_t k = 0; k < it->to.n; k++)
      if (it->to.at[k].slot != NONE) w->shared[it->to.at[k].slot] = true;
    if (it->kind != ITEM_REPEAT) continue;
    const Call *c = call_of(&w->out, it);
    const Body *body = &l->body.at[it->body];
    for (uint32_t k = 0; k < c->narg; k++)
      if (c->arg[k].mode == ACT_WHOLE || c->arg[k].mode == ACT_CARRY)
        w->shared[body->slot[c->arg[k].value]] = true;
    for (uint32_t k = 0; k < c->nresult; k++)
      if (c->result[k].mode == RES_CARRY) w->shared[body->slot[c->result[k].value]] = true;
  }
}

static void finish_level(Build *b);

static void make_inside(Build *b, uint32_t cluster) {
  Module *m = b->z->m;
  Level *in = NEW(m->arena, Level);
  Inside w = {*b, {b->z, in}, cluster, 0, NEWN(m->arena, Id, b->l->slot.n + 1),
              NEWN(m->arena, bool, b->l->slot.n + 1)};
  memset(w.child, 0xff, b->l->slot.n * sizeof *w.child);
  find_shared(&w);
  Cluster *c = &b->l->cluster.at[cluster];
  in->around = b->l;
  in->count = call_of(b, &b->l->item.at[c->item.at[0]])->count;
  in->together = b->l->item.at[c->item.at[0]].body == b->l->item.at[c->item.at[c->item.n - 1]].body;
  for (uint32_t r = 0; r < c->item.n; r++) {
    w.repeat = r;
    inner_body(&w, &b->l->item.at[c->item.at[r]]);
  }
  c->in = in;
  for (uint32_t i = 0; i < in->body.n; i++) add_items(&w.in, i);
  finish_level(&w.in);
}

// ---- reads and writes of repeats and returns

// A slice may go into later repeats, too.
bool repeat_uses(const Var *v, uint32_t repeat) {
  return v->repeat == repeat || (v->kind == VAR_IN && v->slice && v->repeat < repeat);
}

// An item's slots of the outer level are those of the variables.
static void repeat_slots(Build *b) {
  for (uint32_t i = 0; i < b->l->item.n; i++) {
    Item *it = &b->l->item.at[i];
    if (it->kind != ITEM_REPEAT) continue;
    const Level *in = b->l->cluster.at[it->cluster].in;
    for (uint32_t k = 0; k < in->var.n; k++) {
      const Var *v = &in->var.at[k];
      if (!repeat_uses(v, it->at)) continue;
      if (v->kind == VAR_IN || v->kind == VAR_CARRY) add_in(b, it, v->outer);
      if (v->kind == VAR_CARRY) add_to(b, it, v->outer_last, false);
      if (v->kind == VAR_OUT || v->kind == VAR_ACC) add_to(b, it, v->outer, v->kind == VAR_ACC);
    }
    add_in(b, it, b->l->cluster.at[it->cluster].memory);
  }
}

static void return_slots(Build *b) {
  for (uint32_t i = 0; i < b->l->item.n; i++) {
    Item *it = &b->l->item.at[i];
    if (it->kind != ITEM_RETURN) continue;
    const Fn *f = fn_of(b, it->body);
    const Body *body = &b->l->body.at[it->body];
    if (!b->l->around)
      for (uint32_t k = 0; k < f->result.n; k++) add_in(b, it, body->slot[f->result.at[k]]);
    for (uint32_t k = 0; k < b->l->var.n; k++) {
      const Var *v = &b->l->var.at[k];
      if (v->repeat != it->body) continue;
      if (v->kind == VAR_OUT) add_in(b, it, v->slot);
      if (v->kind == VAR_CARRY) add_in(b, it, v->last);
    }
  }
}

static void touch(Level *l, Id slot, uint32_t item) {
  if (slot == NONE) return;
  Slot *s = &l->slot.at[slot];
  if (s->first == NONE) s->first = item;
  s->last = item;
  if (s->partner != NONE) touch(l, s->partner, item);
}

static void find_spans(Build *b) {
  Level *l = b->l;
  for (uint32_t i = 0; i < l->slot.n; i++) l->slot.at[i].first = l->slot.at[i].last = NONE;
  for (uint32_t i = 0; i < l->item.n; i++) {
    const Item *it = &l->item.at[i];
    for (uint32_t k = 0; k < it->in.n; k++) touch(l, it->in.at[k], i);
    for (uint32_t k = 0; k < it->to.n; k++) touch(l, it->to.at[k].slot, i);
  }
  for (uint32_t i = 0; i < l->slot.n; i++) { // arguments are there from the start
    Slot *s = &l->slot.at[i];
    if (s->first == NONE) continue;
    s->given = s->of.role != ROLE_LOCAL && s->memory == NONE && !s->grad;
    if (s->given) s->first = 0;
  }
}

// ---- sums of products that are float in a module of 16 bits

typedef struct Half {
  const Build *b;
  const Body *body;
  const Value *made;
  bool found;
} Half;

static void note_halved(Id value, void *ctx) {
  Half *h = ctx;
  const Slot *s = &h->b->l->slot.at[h->body->slot[value]];
  bool like = s->of.rank == h->made->rank;
  for (uint32_t d = 0; like && d < s->of.rank; d++) like = s->of.extent[d] == h->made->extent[d];
  h->found |= s->halved && like;
}

// A product that is not stored before it enters a sum is float. Between ranks it would be twice what is stored, so
// its parts are rounded when they are sent, as the parts of stored products are (doc/numerics.md).
static void find_halved(Build *b) {
  const Module *m = b->z->m;
  for (uint32_t i = 0; i < b->l->item.n && is_half(m->store) && !m->train.residual; i++) {
    const Item *it = &b->l->item.at[i];
    if (it->kind != ITEM_COMP) continue;
    const Body *body = &b->l->body.at[it->body];
    const Fn *f = &m->fn.at[body->fn];
    const Stmt *s = &f->stmt.at[it->stmt];
    Half h = {b, body, &f->value.at[s->lhs], false};
    if (s->acc || h.made->type != DT_F32 || h.made->role != ROLE_LOCAL) continue;
    if (s->red == RED_NONE) stmt_reads(m, f, s, note_halved, &h);
    b->l->slot.at[body->slot[s->lhs]].halved = h.found || stmt_is_product(m, s);
  }
}

static void finish_level(Build *b) {
  find_halved(b);
  find_clusters(b);
  for (uint32_t i = 0; i < b->l->cluster.n; i++) make_inside(b, i);
  repeat_slots(b);
  return_slots(b);
  find_spans(b);
}

// ---- entries

static void entry_arg(Build *b, const Body *body, const Fn *f, Id arg) {
  const Value *v = &f->value.at[arg];
  Slot *s = &b->l->slot.at[body->slot[arg]];
  bool grad = v->means == MEANS_GRAD;
  s->whole = !grad && v->means != MEANS_PARAM;
  if (s->whole) return;
  s->param = v->of;
  s->grad = grad;
  s->counted = !grad && b->z->counted[v->of];
  s->still = !grad;
  Id param = arg_find(f, MEANS_PARAM, v->of);
  if (grad && param != NONE) s->partner = body->slot[param];
}

Level *level_of_entry(Sharder *z, Id fn) {
  Level *l = NEW(z->m->arena, Level);
  Build b = {z, l};
  const Fn *f = &z->m->fn.at[fn];
  l->count = 1;
  Body body = new_body(&b, fn);
  for (Id v = 0; v < f->value.n; v++) body.slot[v] = new_slot(&b, &f->value.at[v]);
  for (uint32_t i = 0; i < f->arg.n; i++) entry_arg(&b, &body, f, f->arg.at[i]);
  PUSH(z->m->arena, l->body, body);
  add_items(&b, 0);
  finish_level(&b);
  return l;
}
