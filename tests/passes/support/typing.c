#include "typing.h"

#include <stdlib.h>

#include "ir/shard.h"
#include "passes/util.h"

// The layouts in which a value is at hand, each a value of the function.
typedef VEC(Id) Versions;

typedef struct Typing {
  Module *m;
  Fn *f;
  Rng *rng;
  TypingCount *count;
  uint32_t nold;
  Versions *version; // of each value of the one-rank program
  bool *open; // an accumulator whose type is not chosen yet
} Typing;

static uint32_t draw(Rng *r, uint32_t n) { return (uint32_t)(rng_uniform(r) * n); }
static bool chance(Rng *r, double p) { return rng_uniform(r) < p; }

static bool same_all(const Module *m, const Shard *a, const Shard *b) {
  for (uint32_t i = 0; i < m->axis.n; i++)
    if (!shard_same(a[i], b[i])) return false;
  return true;
}

static bool fits(Typing *t, Id like, const Shard *shard) {
  Value v = t->f->value.at[like];
  memcpy(v.shard, shard, sizeof v.shard);
  return shard_value_ok(t->m, &v, NULL);
}

static Id new_value(Typing *t, Id like, const Shard *shard) {
  Value v = t->f->value.at[like];
  Id id = fn_value(t->m, t->f, v.name, v.type, v.extent, v.rank, ROLE_LOCAL, v.loc);
  memcpy(t->f->value.at[id].shard, shard, sizeof v.shard);
  return id;
}

// ---- conversions

// One axis further from `now` to `want`, by way of the whole where need be.
static bool next_layout(Typing *t, Id like, const Shard *now, const Shard *want, Shard *next) {
  uint32_t n = t->m->axis.n, first = draw(t->rng, n);
  for (int direct = 1; direct >= 0; direct--)
    for (uint32_t k = 0; k < n; k++) {
      uint32_t a = (first + k) % n;
      if (shard_same(now[a], want[a])) continue;
      Shard to = direct ? want[a] : shard_whole();
      if (!shard_convertible(now[a], to)) continue;
      memcpy(next, now, MAX_AXIS * sizeof *next);
      next[a] = to;
      if (fits(t, like, next)) return true;
    }
  return false;
}

static void add_version(Typing *t, Id old, Id v) { PUSH(t->m->arena, t->version[old], v); }

// The value in this layout, converted from another if need be; NONE where no way leads there.
static Id in_layout(Typing *t, Id old, const Shard *want) {
  Versions *all = &t->version[old];
  for (uint32_t i = 0; i < all->n; i++)
    if (same_all(t->m, t->f->value.at[all->at[i]].shard, want)) return all->at[i];
  if (!all->n || !fits(t, old, want)) return NONE;
  Id at = all->at[draw(t->rng, all->n)];
  Shard now[MAX_AXIS], next[MAX_AXIS];
  memcpy(now, t->f->value.at[at].shard, sizeof now);
  for (int steps = 0; !same_all(t->m, now, want); steps++) {
    if (steps > 8 || !next_layout(t, old, now, want, next)) return NONE;
    Id to = new_value(t, old, next);
    Stmt *s = fn_stmt(t->m, t->f, ST_CONVERT, 0);
    s->lhs = to;
    s->from = at;
    t->count->conversions++;
    add_version(t, old, at = to);
    memcpy(now, next, sizeof now);
  }
  return at;
}

// ---- statements

// A block that deals out an extent: usually the plain split's.
static int64_t draw_block(Typing *t, int64_t extent, int64_t n) {
  for (int64_t b = 1; chance(t->rng, 0.4) && b * n < extent; b++)
    if (extent % (b * n) == 0 && chance(t->rng, 0.5)) return b;
  return shard_block(extent, n);
}

static bool is_index(const Module *m, Id e) {
  return ex_is(m, e, OP_INDEX) || (ex_is(m, e, OP_GROUP) && ex_is(m, ex_arg(m, e, 0), OP_INDEX));
}

static Assign draw_assign(Typing *t, const Stmt *s, int64_t n) {
  Assign a = {0};
  uint32_t rank = t->f->value.at[s->lhs].rank,
           k = draw(t->rng, s->nindex + (s->acc ? rank : 0) + 1);
  if (k < s->nindex) {
    a = (Assign){ASSIGN_INDEX, (uint8_t)k, draw_block(t, s->index[k].extent, n)};
  } else if (k < s->nindex + (s->acc ? rank : 0)) {
    uint32_t d = k - s->nindex;
    if (!is_index(t->m, s->sub[d]))
      a = (Assign){ASSIGN_WRITE, (uint8_t)d, draw_block(t, t->f->value.at[s->lhs].extent[d], n)};
  }
  return a;
}

typedef struct Reads {
  VEC(Id) node;
  Module *m;
} Reads;

static void note_read(const Module *m, Id read, void *ctx) {
  Reads *r = ctx;
  (void)m;
  for (uint32_t i = 0; i < r->node.n; i++)
    if (r->node.at[i] == read) return;
  PUSH(r->m->arena, r->node, read);
}

// What a read gets on an axis with nothing assigned.
static Shard draw_read(Typing *t, Id read, int64_t n) {
  const Expr *x = ex(t->m, read);
  const Value *v = &t->f->value.at[x->integer];
  // A sum over ranks would hide the range of an int that is a subscript.
  if (x->type != SC_REAL || chance(t->rng, 0.5)) return shard_whole();
  for (uint32_t d = 0; d < x->narg; d++)
    if (!is_index(t->m, ex_arg(t->m, read, d)) && chance(t->rng, 0.7))
      return shard_split(d, draw_block(t, v->extent[d], n));
  return chance(t->rng, 0.5) ? shard_partial(RED_SUM) : shard_whole();
}

// The expression with each READ node of the list at its version.
typedef struct Renamed {
  const Reads *reads;
  const Id *version;
  Id *memo;
} Renamed;

static Id rename_reads(Module *m, const Fn *f, Id e, Renamed *r) {
  if (r->memo[e] != NONE) return r->memo[e];
  Expr x = *ex(m, e);
  Id arg[64] = {0}, to;
  for (uint32_t i = 0; i < x.narg; i++) arg[i] = rename_reads(m, f, ex_arg(m, e, i), r);
  if (x.op == OP_READ) {
    uint32_t k = 0;
    while (r->reads->node.at[k] != e) k++;
    to = ex_read(m, f, r->version[k], arg);
  } else {
    to = x.narg ? ex_like(m, e, x.integer, arg) : e;
  }
  return r->memo[e] = to;
}

// One statement being typed.
typedef struct Try {
  Stmt s; // reads renamed
  Shard result[MAX_AXIS];
  Assign assign[MAX_AXIS];
} Try;

static bool layouts_of_reads(Typing *t, const Stmt *s, const Reads *reads, bool plain, Id *version,
                             Assign *assign) {
  Shard *none = NEWN(t->m->arena, Shard, t->f->value.n + 1);
  for (uint32_t k = 0; k < reads->node.n; k++) {
    Shard want[MAX_AXIS] = {0};
    for (uint32_t a = 0; a < t->m->axis.n; a++) {
      ShardAsk q = {t->m, t->f, s, a, none};
      if (assign[a].kind == ASSIGN_NONE) {
        if (!plain) want[a] = draw_read(t, reads->node.at[k], t->m->axis.at[a].size);
      } else if (!shard_need(&q, reads->node.at[k], assign[a], &want[a])) {
        return false;
      }
    }
    version[k] = in_layout(t, (Id)ex(t->m, reads->node.at[k])->integer, want);
    if (version[k] == NONE) return false;
  }
  return true;
}

static bool try_typing(Typing *t, const Stmt *s, const Reads *reads, bool plain, Try *out) {
  Module *m = t->m;
  Id *version = NEWN(m->arena, Id, reads->node.n + 1);
  memset(out, 0, sizeof *out);
  for (uint32_t a = 0; a < m->axis.n; a++)
    if (!plain && chance(t->rng, 0.8)) out->assign[a] = draw_assign(t, s, m->axis.at[a].size);
  if (!layouts_of_reads(t, s, reads, plain, version, out->assign)) return false;
  Renamed r = {reads, version, malloc((m->expr.n + 1) * sizeof(Id))};
  memset(r.memo, 0xff, (m->expr.n + 1) * sizeof(Id));
  out->s = stmt_copy(m, t->f, s);
  out->s.sub = NEWN(m->arena, Id, MAX_RANK);
  for (uint32_t d = 0; d < t->f->value.at[s->lhs].rank; d++)
    out->s.sub[d] = rename_reads(m, t->f, s->sub[d], &r);
  out->s.body = rename_reads(m, t->f, s->body, &r);
  memcpy(out->s.assign, out->assign, sizeof out->assign);
  free(r.memo);
  Shard *type = NEWN(m->arena, Shard, t->f->value.n + 1);
  for (uint32_t a = 0; a < m->axis.n; a++) {
    shard_types(t->f, a, type);
    ShardAsk q = {m, t->f, &out->s, a, type};
    if (!shard_result(&q, out->assign[a], &out->result[a], NULL)) return false;
  }
  Shard index[MAX_AXIS] = {0}; // an index on two axes must nest
  for (uint32_t i = 0; i < s->nindex; i++) {
    Value v = {.name = "index", .type = DT_I32, .rank = 1, .extent = {s->index[i].extent}};
    for (uint32_t a = 0; a < m->axis.n; a++) {
      bool mine = out->assign[a].kind == ASSIGN_INDEX && out->assign[a].index == i;
      v.shard[a] = mine ? shard_split(0, out->assign[a].block) : index[a];
    }
    if (!shard_value_ok(m, &v, NULL)) return false;
  }
  return fits(t, s->lhs, out->result);
}

static void count_try(Typing *t, const Try *x) {
  TypingCount *c = t->count;
  for (uint32_t a = 0; a < t->m->axis.n; a++) {
    Assign g = x->assign[a];
    int64_t n = t->m->axis.at[a].size;
    c->indices += g.kind == ASSIGN_INDEX;
    c->writes += g.kind == ASSIGN_WRITE;
    c->partial_reads += g.kind == ASSIGN_NONE && x->result[a].kind == SHARD_PARTIAL;
    if (g.kind != ASSIGN_INDEX) continue;
    int64_t extent = x->s.index[g.index].extent;
    c->reduced += g.index >= x->s.nfree;
    c->uneven += extent % (g.block * n) != 0;
    c->cyclic += g.block * n < extent;
  }
}

// `acc` += the value `term`, whose layouts are those of the accumulator but where that is partial.
static void add_into(Typing *t, Id acc, Id term) {
  Index index[MAX_RANK];
  Id sub[MAX_RANK] = {0};
  Value v = t->f->value.at[acc];
  bare_indices(&v, index);
  for (uint32_t d = 0; d < v.rank; d++) sub[d] = ex_index(t->m, d);
  Id body = ex_read(t->m, t->f, term, sub);
  fn_comp(t->m, t->f, acc, sub, true, RED_NONE, index, v.rank, v.rank, body, 0);
  Stmt *s = &t->f->stmt.at[t->f->stmt.n - 1];
  for (uint32_t a = 0; a < t->m->axis.n; a++)
    if (v.shard[a].kind == SHARD_SPLIT)
      s->assign[a] = (Assign){ASSIGN_INDEX, v.shard[a].dim, v.shard[a].block};
}

// A term in other layouts than its accumulator's: converted first, whole where that is partial.
static void convert_and_add(Typing *t, Id old, Id acc, Id term) {
  Shard want[MAX_AXIS];
  memcpy(want, t->f->value.at[acc].shard, sizeof want);
  const Shard *is = t->f->value.at[term].shard;
  for (uint32_t a = 0; a < MAX_AXIS; a++)
    if (want[a].kind == SHARD_PARTIAL && is[a].kind != SHARD_PARTIAL) want[a] = shard_whole();
  Versions keep = t->version[old];
  t->version[old] = (Versions){0};
  add_version(t, old, term);
  Id at = in_layout(t, old, want);
  CHECK(at != NONE);
  t->version[old] = keep;
  t->count->accumulated++;
  add_into(t, acc, at);
}

// The accumulator's value; its first statement chooses the layouts.
static Id accumulator(Typing *t, Id old, const Shard *term) {
  if (!t->open[old]) return t->version[old].at[0];
  Shard shard[MAX_AXIS] = {0};
  for (uint32_t a = 0; a < t->m->axis.n; a++)
    if (chance(t->rng, 0.7)) shard[a] = term[a];
  if (!fits(t, old, shard)) memset(shard, 0, sizeof shard);
  t->open[old] = false;
  Id v = new_value(t, old, shard);
  add_version(t, old, v);
  return v;
}

static void type_comp(Typing *t, const Stmt *s) {
  Reads reads = {.m = t->m};
  Try x;
  for (uint32_t d = 0; d < t->f->value.at[s->lhs].rank; d++)
    ex_reads(t->m, s->sub[d], note_read, &reads);
  ex_reads(t->m, s->body, note_read, &reads);
  int tries = 0;
  while (!try_typing(t, s, &reads, tries >= 6, &x)) CHECK(tries++ < 6);
  count_try(t, &x);
  bool whole = true;
  if (s->acc) {
    Id acc = accumulator(t, s->lhs, x.result);
    const Shard *to = t->f->value.at[acc].shard;
    for (uint32_t a = 0; a < t->m->axis.n; a++)
      whole &= shard_added(x.assign[a], x.result[a], to[a]);
    x.s.lhs = whole ? acc : new_value(t, s->lhs, x.result);
    PUSH(t->m->arena, t->f->stmt, x.s);
    if (!whole) convert_and_add(t, s->lhs, acc, x.s.lhs);
    return;
  }
  x.s.lhs = new_value(t, s->lhs, x.result);
  add_version(t, s->lhs, x.s.lhs);
  PUSH(t->m->arena, t->f->stmt, x.s);
}

// ---- calls

static void stacked(Shard *to, const Shard *from, bool slice) {
  memcpy(to, from, MAX_AXIS * sizeof *to);
  for (uint32_t a = 0; a < MAX_AXIS; a++)
    if (slice && to[a].kind == SHARD_SPLIT) to[a].dim++;
}

static void type_call(Typing *t, const Stmt *s) {
  Stmt c = stmt_copy(t->m, t->f, s);
  const Fn *g = &t->m->fn.at[s->call->fn];
  struct {
    Id old, acc, term;
  } late[64];
  uint32_t nlate = 0;
  for (uint32_t i = 0; i < c.call->narg; i++) {
    Actual *a = &c.call->arg[i];
    const Value *formal = &g->value.at[g->arg.at[i]];
    Shard want[MAX_AXIS];
    if (a->mode == ACT_ITER) continue;
    stacked(want, formal->shard, a->mode == ACT_SLICE);
    if (formal->role == ROLE_IN) {
      a->value = in_layout(t, a->value, want);
      CHECK(a->value != NONE);
      continue;
    }
    Id old = a->value, acc = accumulator(t, old, want);
    a->value = acc;
    if (same_all(t->m, t->f->value.at[acc].shard, want)) continue;
    a->value = new_value(t, old, want);
    CHECK(nlate < 64);
    late[nlate].old = old;
    late[nlate].acc = acc;
    late[nlate++].term = a->value;
  }
  for (uint32_t i = 0; i < c.call->nresult; i++) {
    Result *r = &c.call->result[i];
    if (r->mode == RES_DROP) continue;
    Shard is[MAX_AXIS];
    stacked(is, g->value.at[g->result.at[i]].shard, r->mode == RES_SLICE);
    Id v = new_value(t, r->value, is);
    add_version(t, r->value, v);
    r->value = v;
  }
  PUSH(t->m->arena, t->f->stmt, c);
  for (uint32_t i = 0; i < nlate; i++) convert_and_add(t, late[i].old, late[i].acc, late[i].term);
}

// ---- functions

static bool carried(const Module *m, Id fn, uint32_t arg) {
  for (Id f = 0; f < m->fn.n; f++)
    for (uint32_t i = 0; i < m->fn.at[f].stmt.n; i++) {
      const Call *c = m->fn.at[f].stmt.at[i].call;
      if (c && c->fn == fn && c->arg[arg].mode == ACT_CARRY) return true;
    }
  return false;
}

static void draw_home(Typing *t, const Value *like, uint32_t from, Shard *shard) {
  Value v = *like;
  memset(v.shard, 0, sizeof v.shard);
  for (uint32_t a = 0; a < t->m->axis.n; a++) {
    if (v.rank <= from || chance(t->rng, 0.5)) continue;
    uint32_t d = from + draw(t->rng, v.rank - from);
    v.shard[a] = shard_split(d, draw_block(t, v.extent[d], t->m->axis.at[a].size));
    if (!shard_value_ok(t->m, &v, NULL)) v.shard[a] = shard_whole();
  }
  memcpy(shard, v.shard, sizeof v.shard);
}

// An entry's parameters lie as the table says, gradients so too or partial; a callee's arguments
// anyhow, but for what is carried.
static void type_args(Typing *t, Id fn, bool entry) {
  for (uint32_t i = 0; i < t->f->arg.n; i++) {
    Value *v = &t->f->value.at[t->f->arg.at[i]];
    const Param *home = NULL;
    bool grad = !strncmp(v->name, "$grad.", 6);
    for (uint32_t p = 0; p < t->m->param.n; p++)
      if (v->name == t->m->param.at[p].name ||
          (grad && !strcmp(v->name + 6, t->m->param.at[p].name)))
        home = &t->m->param.at[p];
    if (entry && home) memcpy(v->shard, home->shard, sizeof v->shard);
    if (!entry && v->rank && !carried(t->m, fn, i) && v->role == ROLE_IN)
      draw_home(t, v, 0, v->shard);
    for (uint32_t a = 0; v->role == ROLE_INOUT && a < t->m->axis.n; a++)
      if (v->shard[a].kind == SHARD_WHOLE && chance(t->rng, 0.5))
        v->shard[a] = shard_partial(RED_SUM);
  }
}

static bool is_entry(const Module *m, Id fn) {
  for (int e = 0; e < NENTRY; e++)
    if (m->entry[e] == fn) return true;
  return false;
}

static void type_fn(Module *m, Id fn, Rng *rng, TypingCount *count, bool *done) {
  if (done[fn]) return;
  done[fn] = true;
  Fn *f = &m->fn.at[fn];
  uint32_t n = f->stmt.n;
  const Stmt *stmt = f->stmt.at;
  for (uint32_t i = 0; i < n; i++)
    if (stmt[i].call) type_fn(m, stmt[i].call->fn, rng, count, done);
  Typing t = {m, f, rng, count, f->value.n, NULL, NULL};
  t.version = NEWN(m->arena, Versions, f->value.n + 1);
  t.open = NEWN(m->arena, bool, f->value.n + 1);
  for (Id v = 0; v < f->value.n; v++) t.open[v] = f->value.at[v].role == ROLE_LOCAL;
  type_args(&t, fn, is_entry(m, fn));
  for (uint32_t i = 0; i < f->arg.n; i++) add_version(&t, f->arg.at[i], f->arg.at[i]);
  f->stmt.at = NULL;
  f->stmt.n = f->stmt.cap = 0;
  for (uint32_t i = 0; i < n; i++)
    if (stmt[i].kind == ST_COMP)
      type_comp(&t, &stmt[i]);
    else
      type_call(&t, &stmt[i]);
  for (uint32_t i = 0; i < f->result.n; i++)
    f->result.at[i] = in_layout(&t, f->result.at[i], (Shard[MAX_AXIS]){0});
  fn_remove_dead(m, f, NULL);
  fn_compact(m, f);
}

void random_typing(Module *m, const Axis *axis, uint32_t naxis, Rng *rng, TypingCount *count) {
  for (uint32_t a = 0; a < naxis; a++) PUSH(m->arena, m->axis, axis[a]);
  Typing t = {.m = m, .rng = rng, .count = count};
  for (uint32_t p = 0; p < m->param.n; p++) {
    Param *q = &m->param.at[p];
    Value v = {.name = q->name, .type = DT_REAL, .rank = q->rank};
    memcpy(v.extent, q->extent, sizeof v.extent);
    draw_home(&t, &v, q->nstack, q->shard);
  }
  bool *done = NEWN(m->arena, bool, m->fn.n + 1);
  for (Id f = 0; f < m->fn.n; f++) type_fn(m, f, rng, count, done);
}
