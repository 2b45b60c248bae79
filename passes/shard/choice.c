// The ways to do each item on one axis, and the types that each slot may take by them. The two feed
// each other (a block that one statement makes is a block that the next may go on with), so they
// are made together, until nothing new comes up.
#include "ir/intrinsic.h"
#include "passes/shard/shard.h"

enum { MAX_BLOCKS = 6, MAX_OPTIONS = 8, MAX_ROUNDS = 8 };

uint32_t slot_type(Slot *s, Shard t) {
  for (uint32_t i = 0; i < s->ntype; i++)
    if (shard_same(s->type[i], t)) return i;
  if (s->ntype == MAX_TYPES) return MAX_TYPES;
  s->type[s->ntype] = t;
  return s->ntype++;
}

uint32_t slot_find(const Slot *s, Shard t) {
  uint32_t i = 0;
  while (i < s->ntype && !shard_same(s->type[i], t)) i++;
  return i == s->ntype ? MAX_TYPES : i;
}

// ---- one item

typedef struct Ways {
  Sharder *z;
  Level *l;
  Item *it;
  const Fn *f;
  const Stmt *s;
  const Body *body;
  ShardAsk ask; // with other types
  Shard *type;
} Ways;

static Slot *slot_of(const Ways *w, Id value) { return &w->l->slot.at[w->body->slot[value]]; }

typedef struct Wanted {
  Ways *w;
  Assign a;
  Need need[64];
  uint32_t n;
  bool bad;
} Wanted;

// An index may count fewer places than the dimension has, which then must be dealt out alike.
static bool deals(const Ways *w, Id slot, Shard t) {
  return t.kind != SHARD_SPLIT ||
         shard_deals(w->l->slot.at[slot].of.extent[t.dim], t.block, w->z->n);
}

static void want(Wanted *q, Id slot, Shard t) {
  bool ok = deals(q->w, slot, t) && q->n < 64;
  Need n = {slot, ok ? slot_type(&q->w->l->slot.at[slot], t) : MAX_TYPES};
  if (n.type == MAX_TYPES) {
    q->w->z->cut |= q->n == 64;
    q->bad = true;
    return;
  }
  for (uint32_t i = 0; i < q->n; i++)
    if (q->need[i].slot == n.slot && q->need[i].type == n.type) return;
  q->need[q->n++] = n;
}

// The layout on an axis that is already solved of what a READ node reads.
static Shard earlier_type(const Ways *w, uint32_t axis, Id read) {
  const Decision *d = &w->it->done[axis];
  ShardAsk q = w->ask;
  Shard t = shard_whole();
  q.axis = axis;
  if (d->choice.assign.kind == ASSIGN_INDEX) {
    CHECK(shard_need(&q, read, d->choice.assign, &t));
    return t;
  }
  Id slot = w->body->slot[ex(w->z->m, read)->integer];
  for (uint32_t i = d->choice.nneed; i-- > 0;)
    if (d->choice.need[i].slot == slot) t = d->need[i];
  return t;
}

// Whether a layout goes with that of another axis.
static bool goes_with(const Sharder *z, const Value *v, Shard t, Shard earlier, uint32_t axis) {
  if (t.kind != SHARD_SPLIT || earlier.kind != SHARD_SPLIT || t.dim != earlier.dim) return true;
  return shard_nest(z->m, v->extent[t.dim], z->axis, t.block, axis, earlier.block);
}

static bool read_goes(const Ways *w, Id read, Shard t) {
  for (uint32_t a = 0; a < w->z->m->axis.n; a++)
    if (w->z->solved[a] && !goes_with(w->z, &w->f->value.at[ex(w->z->m, read)->integer], t,
                                      earlier_type(w, a, read), a))
      return false;
  return true;
}

static void want_read(const Module *m, Id read, void *ctx) {
  Wanted *q = ctx;
  Shard t;
  if (q->bad) return;
  q->bad = !shard_need(&q->w->ask, read, q->a, &t) || !read_goes(q->w, read, t);
  if (!q->bad) want(q, q->w->body->slot[ex(m, read)->integer], t);
}

static bool out_goes(const Ways *w, uint32_t k, Shard made) {
  for (uint32_t a = 0; a < w->z->m->axis.n; a++)
    if (w->z->solved[a] &&
        !goes_with(w->z, &w->l->slot.at[w->it->to.at[k].slot].of, made, w->it->done[a].out[k], a))
      return false;
  return true;
}

// A sum that is reduced on the outer factor here and on the inner one there takes one more collective: both
// at once are one.
static bool is_apart(const Ways *w, Shard made) {
  if (w->z->outer == NONE) return false;
  Shard o = w->it->done[w->z->outer].out[0];
  return made.kind != SHARD_SPLIT && o.kind != SHARD_SPLIT && made.kind != o.kind;
}

static void add_choice(Ways *w, const Wanted *q, Shard made, uint32_t masks) {
  Arena *arena = w->z->m->arena;
  Choice c = {.assign = q->a, .nneed = q->n, .nout = 1, .class = NONE};
  if (!deals(w, w->it->to.at[0].slot, made)) return;
  Need out = {w->it->to.at[0].slot, slot_type(slot_of(w, w->s->lhs), made)};
  if (out.type == MAX_TYPES || !out_goes(w, 0, made)) return;
  if (made.kind == SHARD_PARTIAL && w->f->value.at[w->s->lhs].type == DT_BOOL) return;
  c.need = arena_copy(arena, q->need, q->n * sizeof(Need));
  c.out = arena_copy(arena, &out, sizeof out);
  c.cost = comp_cost(w->z, w->l, w->it, &c);
  c.cost.at[COST_MASKS] += masks;
  c.cost.at[w->z->collectives] += is_apart(w, made);
  PUSH(arena, w->it->choice, c);
}

// ---- an index assigned

static void add_block(Sharder *z, int64_t *block, uint32_t *n, int64_t extent, int64_t b) {
  if (!shard_deals(extent, b, z->n)) return;
  for (uint32_t i = 0; i < *n; i++)
    if (block[i] == b) return;
  if (*n == MAX_BLOCKS) z->cut = true;
  else block[(*n)++] = b;
}

// The plain split, and for what is on the axis of context ranks too that within their blocks.
static void plain_blocks(Sharder *z, Id class, int64_t extent, int64_t *block, uint32_t *n) {
  int64_t turns = z->class.sequence[class] ? shard_turns(z->m, z->axis, extent) : 1;
  add_block(z, block, n, extent, shard_block(extent, z->n * turns));
  for (uint32_t a = 0; a < z->m->axis.n; a++) {
    int64_t all = z->n * z->m->axis.at[a].size * shard_turns(z->m, a, extent);
    bool both = z->class.sequence[class] || z->m->axis.at[a].heads;
    if (z->solved[a] && both && extent % all == 0) add_block(z, block, n, extent, extent / all);
  }
}

// What the outer factor does with the item. Its blocks are cut again, so that both together are cut
// as the axis whole would be.
static const Decision *outer_of(const Ways *w) { return &w->it->done[w->z->outer]; }

static int64_t inner_block(const Ways *w, int64_t outer) {
  return outer % w->z->n ? 0 : outer / w->z->n;
}

// The block of dimension d of a value that is read or written by what is no index.
static int64_t inner_dim_block(const Ways *w, Id value, uint32_t d) {
  const Decision *o = outer_of(w);
  Assign a = o->choice.assign;
  if (a.kind == ASSIGN_WRITE && value == w->s->lhs && a.index == d) return inner_block(w, a.block);
  for (uint32_t k = 0; k < o->choice.nneed; k++) {
    Shard t = o->need[k];
    if (o->choice.need[k].slot == w->body->slot[value] && t.kind == SHARD_SPLIT && t.dim == d)
      return inner_block(w, t.block);
  }
  return 0;
}

// Whether an index is for the inner factor; *block is what it must come in, 0: any.
static bool inner_index(const Ways *w, uint32_t index, int64_t *block) {
  Assign o = outer_of(w)->choice.assign;
  const Classes *c = &w->z->class;
  Id fn = w->body->fn;
  *block = 0;
  if (o.kind != ASSIGN_INDEX) return false;
  if (o.index == index) return (*block = inner_block(w, o.block)) > 0;
  return factor_heads(w->z, class_of_index(c, fn, w->it->stmt, o.index),
                      class_of_index(c, fn, w->it->stmt, index));
}

// Blocks that what is subscripted comes in.
typedef struct Blocks {
  Ways *w;
  uint32_t index;
  int64_t block[MAX_BLOCKS];
  uint32_t n;
} Blocks;

static void slot_blocks(Blocks *b, const Slot *s, const Id *sub, uint32_t rank) {
  const Ways *w = b->w;
  Shard unit;
  if (!shard_subscripts(w->z->m, w->s, sub, rank, b->index, 1, 1, &unit) ||
      unit.kind != SHARD_SPLIT)
    return;
  for (uint32_t i = 0; i < s->ntype; i++)
    if (s->type[i].kind == SHARD_SPLIT && s->type[i].dim == unit.dim &&
        s->type[i].block % unit.block == 0)
      add_block(w->z, b->block, &b->n, w->s->index[b->index].extent,
                s->type[i].block / unit.block);
}

static void read_blocks(const Module *m, Id read, void *ctx) {
  Blocks *b = ctx;
  slot_blocks(b, slot_of(b->w, (Id)ex(m, read)->integer), &m->arg.at[ex(m, read)->arg],
              ex(m, read)->narg);
}

static bool assign_goes(const Ways *w, Assign a) {
  for (uint32_t k = 0; k < w->z->m->axis.n; k++) {
    Assign b = w->it->done[k].choice.assign;
    if (w->z->solved[k] && b.kind == a.kind && b.kind == ASSIGN_INDEX && b.index == a.index &&
        !shard_nest(w->z->m, w->s->index[a.index].extent, w->z->axis, a.block, k, b.block))
      return false;
  }
  return true;
}

static void way_by(Ways *w, Assign a) {
  Wanted q = {.w = w, .a = a};
  Shard made;
  if (!assign_goes(w, a) || !shard_makes(&w->ask, a, &made, NULL)) return;
  comp_reads(w->z->m, w->f, w->s, want_read, &q);
  if (!q.bad) add_choice(w, &q, made, 0);
}

static void ways_by_index(Ways *w, int asked) {
  const Stmt *s = w->s;
  for (uint32_t i = 0; i < s->nindex; i++) {
    if (asked >= 0 && (int)i != asked) continue;
    Id class = class_of_index(&w->z->class, w->body->fn, w->it->stmt, i);
    if (!shard_allowed(w->z, class, s->index[i].extent)) continue;
    Blocks b = {.w = w, .index = i};
    int64_t within = 0;
    if (w->z->outer != NONE && !inner_index(w, i, &within)) continue;
    if (within) {
      way_by(w, (Assign){ASSIGN_INDEX, (uint8_t)i, within});
      continue;
    }
    plain_blocks(w->z, class, s->index[i].extent, b.block, &b.n);
    ex_reads(w->z->m, s->body, read_blocks, &b);
    slot_blocks(&b, slot_of(w, s->lhs), s->sub, w->f->value.at[s->lhs].rank);
    for (uint32_t k = 0; k < b.n; k++) way_by(w, (Assign){ASSIGN_INDEX, (uint8_t)i, b.block[k]});
  }
}

// Blocks for dimension d of a slot that is read or written by what is no index.
static uint32_t dim_blocks(const Ways *w, Id value, uint32_t d, int64_t *block) {
  const Slot *s = slot_of(w, value);
  uint32_t n = 0;
  int64_t extent = s->of.extent[d];
  Id class = class_of_dim(&w->z->class, w->body->fn, value, d);
  if (!shard_allowed(w->z, class, extent)) return 0;
  if (w->z->outer != NONE) {
    add_block(w->z, block, &n, extent, inner_dim_block(w, value, d));
    return n;
  }
  plain_blocks(w->z, class, extent, block, &n);
  for (uint32_t i = 0; i < s->ntype; i++)
    if (s->type[i].kind == SHARD_SPLIT && s->type[i].dim == d)
      add_block(w->z, block, &n, extent, s->type[i].block);
  return n;
}

static void ways_by_write(Ways *w) {
  int64_t block[MAX_BLOCKS];
  for (uint32_t d = 0; w->s->acc && d < w->f->value.at[w->s->lhs].rank; d++) {
    uint32_t n = dim_blocks(w, w->s->lhs, d, block);
    for (uint32_t i = 0; i < n; i++) way_by(w, (Assign){ASSIGN_WRITE, (uint8_t)d, block[i]});
  }
}

// ---- nothing assigned

// Dimensions of a value along which every read of it could be guarded.
typedef struct Guards {
  Ways *w;
  Id value;
  uint32_t dims; // bit set
} Guards;

static void guard_read(const Module *m, Id read, void *ctx) {
  Guards *g = ctx;
  if ((Id)ex(m, read)->integer != g->value) return;
  for (uint32_t d = 0; d < ex(m, read)->narg; d++) {
    g->w->type[g->value] = shard_split(d, 1);
    if (!shard_guarded(&g->w->ask, read)) g->dims &= ~(1u << d);
  }
}

typedef struct Option {
  Id value;
  Shard type[MAX_OPTIONS];
  uint32_t n, at;
} Option;

static void guarded_options(Ways *w, Option *o) {
  Guards g = {w, o->value, (1u << w->f->value.at[o->value].rank) - 1};
  int64_t block[MAX_BLOCKS];
  comp_reads(w->z->m, w->f, w->s, guard_read, &g);
  for (uint32_t d = 0; d < w->f->value.at[o->value].rank; d++) {
    if (!(g.dims >> d & 1)) continue;
    uint32_t n = dim_blocks(w, o->value, d, block);
    for (uint32_t i = 0; i < n && o->n < MAX_OPTIONS; i++)
      o->type[o->n++] = shard_split(d, block[i]);
    w->z->cut |= n && o->n == MAX_OPTIONS;
  }
}

typedef struct Options {
  Ways *w;
  Option at[32];
  uint32_t n;
} Options;

static void add_option(Id value, void *ctx) {
  Options *q = ctx;
  for (uint32_t i = 0; i < q->n; i++)
    if (q->at[i].value == value) return;
  if (q->n == 32) return;
  Option *o = &q->at[q->n++];
  const Slot *s = slot_of(q->w, value);
  *o = (Option){.value = value, .type = {shard_whole()}, .n = 1};
  for (uint32_t i = 0; i < s->ntype; i++)
    if (s->type[i].kind == SHARD_PARTIAL && s->type[i].op == RED_SUM) o->type[o->n++] = s->type[i];
  if (!s->whole) guarded_options(q->w, o);
}

typedef struct Goes {
  Ways *w;
  bool ok;
} Goes;

static void check_read(const Module *m, Id read, void *ctx) {
  Goes *g = ctx;
  g->ok = g->ok && read_goes(g->w, read, g->w->type[ex(m, read)->integer]);
}

static void way_by_types(Ways *w, const Options *o) {
  Wanted q = {.w = w};
  Shard made;
  uint32_t masks;
  Goes g = {w, true};
  for (uint32_t i = 0; i < o->n; i++) {
    w->type[o->at[i].value] = o->at[i].type[o->at[i].at];
    want(&q, w->body->slot[o->at[i].value], w->type[o->at[i].value]);
  }
  if (q.bad || !shard_result(&w->ask, q.a, &made, NULL)) return;
  ex_reads(w->z->m, w->s->body, check_read, &g);
  if (!g.ok) return;
  shard_mask(w->z->m, &w->ask, false, NONE, &masks);
  add_choice(w, &q, made, masks);
}

static void ways_by_none(Ways *w, bool whole) {
  Options o = {.w = w};
  stmt_reads(w->z->m, w->f, w->s, add_option, &o);
  for (uint32_t i = 0; whole && i < o.n; i++) o.at[i].n = 1;
  for (uint32_t tried = 0; tried < w->z->m->limits.search_ways; tried++) {
    way_by_types(w, &o);
    uint32_t i = 0;
    while (i < o.n && ++o.at[i].at == o.at[i].n) o.at[i++].at = 0;
    if (i == o.n) return;
  }
  w->z->cut = true;
}

static void comp_choices(Ways *w) {
  int asked = shard_asked(w->z, w->body->fn, w->it->stmt);
  if (asked != ASKED_WHOLE) ways_by_index(w, asked);
  if (asked == ASKED_NOTHING) ways_by_write(w);
  if (asked < 0) ways_by_none(w, asked == ASKED_WHOLE);
}

// ---- intrinsics

// The index of a statement that is of the class: -1 none, -2 several.
static int index_of_class(const Sharder *z, Id fn, uint32_t stmt, Id class) {
  const Stmt *s = &z->m->fn.at[fn].stmt.at[stmt];
  int found = -1;
  for (uint32_t i = 0; i < s->nindex; i++)
    if (local_class_of_index(&z->class, fn, stmt, i) == class && s->index[i].extent > 1)
      found = found == -1 ? (int)i : -2;
  return found;
}

static bool intrinsic_args(const Sharder *z, Id fn, Id class, int64_t block, Shard *type) {
  const Fn *g = &z->m->fn.at[fn];
  for (Id v = 0; v < g->value.n; v++) {
    type[v] = shard_whole();
    if (g->value.at[v].role != ROLE_IN) continue;
    for (uint32_t d = 0; d < g->value.at[v].rank; d++) {
      if (local_class_of_dim(&z->class, fn, v, d) != class || g->value.at[v].extent[d] < 2)
        continue;
      if (type[v].kind == SHARD_SPLIT || !shard_deals(g->value.at[v].extent[d], block, z->n))
        return false;
      type[v] = shard_split(d, block);
    }
  }
  return true;
}

bool intrinsic_types(const Sharder *z, Id fn, Id class, int64_t block, Shard *type,
                     Assign *assign) {
  const Fn *g = &z->m->fn.at[fn];
  bool *added = NEWN(z->m->arena, bool, g->value.n + 1);
  if (!intrinsic_args(z, fn, class, block, type)) return false;
  for (uint32_t i = 0; i < g->stmt.n; i++) {
    const Stmt *s = &g->stmt.at[i];
    int index = index_of_class(z, fn, i, class);
    ShardAsk q = {z->m, g, s, z->axis, type};
    Assign a = {.kind = ASSIGN_NONE};
    Shard made;
    if (index == -2 || s->kind != ST_COMP) return false;
    if (index >= 0) a = (Assign){ASSIGN_INDEX, (uint8_t)index, block};
    if (!shard_result(&q, a, &made, NULL)) return false;
    if (added[s->lhs] && !shard_same(type[s->lhs], made)) return false;
    added[s->lhs] = s->acc;
    type[s->lhs] = made;
    if (assign) assign[i] = a;
  }
  return true;
}

static void add_call_choice(Ways *w, Id class, int64_t block, const Shard *type) {
  Arena *arena = w->z->m->arena;
  const Call *call = w->s->call;
  const Fn *g = &w->z->m->fn.at[call->fn];
  Wanted q = {.w = w};
  Choice c = {.nout = w->it->to.n, .class = class, .assign = {.block = block}};
  c.out = NEWN(arena, Need, c.nout + 1);
  uint32_t k = call->nresult;
  for (uint32_t i = 0; i < call->nresult + call->narg; i++) {
    bool result = i < call->nresult;
    Id formal = result ? g->result.at[i] : g->arg.at[i - call->nresult];
    if (!result && g->value.at[formal].role == ROLE_IN) {
      want(&q, w->body->slot[call->arg[i - call->nresult].value], type[formal]);
      continue;
    }
    uint32_t at = result ? i : k++;
    Id slot = w->it->to.at[at].slot;
    c.out[at] = (Need){slot, slot == NONE ? 0 : slot_type(&w->l->slot.at[slot], type[formal])};
    if (slot != NONE && (c.out[at].type == MAX_TYPES || !out_goes(w, at, type[formal]))) return;
  }
  if (q.bad) return;
  c.nneed = q.n;
  c.need = arena_copy(arena, q.need, q.n * sizeof(Need));
  c.cost = call_cost(w->z, w->l, w->it, &c);
  PUSH(arena, w->it->choice, c);
}

// Whether a class of the callee is for the inner factor, and in which block; 0: any.
static bool inner_class(const Ways *w, Id value, uint32_t dim, Id class, int64_t *block) {
  const Choice *o = &outer_of(w)->choice;
  const Classes *c = &w->z->class;
  Id fn = w->s->call->fn;
  const Fn *g = &w->z->m->fn.at[fn];
  *block = 0;
  if (o->class == NONE) return false;
  if (o->class == class) return (*block = inner_block(w, o->assign.block)) > 0;
  for (uint32_t i = 0; i < g->arg.n; i++)
    for (uint32_t d = 0; d < g->value.at[g->arg.at[i]].rank; d++)
      if (local_class_of_dim(c, fn, g->arg.at[i], d) == o->class &&
          factor_heads(w->z, class_of_dim(c, fn, g->arg.at[i], d), class_of_dim(c, fn, value, dim)))
        return true;
  return false;
}

static void call_class(Ways *w, Id value, uint32_t dim, Id class) {
  Id fn = w->s->call->fn;
  const Fn *g = &w->z->m->fn.at[fn];
  Shard *type = NEWN(w->z->m->arena, Shard, g->value.n + 1);
  int64_t block[MAX_BLOCKS], extent = g->value.at[value].extent[dim];
  int64_t within = 0;
  uint32_t n = 0;
  if (w->z->outer != NONE && !inner_class(w, value, dim, class, &within)) return;
  if (within) add_block(w->z, block, &n, extent, within);
  else plain_blocks(w->z, class_of_dim(&w->z->class, fn, value, dim), extent, block, &n);
  for (uint32_t i = 0; i < n; i++) {
    bool goes = true;
    for (uint32_t a = 0; a < w->z->m->axis.n; a++)
      if (w->z->solved[a] && w->it->done[a].choice.class == class)
        goes &= shard_nest(w->z->m, extent, w->z->axis, block[i], a,
                           w->it->done[a].choice.assign.block);
    if (!goes || !intrinsic_types(w->z, fn, class, block[i], type, NULL)) continue;
    ring_types(w->z, fn, type);
    add_call_choice(w, class, block[i], type);
  }
}

bool class_is_heads(const Sharder *z, Id fn, Id class) {
  const Fn *g = &z->m->fn.at[fn];
  for (uint32_t d = 0; d < g->value.at[g->arg.at[0]].rank; d++)
    if (intrinsic_is_heads(g, d) && local_class_of_dim(&z->class, fn, g->arg.at[0], d) == class)
      return true;
  return false;
}

// Whether it is the class of features of keys or values that a ring hands round: a rank's part of
// the sum has them all.
static bool ring_features(const Sharder *z, Id fn, Id class) {
  const Fn *g = &z->m->fn.at[fn];
  for (uint32_t a = 0; a < z->m->axis.n; a++)
    for (uint32_t i = OPD_K; ring_fits(z->m, g, a) && i <= OPD_V; i++)
      if (local_class_of_dim(&z->class, fn, g->arg.at[i], 3) == class) return true;
  return false;
}

// Where heads are to be exchanged for the sequence, they are on a context axis, dealt out evenly.
static bool call_allowed(const Sharder *z, Id fn, Id value, uint32_t dim) {
  if (ring_features(z, fn, local_class_of_dim(&z->class, fn, value, dim))) return false;
  int64_t extent = z->m->fn.at[fn].value.at[value].extent[dim];
  if (!z->heads) return shard_allowed(z, class_of_dim(&z->class, fn, value, dim), extent);
  return extent > 1 && extent % z->n == 0 &&
         class_is_heads(z, fn, local_class_of_dim(&z->class, fn, value, dim));
}

static void call_choices(Ways *w) {
  Id fn = w->s->call->fn, seen[MAX_RANK * 16];
  const Fn *g = &w->z->m->fn.at[fn];
  uint32_t nseen = 0;
  add_call_choice(w, NONE, 1, NEWN(w->z->m->arena, Shard, g->value.n + 1));
  for (uint32_t i = 0; i < g->arg.n && i < 16; i++) {
    Id v = g->arg.at[i];
    for (uint32_t d = 0; d < g->value.at[v].rank; d++) {
      Id class = local_class_of_dim(&w->z->class, fn, v, d);
      bool old = !call_allowed(w->z, fn, v, d);
      for (uint32_t k = 0; k < nseen; k++) old |= seen[k] == class;
      if (old) continue;
      seen[nseen++] = class;
      call_class(w, v, d, class);
    }
  }
}

// ---- levels

static uint32_t count_types(const Level *l) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < l->slot.n; i++) n += l->slot.at[i].ntype;
  return n;
}

// A parameter and its gradient may take the same types.
static void share_types(Level *l) {
  for (uint32_t i = 0; i < l->slot.n; i++) {
    Slot *s = &l->slot.at[i];
    if (s->partner == NONE) continue;
    Slot *p = &l->slot.at[s->partner];
    for (uint32_t k = 0; k < s->ntype; k++)
      if (s->type[k].kind == SHARD_SPLIT) slot_type(p, s->type[k]);
    for (uint32_t k = 0; k < p->ntype; k++) slot_type(s, p->type[k]);
  }
}

static uint32_t types_of(const Level *l, const Item *it) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < it->in.n; i++) n += l->slot.at[it->in.at[i]].ntype;
  for (uint32_t i = 0; i < it->to.n; i++)
    if (it->to.at[i].slot != NONE) n += l->slot.at[it->to.at[i].slot].ntype;
  return n;
}

static void item_choices(Sharder *z, Level *l, Item *it) {
  const Body *body = &l->body.at[it->body];
  const Fn *f = &z->m->fn.at[body->fn];
  Ways w = {.z = z, .l = l, .it = it, .f = f, .body = body};
  if (it->kind != ITEM_COMP && it->kind != ITEM_CALL) return;
  uint32_t types = types_of(l, it);
  if (it->choice.n && types == it->types) return;
  it->types = types;
  w.s = &f->stmt.at[it->stmt];
  w.type = NEWN(z->m->arena, Shard, f->value.n + 1);
  w.ask = (ShardAsk){z->m, f, w.s, z->axis, w.type};
  it->choice.n = 0;
  if (it->kind == ITEM_COMP) comp_choices(&w);
  else call_choices(&w);
}

static Shard stacked(Shard t) {
  if (t.kind == SHARD_SPLIT) t.dim++;
  return t;
}

// The dimension of a variable that runs over the sequence; MAX_RANK: none.
static uint32_t sequence_dim(const Sharder *z, const Level *l, const Var *v) {
  const Body *body = &l->body.at[v->repeat];
  for (Id i = 0; i < z->m->fn.at[body->fn].value.n; i++)
    for (uint32_t d = 0; body->slot[i] == v->slot && d < l->slot.at[v->slot].of.rank; d++)
      if (z->class.sequence[class_of_dim(&z->class, body->fn, i, d)]) return d;
  return MAX_RANK;
}

// Carried values of a stack are whole on a model axis, or cut along the sequence where that is asked for.
// (A cut along its features saves a reduction once, and doubles their number in every layer.) What
// all its layers read, but for parameters, is whole or cut along the sequence, and what they add to
// is that or partial.
static bool candidate(const Sharder *z, const Level *l, const Var *v, Shard t) {
  const Slot *outer = &l->around->slot.at[v->outer];
  bool along = t.kind == SHARD_SPLIT && t.dim == sequence_dim(z, l, v);
  if (t.kind == SHARD_PARTIAL) return v->kind == VAR_ACC && t.op == RED_SUM;
  if (v->kind == VAR_IN && outer->whole) return t.kind == SHARD_WHOLE;
  if (outer->still || outer->param != NONE || v->kind == VAR_OUT) return true;
  if (v->kind != VAR_CARRY || z->context) return t.kind == SHARD_WHOLE || along;
  return z->sequence && sequence_dim(z, l, v) < MAX_RANK ? along : t.kind == SHARD_WHOLE;
}

static void var_types(Sharder *z, Level *l) {
  for (uint32_t i = 0; i < l->var.n; i++) {
    Var *v = &l->var.at[i];
    Slot *s = &l->slot.at[v->slot];
    v->type.n = 0;
    if (v->kind == VAR_CARRY) {
      Slot *end = &l->slot.at[v->last];
      for (uint32_t k = 0; k < end->ntype; k++)
        if (end->type[k].kind != SHARD_PARTIAL) slot_type(s, end->type[k]);
      for (uint32_t k = 0; k < s->ntype; k++) slot_type(end, s->type[k]);
    }
    for (uint32_t k = 0; k < s->ntype; k++) {
      Shard t = s->type[k], o = v->slice ? stacked(t) : t;
      bool ok = candidate(z, l, v, t);
      for (uint32_t a = 0; a < z->m->axis.n; a++)
        ok &= !z->solved[a] || goes_with(z, &s->of, t, s->fixed[a], a);
      ok = ok && slot_type(&l->around->slot.at[v->outer], o) != MAX_TYPES;
      ok = ok && (v->kind != VAR_CARRY || slot_type(&l->around->slot.at[v->outer_last], o) != MAX_TYPES);
      if (!ok) continue;
      PUSH(z->m->arena, v->type, t);
    }
  }
}

void level_choices(Sharder *z, Level *l) {
  for (uint32_t i = 0; i < l->slot.n; i++) {
    Slot *s = &l->slot.at[i];
    s->ntype = 0;
    slot_type(s, shard_whole());
    if (s->is_fixed[z->axis]) slot_type(s, s->fixed[z->axis]);
    if (s->grad) slot_type(s, shard_partial(RED_SUM));
  }
  for (uint32_t i = 0; i < l->cluster.n; i++) level_choices(z, l->cluster.at[i].in);
  for (uint32_t i = 0; i < l->cluster.n; i++) var_types(z, l->cluster.at[i].in);
  for (uint32_t i = 0; i < l->item.n; i++) l->item.at[i].choice.n = 0;
  for (uint32_t round = 0, before = 0; round < MAX_ROUNDS && before != count_types(l); round++) {
    before = count_types(l);
    for (uint32_t i = 0; i < l->item.n; i++) item_choices(z, l, &l->item.at[i]);
    share_types(l);
    z->cut |= round + 1 == MAX_ROUNDS && before != count_types(l);
  }
  for (uint32_t i = 0; i < l->slot.n; i++) z->cut |= l->slot.at[i].ntype == MAX_TYPES;
}
