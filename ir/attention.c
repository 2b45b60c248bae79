// Recognises the body of attention. Expressions are hash-consed: the body that is expected is built
// of the function's own values and compared with the body that is there.
#include "ir/attention.h"

#include <math.h>

enum { Q, K, V, NARG };
enum { PRODUCT, SCORE, TOP, WEIGHTS, LSE, OUT, NSTMT };

// Dimensions by letter: b batch, t query, s key, g group, r query head of the group, e feature.
static const char *const arg_dims[NARG] = {"btgre", "bsge", "bsge"};
static const struct Form {
  const char *dims; // of the left side, and of the indices that it is free in
  char bound; // what is reduced; 0: nothing
  Red red;
} form[NSTMT] = {{"bgrts", 'e', RED_SUM}, {"bgrts", 0, RED_NONE}, {"bgrt", 's', RED_MAX},
                 {"bgrt", 's', RED_SUM},  {"bgrt", 0, RED_NONE},  {"btgre", 's', RED_SUM}};

typedef struct Match {
  Module *m;
  const Fn *f;
  int64_t extent[128]; // by letter; 0: not known yet
  uint32_t index[128]; // of the statement at hand, by letter
} Match;

static bool fits(Match *x, Id value, const char *dims) {
  const Value *v = &x->f->value.at[value];
  if (scalar_of(v->type) != SC_REAL || v->rank != strlen(dims)) return false;
  for (uint32_t d = 0; d < v->rank; d++) {
    int64_t *extent = &x->extent[(int)dims[d]];
    if (!*extent) *extent = v->extent[d];
    if (*extent != v->extent[d]) return false;
  }
  return true;
}

static bool fits_signature(Match *x) {
  const Fn *f = x->f;
  if (f->arg.n != NARG || f->result.n != 2 || f->stmt.n == 0) return false;
  for (uint32_t i = 0; i < NARG; i++)
    if (f->value.at[f->arg.at[i]].role != ROLE_IN || !fits(x, f->arg.at[i], arg_dims[i]))
      return false;
  return fits(x, f->result.at[0], "btgre") && fits(x, f->result.at[1], "bgrt");
}

static bool binds(Match *x, char letter, const Stmt *s, uint32_t index) {
  x->index[(int)letter] = index;
  return s->index[index].extent == x->extent[(int)letter] && !s->index[index].local;
}

// Whether the statement has the indices of its form; finds the numbers of their letters.
static bool has_indices(Match *x, const Stmt *s, const struct Form *form) {
  uint32_t rank = (uint32_t)strlen(form->dims);
  if (s->kind != ST_COMP || s->acc || s->red != form->red || s->nfree != rank ||
      s->nindex != rank + (form->bound != 0) || !fits(x, s->lhs, form->dims))
    return false;
  for (uint32_t d = 0; d < rank; d++)
    if (!ex_is(x->m, s->sub[d], OP_INDEX) ||
        !binds(x, form->dims[d], s, (uint32_t)ex(x->m, s->sub[d])->integer))
      return false;
  return !form->bound || binds(x, form->bound, s, rank);
}

static Id get(Match *x, Id value, const char *dims) {
  Id sub[MAX_RANK] = {0};
  for (uint32_t d = 0; dims[d]; d++) sub[d] = ex_index(x->m, x->index[(int)dims[d]]);
  return ex_read(x->m, x->f, value, sub);
}

static Id get_lhs(Match *x, int stmt) { return get(x, x->f->stmt.at[stmt].lhs, form[stmt].dims); }

static bool is_where(const Match *x, int stmt) {
  const Stmt *s = (uint32_t)stmt < x->f->stmt.n ? &x->f->stmt.at[stmt] : NULL;
  return s && s->kind == ST_COMP && ex_is(x->m, s->body, OP_WHERE);
}

// Query t sees keys up to its own position.
static Id sees(Match *x) {
  return ex2(x->m, OP_LE, ex_index(x->m, x->index['s']), ex_index(x->m, x->index['t']));
}

// A causal score is a branch of a `where`, and so is the product that the front end takes out of it.
static Id product(Match *x) {
  Module *m = x->m;
  const Id *arg = x->f->arg.at;
  Id p = ex2(m, OP_MUL, get(x, arg[Q], arg_dims[Q]), get(x, arg[K], arg_dims[K]));
  return is_where(x, SCORE) && is_where(x, PRODUCT) ? ex3(m, OP_WHERE, sees(x), p, ex_real(m, 0)) : p;
}

static Id score(Match *x, bool causal) {
  Module *m = x->m;
  Id scale = ex_real(m, 1.0 / sqrt((double)x->extent['e']));
  Id z = ex2(m, OP_MUL, get_lhs(x, PRODUCT), scale);
  if (!causal) return z;
  return ex3(m, OP_WHERE, sees(x), z, ex_real(m, -INFINITY));
}

static Id exp_less(Match *x, int a, int b) {
  return ex1(x->m, OP_EXP, ex2(x->m, OP_SUB, get_lhs(x, a), get_lhs(x, b)));
}

static Id expected(Match *x, int stmt) {
  Module *m = x->m;
  const Id *arg = x->f->arg.at;
  switch (stmt) {
  case PRODUCT: return product(x);
  case SCORE: return score(x, is_where(x, SCORE));
  case TOP: return ex1(m, OP_STOP, get_lhs(x, SCORE));
  case WEIGHTS: return exp_less(x, SCORE, TOP);
  case LSE: return ex2(m, OP_ADD, ex1(m, OP_LOG, get_lhs(x, WEIGHTS)), get_lhs(x, TOP));
  default: return ex2(m, OP_MUL, exp_less(x, SCORE, LSE), get(x, arg[V], arg_dims[V]));
  }
}

const char *attention_differs(Module *m, const Fn *f) {
  Match x = {.m = m, .f = f};
  if (!fits_signature(&x))
    return "does not take q[b, t, g, r, e], k[b, s, g, e], v[b, s, g, e] and return o[b, t, g, r, "
           "e], lse[b, g, r, t]";
  for (uint32_t i = 0; i < NSTMT; i++) {
    const Stmt *s = i < f->stmt.n ? &f->stmt.at[i] : NULL;
    if (s && has_indices(&x, s, &form[i]) && s->body == expected(&x, (int)i)) continue;
    return i <= SCORE ? "has other scores than sum(e: q * k) / sqrt(e), masked by s <= t or not"
                      : "does not compute the softmax of its scores as nn.attention does";
  }
  bool same = f->stmt.n == NSTMT && f->result.at[0] == f->stmt.at[OUT].lhs &&
              f->result.at[1] == f->stmt.at[LSE].lhs;
  return same ? NULL : "computes more than attention";
}

static const char *asked_of_attention(const Module *m) {
  for (uint32_t a = 0; a < m->axis.n; a++) {
    if (m->axis.at[a].ring) return "ring";
    if (m->axis.at[a].heads) return "alltoall";
  }
  return NULL;
}

bool attention_recognise(Module *m) {
  const char *how = asked_of_attention(m);
  bool ok = true;
  for (Id i = 0; i < m->fn.n; i++) {
    Fn *f = &m->fn.at[i];
    const char *why = f->intrinsic && !f->backward ? attention_differs(m, f) : NULL;
    if (!why) continue;
    f->intrinsic = INTR_NONE;
    if (!how) continue;
    diag_error(m->src, f->loc, "--cp-attention %s cannot cut `%s`: it %s", how, f->name, why);
    diag_note(m->src, f->loc, "--cp-attention gather computes any body as it is written");
    ok = false;
  }
  return ok;
}
