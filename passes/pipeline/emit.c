// The functions of the chunks, from a cut function whose statements are placed.
//
// A value that another phase or chunk reads leaves by a result and comes in by an argument: it is
// sent to the next chunk (by the backward pass: to the one before), which receives it and sends it
// on if a later one reads it; or it is kept with the microbatch. Value.of is the same wherever it is
// the same value: its number among those of the cut function that chunks exchange or keep.
#include "passes/pipeline/pipeline.h"

#include <stdlib.h>

typedef struct Needs {
  Cut *c;
  ChunkSets need[NPHASE]; // by value: chunks whose phase reads what is not made there
  ChunkSets use; // by held value: chunks that read it, or add to its gradient
  Phase phase;
  uint32_t chunk;
  uint32_t *number, passed; // by value: 1 + what Value.of says of it, 0: none yet; how many have one
} Needs;

static const Task *made_by(const Cut *c, Id v) {
  Id d = c->def[v];
  return d == NONE ? NULL : &c->task.at[d];
}

static void note_need(Id v, void *ctx) {
  Needs *n = ctx;
  if (is_held(n->c, v)) {
    if (!n->c->held.at[v].grad) set_add(&n->use, v, n->chunk);
    return;
  }
  const Task *t = made_by(n->c, v);
  if (!t || is_uniform(n->c, v)) return;
  if (t->phase != n->phase || t->chunk != n->chunk) set_add(&n->need[n->phase], v, n->chunk);
}

static bool same_piece(const Held *a, const Held *b) {
  return a->param == b->param && a->first == b->first && a->count == b->count;
}

static void note_grad(Id v, void *ctx) {
  Needs *n = ctx;
  if (!is_held(n->c, v)) return;
  for (Id u = 0; u < n->c->held.n; u++)
    if (!n->c->held.at[u].grad && same_piece(&n->c->held.at[u], &n->c->held.at[v]))
      set_add(&n->use, u, n->chunk);
}

// Whether the backward pass of a chunk from `from` to before `end` reads the value.
static bool back_needs(const Needs *n, Id v, uint32_t from, uint32_t end) {
  return set_meets(&n->need[PHASE_B], v, from, end) || set_meets(&n->need[PHASE_W], v, from, end);
}

// The same of either pass.
static bool any_needs(const Needs *n, Id v, uint32_t from, uint32_t end) {
  return set_meets(&n->need[PHASE_F], v, from, end) || back_needs(n, v, from, end);
}

static Needs find_needs(Cut *c) {
  Needs n = {.c = c};
  const Fn *f = cut_fn(c);
  for (int p = 0; p < NPHASE; p++) n.need[p] = sets_new(c->m, c->nchunk, f->value.n);
  n.use = sets_new(c->m, c->nchunk, f->value.n);
  n.number = NEWN(c->m->arena, uint32_t, f->value.n + 1);
  for (uint32_t i = 0; i < f->stmt.n; i++) {
    const Task *t = &c->task.at[i];
    if (t->free) continue;
    n.phase = t->phase;
    n.chunk = t->chunk;
    cut_reads(c, &f->stmt.at[i], note_need, &n);
    stmt_writes(c->m, &f->stmt.at[i], note_grad, &n);
  }
  n.phase = PHASE_F;
  n.chunk = c->nchunk - 1;
  for (uint32_t i = 0; i < f->result.n; i++) note_need(f->result.at[i], &n);
  for (Id v = 0; v < f->value.n; v++) { // what is sent down is kept until then where it is made
    const Task *t = made_by(c, v);
    if (t && t->phase == PHASE_F && !t->free && back_needs(&n, v, 0, t->chunk))
      set_add(&n.need[PHASE_B], v, t->chunk);
  }
  return n;
}

ChunkSets cut_use(Cut *c) { return find_needs(c).use; }

// ---- one function

typedef struct Emit {
  Needs *n;
  Cut *c;
  Module *m;
  const Chunk *chunk;
  Phase phase;
  uint32_t k;
  bool eval;
  Id fn, *map; // by value of the cut function: its value here
} Emit;

// How a value that is made elsewhere or read elsewhere passes the function.
static bool passes(const Emit *e, Id v, Meaning way) {
  const Task *t = made_by(e->c, v);
  if (!t || t->free || is_held(e->c, v) || is_uniform(e->c, v)) return false;
  const Needs *n = e->n;
  uint32_t k = e->k, end = e->c->nchunk;
  bool forward = t->phase == PHASE_F, in = way == MEANS_RECEIVED, out = way == MEANS_SENT;
  if (e->phase == PHASE_F) {
    if (!forward || t->chunk > k) return false;
    return in ? t->chunk < k && any_needs(n, v, k, end) : out ? any_needs(n, v, k + 1, end) : back_needs(n, v, k, k + 1);
  }
  if (e->phase == PHASE_W || t->phase == PHASE_W || t->chunk < k) return false;
  if (in) return t->chunk > k && back_needs(n, v, 0, k + 1);
  if (out) return back_needs(n, v, 0, k);
  return (!forward || t->chunk > k) && set_has(&n->need[PHASE_W], v, k);
}

static bool reads_slot(const Emit *e, Id v) {
  const Task *t = made_by(e->c, v);
  if (!t || t->free || e->phase == PHASE_F || !set_has(&e->n->need[e->phase], v, e->k)) return false;
  return e->phase == PHASE_W || (t->phase == PHASE_F && t->chunk <= e->k);
}

// A value of the function being made, like one of the cut function: one that passes it, `way`, or the
// same as there (MEANS_NONE).
static Id add(Emit *e, Id like, Meaning way, Role role) {
  static const char *const prefix[NMEANING] = {
      [MEANS_RECEIVED] = "$in", [MEANS_SENT] = "$out", [MEANS_KEPT] = "$slot"};
  Value v = cut_fn(e->c)->value.at[like];
  uint32_t *number = &e->n->number[like];
  if (way != MEANS_NONE && !*number) *number = ++e->n->passed;
  Str name = way != MEANS_NONE ? str_printf("%s.%s", prefix[way], v.name) : v.name;
  Meaning means = way != MEANS_NONE ? way : v.means;
  Id id = fn_meant(e->m, &e->m->fn.at[e->fn], name, means, way != MEANS_NONE ? *number - 1 : v.of, &v, role);
  memcpy(e->m->fn.at[e->fn].value.at[id].shard, v.shard, sizeof v.shard);
  return id;
}

static void add_arguments(Emit *e) {
  const Fn *f = cut_fn(e->c);
  for (uint32_t i = 0; i < e->c->nlead; i++)
    e->map[f->arg.at[i]] = add(e, f->arg.at[i], MEANS_NONE, ROLE_IN);
  uint32_t n = f->value.n;
  for (Id v = 0; v < n; v++)
    if (passes(e, v, MEANS_RECEIVED)) e->map[v] = add(e, v, MEANS_RECEIVED, ROLE_IN);
  for (Id v = 0; v < n; v++)
    if (reads_slot(e, v)) e->map[v] = add(e, v, MEANS_KEPT, ROLE_IN);
}

static void add_pieces(Emit *e, bool grads) {
  uint32_t nheld = e->c->held.n;
  for (uint32_t i = 0; i < e->chunk->piece.n; i++) {
    const Piece *p = &e->chunk->piece.at[i];
    const Param *q = &e->m->param.at[p->param];
    int64_t extent[MAX_RANK];
    memcpy(extent, q->extent, sizeof extent);
    Held h = {p->param, p->first, p->count, grads};
    Id like = NONE, id;
    for (Id v = 0; v < nheld; v++) {
      const Held *o = &e->c->held.at[v];
      if (like == NONE && o->param == h.param && o->grad == grads)
        like = v; // for type, shard and place
      if (same_piece(o, &h) && o->grad == grads) like = v;
    }
    CHECK(like != NONE);
    Value v = cut_fn(e->c)->value.at[like];
    memcpy(extent, v.extent, sizeof extent);
    if (q->nstack) extent[0] = p->count;
    Str name = grads ? str_printf("$grad.%s", q->name) : q->name;
    memcpy(v.extent, extent, sizeof extent);
    id = fn_meant(e->m, &e->m->fn.at[e->fn], name, grads ? MEANS_GRAD : MEANS_PARAM, p->param, &v,
                  grads ? ROLE_INOUT : ROLE_IN);
    memcpy(e->m->fn.at[e->fn].value.at[id].shard, v.shard, sizeof v.shard);
    for (Id u = 0; u < nheld; u++)
      if (same_piece(&e->c->held.at[u], &h) && e->c->held.at[u].grad == grads) e->map[u] = id;
  }
}

static void need_local(Id v, void *ctx) {
  Emit *e = ctx;
  if (e->map[v] != NONE) return;
  if (is_held(e->c, v)) BUG("%s: a chunk without its parameter", cut_fn(e->c)->value.at[v].name);
  e->map[v] = add(e, v, passes(e, v, MEANS_KEPT)   ? MEANS_KEPT
                        : passes(e, v, MEANS_SENT) ? MEANS_SENT
                                                   : MEANS_NONE,
                  ROLE_LOCAL);
}

typedef struct Take {
  const Cut *c;
  bool *take;
} Take;

static void take_free(Id v, void *ctx) {
  Take *t = ctx;
  Id d = t->c->def[v];
  if (d != NONE && t->c->task.at[d].free) t->take[d] = true;
}

static void add_statements(Emit *e) {
  Cut *c = e->c;
  bool *take = NEWN(e->m->arena, bool, cut_fn(c)->stmt.n + 1);
  Take t = {c, take};
  for (uint32_t i = cut_fn(c)->stmt.n; i-- > 0;) {
    const Task *k = &c->task.at[i];
    take[i] |= !k->free && k->phase == e->phase && k->chunk == e->k;
    if (take[i]) stmt_reads(e->m, cut_fn(c), &cut_fn(c)->stmt.at[i], take_free, &t);
  }
  bool last = e->phase == PHASE_F && e->k == c->nchunk - 1;
  for (uint32_t i = 0; last && i < cut_fn(c)->result.n; i++) take_free(cut_fn(c)->result.at[i], &t);
  for (uint32_t i = 0; i < cut_fn(c)->stmt.n; i++) {
    if (!take[i]) continue;
    stmt_reads(e->m, cut_fn(c), &cut_fn(c)->stmt.at[i], need_local, e);
    stmt_writes(e->m, &cut_fn(c)->stmt.at[i], need_local, e);
    Stmt s = stmt_renumber(e->m, cut_fn(c), &cut_fn(c)->stmt.at[i], e->map);
    PUSH(e->m->arena, e->m->fn.at[e->fn].stmt, s);
  }
}

static bool is_result_here(const Fn *g, Id v) {
  for (uint32_t i = 0; i < g->result.n; i++)
    if (g->result.at[i] == v) return true;
  return false;
}

// One more result: the value, or a copy of it where it is an argument or a result already.
static void add_result(Emit *e, Id v, Meaning way) {
  Id here = e->map[v];
  if (here == NONE) BUG("%s is in no stage", cut_fn(e->c)->value.at[v].name);
  Fn *g = &e->m->fn.at[e->fn];
  if (g->value.at[here].role != ROLE_LOCAL || is_result_here(g, here)) {
    Id copy = add(e, v, way, ROLE_LOCAL);
    g = &e->m->fn.at[e->fn];
    fn_copy_stmt(e->m, g, copy, here, g->value.at[copy].loc);
    here = copy;
  }
  PUSH(e->m->arena, g->result, here);
}

static void add_results(Emit *e) {
  uint32_t n = cut_fn(e->c)->value.n;
  for (Id v = 0; v < n; v++)
    if (passes(e, v, MEANS_KEPT)) add_result(e, v, MEANS_KEPT);
  for (Id v = 0; v < n; v++)
    if (passes(e, v, MEANS_SENT)) add_result(e, v, MEANS_SENT);
  if (e->phase != PHASE_F || e->k != e->c->nchunk - 1) return;
  for (uint32_t i = 0; i < cut_fn(e->c)->result.n; i++)
    add_result(e, cut_fn(e->c)->result.at[i], MEANS_NONE);
}

static Id emit(Needs *n, Phase phase, uint32_t k, Str name) {
  Module *m = n->c->m;
  Emit e = {.n = n, .c = n->c, .m = m, .chunk = &m->chunk.at[k], .phase = phase, .k = k};
  e.fn = fn_new(m, str_printf("chunk%u.%s", k, name), cut_fn(n->c)->loc);
  e.map = NEWN(m->arena, Id, cut_fn(n->c)->value.n + 1);
  memset(e.map, 0xff, (cut_fn(n->c)->value.n + 1) * sizeof(Id));
  add_arguments(&e);
  add_pieces(&e, false);
  if (phase != PHASE_F) add_pieces(&e, true);
  Fn *f = cut_fn(e.c);
  for (uint32_t i = f->arg.n - e.c->ntrail; i < f->arg.n; i++)
    e.map[f->arg.at[i]] = add(&e, f->arg.at[i], MEANS_NONE, ROLE_IN);
  add_statements(&e);
  add_results(&e);
  return e.fn;
}

// ---- what each chunk holds

static void add_chunk_pieces(const Needs *n, uint32_t k) {
  Module *m = n->c->m;
  Chunk *chunk = &m->chunk.at[k];
  for (Id p = 0; p < m->param.n; p++) {
    bool anywhere = false;
    for (Id v = 0; v < n->c->held.n; v++) {
      const Held *h = &n->c->held.at[v];
      if (h->param != p || h->grad) continue;
      anywhere |= set_meets(&n->use, v, 0, n->c->nchunk);
      if (set_has(&n->use, v, k)) PUSH(m->arena, chunk->piece, (Piece){p, h->first, h->count});
    }
    // A parameter that nothing reads is kept by the first chunk: it is saved, and may decay.
    int64_t all = m->param.at[p].nstack ? m->param.at[p].extent[0] : 1;
    if (!anywhere && k == 0) PUSH(m->arena, chunk->piece, (Piece){p, 0, all});
  }
}

// Chunks sum the gradient of a parameter that several hold, so they must hold the same part.
static bool check_shared(const Module *m) {
  for (uint32_t k = 0; k < m->chunk.n; k++)
    for (uint32_t i = 0; i < m->chunk.at[k].piece.n; i++)
      for (uint32_t l = 0; l < m->chunk.n; l++)
        for (uint32_t j = 0; j < m->chunk.at[l].piece.n; j++) {
          const Piece *p = &m->chunk.at[k].piece.at[i], *q = &m->chunk.at[l].piece.at[j];
          bool meet = p->param == q->param && p->first < q->first + q->count &&
                      q->first < p->first + p->count;
          if (!meet || (p->first == q->first && p->count == q->count)) continue;
          diag_error(m->src, m->param.at[p->param].loc,
                     "a pipeline cannot hold `%s` on stages that use different layers of it",
                     m->param.at[p->param].name);
          return false;
        }
  return true;
}

bool cut_emit(Cut *c) {
  Module *m = c->m;
  Needs n = find_needs(c);
  for (uint32_t k = 0; k < c->nchunk; k++) {
    PUSH(m->arena, m->chunk, (Chunk){.fn = {NONE, NONE, NONE, NONE, NONE}});
    add_chunk_pieces(&n, k);
  }
  if (!check_shared(m)) return false;
  for (uint32_t k = 0; k < c->nchunk; k++) {
    m->chunk.at[k].fn[CHUNK_FORWARD] = emit(&n, PHASE_F, k, str_intern("forward"));
    m->chunk.at[k].fn[CHUNK_BACKWARD] = emit(&n, PHASE_B, k, str_intern("backward"));
    if (m->split) m->chunk.at[k].fn[CHUNK_WEIGHTS] = emit(&n, PHASE_W, k, str_intern("weights"));
  }
  return true;
}

void cut_emit_eval(Cut *c, ChunkPart part) {
  Needs n = find_needs(c);
  for (uint32_t k = 0; k < c->nchunk; k++)
    c->m->chunk.at[k].fn[part] = emit(&n, PHASE_F, k, str_intern(chunk_part_name[part]));
}
