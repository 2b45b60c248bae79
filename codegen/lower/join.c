// Whether a statement may run in a kernel of earlier ones, and whether it should.
//
// May: at each grid point it touches only what that point's earlier statements wrote, so points
// stay independent. That maps each dimension of the grid to an index of the statement; dimensions
// that it can't map are dropped, for all members (a smaller grid only makes points do more, in the
// same order).
// Should: enough points are left to share among threads, what passes between the statements fits a
// cache, and no statement loses the index that its lanes need.
#include "codegen/lower/fuse.h"
#include "codegen/target.h"

typedef struct Join {
  const Fuse *u;
  const Group *g;
  const Member *x; // the member that is being compared
  const Stmt *t, *s; // its statement, the candidate
  uint8_t image[MAX_INDEX]; // for each dimension the candidate's index, or NO_VAR
  bool drop[MAX_INDEX];
  bool dependent, siblings; // siblings: compare what both read
  double shared; // elements of the largest value that both read
  double exchange; // bytes that pass from the group to the candidate
  Id read; // siblings: a READ of t
} Join;

static void read_subs(const Module *m, Id read, Id *sub) {
  for (uint32_t d = 0; d < ex(m, read)->narg; d++) sub[d] = ex_arg(m, read, d);
}

static void drop_all(Join *j) { memset(j->drop, true, sizeof j->drop); }

// Accesses of t at `ts` and s at `ss` must be at the same element's grid point. Of what both only
// read (siblings), a dimension that does not occur says nothing.
static void constrain(Join *j, const Id *ts, const Id *ss, uint32_t rank) {
  const Module *m = j->u->m;
  for (uint32_t k = 0; k < j->g->ngrid; k++) {
    Slot slot;
    if (j->drop[k]) continue;
    bool there = fuse_slot(m, j->t, ts, rank, j->x->grid[k], &slot);
    if (!there && j->siblings) continue;
    uint8_t i = there ? fuse_index_at(m, j->s, ss, rank, slot) : NO_VAR;
    bool fits = i != NO_VAR && i < j->s->nfree &&
                j->s->index[i].extent == j->t->index[j->x->grid[k]].extent;
    if (!fits || (j->image[k] != NO_VAR && j->image[k] != i)) j->drop[k] = true;
    else j->image[k] = i;
  }
}

static void candidate_read(const Module *m, Id read, void *ctx) {
  Join *j = ctx;
  Id value = (Id)ex(m, read)->integer, sub[MAX_RANK];
  const Layout *l = j->u->fp->layout;
  if (l[value].buffer != l[j->t->lhs].buffer) return;
  const Value *v = &j->u->f->value.at[value];
  j->dependent = true;
  j->exchange += (double)value_count(v) * dtype_size(v->type);
  if (value != j->t->lhs) drop_all(j);
  read_subs(m, read, sub);
  constrain(j, j->t->sub, sub, ex(m, read)->narg);
}

static void member_read(const Module *m, Id read, void *ctx) {
  Join *j = ctx;
  Id value = (Id)ex(m, read)->integer, sub[MAX_RANK];
  const Layout *l = j->u->fp->layout;
  read_subs(m, read, sub);
  if (l[value].buffer == l[j->s->lhs].buffer) drop_all(j), j->dependent = true;
  if (j->u->alias[j->s->lhs] == NONE || l[j->u->alias[j->s->lhs]].buffer != l[value].buffer) return;
  j->dependent = true;
  if (j->u->alias[j->s->lhs] != value) drop_all(j);
  constrain(j, sub, j->s->sub, ex(m, read)->narg);
}

static void compare(Join *j) {
  comp_reads(j->u->m, j->u->f, j->s, candidate_read, j);
  comp_reads(j->u->m, j->u->f, j->t, member_read, j);
  const Layout *l = j->u->fp->layout;
  if (l[j->t->lhs].buffer != l[j->s->lhs].buffer) return;
  j->dependent = true;
  if (j->t->lhs != j->s->lhs) drop_all(j);
  constrain(j, j->t->sub, j->s->sub, j->u->f->value.at[j->s->lhs].rank);
}

static void sibling_pair(const Module *m, Id read, void *ctx) {
  Join *j = ctx;
  Id ts[MAX_RANK], ss[MAX_RANK];
  if (ex(m, read)->integer != ex(m, j->read)->integer) return;
  const Value *v = &j->u->f->value.at[ex(m, read)->integer];
  if (value_count(v) < m->limits.join_elements) return;
  read_subs(m, j->read, ts);
  read_subs(m, read, ss);
  if ((double)value_count(v) > j->shared) j->shared = (double)value_count(v);
  constrain(j, ts, ss, v->rank);
}

static void sibling_read(const Module *m, Id read, void *ctx) {
  (void)m;
  Join *j = ctx;
  j->read = read;
  comp_reads(j->u->m, j->u->f, j->s, sibling_pair, j);
}

static double points(const Stmt *s, uint32_t n) {
  double p = 1;
  for (uint32_t i = 0; i < n; i++) p *= (double)s->index[i].extent;
  return p;
}

static uint32_t kept(const Join *j, double *count) {
  uint32_t n = 0;
  *count = 1;
  for (uint32_t k = 0; k < j->g->ngrid; k++) {
    if (j->drop[k]) continue;
    n++;
    *count *=
        (double)j->u->f->stmt.at[j->g->member.at[0].stmt].index[j->g->member.at[0].grid[k]].extent;
  }
  return n;
}

static uint8_t wanted_lane(const Fuse *u, const Stmt *s) { return u->m->target->lane_index(u, s); }

static uint8_t dim_of(const Join *j, const Member *x, uint8_t index) {
  for (uint32_t k = 0; k < j->g->ngrid; k++)
    if (!j->drop[k] && (x ? x->grid[k] : j->image[k]) == index) return (uint8_t)k;
  return NO_VAR;
}

// The whole grid may run in lanes where all free indices of all members are of it: then the target may cut it into tiles.
static bool all_in_lanes(const Join *j, uint32_t ngrid) {
  uint8_t lane = NO_VAR;
  for (uint32_t i = 0; i <= j->g->member.n; i++) {
    const Member *x = i < j->g->member.n ? &j->g->member.at[i] : NULL;
    const Stmt *s = x ? &j->u->f->stmt.at[x->stmt] : j->s;
    if (s->nfree != ngrid || !ngrid) return false;
    if (s->red == RED_NONE) continue;
    uint8_t want = x ? x->vec : wanted_lane(j->u, s);
    if (want == NO_VAR || want >= s->nfree) return false;
    uint8_t k = dim_of(j, x, want);
    if (lane != NO_VAR && lane != k) return false;
    lane = k;
  }
  return true;
}

// Takes out of the grid what some statement runs in lanes. True if anything went.
static bool free_lanes(Join *j, uint32_t ngrid) {
  bool any = false;
  for (uint32_t i = 0; i <= j->g->member.n; i++) {
    const Member *x = i < j->g->member.n ? &j->g->member.at[i] : NULL;
    const Stmt *s = x ? &j->u->f->stmt.at[x->stmt] : j->s;
    if (s->red == RED_NONE && s->nfree == ngrid) continue; // scalars at each point
    uint8_t want = wanted_lane(j->u, s), k = want == NO_VAR ? NO_VAR : dim_of(j, x, want);
    if (k == NO_VAR) continue;
    j->drop[k] = true;
    any = true;
  }
  return any;
}

static double work(const Join *j) {
  double n = points(j->s, j->s->nindex);
  for (uint32_t i = 0; i < j->g->member.n; i++) {
    const Stmt *s = &j->u->f->stmt.at[j->g->member.at[i].stmt];
    n += points(s, s->nindex);
  }
  return n;
}

static bool worthwhile(const Join *j, uint32_t ngrid, double count) {
  double all = 1;
  const Limits *l = &j->u->m->limits;
  for (uint32_t k = 0; k < j->g->ngrid; k++)
    all *=
        (double)j->u->f->stmt.at[j->g->member.at[0].stmt].index[j->g->member.at[0].grid[k]].extent;
  if (work(j) <= (double)l->join_work) return j->dependent || j->shared > 0;
  if (count < (double)l->join_points && (count < all || count < points(j->s, j->s->nfree)))
    return false;
  if (j->siblings)
    return ngrid == j->g->ngrid && j->shared > 0 && count == points(j->s, j->s->nfree);
  return j->exchange / count <= (double)l->join_bytes;
}

// Statements that write one element several times own only some of their indices.
static void keep_owned(Join *j) {
  for (uint32_t k = 0; k < j->g->ngrid; k++) {
    if (!j->drop[k] && j->image[k] == NO_VAR) j->drop[k] = true;
    if (!j->drop[k] && j->s->acc && !fuse_owned(j->u->m, j->u->f, j->s, j->image[k]))
      j->drop[k] = true;
    for (uint32_t i = 0; i < k; i++)
      if (!j->drop[k] && !j->drop[i] && j->image[i] == j->image[k]) j->drop[k] = true;
  }
}

static void shrink(Group *g, Join *j, Member *x) {
  uint32_t n = 0;
  for (uint32_t k = 0; k < g->ngrid; k++) {
    if (j->drop[k]) continue;
    for (uint32_t i = 0; i < g->member.n; i++) g->member.at[i].grid[n] = g->member.at[i].grid[k];
    x->grid[n++] = j->image[k];
  }
  g->ngrid = n;
}

// Whether the kernel has room for all loops, were none of those within the grid shared.
static bool enough_vars(const Join *j, uint32_t ngrid) {
  uint32_t n = j->s->nindex;
  for (uint32_t i = 0; i < j->g->member.n; i++)
    n += j->u->f->stmt.at[j->g->member.at[i].stmt].nindex - ngrid;
  return n <= MAX_VAR;
}

bool fuse_join(Fuse *u, Group *g, const Member *candidate) {
  if (g->kind != K_LOOPS || g->fill != NONE || g->member.n >= u->m->limits.kernel_statements)
    return false;
  Join j = {.u = u, .g = g, .s = &u->f->stmt.at[candidate->stmt]};
  memset(j.image, NO_VAR, sizeof j.image);
  for (uint32_t i = 0; i < g->member.n; i++) {
    j.x = &g->member.at[i];
    j.t = &u->f->stmt.at[j.x->stmt];
    compare(&j);
  }
  j.siblings = !j.dependent;
  for (uint32_t i = 0; j.siblings && i < g->member.n; i++) {
    j.x = &g->member.at[i];
    j.t = &u->f->stmt.at[j.x->stmt];
    comp_reads(u->m, u->f, j.t, sibling_read, &j);
  }
  keep_owned(&j);
  double count;
  uint32_t n = kept(&j, &count);
  while (!all_in_lanes(&j, n) && free_lanes(&j, n)) n = kept(&j, &count);
  if (!worthwhile(&j, n, count) || !enough_vars(&j, n)) return false;
  Member x = *candidate;
  shrink(g, &j, &x);
  PUSH(u->m->arena, g->member, x);
  return true;
}

typedef struct Uses {
  const Fuse *u;
  Id buffer;
  bool found;
} Uses;

static void find_use(const Module *m, Id read, void *ctx) {
  Uses *x = ctx;
  x->found |= x->u->fp->layout[ex(m, read)->integer].buffer == x->buffer;
}

static bool same_buffer(const Fuse *u, Id value, Id buffer) {
  return value != NONE && u->fp->layout[value].buffer == buffer;
}

static bool writes(const Fuse *u, const Stmt *s, Id buffer) {
  if (!s->call) return same_buffer(u, s->lhs, buffer);
  const Fn *callee = &u->m->fn.at[s->call->fn];
  for (uint32_t i = 0; i < s->call->nresult; i++)
    if (same_buffer(u, s->call->result[i].value, buffer)) return true;
  for (uint32_t i = 0; i < s->call->narg; i++)
    if (same_buffer(u, s->call->arg[i].value, buffer) &&
        callee->value.at[callee->arg.at[i]].role == ROLE_INOUT)
      return true;
  return false;
}

static bool reads(const Fuse *u, const Stmt *s, Id buffer) {
  if (s->kind == ST_COMP) {
    Uses x = {u, buffer, false};
    comp_reads(u->m, u->f, s, find_use, &x);
    return x.found;
  }
  if (!s->call) return same_buffer(u, s->from, buffer);
  for (uint32_t i = 0; i < s->call->narg; i++)
    if (same_buffer(u, s->call->arg[i].value, buffer)) return true;
  return false;
}

// The values that a statement may write, by number.
static uint32_t nwritten(const Stmt *s) { return s->call ? s->call->nresult + s->call->narg : 1; }
static Id written(const Stmt *s, uint32_t i) {
  if (!s->call) return s->lhs;
  return i < s->call->nresult ? s->call->result[i].value : s->call->arg[i - s->call->nresult].value;
}

// t, the earlier one, touches a buffer that s writes, or that s takes over.
static bool touches_written(const Fuse *u, const Stmt *t, const Stmt *s) {
  for (uint32_t i = 0; i < nwritten(s); i++) {
    Id v = written(s, i);
    if (v == NONE) continue;
    Id b = u->fp->layout[v].buffer;
    if (writes(u, s, b) && (writes(u, t, b) || reads(u, t, b))) return true;
    if (u->alias[v] != NONE && (reads(u, t, u->alias[v]) || writes(u, t, u->alias[v]))) return true;
  }
  return false;
}

bool fuse_depends(const Fuse *u, const Stmt *t, const Stmt *s) {
  if (touches_written(u, t, s)) return true;
  for (uint32_t i = 0; i < nwritten(t); i++) {
    Id v = written(t, i);
    if (v == NONE) continue;
    Id b = u->fp->layout[v].buffer;
    if (writes(u, t, b) && reads(u, s, b)) return true;
    if (u->alias[v] != NONE && reads(u, s, u->alias[v])) return true;
  }
  return false;
}

bool fuse_touches(const Fuse *u, const Stmt *s, Id buffer) {
  return writes(u, s, buffer) || reads(u, s, buffer);
}
