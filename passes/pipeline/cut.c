// Cuts repeats into ranges of layers, one for each chunk that has a part of them.
//
// The forward statements, a repeat counted as its iterations, are units in a row; cost_balance
// parts them. A repeat of the backward pass is cut where the forward one is whose saved values it
// reads, or, if it reads none, whose parameters. Statements that need no parameter (the rotary
// angles of positions, the mask of padding) or only rename elements are free: whoever reads them
// computes them.
#include "passes/pipeline/pipeline.h"

#include <stdlib.h>

typedef struct Range {
  int64_t first, count;
  uint32_t chunk;
} Range;

// What is known of a statement before its function is cut.
typedef struct Plan {
  uint32_t match; // repeat of the backward pass: the forward one it belongs to; or NONE
  bool cuttable; // forward repeat
  uint32_t unit, nunit; // forward: the first of its units
  VEC(Range) range; // repeat: its parts
} Plan;

typedef struct Cutting {
  Cut *c;
  Module *m;
  Stmt *stmt; // those of the function as it was
  uint32_t n, nforward;
  Plan *plan;
} Cutting;

static Id add_value(Cut *c, Str name, Dtype type, const int64_t *extent, uint32_t rank, Role role,
                    Id loc) {
  Id v = fn_value(c->m, cut_fn(c), name, type, extent, rank, ROLE_LOCAL, loc);
  cut_fn(c)->value.at[v].role = role; // not an argument of the cut function's own
  PUSH(c->m->arena, c->held, (Held){.param = NONE});
  return v;
}

// The value with another leading extent.
static Id resized(Cut *c, Id like, int64_t count) {
  Value v = cut_fn(c)->value.at[like];
  v.extent[0] = count;
  Id id = add_value(c, v.name, v.type, v.extent, v.rank, v.role, v.loc);
  memcpy(cut_fn(c)->value.at[id].shard, v.shard, sizeof v.shard);
  return id;
}

static Id held_part(Cut *c, Id whole, int64_t first, int64_t count) {
  Held h = c->held.at[whole];
  if (first == h.first && count == h.count) return whole;
  for (Id v = 0; v < c->held.n; v++) {
    const Held *o = &c->held.at[v];
    if (o->param == h.param && o->grad == h.grad && o->first == first && o->count == count)
      return v;
  }
  Id v = resized(c, whole, count);
  c->held.at[v] = (Held){h.param, first, count, h.grad};
  return v;
}

// ---- which statements are free

typedef struct Roots {
  const Cut *c;
  const bool *free; // by value
  bool data, local; // all reads are of data or free; the reads are of locals
} Roots;

static void root(Id v, void *ctx) {
  Roots *r = ctx;
  r->data &= is_uniform(r->c, v) || r->free[v];
  r->local &= !is_held(r->c, v);
}

static bool renames(const Module *m, const Stmt *s) {
  if (s->red != RED_NONE || !ex_is(m, s->body, OP_READ)) return false;
  for (uint32_t k = 0; k < ex(m, s->body)->narg; k++) {
    Op op = (Op)ex(m, ex_arg(m, s->body, k))->op;
    if (op != OP_INDEX && op != OP_GROUP && op != OP_INT) return false;
  }
  return true;
}

static bool is_result(const Fn *f, Id v) {
  for (uint32_t i = 0; i < f->result.n; i++)
    if (f->result.at[i] == v) return true;
  return false;
}

static bool is_free(const Cut *c, const Stmt *s, const bool *free) {
  const Fn *f = cut_fn(c);
  if (s->kind != ST_COMP || s->acc || is_result(f, s->lhs)) return false;
  Roots r = {c, free, true, true};
  stmt_reads(c->m, f, s, root, &r);
  return r.data || (r.local && renames(c->m, s));
}

static void read_through(const Cut *c, Id v, void (*visit)(Id, void *), void *ctx);

typedef struct Through {
  const Cut *c;
  void (*visit)(Id value, void *ctx);
  void *ctx;
} Through;

static void through(Id v, void *ctx) {
  Through *t = ctx;
  read_through(t->c, v, t->visit, t->ctx);
}

static void read_through(const Cut *c, Id v, void (*visit)(Id, void *), void *ctx) {
  Id d = c->def[v];
  Through t = {c, visit, ctx};
  if (d != NONE && c->task.at[d].free)
    stmt_reads(c->m, cut_fn(c), &cut_fn(c)->stmt.at[d], through, &t);
  else visit(v, ctx);
}

void cut_reads(const Cut *c, const Stmt *s, void (*visit)(Id, void *), void *ctx) {
  Through t = {c, visit, ctx};
  stmt_reads(c->m, cut_fn(c), s, through, &t);
}

typedef struct Def {
  Cut *c;
  Id stmt;
} Def;

static void set_def(Id v, void *ctx) {
  Def *d = ctx;
  d->c->def[v] = d->stmt;
}

void cut_defs(Cut *c) {
  Fn *f = cut_fn(c);
  c->def = NEWN(c->m->arena, Id, f->value.n + 1);
  memset(c->def, 0xff, (f->value.n + 1) * sizeof(Id));
  for (uint32_t i = 0; i < f->stmt.n; i++)
    stmt_writes(c->m, &f->stmt.at[i], set_def, &(Def){c, i});
}

// ---- the function as it was

static void begin(Cut *c, Module *m, Id fn, bool grads) {
  *c = (Cut){.m = m, .nchunk = m->stages * m->chunks, .fn = fn_clone(m, fn, str_intern("cut"))};
  Fn *f = cut_fn(c);
  uint32_t np = m->param.n, nheld = np * (grads ? 2 : 1);
  while (c->nlead < f->arg.n && f->value.at[f->arg.at[c->nlead]].means != MEANS_PARAM) c->nlead++;
  if (c->nlead + nheld > f->arg.n) BUG("%s does not take the parameters", f->name);
  c->ntrail = f->arg.n - c->nlead - nheld;
  for (Id v = 0; v < f->value.n; v++) PUSH(m->arena, c->held, (Held){.param = NONE});
  for (uint32_t i = 0; i < nheld; i++) {
    Id v = f->arg.at[c->nlead + i];
    bool stacked = m->param.at[i % np].nstack > 0;
    c->held.at[v] = (Held){i % np, 0, stacked ? f->value.at[v].extent[0] : 1, i >= np};
  }
  bool *free = NEWN(m->arena, bool, f->value.n + 1);
  for (uint32_t i = 0; i < f->stmt.n; i++) {
    const Stmt *s = &f->stmt.at[i];
    Task t = {.free = is_free(c, s, free)};
    if (t.free) free[s->lhs] = true;
    PUSH(m->arena, c->task, t);
  }
  cut_defs(c);
}

typedef struct Wanted {
  bool *value, any;
} Wanted;

static void want(Id v, void *ctx) { ((Wanted *)ctx)->value[v] = true; }
static void test(Id v, void *ctx) {
  Wanted *w = ctx;
  w->any |= w->value[v];
}

// Statements that the results need are forward, all others backward. Forward statements are put first: returns
// how many there are.
static uint32_t part_phases(Cut *c) {
  Fn *f = cut_fn(c);
  Wanted w = {NEWN(c->m->arena, bool, f->value.n + 1), false};
  bool *forward = NEWN(c->m->arena, bool, f->stmt.n + 1);
  Stmt *stmt = NEWN(c->m->arena, Stmt, f->stmt.n + 1);
  Task *task = NEWN(c->m->arena, Task, f->stmt.n + 1);
  uint32_t n = 0, nforward = 0;
  for (uint32_t i = 0; i < f->result.n; i++) w.value[f->result.at[i]] = true;
  for (uint32_t i = f->stmt.n; i-- > 0;) {
    w.any = false;
    stmt_writes(c->m, &f->stmt.at[i], test, &w);
    if ((forward[i] = w.any)) stmt_reads(c->m, f, &f->stmt.at[i], want, &w);
  }
  for (int back = 0; back < 2; back++) {
    for (uint32_t i = 0; i < f->stmt.n; i++) {
      if (forward[i] == back) continue;
      stmt[n] = f->stmt.at[i];
      task[n] = c->task.at[i];
      task[n++].phase = back ? PHASE_B : PHASE_F;
    }
    if (!back) nforward = n;
  }
  f->stmt.at = stmt;
  f->stmt.n = f->stmt.cap = n;
  c->task.at = task;
  c->task.n = c->task.cap = n;
  cut_defs(c);
  return nforward;
}

static bool slices(const Call *c, Id v) {
  for (uint32_t i = 0; i < c->narg; i++)
    if (c->arg[i].mode == ACT_SLICE && c->arg[i].value == v) return true;
  return false;
}

// Whether backward repeat b reads, slice by slice, what forward repeat a saves (or, with params,
// the parameters that a reads).
static bool belongs(const Cutting *x, const Call *b, const Call *a, bool params) {
  if (a->count != b->count) return false;
  for (uint32_t i = 0; !params && i < a->nresult; i++)
    if (a->result[i].mode == RES_SLICE && slices(b, a->result[i].value)) return true;
  for (uint32_t i = 0; params && i < a->narg; i++)
    if (a->arg[i].mode == ACT_SLICE && is_held(x->c, a->arg[i].value) && slices(b, a->arg[i].value))
      return true;
  return false;
}

static bool taken(const Cutting *x, uint32_t forward) {
  for (uint32_t i = x->nforward; i < x->n; i++)
    if (x->plan[i].match == forward) return true;
  return false;
}

static void match_repeats(Cutting *x) {
  for (uint32_t i = 0; i < x->n; i++) x->plan[i].match = NONE;
  for (int params = 0; params < 2; params++)
    for (uint32_t i = x->nforward; i < x->n; i++) {
      if (x->stmt[i].kind != ST_REPEAT || x->plan[i].match != NONE) continue;
      for (uint32_t j = x->nforward; j-- > 0 && x->plan[i].match == NONE;)
        if (x->stmt[j].kind == ST_REPEAT && (!params || !taken(x, j)) &&
            belongs(x, x->stmt[i].call, x->stmt[j].call, params))
          x->plan[i].match = j;
    }
}

typedef struct Whole {
  Id value;
  bool read;
} Whole;

static void note_whole(Id v, void *ctx) {
  Whole *w = ctx;
  w->read |= v == w->value;
}

// Whether all readers of the stacked value take slices of it in a repeat that belongs to `forward`.
static bool read_by_slices(const Cutting *x, Id v, uint32_t forward) {
  if (is_result(cut_fn(x->c), v)) return false;
  for (uint32_t i = 0; i < x->n; i++) {
    Whole w = {v, false};
    stmt_reads(x->m, cut_fn(x->c), &x->stmt[i], note_whole, &w);
    if (!w.read) continue;
    if (x->plan[i].match != forward) return false;
    for (uint32_t k = 0; k < x->stmt[i].call->narg; k++) {
      const Actual *a = &x->stmt[i].call->arg[k];
      if (a->value == v && a->mode != ACT_SLICE) return false;
    }
  }
  return true;
}

// Slices of anything but parameters, and of values that `from` saves, have no place where a range
// of them is made.
static bool slices_held_only(const Cutting *x, const Call *c, const Call *from) {
  for (uint32_t i = 0; i < c->narg; i++) {
    if (c->arg[i].mode != ACT_SLICE || is_held(x->c, c->arg[i].value)) continue;
    bool saved = false;
    for (uint32_t r = 0; from && r < from->nresult; r++)
      saved |= from->result[r].mode == RES_SLICE && from->result[r].value == c->arg[i].value;
    if (!saved) return false;
  }
  return true;
}

// Whether another forward repeat takes slices of the same parameter: they would be cut at different
// layers, and what several stages hold must be the same part.
static bool shares_params(const Cutting *x, uint32_t at) {
  const Call *c = x->stmt[at].call;
  for (uint32_t j = 0; j < x->nforward; j++)
    for (uint32_t i = 0; j != at && x->stmt[j].kind == ST_REPEAT && i < c->narg; i++)
      if (c->arg[i].mode == ACT_SLICE && is_held(x->c, c->arg[i].value) &&
          slices(x->stmt[j].call, c->arg[i].value))
        return true;
  return false;
}

static bool cuttable(const Cutting *x, uint32_t at) {
  const Stmt *s = &x->stmt[at];
  if (s->kind != ST_REPEAT || s->call->reverse || s->call->count < 2 || shares_params(x, at))
    return false;
  if (!slices_held_only(x, s->call, NULL)) return false;
  for (uint32_t i = 0; i < s->call->nresult; i++) {
    const Result *r = &s->call->result[i];
    if (r->mode == RES_SLICE && !read_by_slices(x, r->value, at)) return false;
  }
  for (uint32_t i = x->nforward; i < x->n; i++) {
    if (x->plan[i].match != at) continue;
    const Call *b = x->stmt[i].call;
    if (!b->reverse || !slices_held_only(x, b, s->call)) return false;
    for (uint32_t k = 0; k < b->nresult; k++)
      if (b->result[k].mode == RES_SLICE) return false;
  }
  return true;
}

// ---- units and their balance

static uint32_t number_units(Cutting *x) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < x->nforward; i++) {
    Plan *p = &x->plan[i];
    p->unit = n;
    p->cuttable = cuttable(x, i);
    p->nunit = x->c->task.at[i].free ? 0 : p->cuttable ? (uint32_t)x->stmt[i].call->count : 1;
    n += p->nunit;
  }
  return n;
}

static double backward_cost(const Cutting *x, uint32_t forward) {
  double cost = 0;
  for (uint32_t i = x->nforward; i < x->n; i++)
    if (x->plan[i].match == forward) cost += cost_fn(x->m, x->stmt[i].call->fn);
  return cost;
}

static void unit_costs(const Cutting *x, double *cost) {
  for (uint32_t i = 0; i < x->nforward; i++) {
    const Plan *p = &x->plan[i];
    if (!p->nunit) continue;
    // The backward of a statement is about two of it: a matrix product becomes two.
    double one = p->cuttable ? cost_fn(x->m, x->stmt[i].call->fn) + backward_cost(x, i)
                             : 3 * cost_stmt(x->m, cut_fn(x->c), &x->stmt[i]);
    for (uint32_t k = 0; k < p->nunit; k++) cost[p->unit + k] = one;
  }
}

typedef struct Lives {
  Cutting *x;
  uint32_t *last; // by value: the last unit that reads it, + 1
  uint32_t stmt;
} Lives;

static void note_last(Id v, void *ctx) {
  Lives *l = ctx;
  const Plan *p = &l->x->plan[l->stmt];
  const Stmt *s = &l->x->stmt[l->stmt];
  uint32_t last = p->unit + p->nunit;
  for (uint32_t i = 0; p->cuttable && i < s->call->narg; i++)
    if (s->call->arg[i].value == v && s->call->arg[i].mode == ACT_CARRY) last = p->unit + 1;
  if (l->last[v] < last) l->last[v] = last;
}

static double sent_cost(const Value *v) {
  double bytes = 2.0 * dtype_size(v->type); // there, and its gradient back
  for (uint32_t d = 0; d < v->rank; d++) bytes *= (double)v->extent[d];
  return 100 * bytes;
}

// cross[i]: of what is alive between unit i - 1 and unit i.
static void crossing_costs(Cutting *x, double *cross, uint32_t n) {
  const Fn *f = cut_fn(x->c);
  Lives l = {x, NEWN(x->m->arena, uint32_t, f->value.n + 1), 0};
  for (l.stmt = 0; l.stmt < x->nforward; l.stmt++)
    if (x->plan[l.stmt].nunit) cut_reads(x->c, &x->stmt[l.stmt], note_last, &l);
  for (uint32_t i = 0; i < f->result.n; i++) l.last[f->result.at[i]] = n;
  for (Id v = 0; v < f->value.n; v++) {
    Id d = x->c->def[v];
    if (d == NONE || d >= x->nforward || !x->plan[d].nunit) continue;
    for (uint32_t u = x->plan[d].unit + x->plan[d].nunit; u < l.last[v]; u++)
      cross[u] += sent_cost(&f->value.at[v]);
  }
  for (uint32_t i = 0; i < x->nforward; i++) {
    const Call *c = x->stmt[i].call;
    for (uint32_t r = 0; x->plan[i].cuttable && r < c->nresult; r++)
      for (uint32_t k = 1; c->result[r].mode == RES_CARRY && k < x->plan[i].nunit; k++)
        cross[x->plan[i].unit + k] += sent_cost(&f->value.at[c->result[r].value]);
  }
}

static void add_unit_to_ranges(Module *m, Plan *p, int64_t layer, uint32_t chunk) {
  Range *last = p->range.n ? &p->range.at[p->range.n - 1] : NULL;
  if (last && last->chunk == chunk) last->count++;
  else PUSH(m->arena, p->range, (Range){layer, 1, chunk});
}

static bool balance(Cutting *x) {
  uint32_t n = number_units(x);
  if (n < x->c->nchunk) {
    diag_error(x->m->src, cut_fn(x->c)->loc,
               "a pipeline of %u chunks needs as many statements or layers, %s has %u",
               x->c->nchunk, x->m->name, n);
    return false;
  }
  double *cost = NEWN(x->m->arena, double, n + 1), *cross = NEWN(x->m->arena, double, n + 1);
  uint32_t *part = NEWN(x->m->arena, uint32_t, n + 1);
  unit_costs(x, cost);
  crossing_costs(x, cross, n);
  cost_balance(cost, cross, n, x->c->nchunk, part);
  for (uint32_t i = 0; i < x->nforward; i++) {
    Plan *p = &x->plan[i];
    if (!p->nunit) continue;
    x->c->task.at[i].chunk = part[p->unit];
    x->c->task.at[i].placed = true;
    for (uint32_t k = 0; p->cuttable && k < p->nunit; k++)
      add_unit_to_ranges(x->m, p, k, part[p->unit + k]);
  }
  return true;
}

// ---- the function with its repeats cut

static void push(Cut *c, Stmt s, Task t) {
  PUSH(c->m->arena, cut_fn(c)->stmt, s);
  PUSH(c->m->arena, c->task, t);
}

// The numbers of iterations first .. first + count - 1 as a value, to be passed slice by slice.
static Id numbers(Cut *c, const Call *call, const Range *r, Id loc) {
  Str name = str_printf("%s.number", call->iter && *call->iter ? call->iter : "layer");
  Id v = add_value(c, name, DT_I32, &r->count, 1, ROLE_LOCAL, loc), sub = ex_index(c->m, 0);
  Index index = {.name = str_intern("i"), .extent = r->count};
  Id body = fold_add(c->m, sub, ex_int(c->m, r->first));
  fn_comp(c->m, cut_fn(c), v, &sub, false, RED_NONE, &index, 1, 1, body, loc);
  PUSH(c->m->arena, c->task, (Task){.free = true});
  return v;
}

// Iterations r of the repeat. `carry` holds what the part before hands on, and then what this one
// does; the last one's results are the repeat's own. `piece[v]` is this range's part of a saved
// value.
static void push_part(Cutting *x, const Stmt *s, const Range *r, bool last, Id *carry, Id *piece,
                      Task t) {
  Cut *c = x->c;
  Stmt part = stmt_copy(x->m, cut_fn(c), s);
  Call *k = part.call;
  uint32_t nth = 0;
  k->count = r->count;
  for (uint32_t i = 0; i < k->narg; i++) {
    Actual *a = &k->arg[i];
    if (a->mode == ACT_ITER && r->first) *a = (Actual){ACT_SLICE, numbers(c, k, r, s->loc)};
    else if (a->mode == ACT_CARRY) a->value = carry[nth++];
    else if (a->mode == ACT_SLICE)
      a->value =
          is_held(c, a->value) ? held_part(c, a->value, r->first, r->count) : piece[a->value];
  }
  nth = 0;
  for (uint32_t i = 0; i < k->nresult; i++) {
    Result *o = &k->result[i];
    if (o->mode == RES_SLICE) o->value = piece[o->value] = resized(c, o->value, r->count);
    if (o->mode != RES_CARRY) continue;
    if (!last) o->value = resized(c, o->value, cut_fn(c)->value.at[o->value].extent[0]);
    carry[nth++] = o->value;
  }
  push(c, part, t);
}

static void push_repeat(Cutting *x, uint32_t at, Task t, Id *const *piece) {
  const Stmt *s = &x->stmt[at];
  bool back = x->plan[at].match != NONE;
  const Plan *p = &x->plan[back ? x->plan[at].match : at];
  Id carry[64];
  uint32_t n = 0;
  for (uint32_t i = 0; i < s->call->narg; i++)
    if (s->call->arg[i].mode == ACT_CARRY) {
      CHECK(n < sizeof carry / sizeof *carry);
      carry[n++] = s->call->arg[i].value;
    }
  for (uint32_t k = 0; k < p->range.n; k++) {
    uint32_t r = back ? p->range.n - 1 - k : k;
    t.chunk = p->range.at[r].chunk;
    t.placed = true;
    push_part(x, s, &p->range.at[r], k + 1 == p->range.n, carry, piece[r], t);
  }
}

static void rebuild(Cutting *x) {
  Cut *c = x->c;
  Fn *f = cut_fn(c);
  Task *task = c->task.at;
  uint32_t most = 0, nvalue = f->value.n + 1;
  f->stmt.at = NULL;
  f->stmt.n = f->stmt.cap = 0;
  c->task.at = NULL;
  c->task.n = c->task.cap = 0;
  for (uint32_t i = 0; i < x->n; i++)
    if (x->plan[i].range.n > most) most = x->plan[i].range.n;
  Id **piece = NEWN(x->m->arena, Id *, most + 1);
  for (uint32_t r = 0; r < most; r++) piece[r] = NEWN(x->m->arena, Id, nvalue);
  for (uint32_t i = 0; i < x->n; i++) {
    uint32_t own = x->plan[i].match != NONE ? x->plan[i].match : i;
    if (x->plan[own].range.n) push_repeat(x, i, task[i], piece);
    else push(c, x->stmt[i], task[i]);
  }
  cut_defs(c);
}

static Cutting examine(Cut *c) {
  uint32_t nforward = part_phases(c);
  Cutting x = {
      .c = c, .m = c->m, .stmt = cut_fn(c)->stmt.at, .n = cut_fn(c)->stmt.n, .nforward = nforward};
  x.plan = NEWN(c->m->arena, Plan, x.n + 1);
  match_repeats(&x);
  return x;
}

bool cut_step(Module *m, Id step, Cut *c) {
  begin(c, m, step, true);
  Cutting x = examine(c);
  if (!balance(&x)) return false;
  rebuild(&x);
  return true;
}

// ---- a function that follows another one's cut

// The part of parameter p that begins with slice `first`, on the first chunk from `chunk` on.
static bool find_part(const Cut *like, const ChunkSets *use, Id p, int64_t first, uint32_t chunk,
                      Range *r) {
  bool found = false;
  for (Id v = 0; v < like->held.n; v++) {
    const Held *h = &like->held.at[v];
    if (h->param != p || h->grad || h->first != first) continue;
    for (uint32_t k = chunk; k < like->nchunk; k++) {
      if (!set_has(use, v, k) || (found && r->chunk <= k)) continue;
      *r = (Range){first, h->count, k};
      found = true;
    }
  }
  return found;
}

static bool ranges_like(const Cutting *x, uint32_t at, const Cut *like, const ChunkSets *use,
                        uint32_t chunk) {
  const Call *c = x->stmt[at].call;
  Plan *p = &x->plan[at];
  Id param = NONE;
  for (uint32_t i = 0; i < c->narg && param == NONE; i++)
    if (c->arg[i].mode == ACT_SLICE && is_held(x->c, c->arg[i].value))
      param = x->c->held.at[c->arg[i].value].param;
  if (param == NONE) return false;
  for (int64_t layer = 0; layer < c->count;) {
    Range r;
    if (!find_part(like, use, param, layer, chunk, &r) || layer + r.count > c->count)
      return p->range.n = 0, false;
    PUSH(x->m->arena, p->range, r);
    layer += r.count;
    chunk = r.chunk;
  }
  return true;
}

typedef struct Earliest {
  const Cut *c;
  const Cut *like;
  const ChunkSets *use;
  const uint32_t *chunk; // by value: where it is made
  uint32_t at; // the last chunk of what is read
  ChunkSets allowed; // 0: chunks that hold the parameters; 1: of one of them
} Earliest;

static void note_earliest(Id v, void *ctx) {
  Earliest *e = ctx;
  if (is_uniform(e->c, v)) return;
  if (!is_held(e->c, v)) {
    if (e->chunk[v] > e->at) e->at = e->chunk[v];
    return;
  }
  const Held *h = &e->c->held.at[v];
  set_fill(&e->allowed, 1, 0);
  for (Id u = 0; u < e->like->held.n; u++) {
    const Held *o = &e->like->held.at[u];
    if (o->param == h->param && !o->grad && o->first == h->first && o->count == h->count)
      set_join(&e->allowed, 1, e->use, u);
  }
  set_keep(&e->allowed, 0, &e->allowed, 1);
}

typedef struct SetChunk {
  uint32_t *chunk, at;
} SetChunk;

static void set_chunk(Id v, void *ctx) {
  SetChunk *s = ctx;
  s->chunk[v] = s->at;
}

// Each statement goes to the first chunk that has what it reads. Returns the first statement of the function that no
// chunk can have, or NONE.
static uint32_t try_eval(Module *m, Id eval, const Cut *like, const ChunkSets *use, Cut *c) {
  begin(c, m, eval, false);
  Cutting x = examine(c);
  uint32_t *chunk = NEWN(m->arena, uint32_t, cut_fn(c)->value.n + 1);
  ChunkSets allowed = sets_new(m, like->nchunk, 2);
  x.nforward = x.n;
  for (uint32_t i = 0; i < x.n; i++) {
    Task *t = &c->task.at[i];
    t->phase = PHASE_F;
    x.plan[i].match = NONE;
    if (t->free) continue;
    Earliest e = {c, like, use, chunk, 0, allowed};
    set_fill(&allowed, 0, UINT64_MAX);
    bool cut = cuttable(&x, i);
    for (uint32_t k = 0; cut && k < x.stmt[i].call->narg; k++) { // slices are where their range is
      const Actual *a = &x.stmt[i].call->arg[k];
      if (a->mode != ACT_ITER && a->mode != ACT_SLICE) read_through(c, a->value, note_earliest, &e);
    }
    cut = cut && ranges_like(&x, i, like, use, e.at);
    if (!cut) cut_reads(c, &x.stmt[i], note_earliest, &e);
    if (x.stmt[i].acc) note_earliest(x.stmt[i].lhs, &e); // it goes on from what was added before
    uint32_t at = cut ? x.plan[i].range.at[x.plan[i].range.n - 1].chunk : e.at;
    while (!cut && at < c->nchunk && !set_has(&allowed, 0, at)) at++;
    if (at >= c->nchunk) return i;
    t->chunk = at;
    t->placed = true;
    stmt_writes(m, &x.stmt[i], set_chunk, &(SetChunk){chunk, at});
  }
  rebuild(&x);
  return NONE;
}

typedef struct Smallest {
  const Module *m;
  const Fn *f;
  Id param;
} Smallest;

static void note_smallest(Id v, void *ctx) {
  Smallest *s = ctx;
  const Value *x = &s->f->value.at[v];
  if (x->means != MEANS_PARAM || x->role != ROLE_IN) return;
  if (s->param == NONE || value_count(x) < value_count(&s->f->value.at[s->param])) s->param = v;
}

// The statement reads a copy of the smallest parameter that it reads: a stage that has the parameter makes the copy and
// sends it as it sends activations. False where the statement reads none, or slices of it.
static bool read_copy(Module *m, Fn *f, uint32_t stmt) {
  Smallest s = {m, f, NONE};
  stmt_reads(m, f, &f->stmt.at[stmt], note_smallest, &s);
  if (s.param == NONE) return false;
  const Call *call = f->stmt.at[stmt].call;
  for (uint32_t k = 0; call && k < call->narg; k++)
    if (call->arg[k].value == s.param && call->arg[k].mode == ACT_SLICE) return false;
  Value p = f->value.at[s.param];
  Id copy = fn_value(m, f, str_printf("%s.sent", p.name), p.type, p.extent, p.rank, ROLE_LOCAL, p.loc);
  memcpy(f->value.at[copy].shard, p.shard, sizeof p.shard);
  Id *value = NEWN(m->arena, Id, f->value.n);
  for (Id v = 0; v < f->value.n; v++) value[v] = v == s.param ? copy : v;
  Stmt reader = stmt_renumber(m, f, &f->stmt.at[stmt], value);
  fn_copy_stmt(m, f, copy, s.param, reader.loc);
  Stmt made = f->stmt.at[f->stmt.n - 1];
  memmove(&f->stmt.at[stmt + 1], &f->stmt.at[stmt], (f->stmt.n - 1 - stmt) * sizeof(Stmt));
  f->stmt.at[stmt] = made;
  f->stmt.at[stmt + 1] = reader;
  return true;
}

bool cut_eval(Module *m, Id eval, const char *verb, const Cut *like, const ChunkSets *use, Cut *c) {
  for (;;) {
    uint32_t stuck = try_eval(m, eval, like, use, c);
    if (stuck == NONE) return cut_accumulators(c), true;
    Fn *f = &m->fn.at[eval];
    Id loc = f->stmt.at[stuck].loc;
    if (read_copy(m, f, stuck)) continue;
    diag_error(m->src, loc,
               "a pipeline cannot %s this model: this needs layers in another order than the stages have them", verb);
    return false;
  }
}
