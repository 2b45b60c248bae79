// Where each value lies, and statements that move nothing.
//
//   q[b, t, h, e] = qkv[b, t, 0, h, e]      q lies in qkv's storage (forward view)
//   dqkv[b, t, 0, h, e] += dq[b, t, h, e]   dq lies in dqkv's, if it is made here (reverse view)
//   dqkv[b, t, c, h, e] = where(0 == c, dq[b, t, h, e], 0.0) + where(1 == c, dk[b, t, h, e], 0.0)
//                         + where(2 == c, dv[b, t, h, e], 0.0)
//                                           likewise all of them, as they fill it (assembly)
//
// Such a statement gets no kernel. A view's last dimension stays contiguous: consumers read it
// along that.
#include "codegen/lower/fuse.h"

Layout layout_own(const Fn *f, Id v) {
  const Value *value = &f->value.at[v];
  Layout l = {.buffer = v};
  int64_t n = 1;
  for (uint32_t d = value->rank; d-- > 0; n *= value->extent[d]) l.stride[d] = n;
  return l;
}

// One step of a dimension in terms of an address: the index's coefficient; of a group, the
// innermost's, where the outer ones count on row-major.
static bool dim_stride(const Module *m, const Stmt *s, Id sub, const Affine *a, int64_t *stride) {
  const Expr *e = ex(m, sub);
  if (e->op == OP_INT) return *stride = 0, true;
  if (e->op == OP_INDEX) return *stride = a->coef[e->integer], true;
  if (e->op != OP_GROUP) return false;
  int64_t want = 0;
  bool first = true;
  for (uint32_t i = e->narg; i-- > 0;) {
    const Expr *x = ex(m, ex_arg(m, sub, i));
    if (x->op != OP_INDEX) return false;
    int64_t extent = s->index[x->integer].extent;
    if (extent == 1) continue;
    if (first) *stride = a->coef[x->integer];
    else if (a->coef[x->integer] != want) return false;
    want = a->coef[x->integer] * extent;
    first = false;
  }
  if (first) *stride = 0;
  return true;
}

// Each dimension's subscript is an index, or a group of them, no index twice, every element once.
// A dimension of one element may have a constant.
static bool covers(const Module *m, const Stmt *s, const Value *v, const Id *sub) {
  uint32_t seen = 0;
  for (uint32_t d = 0; d < v->rank; d++) {
    const Expr *e = ex(m, sub[d]);
    if (e->op == OP_INT && v->extent[d] == 1) continue;
    if (e->op != OP_INDEX && e->op != OP_GROUP) return false;
    int64_t n = 1;
    for (uint32_t i = 0; i < (e->op == OP_INDEX ? 1u : e->narg); i++) {
      const Expr *x = e->op == OP_INDEX ? e : ex(m, ex_arg(m, sub[d], i));
      if (x->op != OP_INDEX || (seen >> x->integer & 1)) return false;
      seen |= 1u << x->integer;
      n *= s->index[x->integer].extent;
    }
    if (n != v->extent[d]) return false;
  }
  return true;
}

static bool strides_of(const Fuse *u, const Stmt *s, const Value *v, const Id *sub, const Affine *a,
                       Layout *l) {
  for (uint32_t d = 0; d < v->rank; d++)
    if (!dim_stride(u->m, s, sub[d], a, &l->stride[d])) return false;
  l->offset = a->base;
  for (uint32_t d = v->rank; d-- > 0;)
    if (v->extent[d] > 1) return l->stride[d] == 1;
  return true;
}

static bool row_major(const Value *v, const Layout *l) {
  int64_t n = 1;
  for (uint32_t d = v->rank; d-- > 0; n *= v->extent[d])
    if (v->extent[d] > 1 && l->stride[d] != n) return false;
  return l->offset == 0;
}

// Functions and collectives get whole, contiguous buffers; intrinsics take strides.
static bool is_actual(const Fuse *u, Id value) {
  for (uint32_t i = 0; i < u->f->stmt.n; i++) {
    const Stmt *s = &u->f->stmt.at[i];
    if (s->kind == ST_COLL && (s->lhs == value || s->from == value)) return true;
    if (!s->call) continue;
    if (match_intrinsic(u->m, u->f, s, NULL)) continue;
    for (uint32_t a = 0; a < s->call->narg; a++)
      if (s->call->arg[a].value == value) return true;
    for (uint32_t r = 0; r < s->call->nresult; r++)
      if (s->call->result[r].value == value) return true;
  }
  return false;
}

static bool is_result(const Fuse *u, Id value) {
  for (uint32_t i = 0; i < u->f->result.n; i++)
    if (u->f->result.at[i] == value) return true;
  return false;
}

// Storage that a result takes over changes under a view's eyes.
static bool overwritten(const Fuse *u, Id buffer) {
  for (Id v = 0; v < u->f->value.n; v++)
    if (u->alias[v] == buffer) return true;
  return false;
}

static bool renames(const Fuse *u, const Stmt *s) {
  if (s->kind != ST_COMP || s->red != RED_NONE || !ex_is(u->m, s->body, OP_READ)) return false;
  Id from = (Id)ex(u->m, s->body)->integer;
  Affine a = affine_read(u->m, u->fp->layout, s, s->body),
         l = affine_lhs(u->m, u->f, u->fp->layout, s);
  return u->f->value.at[from].type == u->f->value.at[s->lhs].type && !a.nrest && !l.nrest;
}

// ---- a view changes no sum

static void note_touch(Id v, void *ctx) {
  Id *value = ctx;
  if (v == *value) *value = NONE;
}

static bool touches(const Fuse *u, const Stmt *s, Id value) {
  Id left = value;
  if (s->lhs == value) return true;
  stmt_reads(u->m, u->f, s, note_touch, &left);
  return left == NONE;
}

// Whether both add up alike: as many terms in one run, and the same loops around it that sum.
static bool same_sums(const GemmPlan *a, const GemmPlan *b) {
  uint32_t i = 0, j = 0;
  if (a->k != b->k) return false;
  for (;;) {
    while (i < a->nbatch && a->batch[i].c) i++;
    while (j < b->nbatch && b->batch[j].c) j++;
    if (i == a->nbatch || j == b->nbatch) return i == a->nbatch && j == b->nbatch;
    if (a->batch[i++].count != b->batch[j++].count) return false;
  }
}

// Whether each product of matrices that reads or makes the value stays one, and adds up in the order of now, with the value
// there. A value that is saved lies apart, and one that is computed again may be a view: both are to give the same bits.
static bool keeps_sums(Fuse *u, Id value, const Layout *there) {
  Layout *at = &u->fp->layout[value], now = *at;
  for (uint32_t i = 0; i < u->f->stmt.n; i++) {
    const Stmt *s = &u->f->stmt.at[i];
    GemmPlan before, after;
    if (s->kind != ST_COMP || s->red != RED_SUM || !touches(u, s, value)) continue;
    bool was = match_gemm(u->m, u->f, u->fp->layout, s, &before);
    *at = *there;
    bool is = match_gemm(u->m, u->f, u->fp->layout, s, &after);
    *at = now;
    if (was != is || (was && !same_sums(&before, &after))) return false;
  }
  return true;
}

static bool forward_view(Fuse *u, const Stmt *s) {
  const Value *v = &u->f->value.at[s->lhs];
  Id from = (Id)ex(u->m, s->body)->integer, buffer = u->fp->layout[from].buffer;
  bool result = is_result(u, s->lhs);
  if (s->acc || v->role != ROLE_LOCAL || overwritten(u, buffer)) return false;
  if (result && u->f->value.at[buffer].role != ROLE_IN) return false;
  if (!covers(u->m, s, v, s->sub)) return false;
  for (uint32_t d = 0; d < u->f->value.at[from].rank; d++)
    if (!affine_inside(u->m, s, ex_arg(u->m, s->body, d), u->f->value.at[from].extent[d]))
      return false;
  Affine a = affine_read(u->m, u->fp->layout, s, s->body);
  Layout l = {.buffer = buffer};
  if (!strides_of(u, s, v, s->sub, &a, &l)) return false;
  if (is_actual(u, s->lhs) && !row_major(v, &l)) return false;
  // An argument handed back: the caller keeps it where it is, or copies it.
  if (result && !(row_major(v, &l) && value_count(v) == value_count(&u->f->value.at[buffer])))
    return false;
  if (!keeps_sums(u, s->lhs, &l)) return false;
  u->fp->layout[s->lhs] = l;
  return true;
}

static bool defined_by_loops_first(const Fuse *u, Id value) {
  for (uint32_t i = 0; i < u->f->stmt.n; i++) {
    const Stmt *s = &u->f->stmt.at[i];
    if (s->kind == ST_COMP && s->lhs == value) return !s->acc;
  }
  return true; // a call makes it
}

static bool has_views(const Fuse *u, Id buffer) {
  for (Id v = 0; v < u->f->value.n; v++)
    if (v != buffer && u->fp->layout[v].buffer == buffer) return true;
  return false;
}

// The value may lie in a part of another's storage from its making on.
static bool may_move(const Fuse *u, Id from) {
  return u->f->value.at[from].role == ROLE_LOCAL && u->fp->layout[from].buffer == from &&
         !is_result(u, from) && !is_actual(u, from) && !has_views(u, from) &&
         defined_by_loops_first(u, from);
}

static bool reverse_view(Fuse *u, const Stmt *s) {
  Id from = (Id)ex(u->m, s->body)->integer;
  const Value *v = &u->f->value.at[from];
  if (!may_move(u, from)) return false;
  if (u->f->value.at[s->lhs].role != ROLE_LOCAL || u->alias[s->lhs] != NONE) return false;
  if (from == s->lhs || u->fp->layout[s->lhs].buffer == from) return false;
  Id sub[MAX_RANK];
  for (uint32_t d = 0; d < v->rank; d++) sub[d] = ex_arg(u->m, s->body, d);
  if (!covers(u->m, s, v, sub)) return false;
  int64_t points = 1; // an index that the source lacks repeats its elements
  for (uint32_t i = 0; i < s->nfree; i++) points *= s->index[i].extent;
  if (points != value_count(v)) return false;
  Affine a = affine_lhs(u->m, u->f, u->fp->layout, s);
  Layout l = {.buffer = u->fp->layout[s->lhs].buffer};
  if (!strides_of(u, s, v, sub, &a, &l) || !keeps_sums(u, from, &l)) return false;
  u->fp->layout[from] = l;
  return true;
}

// Two left sides that a constant keeps apart.
static bool disjoint(const Module *m, const Stmt *x, const Stmt *y, uint32_t rank) {
  for (uint32_t d = 0; d < rank; d++) {
    const Expr *p = ex(m, x->sub[d]), *q = ex(m, y->sub[d]);
    if (p->op == OP_INT && q->op == OP_INT && p->integer != q->integer) return true;
  }
  return false;
}

// An accumulator that its += statements write piece by piece, each element once: all may just
// store.
bool view_in_pieces(const Fuse *u, Id value) {
  const Value *v = &u->f->value.at[value];
  int64_t n = 0;
  for (uint32_t i = 0; i < u->f->stmt.n; i++) {
    const Stmt *s = &u->f->stmt.at[i];
    if (s->kind != ST_COMP || s->lhs != value) continue;
    int64_t points = 1;
    for (uint32_t x = 0; x < s->nfree; x++) points *= s->index[x].extent;
    if (!s->acc || !fuse_pieces(u->m, u->f, s)) return false;
    n += points;
    for (uint32_t j = 0; j < i; j++) {
      const Stmt *t = &u->f->stmt.at[j];
      if (t->kind == ST_COMP && t->lhs == value && !disjoint(u->m, s, t, v->rank)) return false;
    }
  }
  return n == value_count(v) && v->role == ROLE_LOCAL && !is_actual(u, value);
}

// A value that a sum of where(constant == index, piece, 0) fills, and its pieces so far.
typedef struct Assembly {
  uint32_t index;
  uint64_t seen; // bit c: the piece of constant c
  Id from[64];
  Layout layout[64];
  uint32_t n;
} Assembly;

// where(constant == index, piece[..], 0.0): the read, the constant and the index.
bool view_is_piece(const Module *m, Id e, Id *read, int64_t *constant, uint32_t *index) {
  if (!ex_is(m, e, OP_WHERE)) return false;
  Id test = ex_arg(m, e, 0), zero = ex_arg(m, e, 2);
  *read = ex_arg(m, e, 1);
  if (!ex_is(m, test, OP_EQ) || !ex_is(m, *read, OP_READ)) return false;
  if (!ex_is(m, zero, OP_REAL) || ex(m, zero)->real != 0) return false;
  Id a = ex_arg(m, test, 0), b = ex_arg(m, test, 1);
  if (!ex_is(m, a, OP_INT)) a = b, b = ex_arg(m, test, 0);
  if (!ex_is(m, a, OP_INT) || !ex_is(m, b, OP_INDEX)) return false;
  *constant = ex(m, a)->integer;
  *index = (uint32_t)ex(m, b)->integer;
  return true;
}

static bool add_piece(Fuse *u, const Stmt *s, Id e, Assembly *a) {
  Id read, sub[MAX_RANK];
  int64_t c;
  uint32_t index;
  if (!view_is_piece(u->m, e, &read, &c, &index) || a->n == 64 || (a->n && index != a->index))
    return false;
  Id from = (Id)ex(u->m, read)->integer;
  const Value *v = &u->f->value.at[from];
  if (c < 0 || c >= s->index[index].extent || c >= 64 || a->seen >> c & 1) return false;
  if (from == s->lhs || v->type != u->f->value.at[s->lhs].type || !may_move(u, from)) return false;
  for (uint32_t i = 0; i < a->n; i++)
    if (a->from[i] == from) return false;
  for (uint32_t d = 0; d < v->rank; d++) sub[d] = ex_arg(u->m, read, d);
  if ((ex_indices(u->m, read) >> index & 1) || !covers(u->m, s, v, sub)) return false;
  int64_t points = 1;
  for (uint32_t i = 0; i < s->nfree; i++)
    if (i != index) points *= s->index[i].extent;
  Affine at = affine_lhs(u->m, u->f, u->fp->layout, s);
  Layout l = {.buffer = s->lhs};
  if (points != value_count(v) || !strides_of(u, s, v, sub, &at, &l)) return false;
  l.offset += c * at.coef[index];
  if (!keeps_sums(u, from, &l)) return false;
  a->index = index;
  a->seen |= (uint64_t)1 << c;
  a->from[a->n] = from;
  a->layout[a->n++] = l;
  return true;
}

static bool add_pieces(Fuse *u, const Stmt *s, Id e, Assembly *a) {
  if (!ex_is(u->m, e, OP_ADD)) return add_piece(u, s, e, a);
  return add_pieces(u, s, ex_arg(u->m, e, 0), a) && add_pieces(u, s, ex_arg(u->m, e, 1), a);
}

// Every piece is made where it belongs, and the statement has nothing left to do.
static bool assembled(Fuse *u, const Stmt *s) {
  if (s->kind != ST_COMP || s->acc || s->red != RED_NONE) return false;
  if (!fuse_whole(u->m, u->f, s)) return false;
  const Value *v = &u->f->value.at[s->lhs];
  if (v->role != ROLE_LOCAL || u->alias[s->lhs] != NONE || is_actual(u, s->lhs)) return false;
  for (uint32_t i = 0; i < u->f->stmt.n; i++)
    if (&u->f->stmt.at[i] != s && u->f->stmt.at[i].kind == ST_COMP &&
        u->f->stmt.at[i].lhs == s->lhs)
      return false;
  Assembly a = {0};
  if (!add_pieces(u, s, s->body, &a) || (int64_t)a.n != s->index[a.index].extent) return false;
  for (uint32_t i = 0; i < a.n; i++) u->fp->layout[a.from[i]] = a.layout[i];
  return true;
}

void fuse_layouts(Fuse *u, bool *skip) {
  for (Id v = 0; v < u->f->value.n; v++) u->fp->layout[v] = layout_own(u->f, v);
  u->pieces = NEWN(u->m->arena, bool, u->f->value.n);
  for (Id v = 0; v < u->f->value.n; v++) u->pieces[v] = view_in_pieces(u, v);
  for (uint32_t i = 0; i < u->f->stmt.n; i++) skip[i] = assembled(u, &u->f->stmt.at[i]);
  for (uint32_t i = 0; i < u->f->stmt.n; i++) {
    const Stmt *s = &u->f->stmt.at[i];
    bool placed = s->kind == ST_COMP && u->fp->layout[s->lhs].buffer != s->lhs;
    if (!skip[i] && !placed && renames(u, s)) skip[i] = forward_view(u, s);
  }
  // From the last to the first: a chain of copies ends up in the last one's storage.
  for (uint32_t i = u->f->stmt.n; i-- > 0;) {
    const Stmt *s = &u->f->stmt.at[i];
    bool whole = !s->acc && s->kind == ST_COMP && fuse_whole(u->m, u->f, s);
    if (s->kind == ST_COMP && !skip[i] && renames(u, s) && (whole || (s->acc && u->pieces[s->lhs])))
      skip[i] = reverse_view(u, s);
  }
}
