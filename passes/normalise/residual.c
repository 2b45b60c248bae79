// A residual that is added to a product and its bias is added before the bias:
//
//     y[b, t, o] = z[b, t, o] + bias[o]
//     x.2[b, t, o] = x[b, t, o] + y[b, t, o]        becomes x.2[b, t, o] = z[b, t, o] + x[b, t, o] + bias[o]
//
// where nothing else reads y, which is rounded as all that is computed. A library that adds C to the sum and then a bias
// can do both (codegen/lower/epilogue.c).
#include "passes/normalise/normalise.h"
#include "passes/product.h"
#include "passes/util.h"

typedef struct Residuals {
  Norm *n;
  uint32_t *uses; // of each value
  const Stmt **def; // for each value: what makes it, if that is one statement
} Residuals;

static void count_use(Id value, void *ctx) { ((Residuals *)ctx)->uses[value]++; }

static void note_statements(Residuals *x) {
  const Norm *n = x->n;
  uint32_t *made = NEWN(n->m->arena, uint32_t, n->f->value.n + 1);
  for (uint32_t i = 0; i < n->out.n; i++) {
    const Stmt *s = &n->out.at[i];
    stmt_reads(n->m, n->f, s, count_use, x);
    if (s->kind != ST_COMP) continue;
    x->def[s->lhs] = made[s->lhs]++ ? NULL : s;
  }
  for (uint32_t i = 0; i < n->f->result.n; i++) x->uses[n->f->result.at[i]]++;
}

// The left side's subscripts are the statement's indices, each once.
static bool writes_bare(const Norm *n, const Stmt *s) {
  uint32_t seen = 0, rank = n->f->value.at[s->lhs].rank;
  for (uint32_t d = 0; d < rank; d++) {
    if (!ex_is(n->m, s->sub[d], OP_INDEX)) return false;
    seen |= 1u << ex(n->m, s->sub[d])->integer;
  }
  return s->nindex == rank && seen == all_set(s);
}

static bool is_sum_of_reads(const Norm *n, const Stmt *s, Id *a, Id *b) {
  if (s->kind != ST_COMP || s->acc || s->red != RED_NONE || !ex_is(n->m, s->body, OP_ADD)) return false;
  *a = ex_arg(n->m, s->body, 0), *b = ex_arg(n->m, s->body, 1);
  return ex_is(n->m, *a, OP_READ) && ex_is(n->m, *b, OP_READ);
}

static bool is_product(const Residuals *x, Id read) {
  const Stmt *s = x->def[ex(x->n->m, read)->integer];
  return s && !s->acc && s->red == RED_SUM && stmt_is_product(x->n->m, s);
}

// What makes the value that is read, if that is a product plus a bias and this its only use; then *z is the product.
static const Stmt *biased_product(const Residuals *x, Id read, Id *z, Id *bias) {
  const Norm *n = x->n;
  Id value = (Id)ex(n->m, read)->integer;
  const Value *v = &n->f->value.at[value];
  const Stmt *s = x->def[value];
  if (!s || v->role != ROLE_LOCAL || v->type != n->m->compute || x->uses[value] != 1) return NULL;
  if (!is_sum_of_reads(n, s, z, bias) || !writes_bare(n, s)) return NULL;
  if (!is_product(x, *z)) {
    Id other = *z;
    *z = *bias, *bias = other;
  }
  bool fits = is_product(x, *z) && ex_indices(n->m, *z) == all_set(s) && ex_indices(n->m, *bias) != all_set(s) &&
              x->def[ex(n->m, *bias)->integer] == NULL;
  return fits ? s : NULL;
}

// The expression of `def` in the indices of s, which reads def's value.
static Id in_indices_of(const Norm *n, const Stmt *s, const Stmt *def, Id read, Id e) {
  Id to[MAX_INDEX];
  uint32_t ungroup = 0;
  memset(to, 0xff, sizeof to);
  for (uint32_t d = 0; d < ex(n->m, read)->narg; d++) {
    uint32_t index = (uint32_t)ex(n->m, def->sub[d])->integer;
    to[index] = ex_arg(n->m, read, d);
    const Expr *at = ex(n->m, to[index]);
    if (at->op != OP_INDEX || s->index[at->integer].extent != def->index[index].extent) ungroup |= 1u << index;
  }
  return ex_substitute(n->m, e, def->index, to, ungroup);
}

void normal_residuals(Norm *n) {
  Residuals x = {n, NEWN(n->m->arena, uint32_t, n->f->value.n + 1), NEWN(n->m->arena, const Stmt *, n->f->value.n + 1)};
  if (!n->m->limits.plus_first) return;
  note_statements(&x);
  for (uint32_t i = 0; i < n->out.n; i++) {
    Stmt *s = &n->out.at[i];
    Id a, b, z, bias;
    if (!is_sum_of_reads(n, s, &a, &b)) continue;
    const Stmt *def = biased_product(&x, b, &z, &bias);
    Id y = def ? b : a, residual = def ? a : b;
    if (!def) def = biased_product(&x, a, &z, &bias);
    if (!def || ex_indices(n->m, residual) != free_set(s)) continue;
    Id sum = ex2(n->m, OP_ADD, in_indices_of(n, s, def, y, z), residual);
    s->body = ex2(n->m, OP_ADD, sum, in_indices_of(n, s, def, y, bias));
  }
}
