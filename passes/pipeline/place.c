// Which chunk runs each statement of the backward pass.
//
// A value of the forward pass is at hand on the chunks from the one that makes it to the last that
// reads it. The adjoint of a statement reads what the statement reads, and adjoints made by later
// chunks: so the last chunk that has all of these at hand is the statement's own, or a later one. A
// statement that reads or accumulates for a parameter goes to a chunk that has it. Adjoints are
// sent down from chunk to chunk, as activations are sent up. Where a sum of adjoints has a term
// that reads what a later chunk made, the forward value is sent down with them.
#include "passes/pipeline/pipeline.h"

typedef struct Place {
  Cut *c;
  uint32_t *made; // by value: the chunk that makes it; of an accumulator the lowest that adds
  uint32_t *last; // by value: the last chunk of the forward pass that reads it
  bool *forward, *backward; // by value: made by that pass
  ChunkSets use; // by value: chunks that have the parameter
  // of the statement at hand
  uint32_t lo, hi, bound;
  ChunkSets allowed; // one set
  uint32_t chunk;
} Place;

static void note_forward_use(Id v, void *ctx) {
  Place *p = ctx;
  set_add(&p->use, v, p->chunk);
  if (p->last[v] < p->chunk) p->last[v] = p->chunk;
}

static void note_made(Id v, void *ctx) {
  Place *p = ctx;
  p->made[v] = p->chunk;
  p->forward[v] = true;
  if (p->last[v] < p->chunk) p->last[v] = p->chunk;
}

// An accumulator that a call adds to is among what it reads, and may be made by nobody before.
static void note_bounds(Id v, void *ctx) {
  Place *p = ctx;
  if (is_uniform(p->c, v)) return;
  if (is_held(p->c, v)) {
    if (!p->c->held.at[v].grad) set_keep(&p->allowed, 0, &p->use, v);
  } else if (p->backward[v]) {
    if (p->made[v] < p->hi) p->hi = p->made[v];
  } else if (p->forward[v]) {
    if (p->made[v] > p->lo) p->lo = p->made[v];
    if (p->last[v] < p->bound) p->bound = p->last[v];
  }
}

// The parameter that a gradient is of.
static Id param_of(const Cut *c, Id grad) {
  const Held *h = &c->held.at[grad];
  for (Id v = 0; v < c->held.n; v++) {
    const Held *o = &c->held.at[v];
    if (o->param == h->param && !o->grad && o->first == h->first && o->count == h->count) return v;
  }
  BUG("a gradient of no parameter");
}

static void note_written(Id v, void *ctx) {
  Place *p = ctx;
  if (is_held(p->c, v)) set_keep(&p->allowed, 0, &p->use, param_of(p->c, v));
  else if (p->backward[v] && p->made[v] < p->hi) p->hi = p->made[v]; // another += came before
}

static void set_made(Id v, void *ctx) {
  Place *p = ctx;
  if (is_held(p->c, v)) set_add(&p->use, v, p->chunk);
  if (!p->backward[v] || p->chunk < p->made[v]) p->made[v] = p->chunk;
  p->backward[v] = true;
}

static void set_use(Id v, void *ctx) {
  Place *p = ctx;
  if (is_held(p->c, v)) set_add(&p->use, v, p->chunk);
}

// Only where a later pass has mixed the adjoints of several layers.
static bool crossed(const Cut *c, const Stmt *s) {
  diag_error(c->m->src, s->loc,
             "a pipeline cannot be cut here: the backward pass of a later stage needs a value that "
             "an earlier stage computes in its backward pass");
  return false;
}

static bool place_backward(Place *p, uint32_t at) {
  Cut *c = p->c;
  const Stmt *s = &cut_fn(c)->stmt.at[at];
  Task *t = &c->task.at[at];
  p->lo = 0;
  p->hi = p->bound = c->nchunk - 1;
  set_fill(&p->allowed, 0, UINT64_MAX);
  cut_reads(c, s, note_bounds, p);
  stmt_writes(c->m, s, note_written, p);
  if (t->placed) {
    if (t->chunk > p->hi) return crossed(c, s);
    p->chunk = t->chunk;
  } else {
    uint32_t most = p->bound < p->hi ? p->bound : p->hi;
    if (most < p->lo) most = p->lo < p->hi ? p->lo : p->hi;
    p->chunk = most;
    while (p->chunk > p->lo && !set_has(&p->allowed, 0, p->chunk)) p->chunk--;
    if (!set_has(&p->allowed, 0, p->chunk)) p->chunk = most; // that chunk gets the parameter too
  }
  t->chunk = p->chunk;
  t->placed = true;
  cut_reads(c, s, set_use, p);
  stmt_writes(c->m, s, set_made, p);
  return true;
}

// ---- accumulators that several chunks add to

typedef struct Rename {
  Id from, to;
} Rename;

static void rename_in(Cut *c, Stmt *s, const Rename *r) {
  Fn *f = cut_fn(c);
  Id *value = NEWN(c->m->arena, Id, f->value.n + 1);
  for (Id v = 0; v < f->value.n; v++) value[v] = v == r->from ? r->to : v;
  *s = stmt_renumber(c->m, f, s, value);
}

typedef struct Writes {
  Id value;
  bool any;
} Writes;

static void note_write(Id v, void *ctx) {
  Writes *w = ctx;
  w->any |= v == w->value;
}

static bool adds_to(const Cut *c, const Stmt *s, Id v) {
  Writes w = {v, false};
  if (!s->call && !s->acc) return false;
  stmt_writes(c->m, s, note_write, &w);
  return w.any;
}

static Id new_version(Cut *c, Id like) {
  Value v = cut_fn(c)->value.at[like];
  Id id = fn_value(c->m, cut_fn(c), v.name, v.type, v.extent, v.rank, ROLE_LOCAL, v.loc);
  memcpy(cut_fn(c)->value.at[id].shard, v.shard, sizeof v.shard);
  PUSH(c->m->arena, c->held, (Held){.param = NONE});
  return id;
}

// to[...] += from[...] on a chunk: the sum goes on from what it came to before.
static void insert_start(Cut *c, uint32_t at, Id to, Id from, Task t) {
  Fn *f = cut_fn(c);
  fn_copy_stmt(c->m, f, to, from, f->value.at[to].loc);
  PUSH(c->m->arena, c->task, t);
  Stmt s = f->stmt.at[f->stmt.n - 1];
  s.acc = true;
  memmove(&f->stmt.at[at + 1], &f->stmt.at[at], (f->stmt.n - 1 - at) * sizeof s);
  memmove(&c->task.at[at + 1], &c->task.at[at], (c->task.n - 1 - at) * sizeof t);
  f->stmt.at[at] = s;
  c->task.at[at] = t;
}

// Where a chunk adds to what a later one has begun, it adds to a new value that starts as
// the other's: the order of additions is that of the uncut function.
static void part_accumulator(Cut *c, Id v) {
  Rename r = {v, v};
  uint32_t at = UINT32_MAX;
  for (uint32_t i = 0; i < cut_fn(c)->stmt.n; i++) {
    if (r.to != v) rename_in(c, &cut_fn(c)->stmt.at[i], &r);
    if (!adds_to(c, &cut_fn(c)->stmt.at[i], r.to)) continue;
    Task t = c->task.at[i];
    if (at != UINT32_MAX && t.chunk != at) {
      Id before = r.to;
      r = (Rename){r.to, new_version(c, v)};
      rename_in(c, &cut_fn(c)->stmt.at[i], &r);
      insert_start(c, i++, r.to, before, t);
      r.from = v;
    }
    at = t.chunk;
  }
}

static bool is_accumulator(const Cut *c, Id v) {
  const Fn *f = cut_fn(c);
  if (is_held(c, v) || f->value.at[v].role != ROLE_LOCAL) return false;
  uint32_t n = 0;
  for (uint32_t i = 0; i < f->stmt.n; i++) n += adds_to(c, &f->stmt.at[i], v);
  return n > 1;
}

void cut_accumulators(Cut *c) {
  uint32_t n = cut_fn(c)->value.n;
  for (Id v = 0; v < n; v++)
    if (is_accumulator(c, v)) part_accumulator(c, v);
  cut_defs(c);
}

bool cut_place(Cut *c) {
  uint32_t n = cut_fn(c)->value.n + 1;
  Place p = {.c = c};
  p.made = NEWN(c->m->arena, uint32_t, n);
  p.last = NEWN(c->m->arena, uint32_t, n);
  p.forward = NEWN(c->m->arena, bool, n);
  p.backward = NEWN(c->m->arena, bool, n);
  p.use = sets_new(c->m, c->nchunk, n);
  p.allowed = sets_new(c->m, c->nchunk, 1);
  for (uint32_t i = 0; i < cut_fn(c)->stmt.n; i++) {
    const Task *t = &c->task.at[i];
    if (t->free || t->phase != PHASE_F) continue;
    p.chunk = t->chunk;
    cut_reads(c, &cut_fn(c)->stmt.at[i], note_forward_use, &p);
    stmt_writes(c->m, &cut_fn(c)->stmt.at[i], note_made, &p);
  }
  for (uint32_t i = 0; i < cut_fn(c)->stmt.n; i++)
    if (!c->task.at[i].free && c->task.at[i].phase == PHASE_B && !place_backward(&p, i))
      return false;
  cut_accumulators(c);
  return true;
}
