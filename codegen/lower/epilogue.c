// Statements that follow a matrix product, element by element, and that its kernel computes from the sum before it is
// stored. In this order:
//
//     z[b, t, o] = sum(i: x[b, t, i] * w[i, o])        the product
//     y[b, t, o] = z[b, t, o] + bias[o]                a bias, one for each column; a residual, one for each element:
//     u[b, t, o] = r[b, t, o] + y[b, t, o]             either first, one of them alone, or both in one statement
//     k[b, t, o] = u[b, t, o]                          the sum, rounded to the type in which it is kept
//     a[b, t, o] = gelu(u[b, t, o])                    a function of the sum and nothing else
//
// The last value is C, and all but k are in no memory. Their values are rounded as ever: the sums are of the type of
// computation, and each stored value is rounded once from it. So the kernel and separate kernels give the same bits,
// where the library adds in the same order.
#include "codegen/lower/fuse.h"
#include "codegen/target.h"

#include <math.h>

// One element of the bias for each column of the product: with y's address, its own moves along the
// columns and stands still along the rows.
bool fuse_along_columns(const Stmt *s, const Affine *y, const Affine *bias, int64_t columns) {
  if (bias->nrest) return false;
  for (uint32_t i = 0; i < s->nindex; i++) {
    if (s->index[i].extent == 1) continue;
    bool column = y->coef[i] < columns;
    if (column && y->coef[i] * s->index[i].extent > columns) return false;
    if (bias->coef[i] != (column ? y->coef[i] : 0)) return false;
  }
  return true;
}

bool fuse_same_place(const Stmt *s, const Affine *a, const Affine *b) {
  bool same = !a->nrest && !b->nrest && a->base == b->base;
  for (uint32_t i = 0; same && i < s->nindex; i++)
    same = s->index[i].extent == 1 || a->coef[i] == b->coef[i];
  return same;
}

// ---- forms

// The value that a statement renames as this one, or NONE.
static Id renamed(const Module *m, const Fn *f, const Layout *l, Id value) {
  Id from = NONE;
  for (uint32_t i = 0; i < f->stmt.n; i++) {
    const Stmt *s = &f->stmt.at[i];
    if (s->kind != ST_COMP || s->lhs != value) continue;
    if (from != NONE || s->acc || s->red != RED_NONE || !ex_is(m, s->body, OP_READ)) return NONE;
    from = (Id)ex(m, s->body)->integer;
  }
  return from != NONE && from != value && l[from].buffer == l[value].buffer ? from : NONE;
}

// Whether the value is `sum`, or some or all of its elements under another name.
static bool stands_for(const Module *m, const Fn *f, const Layout *l, Id value, Id sum) {
  while (value != sum && value != NONE) value = renamed(m, f, l, value);
  return value == sum;
}

bool is_unstored_sum(const Module *m, const Fn *f, const Layout *l, const Kernel *k, Id value) {
  for (uint32_t i = 0; k->kind == K_GEMM && i + 1 < k->stmt.n; i++) {
    Id sum = f->stmt.at[k->stmt.at[i]].lhs;
    if (sum != k->gemm.kept && stands_for(m, f, l, value, sum)) return true;
  }
  return false;
}

static bool is_real(const Module *m, Id e, double v) {
  return ex_is(m, e, OP_REAL) && fabs(ex(m, e)->real - v) < 1e-15;
}

static bool is_pair(const Module *m, Id e, Op op, Id *a, Id *b) {
  if (!ex_is(m, e, op)) return false;
  *a = ex_arg(m, e, 0), *b = ex_arg(m, e, 1);
  return true;
}

// 0.5 * x * (1.0 + tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x))), in this order: what the library computes. Another
// order, or erf, is another function in its last bits or more.
static bool is_gelu_tanh(const Module *m, Id e, Id x) {
  const double root = 0.79788456080286535588;
  Id a, b, c, d, y;
  if (!is_pair(m, e, OP_MUL, &a, &b) || !is_pair(m, a, OP_MUL, &c, &d) || !is_real(m, c, 0.5) || d != x) return false;
  if (!is_pair(m, b, OP_ADD, &a, &c) || !is_real(m, a, 1) || !ex_is(m, c, OP_TANH)) return false;
  if (!is_pair(m, ex_arg(m, c, 0), OP_MUL, &a, &b) || !is_real(m, a, root)) return false;
  if (!is_pair(m, b, OP_ADD, &y, &a) || y != x) return false;
  for (int i = 0; i < 2; i++, a = b)
    if (!is_pair(m, a, OP_MUL, &b, &c) || c != x) return false;
  return is_pair(m, a, OP_MUL, &b, &c) && is_real(m, b, 0.044715) && c == x;
}

// Positions and random numbers are no functions of the sum.
static bool is_of_reads(const Module *m, Id e) {
  if (ex_is(m, e, OP_READ)) return true;
  if (ex_is(m, e, OP_INDEX) || ex_is(m, e, OP_RANDOM)) return false;
  for (uint32_t i = 0; i < ex(m, e)->narg; i++)
    if (!is_of_reads(m, ex_arg(m, e, i))) return false;
  return true;
}

typedef struct Link {
  const Module *m;
  const Fn *f;
  const Layout *l;
  const Stmt *s; // the statement
  Id sum; // what it continues
  Affine at; // its left side
  Id read; // of the sum, at that place; all reads of it are this expression
  uint32_t others; // reads of other values, and of the sum elsewhere
} Link;

static void note_read(const Module *m, Id read, void *ctx) {
  Link *k = ctx;
  bool here = stands_for(m, k->f, k->l, (Id)ex(m, read)->integer, k->sum) && (k->read == NONE || k->read == read);
  Affine from = affine_read(m, k->l, k->s, read);
  here = here && fuse_same_place(k->s, &k->at, &from);
  if (here) k->read = read;
  k->others += !here;
}

static bool is_pointwise(const Link *k) {
  const Stmt *s = k->s;
  return s->kind == ST_COMP && !s->acc && s->red == RED_NONE && fuse_whole(k->m, k->f, s);
}

// A bias or a residual, unless there is one.
static bool match_term(const Link *k, Id e, GemmPlan *g) {
  if (!ex_is(k->m, e, OP_READ)) return false;
  Affine term = affine_read(k->m, k->l, k->s, e), base = k->at;
  Id from = (Id)ex(k->m, e)->integer;
  base.base = term.base;
  if (g->bias == NONE && fuse_along_columns(k->s, &k->at, &term, g->n)) {
    g->bias = from;
    g->bias_offset = term.base;
    return true;
  }
  if (g->plus != NONE || !fuse_same_place(k->s, &base, &term)) return false;
  g->plus = from;
  g->plus_offset = term.base;
  g->plus_first = g->bias == NONE;
  return true;
}

// The sum, or that plus one term, or that plus two.
static bool match_terms(const Link *k, Id e, GemmPlan *g) {
  Id a, b;
  if (e == k->read) return true;
  if (!is_pair(k->m, e, OP_ADD, &a, &b)) return false;
  if (match_terms(k, a, g)) return match_term(k, b, g);
  return match_terms(k, b, g) && match_term(k, a, g);
}

bool match_epilogue(const Module *m, const Fn *f, const Layout *l, const Id *stmt, uint32_t n, Id stored, GemmPlan *g) {
  Id sum = f->stmt.at[stmt[0]].lhs;
  g->bias = g->plus = g->kept = NONE;
  g->act = ACT_NONE;
  g->plus_first = false;
  for (uint32_t i = 1; i < n; i++) {
    Link k = {.m = m, .f = f, .l = l, .s = &f->stmt.at[stmt[i]], .sum = sum, .read = NONE};
    if (!is_pointwise(&k) || g->act != ACT_NONE || f->value.at[sum].type != m->compute) return false;
    k.at = affine_lhs(m, f, l, k.s);
    comp_reads(m, f, k.s, note_read, &k);
    if (k.read == NONE) return false;
    if (k.s->body == k.read && g->kept == NONE) {
      g->kept = k.s->lhs;
    } else if (!k.others && k.s->body != k.read && is_of_reads(m, k.s->body)) {
      g->act = is_gelu_tanh(m, k.s->body, k.read) ? ACT_GELU : ACT_POINTWISE;
      g->c = k.s->lhs;
    } else if (g->kept == NONE && match_terms(&k, k.s->body, g)) {
      sum = g->c = k.s->lhs;
    } else {
      return false;
    }
  }
  if (g->act == ACT_NONE) return g->kept == NONE && stored == NONE;
  if (stored == NONE) return true;
  bool is_sum = stored == sum && g->kept == NONE;
  if (is_sum) g->kept = sum;
  return is_sum || stored == g->kept;
}

// ---- what may be fused

static bool has_own_storage(const Fuse *u, Id value) {
  return u->f->value.at[value].role == ROLE_LOCAL && u->fp->layout[value].buffer == value &&
         u->alias[value] == NONE;
}

static bool is_result(const Fuse *u, Id value) {
  for (uint32_t i = 0; i < u->f->result.n; i++)
    if (u->f->result.at[i] == value) return true;
  return false;
}

// No caller has the value, and nobody names its storage or takes it over, but as its elements.
static bool is_private(const Fuse *u, Id value) {
  for (Id v = 0; v < u->f->value.n; v++) {
    if (u->alias[v] == value) return false;
    if (u->fp->layout[v].buffer == value && (is_result(u, v) || !stands_for(u->m, u->f, u->fp->layout, v, value)))
      return false;
  }
  return has_own_storage(u, value);
}

static bool is_made_once(const Fuse *u, Id value) {
  uint32_t made = 0;
  for (uint32_t i = 0; i < u->f->stmt.n; i++)
    made += u->f->stmt.at[i].kind == ST_COMP && u->f->stmt.at[i].lhs == value;
  return made == 1;
}

typedef struct Reads {
  const Fuse *u;
  Id value;
  bool found;
} Reads;

static void find_read(const Module *m, Id read, void *ctx) {
  Reads *r = ctx;
  r->found |= stands_for(m, r->u->f, r->u->fp->layout, (Id)ex(m, read)->integer, r->value);
}

// The statements that use the value, in order, but for those that rename it: how many, of which `most` are named; more
// than that if it is used otherwise.
static uint32_t uses_of(const Fuse *u, Id value, uint32_t *use, uint32_t most) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < u->f->stmt.n; i++) {
    const Stmt *s = &u->f->stmt.at[i];
    if (s->kind != ST_COMP && fuse_touches(u, s, value)) return most + 1;
    if (s->kind != ST_COMP || u->fp->layout[s->lhs].buffer == value) continue;
    Reads r = {u, value, false};
    comp_reads(u->m, u->f, s, find_read, &r);
    if (r.found && n < most) use[n] = i;
    n += r.found;
  }
  return n;
}

// The statement's left side is memory that it writes alone.
static bool writes_own(const Fuse *u, uint32_t stmt) {
  Id value = u->f->stmt.at[stmt].lhs;
  return has_own_storage(u, value) && is_made_once(u, value);
}

// Whether a value that the product's kernel would read has its elements before the product, and until the statement.
static bool is_there(const Fuse *u, Id value, uint32_t product, uint32_t use) {
  Id buffer = u->fp->layout[value].buffer;
  for (Id v = 0; v < u->f->value.n; v++)
    if (u->alias[v] == value || u->alias[v] == buffer) return false;
  if (u->f->value.at[value].role == ROLE_IN) return true;
  for (uint32_t i = product; i < use; i++) {
    const Stmt *s = &u->f->stmt.at[i];
    if (s->kind != ST_COMP ? fuse_touches(u, s, buffer) : u->fp->layout[s->lhs].buffer == buffer) return false;
  }
  return u->f->value.at[value].role == ROLE_LOCAL && u->f->value.at[buffer].role != ROLE_INOUT;
}

static bool pays(const Fuse *u, const GemmPlan *g) {
  int64_t points = g->m * g->n;
  return (g->plus == NONE || points >= u->m->limits.plus_points) && (g->act == ACT_NONE || points >= u->m->limits.act_points);
}

// The product and what its kernel may compute, step by step.
typedef struct Chain {
  const bool *skip;
  GemmPlan alone;
  Id stmt[EPILOGUE_STMTS];
  uint32_t n;
  Epilogue best; // the longest that the target takes
} Chain;

static bool add_stmt(const Fuse *u, Chain *c, uint32_t stmt) {
  if (c->n == EPILOGUE_STMTS || stmt < c->stmt[0] || c->skip[stmt] || !writes_own(u, stmt)) return false;
  c->stmt[c->n++] = stmt;
  return true;
}

static void consider(Fuse *u, Chain *c, Id stored) {
  GemmPlan g = c->alone;
  if (!match_epilogue(u->m, u->f, u->fp->layout, c->stmt, c->n, stored, &g) || !pays(u, &g)) return;
  uint32_t last = c->stmt[c->n - 1];
  if (g.bias != NONE && (u->f->value.at[g.bias].role != ROLE_IN || !is_there(u, g.bias, c->stmt[0], last))) return;
  if (g.plus != NONE && !is_there(u, g.plus, c->stmt[0], last)) return;
  if (!u->m->target->takes_product(u->m, u->f, &g)) return;
  c->best = (Epilogue){.n = c->n - 1, .gemm = g};
  memcpy(c->best.stmt, c->stmt + 1, c->best.n * sizeof *c->stmt);
}

// A function of the sum `value`. Where others read the sum it is stored, itself or as a copy in another type.
static void add_function(Fuse *u, Chain *c, Id value) {
  uint32_t use[EPILOGUE_STMTS], sum = c->n, before = c->best.n, n = uses_of(u, value, use, EPILOGUE_STMTS);
  bool alone = is_private(u, value);
  for (uint32_t i = 0; i < n && n <= EPILOGUE_STMTS && c->best.n == before; i++) {
    bool copied = alone && n == 2 && add_stmt(u, c, use[!i]);
    if ((alone && n == 1) || copied)
      if (add_stmt(u, c, use[i])) consider(u, c, NONE);
    c->n = sum;
    if (c->best.n == before && sum > 1 && has_own_storage(u, value) && add_stmt(u, c, use[i])) consider(u, c, value);
    c->n = sum;
  }
}

static bool add_term(Fuse *u, Chain *c, Id *value) {
  uint32_t use;
  if (!is_private(u, *value) || uses_of(u, *value, &use, 1) != 1 || !add_stmt(u, c, use)) return false;
  *value = u->f->stmt.at[use].lhs;
  GemmPlan g = c->alone;
  return match_epilogue(u->m, u->f, u->fp->layout, c->stmt, c->n, NONE, &g) && g.act == ACT_NONE;
}

// The sum is a whole value of the type of computation, and no view.
static bool is_sum_alone(const Fuse *u, uint32_t product, GemmPlan *g) {
  const Stmt *z = &u->f->stmt.at[product];
  if (z->kind != ST_COMP || z->acc || !has_own_storage(u, z->lhs) || !is_made_once(u, z->lhs)) return false;
  if (!match_gemm(u->m, u->f, u->fp->layout, z, g) || g->nbatch || g->c_row != g->n || g->c_offset) return false;
  const Value *v = &u->f->value.at[z->lhs];
  return g->m * g->n == value_count(v) && v->type == u->m->compute;
}

// The sums that are in no memory, and their other names, lie in C's storage for all that look at layouts.
static void drop_sums(Fuse *u, uint32_t product, const Epilogue *e) {
  for (uint32_t i = 0; i <= e->n; i++) {
    Id sum = u->f->stmt.at[i ? e->stmt[i - 1] : product].lhs;
    if (sum == e->gemm.c || sum == e->gemm.kept) continue;
    for (Id v = 0; v < u->f->value.n; v++)
      if (u->fp->layout[v].buffer == sum) u->fp->layout[v].buffer = e->gemm.c;
  }
}

static void match_chain(Fuse *u, uint32_t product, bool *skip) {
  Chain c = {.skip = skip, .stmt = {product}, .n = 1};
  if (!is_sum_alone(u, product, &c.alone)) return;
  Id value = u->f->stmt.at[product].lhs;
  do {
    if (c.n > 1) consider(u, &c, NONE);
    add_function(u, &c, value);
  } while (add_term(u, &c, &value));
  if (!c.best.n) return;
  u->epilogue[product] = c.best;
  drop_sums(u, product, &c.best);
  for (uint32_t i = 0; i < c.best.n; i++) skip[c.best.stmt[i]] = true;
}

void fuse_epilogues(Fuse *u, bool *skip) {
  u->epilogue = NEWN(u->m->arena, Epilogue, u->f->stmt.n + 1);
  for (uint32_t i = 0; i < u->f->stmt.n; i++)
    if (!skip[i]) match_chain(u, i, skip);
}
