// From a group of statements to the loops of its kernel: variables, nests, what merges, which values stay inside. What
// runs in lanes, tiles and tasks are the target's schedule.
#include "codegen/lower/fuse.h"
#include "codegen/target.h"

typedef struct Build {
  Fuse *u;
  const Group *g;
  Kernel *k;
  Loops *l;
} Build;

static const Stmt *stmt_of(const Build *b, const NestStmt *ns) {
  return &b->u->f->stmt.at[ns->stmt];
}

bool fuse_in_grid(const Group *g, const Member *x, uint32_t index) {
  for (uint32_t k = 0; k < g->ngrid; k++)
    if (x->grid[k] == index) return true;
  return false;
}

static uint8_t new_var(Build *b, const Index *i) {
  CHECK(b->l->var.n < MAX_VAR);
  PUSH(b->u->m->arena, b->l->var, (LoopVar){i->name, i->extent});
  return (uint8_t)(b->l->var.n - 1);
}

static NestStmt grid_vars(const Build *b, const Member *x) {
  NestStmt ns = {.stmt = x->stmt, .init = x->init};
  memset(ns.var, NO_VAR, sizeof ns.var);
  for (uint32_t k = 0; k < b->g->ngrid; k++) ns.var[x->grid[k]] = (uint8_t)k;
  return ns;
}

// The free indices that are not of the grid, in the order in which the left side names them.
static uint32_t local_order(const Build *b, const Member *x, uint8_t *order) {
  const Stmt *s = &b->u->f->stmt.at[x->stmt];
  uint32_t n = 0, seen = 0;
  for (uint32_t d = 0; d < b->u->f->value.at[s->lhs].rank; d++) {
    const Expr *e = ex(b->u->m, s->sub[d]);
    for (uint32_t i = 0; i < (e->op == OP_INDEX ? 1 : e->narg); i++) {
      Id arg = e->op == OP_INDEX ? s->sub[d] : ex_arg(b->u->m, s->sub[d], i);
      if (!ex_is(b->u->m, arg, OP_INDEX)) continue;
      uint32_t at = (uint32_t)ex(b->u->m, arg)->integer;
      if (seen >> at & 1 || fuse_in_grid(b->g, x, at)) continue;
      seen |= 1u << at;
      order[n++] = (uint8_t)at;
    }
  }
  for (uint32_t i = 0; i < s->nfree; i++)
    if (!(seen >> i & 1) && !fuse_in_grid(b->g, x, i)) order[n++] = (uint8_t)i;
  return n;
}

typedef struct SamePoint {
  const Build *b;
  const NestStmt *writer, *reader;
  bool same;
} SamePoint;

// The same subscripts, once indices are replaced by variables.
static bool same_subscripts(const Build *b, const NestStmt *x, const Id *xs, const NestStmt *y,
                            const Id *ys, uint32_t rank) {
  for (uint32_t d = 0; d < rank; d++) {
    Affine p = affine_of(b->u->m, stmt_of(b, x), xs[d]),
           q = affine_of(b->u->m, stmt_of(b, y), ys[d]);
    if (p.nrest || q.nrest || p.base != q.base) return false;
    int64_t diff[MAX_VAR] = {0};
    for (uint32_t i = 0; i < MAX_INDEX; i++) {
      if (p.coef[i] && x->var[i] == NO_VAR) return false;
      if (q.coef[i] && y->var[i] == NO_VAR) return false;
      if (p.coef[i]) diff[x->var[i]] += p.coef[i];
      if (q.coef[i]) diff[y->var[i]] -= q.coef[i];
    }
    for (uint32_t v = 0; v < MAX_VAR; v++)
      if (diff[v]) return false;
  }
  return true;
}

static void check_read(const Module *m, Id read, void *ctx) {
  SamePoint *p = ctx;
  const Stmt *w = stmt_of(p->b, p->writer);
  const Expr *e = ex(m, read);
  const Layout *l = p->b->u->fp->layout;
  if (l[e->integer].buffer != l[w->lhs].buffer) return;
  Id sub[MAX_RANK];
  for (uint32_t d = 0; d < e->narg; d++) sub[d] = ex_arg(m, read, d);
  if (e->integer != w->lhs || !same_subscripts(p->b, p->writer, w->sub, p->reader, sub, e->narg))
    p->same = false;
}

// Whether s reads results of the nest's statements, and writes where they do, at the same point only.
static bool at_same_point(Build *b, const Nest *n, const NestStmt *ns) {
  const Stmt *s = stmt_of(b, ns);
  uint32_t rank = b->u->f->value.at[s->lhs].rank;
  for (uint32_t i = 0; i < n->stmt.n; i++) {
    SamePoint p = {b, &n->stmt.at[i], ns, true};
    const Stmt *w = stmt_of(b, p.writer);
    comp_reads(b->u->m, b->u->f, s, check_read, &p);
    if (w->lhs == s->lhs) p.same &= same_subscripts(b, p.writer, w->sub, ns, s->sub, rank);
    else if (b->u->fp->layout[w->lhs].buffer == b->u->fp->layout[s->lhs].buffer) p.same = false;
    // Several points of the earlier statement may meet in an element: then it must be done first.
    if (!p.same || (w->acc && !fuse_injective(b->u->m, b->u->f, w))) return false;
  }
  return true;
}

static bool depends_on_nest(const Build *b, const Nest *n, const Stmt *s) {
  for (uint32_t i = 0; i < n->stmt.n; i++)
    if (fuse_depends(b->u, stmt_of(b, &n->stmt.at[i]), s)) return true;
  return false;
}

// Gives the statement the nest's variables. False where their loops differ.
static bool same_loops(const Build *b, const Nest *n, NestStmt *ns, const uint8_t *order,
                       uint32_t norder) {
  const Stmt *s = stmt_of(b, ns);
  if (norder != n->nfree || n->nloop != norder + s->nindex - s->nfree) return false;
  for (uint32_t i = 0; i < n->nloop; i++) {
    uint32_t index = i < norder ? order[i] : s->nfree + i - norder;
    if (b->l->var.at[n->loop[i]].extent != s->index[index].extent) return false;
    ns->var[index] = n->loop[i];
  }
  return true;
}

typedef struct Chain {
  uint32_t outer, inner; // indices
  int64_t extent; // of inner's variable
  bool ok;
} Chain;

static void check_chain(const Fuse *u, const Stmt *s, Id read, const Affine *a, void *ctx) {
  (void)u, (void)s, (void)read;
  Chain *c = ctx;
  if (a->coef[c->outer] != c->extent * a->coef[c->inner]) c->ok = false;
}

// Whether two indices of the statement always count row-major through one range, the inner one's variable to `extent`.
static bool is_one_range(const Build *b, const NestStmt *ns, uint32_t outer, uint32_t inner, int64_t extent) {
  uint32_t values = fuse_value_indices(b->u, stmt_of(b, ns));
  Chain c = {outer, inner, extent, !((values >> outer | values >> inner) & 1)};
  if (c.ok) fuse_accesses(b->u, stmt_of(b, ns), check_chain, &c);
  return c.ok;
}

// The bound loops, as a set of positions, that merge into the one inside of them if it is for this statement.
static uint32_t merging_loops(const Build *b, const Nest *n, const NestStmt *ns) {
  uint32_t set = 0;
  if (n->nloop < n->nfree + 2) return 0;
  uint8_t inner = n->loop[n->nloop - 1];
  int64_t extent = b->l->var.at[inner].extent;
  for (uint32_t i = n->nloop - 1; i-- > n->nfree;) {
    uint8_t outer = n->loop[i];
    int64_t rounds = b->l->var.at[outer].extent;
    bool merges = n->vec != outer && is_one_range(b, ns, nest_index_of(ns, outer), nest_index_of(ns, inner), extent);
    set |= (uint32_t)merges << i;
    extent = merges ? extent * rounds : rounds;
    if (!merges) inner = outer;
  }
  return set;
}

// Joins a statement to a nest of earlier ones. A reduction is done when its loops are: nothing in
// the same nest may need it. It adds up as it would alone: the same loops merge.
static bool zip(Build *b, Nest *n, const Member *x, NestStmt ns, const uint8_t *order,
                uint32_t norder) {
  const Stmt *s = &b->u->f->stmt.at[ns.stmt], *first = stmt_of(b, &n->stmt.at[0]);
  bool red = s->red != RED_NONE;
  const Limits *l = &b->u->m->limits;
  if ((first->red != RED_NONE) != red ||
      n->stmt.n >= (red ? l->nest_reductions : l->nest_statements))
    return false;
  if (!same_loops(b, n, &ns, order, norder)) return false;
  if (red && (n->vec != (x->vec == NO_VAR ? NO_VAR : ns.var[x->vec]) || depends_on_nest(b, n, s)))
    return false;
  if (red && merging_loops(b, n, &ns) != merging_loops(b, n, &n->stmt.at[0])) return false;
  if (!red && !at_same_point(b, n, &ns)) return false;
  PUSH(b->u->m->arena, n->stmt, ns);
  return true;
}

static void add_member(Build *b, const Member *x) {
  const Stmt *s = &b->u->f->stmt.at[x->stmt];
  uint8_t order[MAX_INDEX];
  uint32_t norder = local_order(b, x, order);
  NestStmt ns = grid_vars(b, x);
  for (uint32_t i = b->l->nest.n; i-- > 0;) {
    if (zip(b, &b->l->nest.at[i], x, ns, order, norder)) return;
    if (depends_on_nest(b, &b->l->nest.at[i], s)) break;
  }
  Nest n = {.vec = NO_VAR};
  for (uint32_t i = 0; i < norder; i++)
    n.loop[n.nloop++] = ns.var[order[i]] = new_var(b, &s->index[order[i]]);
  n.nfree = n.nloop;
  for (uint32_t i = s->nfree; i < s->nindex; i++)
    n.loop[n.nloop++] = ns.var[i] = new_var(b, &s->index[i]);
  if (s->red != RED_NONE && x->vec != NO_VAR) n.vec = ns.var[x->vec];
  PUSH(b->u->m->arena, n.stmt, ns);
  PUSH(b->u->m->arena, b->l->nest, n);
}

// Whether variables p and q always count row-major through one range.
static bool mergeable(Build *b, uint8_t p, uint8_t q) {
  for (uint32_t i = 0; i < b->l->nest.n; i++) {
    Nest *n = &b->l->nest.at[i];
    if (n->vec == p) return false;
    for (uint32_t j = 0; j < n->stmt.n; j++) {
      const NestStmt *ns = &n->stmt.at[j];
      uint32_t outer = nest_index_of(ns, p), inner = nest_index_of(ns, q);
      if (outer == NONE && inner == NONE) continue;
      if (outer == NONE || inner == NONE) return false;
      if (!is_one_range(b, ns, outer, inner, b->l->var.at[q].extent)) return false;
    }
  }
  return true;
}

// ---- storage that may be shared

typedef struct Share {
  Build *b;
  const NestStmt *writer, *reader;
  uint32_t at_writer, at; // nests
  Id in;
  bool ok, found;
} Share;

static const Member *member_of(const Build *b, Id stmt) {
  for (uint32_t i = 0; i < b->g->member.n; i++)
    if (b->g->member.at[i].stmt == stmt) return &b->g->member.at[i];
  BUG("no member");
}

// The read keeps to its grid point's elements of `in`, which are those that the writer writes of
// `out`.
static bool stays_in_point(const Share *x, Id read) {
  const Build *b = x->b;
  const Stmt *w = stmt_of(b, x->writer), *r = stmt_of(b, x->reader);
  const Member *mw = member_of(b, x->writer->stmt), *mr = member_of(b, x->reader->stmt);
  uint32_t rank = ex(b->u->m, read)->narg;
  Id sub[MAX_RANK];
  for (uint32_t d = 0; d < rank; d++) sub[d] = ex_arg(b->u->m, read, d);
  for (uint32_t k = 0; k < b->g->ngrid; k++) {
    Slot slot;
    if (!fuse_slot(b->u->m, w, w->sub, rank, mw->grid[k], &slot)) return false;
    if (fuse_index_at(b->u->m, r, sub, rank, slot) != mr->grid[k]) return false;
  }
  return true;
}

static void share_read(const Module *m, Id read, void *ctx) {
  Share *x = ctx;
  if (x->b->u->fp->layout[ex(m, read)->integer].buffer != x->in) return;
  x->found = true;
  if (ex(m, read)->integer != x->in || x->at > x->at_writer) x->ok = false;
  Id sub[MAX_RANK];
  for (uint32_t d = 0; d < ex(m, read)->narg; d++) sub[d] = ex_arg(m, read, d);
  const Stmt *w = stmt_of(x->b, x->writer);
  if (!x->ok) return;
  if (x->at < x->at_writer) x->ok = stays_in_point(x, read);
  else
    x->ok = w->red == RED_NONE &&
            same_subscripts(x->b, x->writer, w->sub, x->reader, sub, ex(m, read)->narg);
}

// Whether the value that the nest's statement writes may lie where `in` does.
static bool may_share(Build *b, uint32_t nest, const NestStmt *writer, Id in) {
  const Fn *f = b->u->f;
  Id out = stmt_of(b, writer)->lhs;
  const Value *v = &f->value.at[out], *w = &f->value.at[in];
  if (in == out || w->role != ROLE_LOCAL || b->u->fp->layout[in].buffer != in || w->rank != v->rank)
    return false;
  if (dtype_size(v->type) != dtype_size(w->type) ||
      memcmp(v->extent, w->extent, v->rank * sizeof *v->extent))
    return false;
  Share x = {.b = b, .writer = writer, .at_writer = nest, .in = in, .ok = true};
  for (x.at = 0; x.at < b->l->nest.n && x.ok; x.at++)
    for (uint32_t j = 0; j < b->l->nest.at[x.at].stmt.n && x.ok; j++) {
      x.reader = &b->l->nest.at[x.at].stmt.at[j];
      const Stmt *s = stmt_of(b, x.reader);
      if (b->u->fp->layout[s->lhs].buffer == in) return false;
      comp_reads(b->u->m, f, s, share_read, &x);
    }
  return x.ok && x.found;
}

static bool written_once(const Build *b, Id value) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < b->u->f->stmt.n; i++)
    n += b->u->f->stmt.at[i].kind == ST_COMP && b->u->f->stmt.at[i].lhs == value;
  return n == 1;
}

// Before variables merge, so that subscripts can still be compared.
static void find_shared(Build *b) {
  for (uint32_t i = 0; i < b->l->nest.n; i++)
    for (uint32_t j = 0; j < b->l->nest.at[i].stmt.n; j++) {
      const NestStmt *ns = &b->l->nest.at[i].stmt.at[j];
      Id out = stmt_of(b, ns)->lhs;
      if (b->u->f->value.at[out].role != ROLE_LOCAL || b->u->fp->layout[out].buffer != out ||
          !written_once(b, out))
        continue;
      if (stmt_of(b, ns)->acc && !ns->init) continue;
      for (Id in = 0; in < b->u->f->value.n; in++)
        if (may_share(b, i, ns, in)) PUSH(b->u->m->arena, b->k->inplace, (InPlace){out, in});
    }
}

static void merge_into(Build *b, uint8_t p, uint8_t q) {
  b->l->var.at[q].extent *= b->l->var.at[p].extent;
  b->l->var.at[q].name = str_printf("%s_%s", b->l->var.at[p].name, b->l->var.at[q].name);
  for (uint32_t i = 0; i < b->l->nest.n; i++) {
    Nest *n = &b->l->nest.at[i];
    for (uint32_t j = 0; j < n->stmt.n; j++)
      for (uint32_t x = 0; x < MAX_INDEX; x++)
        if (n->stmt.at[j].var[x] == p) n->stmt.at[j].var[x] = NO_VAR;
  }
}

static bool remove_loop(uint8_t *loop, uint32_t *n, uint32_t at) {
  memmove(loop + at, loop + at + 1, *n - at - 1);
  (*n)--;
  return true;
}

// Merges neighbours of loop[from, *to).
static void merge_list(Build *b, uint8_t *loop, uint32_t from, uint32_t *to) {
  for (uint32_t i = *to; i-- > from + 1;)
    if (mergeable(b, loop[i - 1], loop[i])) {
      merge_into(b, loop[i - 1], loop[i]);
      remove_loop(loop, to, i - 1);
    }
}

static void merge_loops(Build *b, uint8_t *grid, uint32_t *ngrid) {
  merge_list(b, grid, 0, ngrid);
  for (uint32_t i = 0; i < b->l->nest.n; i++) {
    Nest *n = &b->l->nest.at[i];
    uint32_t bound = n->nloop - n->nfree, nfree = n->nfree, nbound = bound;
    uint8_t free_part[MAX_INDEX], bound_part[MAX_INDEX];
    memcpy(free_part, n->loop, nfree);
    memcpy(bound_part, n->loop + nfree, bound);
    merge_list(b, free_part, 0, &nfree);
    merge_list(b, bound_part, 0, &nbound);
    memcpy(n->loop, free_part, nfree);
    memcpy(n->loop + nfree, bound_part, nbound);
    n->nfree = nfree;
    n->nloop = nfree + nbound;
  }
}

// Renumbers: the grid's variables first, those that merged away gone.
static void renumber(Build *b, const uint8_t *grid, uint32_t ngrid) {
  uint8_t to[MAX_VAR + 1];
  memset(to, NO_VAR, sizeof to);
  LoopVar var[MAX_VAR];
  uint32_t n = 0;
  for (uint32_t i = 0; i < ngrid; i++) to[grid[i]] = (uint8_t)n, var[n++] = b->l->var.at[grid[i]];
  for (uint32_t i = 0; i < b->l->nest.n; i++) {
    Nest *nest = &b->l->nest.at[i];
    for (uint32_t j = 0; j < nest->nloop; j++) {
      uint8_t v = nest->loop[j];
      if (to[v] == NO_VAR) to[v] = (uint8_t)n, var[n++] = b->l->var.at[v];
      nest->loop[j] = to[v];
    }
    if (nest->vec != NO_VAR) nest->vec = to[nest->vec];
    for (uint32_t j = 0; j < nest->stmt.n; j++)
      for (uint32_t x = 0; x < MAX_INDEX; x++)
        if (nest->stmt.at[j].var[x] != NO_VAR)
          nest->stmt.at[j].var[x] = to[nest->stmt.at[j].var[x]];
  }
  if (n) memcpy(b->l->var.at, var, n * sizeof *var);
  b->l->var.n = n;
  b->l->ngrid = ngrid;
}

static double points_of(const Stmt *s) {
  double n = 1;
  for (uint32_t i = 0; i < s->nindex; i++) n *= (double)s->index[i].extent;
  return n;
}

static void add_arg(Build *b, Id value, bool written) {
  Kernel *k = b->k;
  Id buffer = b->u->fp->layout[value].buffer;
  if (b->u->fp->layout[buffer].internal) return;
  for (uint32_t i = 0; i < k->arg.n; i++)
    if (k->arg.at[i] == buffer) {
      k->written.at[i] |= written;
      return;
    }
  PUSH(b->u->m->arena, k->arg, buffer);
  PUSH(b->u->m->arena, k->written, written);
}

static void arg_read(const Module *m, Id read, void *ctx) {
  add_arg(ctx, (Id)ex(m, read)->integer, false);
}

static double value_bytes(const Value *v) { return (double)value_count(v) * dtype_size(v->type); }

typedef struct Traffic {
  const Build *b;
  const Stmt *s;
  double *most; // for each buffer: elements that statements may touch
} Traffic;

static void note_traffic(const Module *m, Id read, void *ctx) {
  Traffic *t = ctx;
  t->most[t->b->u->fp->layout[ex(m, read)->integer].buffer] += points_of(t->s);
}

// Arguments in order of appearance, the bytes they move and the operations.
static void arguments(Build *b) {
  Kernel *k = b->k;
  Traffic t = {b, NULL, NEWN(b->u->m->arena, double, b->u->f->value.n)};
  for (uint32_t i = 0; i < k->stmt.n; i++) {
    const Stmt *s = &b->u->f->stmt.at[k->stmt.at[i]];
    t.s = s;
    ex_reads(b->u->m, s->body, note_traffic, &t);
    t.most[b->u->fp->layout[s->lhs].buffer] += points_of(s);
    comp_reads(b->u->m, b->u->f, s, arg_read, b);
    add_arg(b, s->lhs, true);
    k->random |= fuse_has_random(b->u->m, s->body);
    for (uint32_t d = 0; d < b->u->f->value.at[s->lhs].rank; d++)
      k->random |= fuse_has_random(b->u->m, s->sub[d]);
    k->flops += points_of(s) * (fuse_flops(b->u->m, s->body) + (s->red != RED_NONE || s->acc));
  }
  // A buffer moves once, or as much of it as is touched: few rows of a table.
  for (uint32_t i = 0; i < k->arg.n; i++) {
    const Value *v = &b->u->f->value.at[k->arg.at[i]];
    double touched = t.most[k->arg.at[i]] * dtype_size(v->type);
    k->bytes += touched < value_bytes(v) ? touched : value_bytes(v);
  }
  // A value that is added to is read as well.
  for (uint32_t i = 0; i < b->g->member.n; i++) {
    const Stmt *s = &b->u->f->stmt.at[b->g->member.at[i].stmt];
    const Value *v = &b->u->f->value.at[s->lhs];
    double points = 1;
    for (uint32_t x = 0; x < s->nfree; x++) points *= (double)s->index[x].extent;
    if (points * dtype_size(v->type) > value_bytes(v)) points = (double)value_count(v);
    if (s->acc && !b->g->member.at[i].init) k->bytes += points * dtype_size(v->type);
  }
}

static Str kernel_name(const Build *b) {
  const Fn *f = b->u->f;
  Id value = b->g->fill;
  for (uint32_t i = 0; i < b->g->member.n; i++) {
    Id lhs = f->stmt.at[b->g->member.at[i].stmt].lhs;
    if (value == NONE || !b->u->fp->layout[lhs].internal) value = lhs;
  }
  char *text = arena_printf(b->u->m->arena, "%s_%s%s", f->name, f->value.at[value].name,
                            b->g->fill == NONE ? "" : "_zero");
  for (char *p = text; *p; p++)
    if (!((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9')))
      *p = '_';
  return str_intern(text);
}

static void fill_kernel(Build *b) {
  const Value *v = &b->u->f->value.at[b->g->fill];
  add_arg(b, b->g->fill, true);
  b->k->fill = b->g->fill;
  b->k->bytes = value_bytes(v);
}

// True if the value's row at a grid point is all that its members see of it, and small enough to stay
// there: each subscript is an index of the grid, or holds none.
static bool fits_row(const Build *b, Id value, Layout *row) {
  const Fn *f = b->u->f;
  const Value *v = &f->value.at[value];
  for (uint32_t i = 0; i < b->g->member.n; i++) {
    const Member *x = &b->g->member.at[i];
    const Stmt *s = &f->stmt.at[x->stmt];
    if (s->lhs != value) continue;
    int64_t n = 1;
    for (uint32_t d = v->rank; d-- > 0;) {
      uint32_t set = ex_indices(b->u->m, s->sub[d]), grid = 0;
      for (uint32_t k = 0; k < b->g->ngrid; k++) grid |= 1u << x->grid[k];
      bool bare = ex_is(b->u->m, s->sub[d], OP_INDEX) && (set & grid);
      if (!bare && (set & grid)) return false;
      row->stride[d] = bare ? 0 : n;
      if (!bare) n *= v->extent[d];
    }
    return n * dtype_size(v->type) <= b->u->m->limits.row_bytes;
  }
  return false;
}

typedef struct NestUse {
  const Build *b;
  Id value;
  bool read;
} NestUse;

static void use_read(const Module *m, Id read, void *ctx) {
  NestUse *u = ctx;
  u->read |= u->b->u->fp->layout[ex(m, read)->integer].buffer == u->value;
}

// Nests that touch the value: in more than one, it needs memory.
static uint32_t nests_using(const Build *b, Id value) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < b->l->nest.n; i++) {
    NestUse use = {b, value, false};
    for (uint32_t j = 0; j < b->l->nest.at[i].stmt.n; j++) {
      const Stmt *s = stmt_of(b, &b->l->nest.at[i].stmt.at[j]);
      use.read |= s->lhs == value;
      comp_reads(b->u->m, b->u->f, s, use_read, &use);
    }
    n += use.read;
  }
  return n;
}

// Values of this group alone become internal: registers where one nest has them, else a row.
static void make_internal(Build *b, const bool *outside) {
  for (uint32_t i = 0; i < b->g->member.n; i++) {
    const Stmt *s = &b->u->f->stmt.at[b->g->member.at[i].stmt];
    Id v = s->lhs;
    Layout row = b->u->fp->layout[v];
    if (outside[v] || row.buffer != v || row.internal) continue;
    bool registers = s->red == RED_NONE && nests_using(b, v) == 1;
    if (!registers && (b->l->tile || !fits_row(b, v, &row))) continue;
    row.internal = true;
    b->u->fp->layout[v] = row;
  }
}

// What has no storage has none to share.
static void drop_inside(Build *b) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < b->k->inplace.n; i++) {
    InPlace p = b->k->inplace.at[i];
    if (!b->u->fp->layout[p.out].internal && !b->u->fp->layout[p.in].internal)
      b->k->inplace.at[n++] = p;
  }
  b->k->inplace.n = n;
}

bool kernel_count_grid(const Fn *f, Kernel *k) {
  const Loops *l = k->loops;
  k->grid = k->fill == NONE ? 1 : value_count(&f->value.at[k->fill]);
  for (uint32_t i = 0; l && i < l->ngrid; i++) {
    int64_t n = l->var.at[i].extent;
    if (l->tile && i + 1 == l->ngrid) n = (n - 1) / l->tile + 1;
    if (!mul_ok(k->grid, n, &k->grid)) return false;
  }
  return true;
}

// The target's part, after which the loops are final.
static void run_schedule(Build *b, const uint8_t *grid, uint32_t ngrid) {
  Schedule s = {.u = b->u, .g = b->g, .loops = b->l, .ngrid = ngrid};
  memcpy(s.grid, grid, ngrid);
  b->u->m->target->schedule(&s);
  renumber(b, s.grid, s.ngrid);
}

void fuse_loops(Fuse *u, const Group *g, const bool *outside, Kernel *k) {
  Build b = {.u = u, .g = g, .k = k};
  k->kind = K_LOOPS;
  k->fill = NONE;
  if (g->fill != NONE) {
    fill_kernel(&b);
  } else {
    uint8_t grid[MAX_INDEX];
    uint32_t ngrid = g->ngrid;
    const Member *first = &g->member.at[0];
    b.l = k->loops = NEW(u->m->arena, Loops);
    for (uint32_t i = 0; i < ngrid; i++)
      grid[i] = new_var(&b, &u->f->stmt.at[first->stmt].index[first->grid[i]]);
    for (uint32_t i = 0; i < g->member.n; i++) {
      PUSH(u->m->arena, k->stmt, g->member.at[i].stmt);
      add_member(&b, &g->member.at[i]);
    }
    find_shared(&b);
    merge_loops(&b, grid, &ngrid);
    run_schedule(&b, grid, ngrid);
    make_internal(&b, outside);
    drop_inside(&b);
    arguments(&b);
  }
  k->name = kernel_name(&b);
  CHECK(kernel_count_grid(u->f, k));
  u->m->target->tasks(u->m, k);
}
