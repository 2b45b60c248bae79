// Writes an entry in form A by the decisions of its levels: a type for every value, an assignment
// for every comprehension, conversions before what needs them, functions cloned as their types ask.
#include "ir/text/text.h"
#include "passes/shard/shard.h"

// A value of the function being written that holds a slot in some layout.
typedef struct Version {
  Shard shard[MAX_AXIS];
  Id value;
} Version;
typedef VEC(Version) Versions;

// What one body hands to later ones through a stack: in which layout, and in which others beside.
enum { EXTRAS = 3 };
typedef struct Extra {
  Shard shard[MAX_AXIS];
  Id inner, outer; // the value of the body that makes it; the stack, of the caller
} Extra;
typedef struct Kept {
  bool set;
  Shard shard[MAX_AXIS];
  uint32_t nextra;
  Extra extra[EXTRAS];
} Kept;

typedef struct Emit {
  Sharder *z;
  Level *l;
  uint32_t body;
  Id fn; // being written; has the values of the body's function, and more
  Versions *version; // for each slot of l
  Kept *kept, **inside; // for each slot of l; for each cluster, for each slot of its level
  VEC(Stmt) stmt;
  const Item *it;
} Emit;

static Fn *fn_of(const Emit *e) { return &e->z->m->fn.at[e->fn]; }
static uint32_t naxis(const Emit *e) { return e->z->m->axis.n; }
static Value *value_of(const Emit *e, Id v) { return &fn_of(e)->value.at[v]; }
static Id slot_of(const Emit *e, Id v) { return e->l->body.at[e->body].slot[v]; }

static void set_axis(Sharder *z, uint32_t a) {
  z->axis = a;
  z->n = z->m->axis.at[a].size;
}

static bool same(const Emit *e, const Shard *a, const Shard *b) {
  for (uint32_t i = 0; i < naxis(e); i++)
    if (!shard_same(a[i], b[i])) return false;
  return true;
}

static void add_version(Emit *e, Id slot, Id value) {
  Version v = {.value = value};
  memcpy(v.shard, value_of(e, value)->shard, sizeof v.shard);
  for (uint32_t i = 0; i < e->version[slot].n; i++)
    if (e->version[slot].at[i].value == value) return;
  PUSH(e->z->m->arena, e->version[slot], v);
}

// ---- conversions

// Of one layout to another, over all axes; INT64_MAX where one of them can't be.
static int64_t distance(const Emit *e, Id slot, const Shard *from, const Shard *to) {
  int64_t sum = 0;
  for (uint32_t a = 0; a < naxis(e); a++) {
    Cost c;
    set_axis(e->z, a);
    if (!convert_cost(e->z, &e->l->slot.at[slot], from[a], to[a], &c)) return INT64_MAX;
    sum += e->z->m->limits.byte_traffic * c.at[COST_COMM] + c.at[e->z->traffic];
  }
  return sum;
}

static const char *suffix(Shard from, Shard to) {
  if (to.kind == SHARD_SPLIT) return "split";
  return to.kind == SHARD_PARTIAL ? "part" : from.kind == SHARD_SPLIT ? "whole" : red_name[from.op];
}

static Id convert(Emit *e, Id from, uint32_t axis, Shard to) {
  Module *m = e->z->m;
  Value v = *value_of(e, from);
  Str name = str_printf("%s.%s", v.name, suffix(v.shard[axis], to));
  Id id = fn_value(m, fn_of(e), name, v.type, v.extent, v.rank, ROLE_LOCAL, v.loc);
  memcpy(value_of(e, id)->shard, v.shard, sizeof v.shard);
  value_of(e, id)->shard[axis] = to;
  Stmt s = {.kind = ST_CONVERT, .lhs = id, .from = from, .loc = v.loc};
  PUSH(m->arena, e->stmt, s);
  return id;
}

// to[i, j, ...] = from[i, j, ...], of another type of number: each rank its share.
static Id cast(Emit *e, Id from, Dtype type) {
  Module *m = e->z->m;
  Value v = *value_of(e, from);
  Index index[MAX_RANK];
  Str name = str_printf("%s.%s", v.name, dtype_name[type]);
  Id sub[MAX_RANK], to = fn_value(m, fn_of(e), name, type, v.extent, v.rank, ROLE_LOCAL, v.loc);
  memcpy(value_of(e, to)->shard, v.shard, sizeof v.shard);
  bare_indices(&v, index);
  for (uint32_t d = 0; d < v.rank; d++) sub[d] = ex_index(m, d);
  Stmt s = {.kind = ST_COMP, .nfree = v.rank, .nindex = v.rank, .lhs = to, .loc = v.loc};
  s.index = arena_copy(m->arena, index, v.rank * sizeof(Index));
  s.sub = arena_copy(m->arena, sub, v.rank * sizeof(Id));
  s.body = ex_read(m, fn_of(e), from, sub);
  for (uint32_t a = 0; a < naxis(e); a++)
    if (v.shard[a].kind == SHARD_SPLIT) s.assign[a] = (Assign){ASSIGN_INDEX, v.shard[a].dim, v.shard[a].block};
  PUSH(m->arena, e->stmt, s);
  return to;
}

// The same of a slot, whose parts may be sent in 16 bits.
static Id convert_slot(Emit *e, Id slot, Id from, uint32_t axis, Shard to) {
  bool halved = e->l->slot.at[slot].halved && value_of(e, from)->shard[axis].kind == SHARD_PARTIAL;
  if (!halved) return convert(e, from, axis, to);
  return cast(e, convert(e, cast(e, from, e->z->m->store), axis, to), DT_F32);
}

// The conversion that comes next on the way: what makes the value smaller first, and never blocks
// that do not nest. Where all would, an axis that is to be cut anew becomes whole first.
static Shard next_step(const Emit *e, Id value, const Shard *to, uint32_t *axis) {
  Shard next = shard_whole();
  int rank = 0;
  for (int whole = 0; whole < 2 && !rank; whole++)
    for (uint32_t a = 0; a < naxis(e); a++) {
      Value v = *value_of(e, value);
      if (shard_same(v.shard[a], to[a])) continue;
      int r = to[a].kind == SHARD_SPLIT ? 3 : v.shard[a].kind == SHARD_PARTIAL ? 2 : 1;
      v.shard[a] = whole ? shard_whole() : to[a];
      if (r <= rank || !shard_value_ok(e->z->m, &v, NULL)) continue;
      next = v.shard[a];
      *axis = a;
      rank = r;
    }
  CHECK(rank);
  return next;
}

// The value that holds the slot so, made where there is none.
static Id reach(Emit *e, Id slot, const Shard *to) {
  const Version *best = NULL;
  int64_t least = INT64_MAX;
  for (uint32_t i = 0; i < e->version[slot].n; i++) {
    const Version *v = &e->version[slot].at[i];
    int64_t d = same(e, v->shard, to) ? -1 : distance(e, slot, v->shard, to);
    if (d >= least) continue;
    best = v;
    least = d;
  }
  if (!best) BUG("nothing leads to the type of `%s`", e->l->slot.at[slot].of.name);
  Id value = best->value;
  while (!same(e, value_of(e, value)->shard, to)) {
    uint32_t a = 0;
    Shard next = next_step(e, value, to, &a);
    value = convert_slot(e, slot, value, a, next);
    add_version(e, slot, value);
  }
  return value;
}

// As reach, by way of WHOLE on the axes where the plan says so.
static Id need(Emit *e, Id slot, const Shard *to) {
  Shard first[MAX_AXIS];
  bool via = false;
  memcpy(first, to, sizeof first);
  for (uint32_t a = 0; a < naxis(e); a++) {
    if (!e->l->slot.at[slot].via[a] || to[a].kind != SHARD_SPLIT) continue;
    for (uint32_t i = 0; i < e->version[slot].n; i++) // unless it is there so already
      via |= !shard_same(e->version[slot].at[i].shard[a], to[a]);
    first[a] = shard_whole();
  }
  for (uint32_t i = 0; i < e->version[slot].n; i++)
    if (same(e, e->version[slot].at[i].shard, to)) via = false;
  if (via) reach(e, slot, first);
  return reach(e, slot, to);
}

// ---- comprehensions

static void read_type(const Emit *e, const Stmt *s, Id read, Shard *type) {
  Id slot = slot_of(e, (Id)ex(e->z->m, read)->integer);
  for (uint32_t a = 0; a < naxis(e); a++) {
    const Decision *d = &e->it->done[a];
    ShardAsk q = {e->z->m, fn_of(e), s, a, NULL};
    type[a] = shard_whole();
    if (d->choice.assign.kind == ASSIGN_INDEX)
      CHECK(shard_need(&q, read, d->choice.assign, &type[a]));
    for (uint32_t k = 0; d->choice.assign.kind == ASSIGN_NONE && k < d->choice.nneed; k++)
      if (d->choice.need[k].slot == slot) type[a] = d->need[k];
  }
}

typedef struct Reader {
  Emit *e;
  const Stmt *s;
} Reader;

static Id map_read(Module *m, Id x, void *ctx) {
  Reader *r = ctx;
  if (!ex_is(m, x, OP_READ)) return x;
  Shard type[MAX_AXIS];
  Id sub[MAX_RANK], slot = slot_of(r->e, (Id)ex(m, x)->integer);
  read_type(r->e, r->s, x, type);
  Id value = need(r->e, slot, type);
  for (uint32_t d = 0; d < ex(m, x)->narg; d++) sub[d] = ex_arg(m, x, d);
  return ex_read(m, fn_of(r->e), value, sub);
}

// acc[i, j, ...] += from[i, j, ...], each rank its share.
static void add_whole(Emit *e, Id acc, Id from, Id loc) {
  Module *m = e->z->m;
  const Value v = *value_of(e, acc);
  Index index[MAX_RANK];
  Id sub[MAX_RANK];
  bare_indices(&v, index);
  for (uint32_t d = 0; d < v.rank; d++) sub[d] = ex_index(m, d);
  Stmt s = {
      .kind = ST_COMP, .acc = true, .nfree = v.rank, .nindex = v.rank, .lhs = acc, .loc = loc};
  s.index = arena_copy(m->arena, index, v.rank * sizeof(Index));
  s.sub = arena_copy(m->arena, sub, v.rank * sizeof(Id));
  s.body = ex_read(m, fn_of(e), from, sub);
  for (uint32_t a = 0; a < naxis(e); a++) {
    Shard t = value_of(e, from)->shard[a]; // where the accumulator is partial, it may be split
    if (t.kind == SHARD_SPLIT) s.assign[a] = (Assign){ASSIGN_INDEX, t.dim, t.block};
  }
  PUSH(m->arena, e->stmt, s);
}

// A term of another type than its accumulator is made apart, converted, then added.
static void emit_apart(Emit *e, Stmt s, const Shard *made, const Shard *to) {
  Module *m = e->z->m;
  const Value v = *value_of(e, s.lhs);
  Id acc = s.lhs;
  s.lhs = fn_value(m, fn_of(e), str_printf("%s.term", v.name), v.type, v.extent, v.rank, ROLE_LOCAL,
                   s.loc);
  memcpy(value_of(e, s.lhs)->shard, made, sizeof v.shard);
  PUSH(m->arena, e->stmt, s);
  Id term = s.lhs;
  for (uint32_t a = 0; a < naxis(e); a++)
    if (!shard_added(s.assign[a], made[a], to[a]))
      term = convert(e, term, a, to[a]);
  add_whole(e, acc, term, s.loc);
}

static void emit_comp(Emit *e, const Stmt *old) {
  Module *m = e->z->m;
  Stmt s = stmt_copy(m, fn_of(e), old);
  Reader r = {e, old};
  Shard made[MAX_AXIS], to[MAX_AXIS];
  bool apart = false;
  s.body = ex_map(m, s.body, map_read, &r);
  for (uint32_t d = 0; d < value_of(e, s.lhs)->rank; d++)
    s.sub[d] = ex_map(m, s.sub[d], map_read, &r);
  memset(made, 0, sizeof made);
  memset(to, 0, sizeof to);
  for (uint32_t a = 0; a < naxis(e); a++) {
    const Decision *d = &e->it->done[a];
    s.assign[a] = d->choice.assign;
    made[a] = d->out[0];
    to[a] = s.acc ? d->target : made[a];
    apart |= !shard_added(s.assign[a], made[a], to[a]);
  }
  memcpy(value_of(e, s.lhs)->shard, to, sizeof to);
  if (apart) emit_apart(e, s, made, to);
  else PUSH(m->arena, e->stmt, s);
  add_version(e, slot_of(e, old->lhs), old->lhs);
}

// ---- functions that are called

// The function itself, or an older one that is the same but for its name.
static Id shared_fn(Module *m, Id fn, Id original) {
  Buf mine = {0}, other = {0};
  Str name = m->fn.at[fn].name;
  Id found = fn;
  m->fn.at[fn].name = str_intern("f");
  ir_print_fn(m, &m->fn.at[fn], &mine);
  for (Id k = 0; k < fn && found == fn; k++) {
    Str old = m->fn.at[k].name;
    size_t n = strlen(m->fn.at[original].name);
    if (k == original || strncmp(old, m->fn.at[original].name, n)) continue;
    m->fn.at[k].name = str_intern("f");
    other.n = 0;
    ir_print_fn(m, &m->fn.at[k], &other);
    m->fn.at[k].name = old;
    if (mine.n == other.n && !memcmp(mine.text, other.text, mine.n)) found = k;
  }
  m->fn.at[fn].name = name;
  buf_free(&mine);
  buf_free(&other);
  return found;
}

static Id emit_intrinsic(Emit *e, Id original) {
  Module *m = e->z->m;
  Id fn = fn_clone(m, original, m->fn.at[original].name);
  Fn *g = &m->fn.at[fn];
  Shard *type = NEWN(m->arena, Shard, g->value.n + 1);
  Assign *assign = NEWN(m->arena, Assign, g->stmt.n + 1);
  for (uint32_t a = 0; a < naxis(e); a++) {
    const Choice *c = &e->it->done[a].choice;
    if (c->class == NONE) continue;
    set_axis(e->z, a);
    CHECK(intrinsic_types(e->z, original, c->class, c->assign.block, type, assign));
    for (Id v = 0; v < g->value.n; v++) g->value.at[v].shard[a] = type[v];
    for (uint32_t i = 0; i < g->stmt.n; i++) g->stmt.at[i].assign[a] = assign[i];
  }
  ring_wrap(m, fn);
  return shared_fn(m, fn, original);
}

static void stacked(const Shard *from, bool slice, Shard *to) {
  memcpy(to, from, MAX_AXIS * sizeof *to);
  for (uint32_t a = 0; slice && a < MAX_AXIS; a++)
    if (to[a].kind == SHARD_SPLIT) to[a].dim++;
}

// What a call passes: for what is read, the value that has the formal's type; what is added to, and
// slices that belong to the callee alone, take that type.
static void emit_actual(Emit *e, Call *c, uint32_t i, const Value *formal) {
  Shard to[MAX_AXIS];
  Actual *a = &c->arg[i];
  if (a->mode == ACT_ITER) return;
  stacked(formal->shard, a->mode == ACT_SLICE, to);
  Id slot = slot_of(e, a->value);
  if (formal->role == ROLE_INOUT) {
    memcpy(value_of(e, a->value)->shard, to, sizeof to);
    add_version(e, slot, a->value);
  } else if (e->version[slot].n) {
    a->value = need(e, slot, to);
  } else {
    memcpy(value_of(e, a->value)->shard, to, sizeof to);
  }
}

static Id emit_body(Sharder *z, Level *l, uint32_t body, Kept *kept);
static bool body_reads(const Level *l, uint32_t body, Id slot);

// Passes on what bodies of the cluster keep beside: a stack for each, made by the first repeat.
static void pass_extras(Emit *e, Call *c) {
  Module *m = e->z->m;
  Level *in = e->l->cluster.at[e->it->cluster].in;
  for (Id slot = 0; slot < in->slot.n; slot++) {
    Kept *k = &e->inside[e->it->cluster][slot];
    for (uint32_t i = 0; i < k->nextra; i++) {
      Extra *x = &k->extra[i];
      if (x->outer != NONE) {
        if (body_reads(in, e->it->at, slot)) call_add_arg(m, c, ACT_SLICE, x->outer);
        continue;
      }
      const Value v = in->slot.at[slot].of;
      int64_t extent[MAX_RANK] = {c->count};
      memcpy(extent + 1, v.extent, v.rank * sizeof *extent);
      x->outer = fn_value(m, fn_of(e), str_printf("%s.also", v.name), v.type, extent, v.rank + 1,
                          ROLE_LOCAL, v.loc);
      stacked(x->shard, true, value_of(e, x->outer)->shard);
      call_add_result(m, c, RES_SLICE, x->outer);
    }
  }
}

static void emit_call(Emit *e, const Stmt *old) {
  Module *m = e->z->m;
  Stmt s = stmt_copy(m, fn_of(e), old);
  Call *c = s.call;
  if (e->it->kind == ITEM_CALL) {
    c->fn = emit_intrinsic(e, c->fn);
  } else {
    uint32_t k = e->it->cluster;
    Level *in = e->l->cluster.at[k].in;
    if (!e->inside[k]) e->inside[k] = NEWN(m->arena, Kept, in->slot.n + 1);
    c->fn = emit_body(e->z, in, e->it->at, e->inside[k]);
  }
  const Fn g = m->fn.at[c->fn];
  const uint32_t narg = c->narg, nresult = c->nresult;
  if (e->it->kind == ITEM_REPEAT) pass_extras(e, c);
  for (uint32_t i = 0; i < narg; i++) emit_actual(e, c, i, &g.value.at[g.arg.at[i]]);
  PUSH(m->arena, e->stmt, s);
  for (uint32_t i = 0; i < nresult; i++) {
    Id v = c->result[i].value;
    if (c->result[i].mode == RES_DROP) continue;
    stacked(g.value.at[g.result.at[i]].shard, c->result[i].mode == RES_SLICE,
            value_of(e, v)->shard);
    if (slot_of(e, v) != NONE && e->l->slot.at[slot_of(e, v)].first != NONE)
      add_version(e, slot_of(e, v), v);
  }
}

// ---- arguments and results of a body

static void type_args(Emit *e) {
  const Fn *f = fn_of(e);
  for (uint32_t i = 0; i < f->arg.n; i++) {
    Id v = f->arg.at[i], slot = slot_of(e, v);
    const Slot *s = &e->l->slot.at[slot];
    const Kept *kept = &e->kept[slot];
    bool handed = kept->set && s->var == NONE && s->param == NONE; // as an earlier body left it
    for (uint32_t a = 0; a < naxis(e); a++)
      if (handed) value_of(e, v)->shard[a] = kept->shard[a];
      else if (s->is_fixed[a]) value_of(e, v)->shard[a] = s->fixed[a];
    if (s->first != NONE) add_version(e, slot, v);
  }
}

// Whether the item reads the slot, and how, on axes where it says nothing as in `as`.
static bool item_needs(const Emit *e, const Item *it, Id slot, const Shard *as, Shard *to) {
  bool reads = false;
  memcpy(to, as, MAX_AXIS * sizeof *to);
  for (uint32_t a = 0; a < naxis(e); a++)
    for (uint32_t k = 0; k < it->done[a].choice.nneed; k++) {
      if (it->done[a].choice.need[k].slot != slot) continue;
      to[a] = it->done[a].need[k];
      reads = true;
    }
  return reads;
}

// How much converting later bodies have to do if they get the slot so.
static int64_t later_work(const Emit *e, Id slot, const Shard *as) {
  int64_t sum = 0;
  for (uint32_t i = 0; i < e->l->item.n; i++) {
    const Item *it = &e->l->item.at[i];
    Shard to[MAX_AXIS];
    if (it->body <= e->body || !item_needs(e, it, slot, as, to)) continue;
    int64_t d = distance(e, slot, as, to);
    if (d == INT64_MAX) return d;
    sum += d;
  }
  return sum;
}

static int64_t local_bytes(const Emit *e, Id slot, const Shard *as) {
  int64_t n = slot_bytes(&e->l->slot.at[slot]);
  for (uint32_t a = 0; a < naxis(e); a++)
    if (as[a].kind == SHARD_SPLIT) n /= e->z->m->axis.at[a].size;
  return n;
}

// The value that this one was gathered from, over axes that hold the sequence; itself where it was not.
static Id gathered_from(const Emit *e, Id value) {
  for (uint32_t i = e->stmt.n; i-- > 0;) {
    const Stmt *s = &e->stmt.at[i];
    if (s->kind != ST_CONVERT || s->lhs != value) continue;
    for (uint32_t a = 0; a < naxis(e); a++) {
      Shard from = value_of(e, s->from)->shard[a], to = value_of(e, value)->shard[a];
      if (shard_same(from, to)) continue;
      if (!e->z->m->axis.at[a].sequence || from.kind != SHARD_SPLIT || to.kind != SHARD_WHOLE)
        return value;
    }
    value = s->from;
  }
  return value;
}

// Also what else is at hand that would have to be exchanged to come by later.
static void keep_extras(Emit *e, Id slot, const Shard *kept) {
  Kept *k = &e->kept[slot];
  for (uint32_t i = 0; e->l->together && i < e->version[slot].n && k->nextra < EXTRAS; i++) {
    const Version *v = &e->version[slot].at[i];
    bool asked = false;
    for (uint32_t j = 0; j < e->l->item.n; j++) {
      Shard to[MAX_AXIS];
      if (e->l->item.at[j].body <= e->body || !item_needs(e, &e->l->item.at[j], slot, kept, to))
        continue;
      asked |= same(e, to, v->shard);
    }
    if (!asked || distance(e, slot, kept, v->shard) < 1024) continue; // nothing is sent
    if (gathered_from(e, v->value) != v->value) continue; // it is gathered again
    Extra x = {.inner = v->value, .outer = NONE};
    memcpy(x.shard, v->shard, sizeof x.shard);
    k->extra[k->nextra++] = x;
  }
}

static void keep_as(Emit *e, Id slot, const Shard *type) {
  if (e->kept[slot].set) return;
  e->kept[slot].set = true;
  memcpy(e->kept[slot].shard, type, sizeof e->kept[slot].shard);
  keep_extras(e, slot, e->kept[slot].shard);
}

// Of the layouts at hand, the one that suits what comes later best, then the smallest. A value that was
// gathered along the sequence is kept as the share that it was gathered from, and gathered again
// (Korthikanti et al., 2022, section 4.2.2): a rank would hold n times as much of every layer.
static Id keep_version(Emit *e, Id slot) {
  const Version *best = NULL;
  int64_t work = INT64_MAX;
  CHECK(e->version[slot].n);
  if (e->kept[slot].set) return reach(e, slot, e->kept[slot].shard);
  for (uint32_t i = 0; i < e->version[slot].n; i++) {
    const Version *v = &e->version[slot].at[i];
    int64_t w = later_work(e, slot, v->shard);
    if (best && (w > work || (w == work &&
                              local_bytes(e, slot, v->shard) >= local_bytes(e, slot, best->shard))))
      continue;
    best = v;
    work = w;
  }
  Id value = gathered_from(e, best->value);
  if (later_work(e, slot, value_of(e, value)->shard) == INT64_MAX) value = best->value;
  keep_as(e, slot, value_of(e, value)->shard);
  return value;
}

// A result that had to be converted takes the name and the meaning of what it was.
static void take_place(Emit *e, Id old, Id new) {
  Value *from = value_of(e, old), *to = value_of(e, new);
  if (old == new || from->role != ROLE_LOCAL) return;
  to->means = from->means;
  to->of = from->of;
  from->means = MEANS_NONE;
  from->of = 0;
  Str name = from->name;
  from->name = str_intern("");
  Str part = str_printf("%s.part", name);
  for (int i = 2; value_find(fn_of(e), part) != NONE; i++) part = str_printf("%s.part.%d", name, i);
  fn_rename(e->z->m, fn_of(e), old, part);
  fn_rename(e->z->m, fn_of(e), new, name);
}

// Results that the body did not have: the values that it keeps.
static void return_extras(Emit *e) {
  Fn *f = fn_of(e);
  for (Id slot = 0; slot < e->l->slot.n; slot++)
    for (uint32_t i = 0; i < e->kept[slot].nextra; i++) {
      const Extra *x = &e->kept[slot].extra[i];
      if (x->outer != NONE) continue;
      PUSH(e->z->m->arena, f->result, x->inner);
      if (f->alias.n) PUSH(e->z->m->arena, f->alias, NONE);
    }
}

static void emit_return(Emit *e) {
  const Module *m = e->z->m;
  Id callee = e->l->body.at[e->body].fn;
  for (uint32_t i = 0; i < m->fn.at[callee].result.n; i++) {
    Id v = m->fn.at[callee].result.at[i], slot = slot_of(e, v), to = v;
    Shard type[MAX_AXIS];
    bool asked = false;
    for (uint32_t a = 0; a < naxis(e); a++) {
      const Decision *d = &e->it->done[a];
      type[a] = shard_whole();
      for (uint32_t k = 0; k < d->choice.nneed; k++)
        if (d->choice.need[k].slot == slot) {
          type[a] = d->need[k];
          asked = true;
        }
    }
    if (asked) to = need(e, slot, type);
    else if (e->l->around && e->l->slot.at[slot].first != NONE) to = keep_version(e, slot);
    if (asked && e->l->around) keep_as(e, slot, type);
    fn_of(e)->result.at[i] = to;
    if (!e->l->around) take_place(e, v, to);
  }
  if (e->l->around) return_extras(e);
}

static bool body_reads(const Level *l, uint32_t body, Id slot) {
  for (uint32_t i = 0; i < l->item.n; i++)
    for (uint32_t k = 0; l->item.at[i].body == body && k < l->item.at[i].in.n; k++)
      if (l->item.at[i].in.at[k] == slot) return true;
  return false;
}

// Arguments that the body did not have: the values that an earlier body kept.
static void take_extras(Emit *e) {
  Module *m = e->z->m;
  for (Id slot = 0; slot < e->l->slot.n; slot++)
    for (uint32_t i = 0; i < e->kept[slot].nextra; i++) {
      const Extra *x = &e->kept[slot].extra[i];
      if (x->outer == NONE || !body_reads(e->l, e->body, slot)) continue;
      const Value v = e->l->slot.at[slot].of;
      Id id = fn_value(m, fn_of(e), str_printf("%s.also", v.name), v.type, v.extent, v.rank,
                       ROLE_IN, v.loc);
      memcpy(value_of(e, id)->shard, x->shard, sizeof x->shard);
      add_version(e, slot, id);
    }
}

static void emit_items(Emit *e, const Stmt *old) {
  for (uint32_t i = 0; i < e->l->item.n; i++) {
    e->it = &e->l->item.at[i];
    if (e->it->body != e->body) continue;
    if (e->it->kind == ITEM_COMP) emit_comp(e, &old[e->it->stmt]);
    else if (e->it->kind == ITEM_RETURN) emit_return(e);
    else emit_call(e, &old[e->it->stmt]);
  }
}

static Id emit_body(Sharder *z, Level *l, uint32_t body, Kept *kept) {
  Module *m = z->m;
  Id original = l->body.at[body].fn;
  Emit e = {.z = z, .l = l, .body = body, .kept = kept};
  e.fn = l->around ? fn_clone(m, original, m->fn.at[original].name) : original;
  e.version = NEWN(m->arena, Versions, l->slot.n + 1);
  // a cluster's bodies are written in several calls where it lies inside bodies itself
  if (!l->emitted) l->emitted = NEWN(m->arena, void *, l->cluster.n + 1);
  e.inside = (Kept **)l->emitted;
  type_args(&e);
  if (l->around) take_extras(&e);
  uint32_t n = m->fn.at[e.fn].stmt.n;
  emit_items(&e, arena_copy(m->arena, m->fn.at[e.fn].stmt.at, n * sizeof(Stmt)));
  Fn *f = fn_of(&e);
  f->stmt.at = e.stmt.at;
  f->stmt.n = e.stmt.n;
  f->stmt.cap = e.stmt.cap;
  return l->around ? shared_fn(m, e.fn, original) : e.fn;
}

void entry_emit(Sharder *z, Level *l) {
  emit_body(z, l, 0, NEWN(z->m->arena, Kept, l->slot.n + 1));
}
