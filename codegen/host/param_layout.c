// Where parameters lie in a region. Those of a stack whose layers the program runs one by one lie
// layer by layer, so that one layer's are one array, which ranks can gather and reduce as such; any
// other parameter lies whole.
#include "codegen/lower/kernel.h"
#include "passes/util.h"

// "blocks" of "blocks.*.attn.qkv.weight"
static Str stack_of(const Param *p) {
  const char *star = strstr(p->name, ".*");
  return p->nstack && star ? str_internn(p->name, (size_t)(star - p->name)) : NULL;
}

// How a value is used: by the slices of repeats alone, and by how many of those.
typedef struct Use {
  bool whole;
  uint32_t repeats;
  uint32_t stmt; // the last of them
} Use;

static void use_in_call(const Fn *f, uint32_t at, Id v, Use *u) {
  const Call *c = f->stmt.at[at].call;
  bool repeat = f->stmt.at[at].kind == ST_REPEAT, any = false;
  for (uint32_t i = 0; i < c->narg; i++) {
    if (c->arg[i].mode == ACT_ITER || c->arg[i].value != v) continue;
    if (!repeat || c->arg[i].mode != ACT_SLICE || any) u->whole = true;
    any = true;
  }
  if (!any) return;
  u->repeats++;
  u->stmt = at;
}

static Use use_of(const Module *m, const Fn *f, Id v) {
  Use u = {0};
  for (uint32_t i = 0; i < f->stmt.n; i++) {
    const Stmt *s = &f->stmt.at[i];
    if (s->call) use_in_call(f, i, v, &u);
    else if (s->lhs == v || stmt_has_read(m, f, s, v)) u.whole = true;
  }
  return u;
}

// The repeat of the step that makes the gradient of a layer; NONE where the parameter must lie
// whole.
static Id layered_by(const Module *m, Id param) {
  static const Entry entry[] = {ENTRY_SAMPLE, ENTRY_STEP, ENTRY_EVAL};
  Id by = NONE;
  if (!stack_of(&m->param.at[param]) || m->entry[ENTRY_STEP] == NONE) return NONE;
  for (unsigned i = 0; i < sizeof entry / sizeof *entry; i++) {
    if (m->entry[entry[i]] == NONE) continue;
    const Fn *f = &m->fn.at[m->entry[entry[i]]];
    Id v = arg_find(f, MEANS_PARAM, param), g = arg_find(f, MEANS_GRAD, param);
    if (v == NONE || use_of(m, f, v).whole) return NONE;
    if (entry[i] != ENTRY_STEP) continue;
    Use u = g == NONE ? (Use){0} : use_of(m, f, g);
    if (u.whole || u.repeats != 1) return NONE;
    by = u.stmt;
  }
  return by;
}

typedef struct Place {
  Id param;
  const Fn *f;
  bool found;
} Place;

static void look(Id v, void *ctx) {
  Place *p = ctx;
  p->found |= value_means(&p->f->value.at[v], MEANS_PARAM, p->param);
}

static Id use_in(const Module *m, Id fn, Id param) {
  const Fn *f = &m->fn.at[fn];
  Place p = {param, f, false};
  for (uint32_t i = 0; i < f->stmt.n; i++) {
    stmt_reads(m, f, &f->stmt.at[i], look, &p);
    if (p.found) return f->stmt.at[i].loc;
  }
  return 0;
}

Id param_use(const Module *m, Id param) {
  Id loc = 0;
  if (m->entry[ENTRY_STEP] != NONE) return use_in(m, m->entry[ENTRY_STEP], param);
  for (uint32_t k = 0; k < m->chunk.n && !loc; k++)
    loc = use_in(m, m->chunk.at[k].fn[CHUNK_FORWARD], param);
  return loc;
}

static int64_t rounded(int64_t n) { return (n + 15) / 16 * 16; }

// Elements on this rank: of the entry's argument, which is local where the module is.
static int64_t local_count(const Module *m, Id param) {
  const Param *p = &m->param.at[param];
  const Fn *f = m->entry[ENTRY_STEP] == NONE ? NULL : &m->fn.at[m->entry[ENTRY_STEP]];
  Id v = f ? arg_find(f, MEANS_PARAM, param) : NONE;
  int64_t n = 1;
  if (v != NONE) return value_count(&f->value.at[v]);
  for (uint32_t d = 0; d < p->rank; d++) n *= p->extent[d];
  return n;
}

// The stack of that name, chunk and gradient's repeat, found or made; NONE where the name is
// another's.
static uint32_t find_stack(ParamLayout *l, Arena *a, StackPlace want) {
  for (uint32_t s = 0; s < l->stack.n; s++) {
    const StackPlace *t = &l->stack.at[s];
    if (t->name == want.name && t->chunk == want.chunk)
      return t->count == want.count && t->first == want.first && t->by == want.by ? s : NONE;
  }
  PUSH(a, l->stack, want);
  return l->stack.n - 1;
}

static ParamLayout *layout_new(const Module *m, uint32_t room) {
  ParamLayout *l = NEW(m->arena, ParamLayout);
  l->piece = NEWN(m->arena, Piece, room + 1);
  l->chunk = NEWN(m->arena, uint32_t, room + 1);
  l->param = NEWN(m->arena, ParamPlace, room + 1);
  return l;
}

// Parameters start at multiples of 16 elements: a cache line of fp32.
static void place_all(ParamLayout *l) {
  for (uint32_t i = 0; i < l->n; i++) {
    ParamPlace *q = &l->param[i];
    int64_t *at = q->stack == NONE ? &l->count : &l->stack.at[q->stack].stride;
    q->offset = *at;
    *at += rounded(q->stack == NONE ? q->count : q->count / l->stack.at[q->stack].count);
  }
  for (uint32_t s = 0; s < l->stack.n; s++) {
    l->stack.at[s].offset = l->count;
    l->count += l->stack.at[s].count * l->stack.at[s].stride;
  }
}

ParamLayout *param_layout(const Module *m) {
  ParamLayout *l = layout_new(m, m->param.n);
  for (uint32_t i = 0; i < m->param.n; i++) {
    const Param *p = &m->param.at[i];
    Id by = layered_by(m, i);
    int64_t layers = p->nstack ? p->extent[0] : 1;
    StackPlace want = {.name = by == NONE ? NULL : stack_of(p), .count = layers, .by = by};
    l->piece[l->n] = (Piece){i, 0, layers};
    l->param[l->n++] = (ParamPlace){.count = local_count(m, i),
                                    .stack = by == NONE ? NONE : find_stack(l, m->arena, want)};
  }
  place_all(l);
  return l;
}

// ---- a stage of a pipeline

// Argument `piece` of a chunk's function, or its gradient: parameters come before gradients, which
// come before the scalars that say which rank this is.
static Id piece_arg(const Module *m, const Chunk *c, ChunkPart part, uint32_t piece, bool grad) {
  const Fn *f = &m->fn.at[c->fn[part]];
  bool grads = part == CHUNK_BACKWARD || part == CHUNK_WEIGHTS;
  uint32_t trail = 0;
  for (uint32_t i = 0; i < f->arg.n; i++) trail += means_trailing(f->value.at[f->arg.at[i]].means);
  uint32_t first = f->arg.n - trail - c->piece.n * (grads ? 2 : 1);
  return f->arg.at[first + piece + (grad ? c->piece.n : 0)];
}

// Whether other chunks hold layers of it too: what they sum must lie the same way on all of them.
static bool is_shared(const Module *m, uint32_t chunk, const Piece *p) {
  for (uint32_t k = 0; k < m->chunk.n; k++)
    for (uint32_t i = 0; i < m->chunk.at[k].piece.n; i++) {
      const Piece *q = &m->chunk.at[k].piece.at[i];
      bool same = k == chunk && q == p;
      if (!same && q->param == p->param && q->first < p->first + p->count &&
          p->first < q->first + q->count)
        return true;
    }
  return false;
}

// As layered_by, of a chunk's piece: what tells the repeat from the chunk's others.
static Id chunk_layered_by(const Module *m, uint32_t chunk, uint32_t piece) {
  const Chunk *c = &m->chunk.at[chunk];
  const Piece *p = &c->piece.at[piece];
  Id by = NONE;
  uint32_t repeats = 0;
  if (!stack_of(&m->param.at[p->param]) || is_shared(m, chunk, p)) return NONE;
  for (int k = 0; k < NCHUNK_PART; k++) {
    if (c->fn[k] == NONE) continue;
    const Fn *f = &m->fn.at[c->fn[k]];
    if (use_of(m, f, piece_arg(m, c, (ChunkPart)k, piece, false)).whole) return NONE;
    if (k != CHUNK_BACKWARD && k != CHUNK_WEIGHTS) continue;
    Use u = use_of(m, f, piece_arg(m, c, (ChunkPart)k, piece, true));
    if (u.whole) return NONE;
    repeats += u.repeats;
    if (u.repeats) by = u.stmt * NCHUNK_PART + (uint32_t)k;
  }
  return repeats == 1 ? by : NONE;
}

ParamLayout *param_layout_stage(const Module *m, uint32_t stage) {
  uint32_t room = 0;
  for (uint32_t k = stage; k < m->chunk.n; k += m->stages) room += m->chunk.at[k].piece.n;
  ParamLayout *l = layout_new(m, room);
  for (uint32_t k = stage; k < m->chunk.n; k += m->stages) {
    const Chunk *c = &m->chunk.at[k];
    for (uint32_t i = 0; i < c->piece.n; i++) {
      const Piece *p = &c->piece.at[i];
      Id by = chunk_layered_by(m, k, i), v = piece_arg(m, c, CHUNK_FORWARD, i, false);
      StackPlace want = {.name = stack_of(&m->param.at[p->param]), .count = p->count, .by = by,
                         .first = p->first, .chunk = k};
      l->piece[l->n] = *p;
      l->chunk[l->n] = k;
      l->param[l->n++] =
          (ParamPlace){.count = value_count(&m->fn.at[c->fn[CHUNK_FORWARD]].value.at[v]),
                       .stack = by == NONE ? NONE : find_stack(l, m->arena, want)};
    }
  }
  place_all(l);
  return l;
}

const Value *param_gradient(const Module *m, const ParamLayout *l, uint32_t param) {
  const Piece *p = &l->piece[param];
  if (!m->chunk.n) {
    const Fn *f = m->entry[ENTRY_STEP] == NONE ? NULL : &m->fn.at[m->entry[ENTRY_STEP]];
    Id v = f ? arg_find(f, MEANS_GRAD, p->param) : NONE;
    return v == NONE ? NULL : &f->value.at[v];
  }
  uint32_t base = 0;
  while (l->chunk[base] != l->chunk[param]) base++;
  const Chunk *c = &m->chunk.at[l->chunk[param]];
  if (base + c->piece.n <= param) return NULL;
  Id v = piece_arg(m, c, CHUNK_BACKWARD, param - base, true);
  return &m->fn.at[c->fn[CHUNK_BACKWARD]].value.at[v];
}
