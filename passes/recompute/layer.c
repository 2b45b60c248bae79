// A layer's two functions: what crosses from the one to the other, and the second with statements of the first.
#include "passes/recompute/recompute.h"

static bool is_result(const Fn *f, Id v) {
  for (uint32_t i = 0; i < f->result.n; i++)
    if (f->result.at[i] == v) return true;
  return false;
}

// ---- the layers

// The value of the function with the forward repeat that a value of the other one is, or NONE.
static Id outside(const Layer *l, Id v) {
  if (!l->outer) return v;
  for (uint32_t i = 0; i < l->outer->cross.n; i++)
    if (l->outer->cross.at[i].here == v) return l->outer->cross.at[i].made;
  return NONE;
}

// The other way round, for a value that may not have crossed yet.
static Id inside(Layer *l, Id v) { return l->outer ? layer_cross(l->outer, v) : v; }

static uint32_t sliced_result(const Call *c, Id v) {
  for (uint32_t r = 0; r < c->nresult; r++)
    if (c->result[r].mode == RES_SLICE && c->result[r].value == v) return r;
  return NONE;
}

static bool belongs(const Layer *l) {
  const Call *f = l->forward, *b = l->backward;
  if (f->count != b->count || f->reverse || !b->reverse) return false;
  for (uint32_t i = 0; i < b->narg; i++)
    if (b->arg[i].mode == ACT_SLICE && sliced_result(f, outside(l, b->arg[i].value)) != NONE) return true;
  return false;
}

static uint32_t callers(const Module *m, Id fn) {
  uint32_t n = 0;
  for (Id f = 0; f < m->fn.n; f++)
    for (uint32_t i = 0; i < m->fn.at[f].stmt.n; i++) {
      const Call *c = m->fn.at[f].stmt.at[i].call;
      n += c && c->fn == fn;
    }
  return n;
}

static void make_own(Module *m, Call *c) {
  if (callers(m, c->fn) > 1) c->fn = fn_clone(m, c->fn, m->fn.at[c->fn].name);
}

static void find_copies(Layer *l) {
  const Fn *f = layer_forward(l);
  for (uint32_t i = 0; i < f->stmt.n; i++) {
    const Stmt *s = &f->stmt.at[i];
    if (s->kind != ST_COMP || s->acc || s->red != RED_NONE || !ex_is(l->m, s->body, OP_READ)) continue;
    const Expr *e = ex(l->m, s->body);
    const Value *from = &f->value.at[e->integer], *to = &f->value.at[s->lhs];
    bool same = from->role == ROLE_IN && from->type == to->type && e->narg == to->rank && is_result(f, s->lhs);
    for (uint32_t k = 0; same && k < to->rank; k++)
      same = ex_is(l->m, s->sub[k], OP_INDEX) && s->sub[k] == ex_arg(l->m, s->body, k) && from->extent[k] == to->extent[k];
    if (same && !layer_is_passed(l, (Id)e->integer)) PUSH(l->m->arena, l->copy, (Cross){(Id)e->integer, s->lhs});
  }
}

static void find_cross(Layer *l) {
  const Call *f = l->forward, *b = l->backward;
  for (uint32_t i = 0; i < b->narg; i++) {
    const Actual *a = &b->arg[i];
    Id here = layer_backward(l)->arg.at[i], made = NONE;
    Id v = a->mode == ACT_ITER ? NONE : outside(l, a->value);
    uint32_t r = a->mode == ACT_SLICE ? sliced_result(f, v) : NONE;
    if (layer_backward(l)->value.at[here].role != ROLE_IN || a->mode == ACT_CARRY) continue;
    if (r != NONE) made = layer_forward(l)->result.at[r];
    for (uint32_t k = 0; made == NONE && k < f->narg; k++)
      if (f->arg[k].mode == a->mode && (a->mode == ACT_ITER || (v != NONE && f->arg[k].value == v)))
        made = layer_forward(l)->arg.at[k];
    if (made != NONE) PUSH(l->m->arena, l->cross, (Cross){made, here});
  }
}

static void find_one(Module *m, Layer *outer, Id in_forward, Id in_backward, Call *backward, Layers *to) {
  for (uint32_t i = 0; i < m->fn.at[in_forward].stmt.n; i++) {
    const Stmt *s = &m->fn.at[in_forward].stmt.at[i];
    Layer l = {.m = m, .outer = outer, .in_forward = in_forward, .in_backward = in_backward, .forward = s->call,
               .backward = backward};
    if (s->kind != ST_REPEAT || !belongs(&l)) continue;
    make_own(m, l.forward);
    make_own(m, l.backward);
    l.times = l.forward->count * (outer ? outer->times : 1);
    Layer *own = arena_copy(m->arena, &l, sizeof l);
    find_copies(own);
    find_cross(own);
    PUSH(m->arena, *to, own);
    layers_find(m, own, own->forward->fn, own->backward->fn, to);
    return;
  }
}

void layers_find(Module *m, Layer *outer, Id in_forward, Id in_backward, Layers *to) {
  for (uint32_t i = 0; i < m->fn.at[in_backward].stmt.n; i++) {
    const Stmt *s = &m->fn.at[in_backward].stmt.at[i];
    if (s->kind == ST_REPEAT && s->call->reverse) find_one(m, outer, in_forward, in_backward, s->call, to);
  }
}

int64_t layer_saved_bytes(const Layer *l) {
  int64_t n = 0;
  const Fn *f = layer_forward(l);
  for (uint32_t r = 0; r < l->forward->nresult; r++) {
    const Value *v = &f->value.at[f->result.at[r]];
    if (l->forward->result[r].mode == RES_SLICE) n += l->times * value_count(v) * dtype_size(v->type);
  }
  return n;
}

// ---- what crosses

Id layer_saved(const Layer *l, Id v) {
  for (uint32_t i = 0; i < l->copy.n; i++)
    if (l->copy.at[i].made == v) return l->copy.at[i].here;
  return v;
}

static uint32_t arg_of(const Fn *f, Id v) {
  for (uint32_t i = 0; i < f->arg.n; i++)
    if (f->arg.at[i] == v) return i;
  return NONE;
}

bool layer_is_passed(const Layer *l, Id v) {
  uint32_t i = arg_of(layer_forward(l), v);
  return i != NONE && l->forward->arg[i].mode != ACT_CARRY;
}

// A value of `f` like another function's.
static Id add_like(Module *m, Fn *f, const Value *like, Role role) {
  Value v = *like;
  Id id = fn_value(m, f, v.name, v.type, v.extent, v.rank, role, v.loc);
  memcpy(f->value.at[id].shard, v.shard, sizeof v.shard);
  f->value.at[id].means = v.means;
  f->value.at[id].of = v.of;
  return id;
}

static Str prefix_of(const Layer *l) {
  for (uint32_t r = 0; r < l->forward->nresult; r++)
    if (l->forward->result[r].mode == RES_CARRY)
      return l->m->fn.at[l->in_forward].value.at[l->forward->result[r].value].name;
  return layer_forward(l)->name;
}

// The stacked value that a new result is saved in, of the function with the forward repeat.
static Id save(Layer *l, Id result) {
  Module *m = l->m;
  Value v = layer_forward(l)->value.at[result];
  CHECK(v.rank < MAX_RANK);
  v.name = str_printf("%s.%s", prefix_of(l), v.name);
  memmove(v.extent + 1, v.extent, v.rank * sizeof *v.extent);
  v.extent[0] = l->forward->count;
  v.rank++;
  v.means = MEANS_NONE;
  Fn *f = layer_forward(l);
  PUSH(m->arena, f->result, result);
  if (f->alias.n) PUSH(m->arena, f->alias, NONE);
  Id stacked = add_like(m, &m->fn.at[l->in_forward], &v, ROLE_LOCAL);
  call_add_result(m, l->forward, RES_SLICE, stacked);
  return stacked;
}

// The forward function's result that v is, or a copy of it.
static Id as_result(Layer *l, Id v) {
  Fn *f = layer_forward(l);
  if (f->value.at[v].role == ROLE_LOCAL && !is_result(f, v)) return v;
  Value like = f->value.at[v];
  like.name = str_printf("%s.saved", like.name);
  like.means = MEANS_NONE;
  Id copy = add_like(l->m, f, &like, ROLE_LOCAL);
  fn_copy_stmt(l->m, f, copy, v, like.loc);
  if (f->value.at[v].role != ROLE_LOCAL) PUSH(l->m->arena, l->copy, (Cross){v, copy});
  return copy;
}

Id layer_cross(Layer *l, Id v) {
  v = layer_saved(l, v);
  for (uint32_t i = 0; i < l->cross.n; i++)
    if (l->cross.at[i].made == v) return l->cross.at[i].here;
  Actual a = {ACT_SLICE, NONE};
  Id made = v;
  if (layer_is_passed(l, v)) a = l->forward->arg[arg_of(layer_forward(l), v)];
  else a.value = save(l, made = as_result(l, v));
  if (a.mode != ACT_ITER) a.value = inside(l, a.value);
  call_add_arg(l->m, l->backward, a.mode, a.value);
  Value like = layer_forward(l)->value.at[v];
  Id here = add_like(l->m, layer_backward(l), &like, ROLE_IN);
  PUSH(l->m->arena, l->cross, (Cross){v, here});
  if (made != v) PUSH(l->m->arena, l->cross, (Cross){made, here});
  return here;
}

static void drop_arg(Call *c, Fn *f, uint32_t at) {
  f->value.at[f->arg.at[at]].role = ROLE_LOCAL;
  memmove(&f->arg.at[at], &f->arg.at[at + 1], (f->arg.n - at - 1) * sizeof *f->arg.at);
  memmove(&c->arg[at], &c->arg[at + 1], (c->narg - at - 1) * sizeof *c->arg);
  f->arg.n--;
  c->narg--;
}

static void forget_cross(Layer *l, Id here) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < l->cross.n; i++)
    if (l->cross.at[i].here != here) l->cross.at[n++] = l->cross.at[i];
  l->cross.n = n;
}

// ---- statements that run again

typedef struct Again {
  Layer *l;
  Module *m;
  const Choice *c;
  Id *map; // by value of the forward function: it in the backward one
  Id *made_by; // by argument of the backward one: the value of the forward one that is to be made
  uint32_t nforward, nbackward; // values that they had at first
  bool *done; // by step
  bool known; // what the statement at hand reads has a value in map
  VEC(Stmt) stmt;
} Again;

static bool runs_again(const Again *x, Id v) {
  return v < x->nforward && x->l->keep.value[v].def != NONE && x->c->again[x->l->keep.value[v].def];
}

// Where what a statement makes is put: in place of the argument that it was, or in a new local.
static void place(Id v, void *ctx) {
  Again *x = ctx;
  Fn *b = layer_backward(x->l);
  if (x->map[v] != NONE) return;
  for (uint32_t i = 0; i < x->l->cross.n; i++) {
    Id here = x->l->cross.at[i].here;
    if (x->l->cross.at[i].made != v) continue;
    drop_arg(x->l->backward, b, arg_of(b, here));
    forget_cross(x->l, here);
    x->map[v] = here;
    return;
  }
  Value like = layer_forward(x->l)->value.at[v];
  like.means = MEANS_NONE;
  x->map[v] = add_like(x->m, b, &like, ROLE_LOCAL);
}

static void run_step(Again *x, uint32_t step);

static void fetch(Id v, void *ctx) {
  Again *x = ctx;
  Id saved = layer_saved(x->l, v);
  if (!runs_again(x, saved)) {
    x->map[v] = layer_cross(x->l, v);
    return;
  }
  run_step(x, x->l->keep.value[saved].def);
  x->map[v] = x->map[saved];
}

static void run_step(Again *x, uint32_t step) {
  Layer *l = x->l;
  if (x->done[step]) return;
  x->done[step] = true;
  for (uint32_t i = 0; i < l->nstmt; i++) {
    if (l->step[i] != step) continue;
    Stmt s = layer_forward(l)->stmt.at[i];
    stmt_reads(x->m, layer_forward(l), &s, fetch, x);
    stmt_writes(x->m, &s, place, x);
    s = stmt_renumber(x->m, layer_forward(l), &s, x->map);
    PUSH(x->m->arena, x->stmt, s);
  }
}

static void before_read(Id v, void *ctx) {
  Again *x = ctx;
  if (v < x->nbackward && x->made_by[v] != NONE) run_step(x, x->l->keep.value[x->made_by[v]].def);
}

static void test_mapped(Id v, void *ctx) {
  Again *x = ctx;
  x->known &= x->map[v] != NONE;
}

// Whether statement s of the backward function computes what statement t of the forward one does, of the same values.
static bool says_same(Again *x, const Stmt *s, const Stmt *t) {
  const Fn *f = layer_forward(x->l), *b = layer_backward(x->l);
  x->known = s->kind == t->kind && !t->call && s->red == t->red && !s->acc && !t->acc;
  if (x->known) stmt_reads(x->m, f, t, test_mapped, x);
  if (!x->known) return false;
  const Value *v = &f->value.at[t->lhs], *w = &b->value.at[s->lhs];
  if (v->type != w->type || v->rank != w->rank || memcmp(v->extent, w->extent, v->rank * sizeof *v->extent)) return false;
  if (t->kind != ST_COMP) return s->from == x->map[t->from] && s->coll == t->coll && s->axis == t->axis && s->both == t->both;
  if (s->nfree != t->nfree || s->nindex != t->nindex || s->body != ex_rename(x->m, t->body, NULL, x->map)) return false;
  for (uint32_t i = 0; i < t->nindex; i++)
    if (s->index[i].extent != t->index[i].extent) return false;
  for (uint32_t k = 0; k < v->rank; k++)
    if (s->sub[k] != ex_rename(x->m, t->sub[k], NULL, x->map)) return false;
  return true;
}

// A value that the backward function names again already, since it only renames elements, is not computed twice.
static void note_same(Again *x, const Stmt *s) {
  Layer *l = x->l;
  for (uint32_t i = 0; !s->call && i < l->nstmt; i++) {
    const Stmt *t = &layer_forward(l)->stmt.at[i];
    if (l->step[i] == NONE || x->done[l->step[i]] || !says_same(x, s, t)) continue;
    x->done[l->step[i]] = true;
    x->map[t->lhs] = s->lhs;
    return;
  }
}

static void map_known(Again *x) {
  const Layer *l = x->l;
  for (uint32_t i = 0; i < l->cross.n; i++)
    if (l->cross.at[i].made < x->nforward && !runs_again(x, l->cross.at[i].made))
      x->map[l->cross.at[i].made] = l->cross.at[i].here;
  for (uint32_t i = 0; i < l->copy.n; i++) x->map[l->copy.at[i].made] = x->map[l->copy.at[i].here];
}

static void run_again(Layer *l, const Choice *c) {
  Module *m = l->m;
  Again x = {.l = l, .m = m, .c = c, .nforward = l->keep.nvalue, .nbackward = layer_backward(l)->value.n};
  x.map = NEWN(m->arena, Id, x.nforward + 1);
  x.made_by = NEWN(m->arena, Id, x.nbackward + 1);
  x.done = NEWN(m->arena, bool, l->keep.nstep + 1);
  memset(x.map, 0xff, (x.nforward + 1) * sizeof(Id));
  memset(x.made_by, 0xff, (x.nbackward + 1) * sizeof(Id));
  map_known(&x);
  for (uint32_t i = 0; i < l->cross.n; i++)
    if (runs_again(&x, l->cross.at[i].made)) x.made_by[l->cross.at[i].here] = l->cross.at[i].made;
  for (uint32_t i = 0; i < layer_backward(l)->stmt.n; i++) {
    Stmt s = layer_backward(l)->stmt.at[i];
    stmt_reads(m, layer_backward(l), &s, before_read, &x);
    note_same(&x, &s);
    PUSH(m->arena, x.stmt, s);
  }
  Fn *b = layer_backward(l);
  b->stmt.at = x.stmt.at;
  b->stmt.n = b->stmt.cap = x.stmt.n;
}

static void mark(Id v, void *ctx) { ((bool *)ctx)[v] = true; }

// Arguments of the backward function that it does not mention.
static void drop_unread(Layer *l) {
  Fn *b = layer_backward(l);
  bool *read = NEWN(l->m->arena, bool, b->value.n + 1);
  for (uint32_t i = 0; i < b->stmt.n; i++) stmt_reads(l->m, b, &b->stmt.at[i], mark, read);
  for (uint32_t i = b->arg.n; i-- > 0;) {
    Id v = b->arg.at[i];
    if (read[v] || l->backward->arg[i].mode == ACT_CARRY || b->value.at[v].role != ROLE_IN) continue;
    drop_arg(l->backward, b, i);
    forget_cross(l, v);
  }
}

void layer_apply(Layer *l, const Choice *c) {
  run_again(l, c);
  fn_remove_dead(l->m, layer_backward(l), NULL);
  drop_unread(l);
}

// ---- results that nobody keeps

static bool dropped_by_all(const Module *m, Id fn, uint32_t r) {
  for (Id f = 0; f < m->fn.n; f++)
    for (uint32_t i = 0; i < m->fn.at[f].stmt.n; i++) {
      const Call *c = m->fn.at[f].stmt.at[i].call;
      if (c && c->fn == fn && c->result[r].mode != RES_DROP) return false;
    }
  return true;
}

static void drop_result(Module *m, Id fn, uint32_t r) {
  Fn *g = &m->fn.at[fn];
  CHECK(!g->alias.n); // the update's results alone are laid over arguments
  for (Id f = 0; f < m->fn.n; f++)
    for (uint32_t i = 0; i < m->fn.at[f].stmt.n; i++) {
      Call *c = m->fn.at[f].stmt.at[i].call;
      if (!c || c->fn != fn) continue;
      memmove(&c->result[r], &c->result[r + 1], (c->nresult - r - 1) * sizeof *c->result);
      c->nresult--;
    }
  memmove(&g->result.at[r], &g->result.at[r + 1], (g->result.n - r - 1) * sizeof *g->result.at);
  g->result.n--;
}

void layer_tidy(Layer *l) {
  Module *m = l->m;
  const Id fn = l->forward->fn;
  fn_remove_dead(m, &m->fn.at[l->in_forward], NULL);
  for (uint32_t r = m->fn.at[fn].result.n; r-- > 0;)
    if (dropped_by_all(m, fn, r)) drop_result(m, fn, r);
  fn_remove_dead(m, &m->fn.at[fn], NULL);
}
