// Which statements share a kernel.
#include "codegen/lower/fuse.h"
#include "codegen/target.h"

// A group of distinct indices and nothing else.
static bool pure_group(const Module *m, Id id) {
  const Expr *e = ex(m, id);
  if (e->op != OP_GROUP) return false;
  uint32_t seen = 0;
  for (uint32_t i = 0; i < e->narg; i++) {
    const Expr *a = ex(m, ex_arg(m, id, i));
    if (a->op != OP_INDEX || (seen >> a->integer & 1)) return false;
    seen |= 1u << a->integer;
  }
  return true;
}

bool fuse_slot(const Module *m, const Stmt *s, const Id *sub, uint32_t rank, uint32_t index,
               Slot *slot) {
  for (uint32_t d = 0; d < rank; d++) {
    const Expr *e = ex(m, sub[d]);
    slot->dim = (uint8_t)d;
    slot->stride = 1;
    if (e->op == OP_INDEX && e->integer == index) return true;
    if (!pure_group(m, sub[d])) continue;
    for (uint32_t i = e->narg; i-- > 0;) {
      uint32_t at = (uint32_t)ex(m, ex_arg(m, sub[d], i))->integer;
      if (at == index) return true;
      slot->stride *= s->index[at].extent;
    }
  }
  return false;
}

uint8_t fuse_index_at(const Module *m, const Stmt *s, const Id *sub, uint32_t rank, Slot slot) {
  if (slot.dim >= rank) return NO_VAR;
  const Expr *e = ex(m, sub[slot.dim]);
  if (e->op == OP_INDEX) return slot.stride == 1 ? (uint8_t)e->integer : NO_VAR;
  if (!pure_group(m, sub[slot.dim])) return NO_VAR;
  int64_t stride = 1;
  for (uint32_t i = e->narg; i-- > 0;) {
    uint32_t at = (uint32_t)ex(m, ex_arg(m, sub[slot.dim], i))->integer;
    if (stride == slot.stride) return (uint8_t)at;
    stride *= s->index[at].extent;
  }
  return NO_VAR;
}

bool fuse_owned(const Module *m, const Fn *f, const Stmt *s, uint32_t index) {
  Slot slot;
  uint32_t rank = f->value.at[s->lhs].rank;
  if (fuse_slot(m, s, s->sub, rank, index, &slot)) return true;
  for (uint32_t d = 0; d < rank; d++) {
    Affine a = affine_of(m, s, s->sub[d]);
    bool alone = a.coef[index] != 0 && !a.nrest;
    for (uint32_t i = 0; i < s->nindex; i++) alone &= i == index || !a.coef[i];
    if (alone) return true;
  }
  return false;
}

bool fuse_injective(const Module *m, const Fn *f, const Stmt *s) {
  for (uint32_t i = 0; i < s->nfree; i++)
    if (s->index[i].extent > 1 && !fuse_owned(m, f, s, i)) return false;
  return true;
}

bool fuse_pieces(const Module *m, const Fn *f, const Stmt *s) {
  uint32_t seen = 0;
  const Value *v = &f->value.at[s->lhs];
  for (uint32_t d = 0; d < v->rank; d++) {
    uint32_t here = ex_indices(m, s->sub[d]);
    bool bare = ex_is(m, s->sub[d], OP_INDEX) || pure_group(m, s->sub[d]);
    if (!(bare || ex_is(m, s->sub[d], OP_INT)) || (here & seen)) return false;
    int64_t n = 1;
    for (uint32_t i = 0; i < s->nfree; i++)
      if (here >> i & 1) n *= s->index[i].extent;
    if (bare && n != v->extent[d]) return false;
    seen |= here;
  }
  return true;
}

bool fuse_whole(const Module *m, const Fn *f, const Stmt *s) {
  int64_t n = 1;
  for (uint32_t i = 0; i < s->nfree; i++) n *= s->index[i].extent;
  return fuse_pieces(m, f, s) && n == value_count(&f->value.at[s->lhs]);
}

// A statement alone: every free index that owns what it writes is a dimension of the grid.
static Member alone(const Fuse *u, Id stmt, uint32_t *ngrid) {
  const Stmt *s = &u->f->stmt.at[stmt];
  Member x = {.stmt = stmt, .vec = s->red == RED_NONE ? NO_VAR : u->m->target->lane_index(u, s)};
  *ngrid = 0;
  for (uint32_t i = 0; i < s->nfree; i++)
    if (!s->acc || fuse_owned(u->m, u->f, s, i)) x.grid[(*ngrid)++] = (uint8_t)i;
  return x;
}

static uint32_t new_group(Fuse *u, KernelKind kind) {
  PUSH(u->m->arena, u->group, (Group){.kind = kind, .fill = NONE});
  return u->group.n - 1;
}

// The first statement to write each accumulator; an accumulator that the caller gave has none.
static void first_writes(const Fuse *u, Id *first) {
  for (Id v = 0; v < u->f->value.n; v++) first[v] = NONE;
  for (uint32_t i = u->f->stmt.n; i-- > 0;) {
    const Stmt *s = &u->f->stmt.at[i];
    if (s->kind == ST_COMP && s->acc && u->f->value.at[s->lhs].role == ROLE_LOCAL)
      first[s->lhs] = i;
    for (uint32_t a = 0; s->call && a < s->call->narg; a++) {
      Id v = s->call->arg[a].value;
      const Fn *callee = &u->m->fn.at[s->call->fn];
      if (v == NONE || u->f->value.at[v].role != ROLE_LOCAL) continue;
      if (callee->value.at[callee->arg.at[a]].role == ROLE_INOUT) first[v] = i;
    }
  }
}

static void fill_before(Fuse *u, Id value) {
  uint32_t g = new_group(u, K_LOOPS);
  u->group.at[g].fill = value;
}

// Accumulators that a call adds to start at zero; an intrinsic's implementation stores.
static void fill_for_call(Fuse *u, uint32_t stmt, const Id *first) {
  const Call *c = u->f->stmt.at[stmt].call;
  if (match_intrinsic(u->m, u->f, &u->f->stmt.at[stmt], NULL)) return;
  for (uint32_t a = 0; a < c->narg; a++) {
    Id v = c->arg[a].value;
    bool before = false;
    for (uint32_t b = 0; b < a; b++) before |= c->arg[b].value == v;
    if (v != NONE && first[v] == stmt && !before) fill_before(u, v);
  }
}

static bool must_follow(const Fuse *u, const Group *g, const Stmt *s) {
  if (g->fill != NONE) return fuse_touches(u, s, g->fill);
  for (uint32_t i = 0; i < g->member.n; i++)
    if (fuse_depends(u, &u->f->stmt.at[g->member.at[i].stmt], s)) return true;
  return false;
}

// The earliest group that it may join: the last that it depends on, which made what it reads, or a
// later one.
static bool join_earlier(Fuse *u, const Member *x) {
  const Stmt *s = &u->f->stmt.at[x->stmt];
  uint32_t from = u->group.n;
  while (from > 0 && !must_follow(u, &u->group.at[from - 1], s)) from--;
  for (uint32_t g = from ? from - 1 : 0; g < u->group.n; g++)
    if (fuse_join(u, &u->group.at[g], x)) return true;
  return false;
}

static KernelKind kind_of(const Fuse *u, const Stmt *s) {
  if (s->kind == ST_COLL) return K_COLL;
  return match_intrinsic(u->m, u->f, s, NULL) ? K_INTRINSIC : K_CALL;
}

static void add_stmt(Fuse *u, Id *first, uint32_t stmt) {
  const Stmt *s = &u->f->stmt.at[stmt];
  if (s->kind != ST_COMP) {
    if (s->call) fill_for_call(u, stmt, first);
    uint32_t g = new_group(u, kind_of(u, s));
    PUSH(u->m->arena, u->group.at[g].member, (Member){.stmt = stmt});
    return;
  }
  bool pieces = u->pieces[s->lhs], init = s->acc && (pieces || first[s->lhs] == stmt);
  if (init && !pieces && !fuse_whole(u->m, u->f, s)) {
    fill_before(u, s->lhs);
    init = false;
  }
  GemmPlan gemm;
  ScanPlan scan;
  bool product = match_gemm(u->m, u->f, u->fp->layout, s, &gemm);
  bool running = !product && match_scan(u, s, &scan);
  uint32_t ngrid;
  Member x = alone(u, stmt, &ngrid);
  x.init = init;
  if (!product && !running && join_earlier(u, &x)) return;
  uint32_t g = new_group(u, product ? K_GEMM : running ? K_SCAN : K_LOOPS);
  Group *group = &u->group.at[g];
  group->ngrid = ngrid;
  if (product) {
    group->gemm = gemm;
    if (init) group->gemm.accumulate = false;
  }
  if (running) {
    group->scan = scan;
    if (init) group->scan.add = false;
  }
  PUSH(u->m->arena, group->member, x);
  const Epilogue *e = &u->epilogue[stmt];
  if (!product || !e->n) return;
  group->gemm = e->gemm;
  for (uint32_t i = 0; i < e->n; i++) PUSH(u->m->arena, group->member, (Member){.stmt = e->stmt[i]});
}

void fuse_groups(Fuse *u, const bool *skip) {
  Id *first = NEWN(u->m->arena, Id, u->f->value.n);
  first_writes(u, first);
  for (uint32_t i = 0; i < u->f->stmt.n; i++)
    if (!skip[i]) add_stmt(u, first, i);
}
