// Every statement is computed exactly once: it stands in one kernel and one nest, whose variables take its indices through
// all their points, each point once; or a matrix product or scan moves through its operands as it does; or it has nothing
// to do, as what it reads lies where it would write it.
#include "codegen/lower/verify/verifier.h"
#include "codegen/target.h"

enum { MOST_MOVES = 128 };

// A loop: its rounds, and how far each access moves in one. An index of a statement, or a variable.
typedef struct Walk {
  int64_t extent;
  int64_t move[MOST_MOVES];
} Walk;

typedef struct Walks {
  Walk at[MAX_INDEX];
  uint32_t n;
} Walks;

typedef struct Cover {
  const Walks *target, *source;
  uint32_t nmove;
  bool used[MAX_INDEX]; // of source
} Cover;

static bool moves_as(const Cover *c, const Walk *source, const Walk *target, int64_t times) {
  for (uint32_t i = 0; i < c->nmove; i++) {
    int64_t move;
    if (!mul_ok(times, target->move[i], &move) || source->move[i] != move) return false;
  }
  return true;
}

// Whether sources that are left make targets from the t-th on, of which the t-th has `done` rounds.
static bool covers(Cover *c, uint32_t t, int64_t done) {
  while (t < c->target->n && c->target->at[t].extent == done) t++, done = 1;
  if (t == c->target->n) {
    for (uint32_t i = 0; i < c->source->n; i++)
      if (!c->used[i] && c->source->at[i].extent > 1) return false;
    return true;
  }
  const Walk *target = &c->target->at[t];
  for (uint32_t i = 0; i < c->source->n; i++) {
    const Walk *s = &c->source->at[i];
    if (c->used[i] || s->extent == 1 || target->extent % (done * s->extent) || !moves_as(c, s, target, done)) continue;
    c->used[i] = true;
    if (covers(c, t, done * s->extent)) return true;
    c->used[i] = false;
  }
  return false;
}

// Whether the sources' points, row-major in chains of them, are the targets', each once.
static bool walk_covers(const Walks *target, const Walks *source, uint32_t nmove) {
  Cover c = {.target = target, .source = source, .nmove = nmove};
  return covers(&c, 0, 1);
}

// ---- nests

typedef struct Moves {
  const Verifier *v;
  Affine *at; // of each access
  uint32_t n;
} Moves;

static void note_move(const Fuse *u, const Stmt *s, Id read, const Affine *a, void *ctx) {
  (void)u, (void)s, (void)read;
  Moves *x = ctx;
  if (x->n < MOST_MOVES) x->at[x->n] = *a;
  x->n++;
}

static bool is_loop(const Nest *n, uint32_t var, uint32_t from, uint32_t to) {
  for (uint32_t i = from; i < to; i++)
    if (n->loop[i] == var) return true;
  return false;
}

// Each variable of the grid and of the nest stands for one index; free ones for free indices.
static bool variables_fit(Verifier *v, const Kernel *k, const Nest *n, const NestStmt *ns) {
  const Stmt *s = &v->f->stmt.at[ns->stmt];
  uint64_t seen = 0, want = 0;
  for (uint32_t i = 0; i < s->nindex; i++) {
    uint8_t var = ns->var[i];
    if (var == NO_VAR) continue;
    bool fits = i < s->nfree ? var < k->loops->ngrid || is_loop(n, var, 0, n->nfree)
                             : is_loop(n, var, n->nfree, n->nloop);
    if (!fits || (seen >> var & 1))
      return v_fail(v, k, ns->stmt, "index `%s` runs over `%s`, %s", s->index[i].name, k->loops->var.at[var].name,
                    fits ? "as another index does" : "which is no loop around it of its kind");
    seen |= UINT64_C(1) << var;
  }
  for (uint32_t g = 0; g < k->loops->ngrid; g++) want |= UINT64_C(1) << g;
  for (uint32_t i = 0; i < n->nloop; i++) want |= UINT64_C(1) << n->loop[i];
  for (uint32_t var = 0; var < k->loops->var.n; var++)
    if (want >> var & 1 && !(seen >> var & 1) && k->loops->var.at[var].extent > 1)
      return v_fail(v, k, ns->stmt, "it is computed in each of the %lld rounds of `%s`, which is no index of it",
                    (long long)k->loops->var.at[var].extent, k->loops->var.at[var].name);
  return true;
}

// The variables go through the indices' points: free ones, or bound ones.
static bool points_fit(Verifier *v, const Kernel *k, const NestStmt *ns, const Moves *moves, bool bound) {
  const Stmt *s = &v->f->stmt.at[ns->stmt];
  Walks target, source;
  target.n = source.n = 0;
  uint32_t values = fuse_value_indices(&v->u, s);
  for (uint32_t i = bound ? s->nfree : 0; i < (bound ? s->nindex : s->nfree); i++) {
    Walk w = {.extent = s->index[i].extent};
    bool merged = ns->var[i] == NO_VAR || k->loops->var.at[ns->var[i]].extent != s->index[i].extent;
    for (uint32_t a = 0; a < moves->n; a++) w.move[a] = moves->at[a].coef[i];
    if (merged && s->index[i].extent > 1 && (values >> i & 1))
      return v_fail(v, k, ns->stmt, "index `%s` is used as a value, and has no variable of its own", s->index[i].name);
    source.at[source.n++] = w;
    if (ns->var[i] == NO_VAR) continue;
    w.extent = k->loops->var.at[ns->var[i]].extent;
    target.at[target.n++] = w;
  }
  if (walk_covers(&target, &source, moves->n)) return true;
  return v_fail(v, k, ns->stmt, "its loops do not go through all points of its %s indices, each once",
                bound ? "bound" : "free");
}

// The variable that lanes run along, in every statement of the nest.
static bool lanes_fit(Verifier *v, const Kernel *k, const Nest *n, const NestStmt *ns) {
  const Stmt *s = &v->f->stmt.at[ns->stmt];
  const Loops *l = k->loops;
  bool tiled = l->tile && n->vec == l->ngrid - 1;
  if (n->vec == NO_VAR || l->var.at[n->vec].extent == 1) return true;
  if (!tiled && !is_loop(n, n->vec, 0, n->nloop))
    return v_fail(v, k, ns->stmt, "lanes run along `%s`, which is no loop of the nest", l->var.at[n->vec].name);
  for (uint32_t i = 0; i < s->nindex; i++)
    if (ns->var[i] == n->vec && i < s->nfree && s->acc && !fuse_owned(v->m, v->f, s, i))
      return v_fail(v, k, ns->stmt, "lanes along `%s` would write one element several times", s->index[i].name);
  return true;
}

// Points of the grid write different elements, and so run in any order.
static bool points_own(Verifier *v, const Kernel *k, const NestStmt *ns) {
  const Stmt *s = &v->f->stmt.at[ns->stmt];
  if (v->fp->layout[s->lhs].internal) return true;
  for (uint32_t i = 0; i < s->nfree; i++)
    if (ns->var[i] < k->loops->ngrid && s->index[i].extent > 1 && !fuse_owned(v->m, v->f, s, i))
      return v_fail(v, k, ns->stmt, "points of the grid that differ in `%s` write the same elements of `%s`",
                    s->index[i].name, value_name(v, s->lhs));
  return true;
}

static bool nest_fits(Verifier *v, const Kernel *k, const Nest *n) {
  const Stmt *first = &v->f->stmt.at[n->stmt.at[0].stmt];
  bool red = first->red != RED_NONE;
  if (n->stmt.n > (red ? MAX_ZIPPED : MAX_INDEX * 4))
    return v_fail(v, k, NONE, "a nest of %u statements is too large", n->stmt.n);
  for (uint32_t i = 0; i < n->stmt.n; i++) {
    const NestStmt *ns = &n->stmt.at[i];
    const Stmt *s = &v->f->stmt.at[ns->stmt];
    Affine affine[MOST_MOVES];
    Moves moves = {v, affine, 0};
    if ((s->red != RED_NONE) != red) return v_fail(v, k, ns->stmt, "reductions and others share a nest");
    if (ns->init && !s->acc) return v_fail(v, k, ns->stmt, "only `+=` may be the first to write");
    fuse_accesses(&v->u, s, note_move, &moves);
    if (moves.n > MOST_MOVES) continue; // more reads than are compared
    if (!variables_fit(v, k, n, ns) || !points_fit(v, k, ns, &moves, false) || !points_fit(v, k, ns, &moves, true) ||
        !lanes_fit(v, k, n, ns) || !points_own(v, k, ns))
      return false;
  }
  return true;
}

// ---- products and scans

typedef struct Reads {
  Id at[2];
  uint32_t n;
} Reads;

static bool range_fits(Verifier *v, const Kernel *k, Id buffer, int64_t offset, const Walks *w, uint32_t move) {
  int64_t lo = offset, hi = offset, n = value_count(&v->f->value.at[buffer]);
  for (uint32_t i = 0; i < w->n; i++) {
    int64_t span;
    bool ok = mul_ok(w->at[i].extent - 1, w->at[i].move[move], &span) &&
              (span < 0 ? add_ok(lo, span, &lo) : add_ok(hi, span, &hi));
    if (!ok) hi = INT64_MAX;
  }
  if (lo >= 0 && hi < n) return true;
  return v_fail(v, k, k->stmt.at[0], "it goes through elements %lld to %lld of `%s`, which has %lld", (long long)lo,
                (long long)hi, value_name(v, buffer), (long long)n);
}

static void push_walk(Walks *w, int64_t extent, int64_t a, int64_t b, int64_t c) {
  w->at[w->n++] = (Walk){.extent = extent, .move = {a, b, c}};
}

static bool same_base(const Verifier *v, const Affine *a, Id value, Id buffer, int64_t offset) {
  return !a->nrest && a->base == offset && v->fp->layout[value].buffer == v->fp->layout[buffer].buffer;
}

// Whether the product goes through the statement's points with its first operand at read x, its second at y.
static bool is_product_of(const Verifier *v, const Stmt *s, const GemmPlan *g, const Walks *plan, Id x, Id y) {
  const Layout *l = v->fp->layout;
  Affine a = affine_read(v->m, l, s, x), b = affine_read(v->m, l, s, y), c = affine_lhs(v->m, v->f, l, s);
  Walks w;
  w.n = 0;
  if (!same_base(v, &a, (Id)ex(v->m, x)->integer, g->a, g->a_offset) ||
      !same_base(v, &b, (Id)ex(v->m, y)->integer, g->b, g->b_offset) || !same_base(v, &c, s->lhs, g->c, g->c_offset))
    return false;
  for (uint32_t i = 0; i < s->nindex; i++) push_walk(&w, s->index[i].extent, a.coef[i], b.coef[i], c.coef[i]);
  return walk_covers(plan, &w, 3);
}

typedef struct Reader {
  const Verifier *v;
  const Kernel *k;
  Id value; // a sum that is in no memory and is read
} Reader;

static void find_read(Id value, void *ctx) {
  Reader *r = ctx;
  if (is_unstored_sum(r->v->m, r->v->f, r->v->fp->layout, r->k, value)) r->value = value;
}

// A sum of the kernel in no memory that a statement outside of it reads, other than to rename it; or NONE.
static Id sum_read_outside(const Verifier *v, const Kernel *k, uint32_t *by) {
  Reader r = {v, k, NONE};
  for (uint32_t i = 0; i < v->f->stmt.n; i++) {
    const Stmt *s = &v->f->stmt.at[i];
    bool inside = s->kind == ST_COMP && is_unstored_sum(v->m, v->f, v->fp->layout, k, s->lhs);
    for (uint32_t j = 0; j < k->stmt.n; j++) inside |= k->stmt.at[j] == i;
    if (!inside) stmt_reads(v->m, v->f, s, find_read, &r);
    *by = i;
    if (r.value != NONE) break;
  }
  return r.value;
}

static bool term_fits(Verifier *v, Id value, int64_t offset, int64_t count, Id is, int64_t is_offset) {
  if (value == NONE || is == NONE) return value == is;
  const Layout *l = v->fp->layout;
  return l[value].buffer == l[is].buffer && offset == is_offset && offset >= 0 &&
         offset + count <= value_count(&v->f->value.at[l[value].buffer]);
}

static bool is_written_by(const Verifier *v, const GemmPlan *g, Id buffer) {
  const Layout *l = v->fp->layout;
  return buffer == l[g->c].buffer || (g->kept != NONE && buffer == l[g->kept].buffer);
}

// The statements after the product are what the plan says, and their values that no memory has are read by them alone.
static bool epilogue_fits(Verifier *v, const Kernel *k) {
  const GemmPlan *g = &k->gemm;
  const Layout *l = v->fp->layout;
  if (k->stmt.n == 1) return true;
  GemmPlan is = *g;
  bool fits = !g->accumulate && !g->nbatch && g->c_row == g->n && !g->c_offset && k->stmt.n <= EPILOGUE_STMTS &&
              match_epilogue(v->m, v->f, l, k->stmt.at, k->stmt.n, g->kept, &is);
  fits = fits && term_fits(v, g->bias, g->bias_offset, g->n, is.bias, is.bias_offset) &&
         term_fits(v, g->plus, g->plus_offset, g->m * g->n, is.plus, is.plus_offset) && g->act == is.act &&
         g->kept == is.kept && (is.bias == NONE || is.plus == NONE || g->plus_first == is.plus_first) &&
         l[g->c].buffer == l[is.c].buffer;
  if (!fits) return v_fail(v, k, k->stmt.at[1], "the product's kernel does not compute that from its sum");
  const Id term[] = {g->a, g->b, g->bias, g->plus};
  for (int i = 0; i < 4; i++)
    if (term[i] != NONE && is_written_by(v, g, l[term[i]].buffer))
      return v_fail(v, k, k->stmt.at[0], "it writes `%s`, which it reads", value_name(v, l[term[i]].buffer));
  uint32_t by = 0;
  Id sum = sum_read_outside(v, k, &by);
  if (sum != NONE) return v_fail(v, k, by, "it reads `%s`, a sum that is in no memory", value_name(v, sum));
  return true;
}

static bool product_fits(Verifier *v, const Kernel *k) {
  const GemmPlan *g = &k->gemm;
  Id stmt = k->stmt.at[0];
  const Stmt *s = &v->f->stmt.at[stmt];
  const Layout *l = v->fp->layout;
  Walks plan;
  plan.n = 0;
  push_walk(&plan, g->m, g->a_row, 0, g->c_row);
  push_walk(&plan, g->n, 0, g->b_col, 1);
  push_walk(&plan, g->k, g->a_col, g->b_row, 0);
  for (uint32_t i = 0; i < g->nbatch; i++)
    push_walk(&plan, g->batch[i].count, g->batch[i].a, g->batch[i].b, g->batch[i].c);
  if (!range_fits(v, k, l[g->a].buffer, g->a_offset, &plan, 0) || !range_fits(v, k, l[g->b].buffer, g->b_offset, &plan, 1) ||
      !range_fits(v, k, l[g->c].buffer, g->c_offset, &plan, 2))
    return false;
  if (l[g->c].buffer == l[g->a].buffer || l[g->c].buffer == l[g->b].buffer)
    return v_fail(v, k, stmt, "it writes `%s`, which it reads", value_name(v, l[g->c].buffer));
  if (g->accumulate && !s->acc) return v_fail(v, k, stmt, "it adds to `%s`, but is no `+=`", value_name(v, s->lhs));
  bool is = s->red == RED_SUM && ex_is(v->m, s->body, OP_MUL);
  Id x = is ? ex_arg(v->m, s->body, 0) : NONE, y = is ? ex_arg(v->m, s->body, 1) : NONE;
  is = is && ex_is(v->m, x, OP_READ) && ex_is(v->m, y, OP_READ);
  if (!is || !(is_product_of(v, s, g, &plan, x, y) || is_product_of(v, s, g, &plan, y, x)))
    return v_fail(v, k, stmt, "the product's sizes, strides and offsets are not the statement's");
  if (!epilogue_fits(v, k)) return false;
  return v->m->target->takes_product(v->m, v->f, g) ||
         v_fail(v, k, stmt, "target %s has no product of these types and strides", v->m->target->name);
}

static bool scan_fits(Verifier *v, const Kernel *k) {
  const ScanPlan *p = &k->scan;
  const Stmt *s = &v->f->stmt.at[k->stmt.at[0]];
  const Layout *l = v->fp->layout;
  Module any = *v->m; // however short it is
  Fuse u = v->u;
  ScanPlan is;
  u.m = &any;
  any.limits.scan_extent = 2;
  Walks plan, want;
  plan.n = want.n = 0;
  push_walk(&plan, p->along.count, p->along.x, p->along.y, 0);
  push_walk(&plan, p->column.count, p->column.x, p->column.y, 0);
  for (uint32_t i = 0; i < p->nloop; i++) push_walk(&plan, p->loop[i].count, p->loop[i].x, p->loop[i].y, 0);
  if (!range_fits(v, k, l[p->from].buffer, p->from_offset, &plan, 0) ||
      !range_fits(v, k, l[p->to].buffer, p->to_offset, &plan, 1))
    return false;
  bool fits = match_scan(&u, s, &is) && is.from == p->from && is.to == p->to && is.from_offset == p->from_offset &&
              is.to_offset == p->to_offset && is.reverse == p->reverse && is.exclusive == p->exclusive &&
              is.along.count == p->along.count && is.along.x == p->along.x && is.along.y == p->along.y &&
              (s->acc || !p->add);
  if (fits) push_walk(&want, is.column.count, is.column.x, is.column.y, 0);
  for (uint32_t i = 0; fits && i < is.nloop; i++) push_walk(&want, is.loop[i].count, is.loop[i].x, is.loop[i].y, 0);
  for (uint32_t i = 1; i < plan.n; i++) plan.at[i - 1] = plan.at[i];
  plan.n--;
  if (fits && walk_covers(&plan, &want, 2)) return true;
  return v_fail(v, k, k->stmt.at[0], "the scan's sizes, strides and offsets are not the statement's");
}

// ---- all statements

static bool place(Verifier *v, uint32_t kernel, uint32_t nest, uint32_t at, uint32_t stmt, const NestStmt *ns) {
  const Kernel *k = &v->fp->kernel.at[kernel];
  When *w = &v->when[stmt];
  if (w->runs) return v_fail(v, k, stmt, "kernel `%s` computes it too", v->fp->kernel.at[w->kernel].name);
  *w = (When){true, kernel, nest, at, ns};
  return true;
}

static bool random_fits(Verifier *v, const Kernel *k, uint32_t stmt) {
  const Stmt *s = &v->f->stmt.at[stmt];
  bool random = fuse_has_random(v->m, s->body);
  for (uint32_t d = 0; d < v->f->value.at[s->lhs].rank; d++) random |= fuse_has_random(v->m, s->sub[d]);
  return !random || k->random || v_fail(v, k, stmt, "it draws random numbers, and the kernel takes no key");
}

static bool loops_fit(Verifier *v, uint32_t kernel) {
  const Kernel *k = &v->fp->kernel.at[kernel];
  for (uint32_t i = 0; k->loops && i < k->loops->nest.n; i++) {
    const Nest *n = &k->loops->nest.at[i];
    for (uint32_t j = 0; j < n->stmt.n; j++)
      if (!place(v, kernel, i, j, n->stmt.at[j].stmt, &n->stmt.at[j]) || !random_fits(v, k, n->stmt.at[j].stmt))
        return false;
    if (!nest_fits(v, k, n)) return false;
  }
  return true;
}

static bool kernel_fits(Verifier *v, uint32_t kernel) {
  const Kernel *k = &v->fp->kernel.at[kernel];
  if (k->kind == K_LOOPS) return loops_fit(v, kernel);
  if (k->kind == K_WAIT) return true;
  for (uint32_t i = 0; i < k->stmt.n; i++)
    if (!place(v, kernel, 0, i, k->stmt.at[i], NULL)) return false;
  uint32_t stmt = k->stmt.at[0];
  const Stmt *s = &v->f->stmt.at[stmt];
  if (k->kind == K_GEMM) return product_fits(v, k);
  if (k->kind == K_SCAN) return scan_fits(v, k);
  if (k->kind == K_INTRINSIC && !match_intrinsic(v->m, v->f, s, NULL))
    return v_fail(v, k, stmt, "no implementation of the intrinsic takes it");
  if (k->kind == K_CALL && !v->p->reached[s->call->fn])
    return v_fail(v, k, stmt, "`%s` has no kernels", v->m->fn.at[s->call->fn].name);
  return true;
}

// y[..] = where(0 == c, a[..], 0.0) + where(1 == c, b[..], 0.0): each lies where it would go.
static bool is_assembled(const Verifier *v, const Stmt *s, Id e, Affine *lhs, uint32_t *index, uint64_t *seen) {
  if (ex_is(v->m, e, OP_ADD))
    return is_assembled(v, s, ex_arg(v->m, e, 0), lhs, index, seen) &&
           is_assembled(v, s, ex_arg(v->m, e, 1), lhs, index, seen);
  Id read;
  int64_t c;
  uint32_t at;
  if (!view_is_piece(v->m, e, &read, &c, &at) || (*index != NONE && at != *index)) return false;
  if (c < 0 || c >= s->index[at].extent || c >= 64 || *seen >> c & 1) return false;
  *index = at;
  *seen |= UINT64_C(1) << c;
  Affine from = affine_read(v->m, v->fp->layout, s, read), to = *lhs;
  to.base += c * to.coef[at];
  to.coef[at] = 0;
  return v->fp->layout[ex(v->m, read)->integer].buffer == v->fp->layout[s->lhs].buffer && fuse_same_place(s, &to, &from);
}

// Whether what the statement reads lies already where it would write it.
static bool moves_nothing(const Verifier *v, const Stmt *s) {
  if (s->kind != ST_COMP || s->red != RED_NONE) return false;
  Affine to = affine_lhs(v->m, v->f, v->fp->layout, s);
  if (ex_is(v->m, s->body, OP_READ)) {
    Affine from = affine_read(v->m, v->fp->layout, s, s->body);
    return v->fp->layout[ex(v->m, s->body)->integer].buffer == v->fp->layout[s->lhs].buffer &&
           fuse_same_place(s, &to, &from);
  }
  uint32_t index = NONE;
  uint64_t seen = 0;
  return is_assembled(v, s, s->body, &to, &index, &seen) &&
         __builtin_popcountll(seen) == (int)s->index[index].extent;
}

bool verify_computes(Verifier *v) {
  for (uint32_t i = 0; i < v->fp->kernel.n; i++)
    if (!kernel_fits(v, i)) return false;
  for (uint32_t i = 0; i < v->f->stmt.n; i++)
    if (!v->when[i].runs && !moves_nothing(v, &v->f->stmt.at[i]))
      return v_fail(v, NULL, i, "no kernel computes it");
  return true;
}
