// A bias that is added to a matrix product alone:
//
//     z[b, t, o] = sum(i: x[b, t, i] * w[i, o])        one kernel, which leaves y:
//     y[b, t, o] = z[b, t, o] + bias[o]                the library adds the bias to what it has in
//                                                      the cache
//
// z's values are rounded as ever; they only never lie in memory of their own. Where y is of 16 bits, z is
// float, and y is rounded once, when the bias has been added.
#include "codegen/lower/fuse.h"
#include "codegen/target.h"

typedef struct Reads {
  const Fuse *u;
  Id value;
  uint32_t count;
} Reads;

static void count_read(const Module *m, Id read, void *ctx) {
  Reads *r = ctx;
  r->count += (Id)ex(m, read)->integer == r->value;
}

// The only statement that reads or otherwise uses the value that statement `made` makes, or NONE.
static uint32_t only_use(const Fuse *u, uint32_t made) {
  Id value = u->f->stmt.at[made].lhs;
  uint32_t use = NONE;
  for (uint32_t i = 0; i < u->f->stmt.n; i++) {
    const Stmt *s = &u->f->stmt.at[i];
    if (s->kind != ST_COMP) {
      if (fuse_touches(u, s, value)) return NONE;
      continue;
    }
    if (i != made && s->lhs == value) return NONE;
    Reads r = {u, value, 0};
    comp_reads(u->m, u->f, s, count_read, &r);
    if (!r.count) continue;
    if (r.count > 1 || use != NONE) return NONE;
    use = i;
  }
  return use;
}

static bool has_own_storage(const Fuse *u, Id value) {
  return u->f->value.at[value].role == ROLE_LOCAL && u->fp->layout[value].buffer == value &&
         u->alias[value] == NONE;
}

// Nobody else names the storage or takes it over.
static bool is_private(const Fuse *u, Id value) {
  for (Id v = 0; v < u->f->value.n; v++)
    if ((v != value && u->fp->layout[v].buffer == value) || u->alias[v] == value) return false;
  return has_own_storage(u, value);
}

static bool is_result(const Fuse *u, Id value) {
  for (uint32_t i = 0; i < u->f->result.n; i++)
    if (u->f->result.at[i] == value) return true;
  return false;
}

// The other term of body = read of `value` + read of something that does not change; NONE if it is
// not that.
static Id other_term(const Fuse *u, const Stmt *s, Id value, Id *read) {
  if (!ex_is(u->m, s->body, OP_ADD)) return NONE;
  Id a = ex_arg(u->m, s->body, 0), b = ex_arg(u->m, s->body, 1);
  if (!ex_is(u->m, a, OP_READ) || !ex_is(u->m, b, OP_READ)) return NONE;
  *read = (Id)ex(u->m, a)->integer == value ? a : b;
  Id bias = *read == a ? b : a, from = (Id)ex(u->m, bias)->integer;
  for (Id v = 0; v < u->f->value.n; v++)
    if (u->alias[v] == from) return NONE;
  return u->f->value.at[from].role == ROLE_IN ? bias : NONE;
}

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

static void match_bias(Fuse *u, uint32_t product) {
  const Stmt *z = &u->f->stmt.at[product];
  GemmPlan g;
  if (z->kind != ST_COMP || z->acc || !is_private(u, z->lhs) || is_result(u, z->lhs)) return;
  if (!match_gemm(u->m, u->f, u->fp->layout, z, &g) || g.nbatch || g.c_row != g.n || g.c_offset)
    return;
  if (g.m * g.n != value_count(&u->f->value.at[z->lhs])) return;
  uint32_t use = only_use(u, product);
  if (use == NONE || u->f->stmt.at[use].kind != ST_COMP) return;
  const Stmt *s = &u->f->stmt.at[use];
  if (s->acc || s->red != RED_NONE || !has_own_storage(u, s->lhs)) return;
  if (!fuse_whole(u->m, u->f, s)) return;
  if (u->f->value.at[z->lhs].type != u->m->compute) return;
  Id read = NONE, bias = other_term(u, s, z->lhs, &read);
  if (bias == NONE) return;
  Affine at = affine_lhs(u->m, u->f, u->fp->layout, s),
         from = affine_read(u->m, u->fp->layout, s, read),
         term = affine_read(u->m, u->fp->layout, s, bias);
  if (!fuse_same_place(s, &at, &from) || !fuse_along_columns(s, &at, &term, g.n)) return;
  for (uint32_t i = 0; i < u->f->stmt.n; i++) // made once
    if (i != use && u->f->stmt.at[i].kind == ST_COMP && u->f->stmt.at[i].lhs == s->lhs) return;
  g.c = u->fp->layout[s->lhs].buffer;
  g.bias = (Id)ex(u->m, bias)->integer;
  if (!u->m->target->takes_product(u->m, u->f, &g)) return;
  u->fp->layout[z->lhs] = u->fp->layout[s->lhs];
  u->bias[product] = (BiasOf){use, g.bias, term.base};
}

void fuse_biases(Fuse *u, bool *skip) {
  u->bias = NEWN(u->m->arena, BiasOf, u->f->stmt.n + 1);
  for (uint32_t i = 0; i < u->f->stmt.n; i++) u->bias[i].stmt = NONE;
  for (uint32_t i = 0; i < u->f->stmt.n; i++) {
    if (!skip[i]) match_bias(u, i);
    if (u->bias[i].stmt != NONE) skip[u->bias[i].stmt] = true;
  }
}
