// Says which indices run over the batch, also those by which no sample is read, as in a running sum
// over it: c in `sum(b: where(b <= c, x[b], 0.0))`. An extent is a plain number in the IR, so the
// model is elaborated twice, with microbatches of two sizes: what differs is the batch.
// requires: inline, of both. Neither has indices that are local, whose extents may be anything.
// guarantees: Index.batch. The size of the batch is used as an extent only, and no statement depends on it.
// invalidates: nothing.
#include "passes/passes.h"
#include "passes/util.h"

typedef struct Twin {
  Module *m;
  const Module *other;
  Id *fn; // for each function of m the one of `other` that it was compared with, or NONE
  Id *expr; // the same for expressions
  bool size_used; // somewhere a constant differs
  Id at; // the place that was compared last
} Twin;

// Whether a and b are the same, but for constants.
static bool same_expr(Twin *t, Id a, Id b) {
  if (t->expr[a] == b) return true;
  t->expr[a] = b;
  const Expr *x = ex(t->m, a), *y = ex(t->other, b);
  if (x->op != y->op || x->type != y->type || x->narg != y->narg) return false;
  if (x->op == OP_INT) t->size_used |= x->integer != y->integer;
  else if (x->op == OP_REAL) // by their bits: NaN is no other number than NaN
    t->size_used |= memcmp(&x->real, &y->real, sizeof x->real) != 0;
  else if (x->integer != y->integer) return false;
  for (uint32_t i = 0; i < x->narg; i++)
    if (!same_expr(t, ex_arg(t->m, a, i), ex_arg(t->other, b, i))) return false;
  return true;
}

static bool mark_comp(Twin *t, Stmt *s, const Stmt *o, uint32_t rank) {
  if (s->lhs != o->lhs || s->red != o->red || s->nfree != o->nfree || s->nindex != o->nindex)
    return false;
  bool before = t->size_used;
  for (uint32_t d = 0; d < rank; d++)
    if (!same_expr(t, s->sub[d], o->sub[d])) return false;
  if (!same_expr(t, s->body, o->body)) return false;
  if (t->size_used && !before)
    diag_error(t->m->src, s->loc,
               "the number of samples in the batch is not a constant: the batch is cut into "
               "microbatches and over ranks; `mean(b: ...)` divides by it");
  for (uint32_t k = 0; k < s->nindex; k++)
    s->index[k].batch = s->index[k].extent != o->index[k].extent;
  return true;
}

static bool mark_fn(Twin *t, Id fn, Id other) {
  if (t->fn[fn] == other) return true;
  t->fn[fn] = other;
  Fn *f = &t->m->fn.at[fn];
  const Fn *g = &t->other->fn.at[other];
  for (uint32_t i = 0; i < f->stmt.n && i < g->stmt.n; i++) {
    Stmt *s = &f->stmt.at[i];
    const Stmt *o = &g->stmt.at[i];
    t->at = s->loc;
    if (s->kind != o->kind) return false;
    if (s->kind == ST_COMP) {
      if (!mark_comp(t, s, o, f->value.at[s->lhs].rank)) return false;
    } else if (s->call->narg != o->call->narg || !mark_fn(t, s->call->fn, o->call->fn)) {
      return false;
    }
  }
  return f->stmt.n == g->stmt.n && f->value.n == g->value.n;
}

static bool any_local(const Module *m) {
  for (Id f = 0; f < m->fn.n; f++)
    for (uint32_t i = 0; i < m->fn.at[f].stmt.n; i++) {
      const Stmt *s = &m->fn.at[f].stmt.at[i];
      for (uint32_t k = 0; s->kind == ST_COMP && k < s->nindex; k++)
        if (s->index[k].local) return true;
    }
  return false;
}

bool mark_batch(Module *m, const Module *other) {
  if (any_local(m)) return true;
  Twin t = {.m = m, .other = other, .fn = NEWN(m->arena, Id, m->fn.n + 1),
            .expr = NEWN(m->arena, Id, m->expr.n + 1)};
  for (Id i = 0; i < m->fn.n; i++) t.fn[i] = NONE;
  for (Id i = 0; i < m->expr.n; i++) t.expr[i] = NONE;
  const Entry entry[] = {ENTRY_LOSS, ENTRY_EVAL_LOSS};
  for (int i = 0; i < 2; i++) {
    Id a = m->entry[entry[i]], b = other->entry[entry[i]];
    if (a == NONE || b == NONE || mark_fn(&t, a, b)) continue;
    diag_error(m->src, t.at,
               "this is other statements for another number of samples: the batch is cut into microbatches and over "
               "ranks, so no condition and no size may depend on how many there are");
    return false;
  }
  return !t.size_used;
}
