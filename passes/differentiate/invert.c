// Inverts the left side of an adjoint statement dT[sub] += term, so that what it writes is free:
//   - a bare index, or a group, that no other dimension has claimed is free as it stands;
//   - a subscript that is affine in an unclaimed index is solved for that index, under a guard;
//   - a subscript of claimed indices only (a gather, a constant, a diagonal) is compared with a
//     fresh index;
//   - what is left is summed under such a comparison where that is small; else it stays, as a
//     scatter-sum.
// All other indices are bound by a sum, also those that the term does not mention.
#include "passes/differentiate/adjoint.h"
#include "passes/util.h"

// A dimension of the target whose subscript is neither free nor solved yet: `e` must equal a fresh
// index. Where e was the first part of a group, `rest` has the group's other parts, all free.
typedef struct Equation {
  uint32_t dim;
  Id e; // NONE: settled
  int64_t extent; // of the fresh index
  Id rest[MAX_INDEX];
  uint32_t nrest;
} Equation;

typedef struct Inversion {
  Module *m;
  const Scatter *s;
  Index index[MAX_INDEX];
  uint32_t n; // indices, fresh ones included
  uint32_t free, gone; // sets of indices: claimed by the left, solved for
  Id sub[MAX_RANK];
  Equation eq[MAX_RANK];
  uint32_t neq;
  Terms term;
  Id solved; // guard of the solved form: must be evaluated first
  Id equal; // guard of comparisons
  bool scatter, clamp; // a subscript stays on the left; it must not be evaluated without its guard
} Inversion;

static bool unclaimed(const Inversion *v, uint32_t i) { return !((v->free | v->gone) >> i & 1); }

// Replaces index i everywhere (to: an expression; NONE: nothing but groups that i stands in,
// written out).
static void substitute(Inversion *v, uint32_t i, Id to) {
  Id map[MAX_INDEX];
  Module *m = v->m;
  for (uint32_t k = 0; k < MAX_INDEX; k++) map[k] = k == i ? to : NONE;
  uint32_t bit = 1u << i;
#define SUB(e) ((e) == NONE ? NONE : ex_substitute(m, (e), v->index, map, bit))
  for (uint32_t d = 0; d < v->s->target->rank; d++) v->sub[d] = SUB(v->sub[d]);
  for (uint32_t q = 0; q < v->neq; q++) v->eq[q].e = SUB(v->eq[q].e);
  for (uint32_t t = 0; t < v->term.n; t++) {
    v->term.at[t].guard = SUB(v->term.at[t].guard);
    v->term.at[t].value = SUB(v->term.at[t].value);
  }
  v->solved = SUB(v->solved);
  v->equal = SUB(v->equal);
#undef SUB
}

// Claims bare index i for a dimension of `extent` elements. Where i runs further, every point
// beyond was guarded, so it is cut; where it ends earlier, the rest is guarded, or an accumulator's
// rest left alone.
static void claim_bare(Inversion *v, uint32_t d, uint32_t i, int64_t extent) {
  Module *m = v->m;
  int64_t old = v->index[i].extent;
  v->free |= 1u << i;
  if (old > extent || (old < extent && !v->s->accumulate)) {
    substitute(v, i, NONE);
    v->index[i].extent = extent;
    if (old < extent)
      v->solved = fold_and(m, ex2(m, OP_LT, ex_index(m, i), ex_int(m, old)), v->solved);
  }
  v->sub[d] = ex_index(m, i);
}

static bool claimable_group(const Inversion *v, Id e, uint32_t from) {
  uint32_t seen = 0;
  for (uint32_t k = from; k < ex(v->m, e)->narg; k++) {
    const Expr *a = ex(v->m, ex_arg(v->m, e, k));
    if (a->op != OP_INDEX || !unclaimed(v, (uint32_t)a->integer) || seen >> a->integer & 1)
      return false;
    seen |= 1u << a->integer;
  }
  return true;
}

static int64_t group_extent(const Inversion *v, Id e, uint32_t from) {
  int64_t n = 1;
  for (uint32_t k = from; k < ex(v->m, e)->narg; k++)
    n *= v->index[ex(v->m, ex_arg(v->m, e, k))->integer].extent;
  return n;
}

static void claim_parts(Inversion *v, Id e, uint32_t from) {
  for (uint32_t k = from; k < ex(v->m, e)->narg; k++)
    v->free |= 1u << ex(v->m, ex_arg(v->m, e, k))->integer;
}

static void add_equation(Inversion *v, uint32_t d, Id e) {
  v->eq[v->neq++] = (Equation){.dim = d, .e = e, .extent = v->s->target->extent[d]};
}

// A group that is free as a whole, or whose parts after the first are.
static void claim_group(Inversion *v, uint32_t d, Id e) {
  int64_t extent = v->s->target->extent[d], n;
  if (claimable_group(v, e, 0)) {
    n = group_extent(v, e, 0);
    if (n == extent || (n < extent && v->s->accumulate)) {
      claim_parts(v, e, 0);
      v->sub[d] = e;
      return;
    }
  }
  if (claimable_group(v, e, 1) && extent % (n = group_extent(v, e, 1)) == 0) {
    claim_parts(v, e, 1);
    Equation *q = &v->eq[v->neq];
    add_equation(v, d, ex_arg(v->m, e, 0));
    q->extent = extent / n;
    for (uint32_t k = 1; k < ex(v->m, e)->narg; k++) q->rest[q->nrest++] = ex_arg(v->m, e, k);
    return;
  }
  add_equation(v, d, e);
}

static void claim_all(Inversion *v) {
  Module *m = v->m;
  uint32_t rank = v->s->target->rank, bare = 0;
  for (uint32_t d = 0; d < rank; d++) v->sub[d] = v->s->sub[d];
  for (uint32_t d = 0; d < rank; d++) {
    const Expr e = *ex(m, v->sub[d]);
    if (e.op != OP_INDEX || !unclaimed(v, (uint32_t)e.integer)) continue;
    claim_bare(v, d, (uint32_t)e.integer, v->s->target->extent[d]);
    bare |= 1u << d;
  }
  for (uint32_t d = 0; d < rank; d++) {
    if (bare >> d & 1) continue;
    if (ex_is(m, v->sub[d], OP_GROUP)) claim_group(v, d, v->sub[d]);
    else add_equation(v, d, v->sub[d]);
  }
}

// e = sum of coef[i] * i + rest, where rest has the indices in `opaque` inside of other operators.
typedef struct Linear {
  int64_t coef[MAX_INDEX];
  Id rest;
  uint32_t opaque;
  bool reads;
} Linear;

static void no_read(const Module *m, Id read, void *ctx) {
  (void)m, (void)read;
  *(bool *)ctx = true;
}

static void linear(const Inversion *v, Id e, int64_t scale, Linear *l) {
  Module *m = v->m;
  const Expr x = *ex(m, e);
  if (x.op == OP_INDEX) {
    l->coef[x.integer] += scale;
  } else if (x.op == OP_ADD || x.op == OP_SUB) {
    linear(v, ex_arg(m, e, 0), scale, l);
    linear(v, ex_arg(m, e, 1), x.op == OP_ADD ? scale : -scale, l);
  } else if (x.op == OP_NEG) {
    linear(v, ex_arg(m, e, 0), -scale, l);
  } else if (x.op == OP_MUL && ex_is(m, ex_arg(m, e, 1), OP_INT)) {
    linear(v, ex_arg(m, e, 0), scale * ex(m, ex_arg(m, e, 1))->integer, l);
  } else if (x.op == OP_MUL && ex_is(m, ex_arg(m, e, 0), OP_INT)) {
    linear(v, ex_arg(m, e, 1), scale * ex(m, ex_arg(m, e, 0))->integer, l);
  } else if (x.op == OP_GROUP) {
    for (uint32_t k = x.narg; k-- > 0;) {
      Id a = ex_arg(m, e, k);
      linear(v, a, scale, l);
      if (k) scale *= v->index[ex(m, a)->integer].extent;
    }
  } else {
    l->opaque |= ex_indices(m, e);
    ex_reads(m, e, no_read, &l->reads);
    l->rest = fold_add(m, l->rest, fold_mul(m, ex_int(m, scale), e));
  }
}

// 0 <= e < extent, without the bounds that the indices' extents imply; NONE if they imply both.
static Id range_guard(const Inversion *v, Id e, int64_t extent) {
  Module *m = v->m;
  Linear l = {.rest = ex_int(m, 0)};
  linear(v, e, 1, &l);
  bool known = ex_is(m, l.rest, OP_INT);
  int64_t lo = known ? ex(m, l.rest)->integer : 0, hi = lo;
  for (uint32_t i = 0; i < v->n; i++)
    *(l.coef[i] < 0 ? &lo : &hi) += l.coef[i] * (v->index[i].extent - 1);
  Id guard = known && lo >= 0 ? NONE : ex2(m, OP_GE, e, ex_int(m, 0));
  return known && hi < extent ? guard : fold_and(m, guard, ex2(m, OP_LT, e, ex_int(m, extent)));
}

static uint32_t fresh(Inversion *v, const Equation *q) {
  CHECK(v->n < MAX_INDEX);
  Str want = q->nrest ? NULL : v->s->name[q->dim];
  v->index[v->n] = (Index){.name = index_name(want, v->index, v->n), .extent = q->extent};
  return v->n++;
}

static Id wrap(Inversion *v, const Equation *q, Id first) {
  if (!q->nrest) return first;
  Id part[MAX_INDEX] = {first};
  memcpy(part + 1, q->rest, q->nrest * sizeof(Id));
  return ex_group(v->m, part, q->nrest + 1);
}

// The unclaimed index to solve for: the one with the largest extent, which leaves the least to sum.
static int best_index(const Inversion *v, const Linear *l) {
  int best = -1;
  for (uint32_t i = 0; i < v->n; i++)
    if (l->coef[i] && unclaimed(v, i) && !(l->opaque >> i & 1) &&
        (best < 0 || v->index[i].extent > v->index[best].extent))
      best = (int)i;
  return best;
}

// Solves sum of coef * index + rest == u for index i: i = (u - others) / coef.
static bool solve(Inversion *v, Equation *q) {
  Module *m = v->m;
  Linear l = {.rest = ex_int(m, 0)};
  linear(v, q->e, 1, &l);
  int best = l.reads ? -1 : best_index(v, &l);
  if (best < 0 || v->n >= MAX_INDEX) return false;
  uint32_t i = (uint32_t)best, u = fresh(v, q);
  int64_t c = l.coef[i];
  Id rhs = fold_sub(m, ex_index(m, u), l.rest), guard = NONE;
  for (uint32_t k = 0; k < MAX_INDEX; k++)
    if (k != i && l.coef[k] < 0)
      rhs = fold_add(m, rhs, fold_mul(m, ex_index(m, k), ex_int(m, -l.coef[k])));
    else if (k != i && l.coef[k])
      rhs = fold_sub(m, rhs, fold_mul(m, ex_index(m, k), ex_int(m, l.coef[k])));
  if (c < 0) rhs = fold_neg(m, rhs), c = -c;
  if (c > 1) {
    guard = ex2(m, OP_EQ, ex2(m, OP_MOD, rhs, ex_int(m, c)), ex_int(m, 0));
    rhs = ex2(m, OP_IDIV, rhs, ex_int(m, c));
  }
  guard = fold_and(m, guard, range_guard(v, rhs, v->index[i].extent));
  q->e = NONE;
  v->free |= 1u << u;
  v->gone |= 1u << i;
  substitute(v, i, rhs);
  v->solved = fold_and(m, guard, v->solved);
  v->sub[q->dim] = wrap(v, q, ex_index(m, u));
  return true;
}

static void compare(Inversion *v, Equation *q) {
  Module *m = v->m;
  uint32_t u = fresh(v, q);
  v->equal = fold_and(m, v->equal, ex2(m, OP_EQ, q->e, ex_index(m, u)));
  v->free |= 1u << u;
  v->sub[q->dim] = wrap(v, q, ex_index(m, u));
  q->e = NONE;
}

static void keep(Inversion *v, Equation *q) {
  v->scatter = true;
  v->clamp |= range_guard(v, q->e, q->extent) != NONE;
  v->sub[q->dim] = wrap(v, q, q->e);
  q->e = NONE;
}

static bool settle_claimed(Inversion *v) {
  bool any = false;
  for (uint32_t q = 0; q < v->neq; q++) {
    if (v->eq[q].e == NONE || ex_indices(v->m, v->eq[q].e) & ~v->free) continue;
    if (v->s->accumulate || v->n >= MAX_INDEX) keep(v, &v->eq[q]);
    else compare(v, &v->eq[q]);
    any = true;
  }
  return any;
}

static void settle(Inversion *v) {
  for (bool more = true; more;) {
    more = false;
    for (uint32_t q = 0; q < v->neq; q++)
      if (v->eq[q].e != NONE) more |= solve(v, &v->eq[q]);
    more |= settle_claimed(v);
  }
  int64_t size = 1, most = v->m->limits.compare_elements;
  uint32_t left = 0;
  for (uint32_t q = 0; q < v->neq; q++)
    if (v->eq[q].e != NONE && ++left) size = size > most ? size : size * v->eq[q].extent;
  for (uint32_t q = 0; q < v->neq; q++) {
    if (v->eq[q].e == NONE) continue;
    if (size <= most && v->n + left <= MAX_INDEX) compare(v, &v->eq[q]);
    else keep(v, &v->eq[q]);
  }
}

// An index that runs over one point only needs no sum.
static void drop_unit_sums(Inversion *v) {
  for (uint32_t i = 0; i < v->n; i++)
    if (unclaimed(v, i) && v->index[i].extent == 1) {
      substitute(v, i, ex_int(v->m, 0));
      v->gone |= 1u << i;
    }
}

// Numbers the indices of the finished form: those on the left in order of appearance, then the
// bound ones.
static void order_indices(Inversion *v, Form *f) {
  Module *m = v->m;
  Id to[MAX_INDEX];
  uint32_t left = 0, rank = v->s->target->rank;
  for (uint32_t k = 0; k < MAX_INDEX; k++) to[k] = NONE;
  for (uint32_t d = 0; d < rank; d++) {
    uint32_t in = ex_indices(m, f->sub[d]) & ~left;
    uint32_t narg = ex_is(m, f->sub[d], OP_GROUP) ? ex(m, f->sub[d])->narg : 0;
    for (uint32_t k = 0; k < narg; k++) { // a group's parts in their own order
      const Expr *a = ex(m, ex_arg(m, f->sub[d], k));
      if (a->op != OP_INDEX || !(in >> a->integer & 1)) continue;
      to[a->integer] = ex_index(m, f->nfree);
      f->index[f->nfree++] = v->index[a->integer];
      in &= ~(1u << a->integer);
      left |= 1u << a->integer;
    }
    for (uint32_t i = 0; i < v->n; i++) {
      if (!(in >> i & 1)) continue;
      to[i] = ex_index(m, f->nfree);
      f->index[f->nfree++] = v->index[i];
    }
    left |= in;
  }
  f->nindex = f->nfree;
  for (uint32_t i = 0; i < v->n; i++) {
    if ((left | v->gone) >> i & 1) continue;
    to[i] = ex_index(m, f->nindex);
    f->index[f->nindex++] = v->index[i];
  }
  for (uint32_t d = 0; d < rank; d++) f->sub[d] = ex_rename(m, f->sub[d], to, NULL);
  f->body = ex_rename(m, f->body, to, NULL);
}

static void finish(Inversion *v, const Terms *term, bool clamp, Forms *out) {
  Module *m = v->m;
  Terms guarded = {0};
  bool inside = false; // comparisons that read must stay under the term's own guard
  if (v->equal != NONE) ex_reads(m, v->equal, no_read, &inside);
  for (uint32_t t = 0; t < term->n; t++) {
    Id g = term->at[t].guard;
    PUSH(m->arena, guarded, (Term){inside ? fold_and(m, g, v->equal) : g, term->at[t].value});
  }
  Id zero = ex_real(m, 0.0);
  Form f = {.scatter = v->scatter, .loc = v->s->loc};
  f.body = terms_sum(m, &guarded);
  if (!inside) f.body = fold_where(m, v->equal, f.body, zero);
  f.body = fold_where(m, v->solved, f.body, zero);
  Id guard = clamp ? fold_and(m, v->solved, guarded.at[0].guard) : NONE;
  for (uint32_t d = 0; d < v->s->target->rank; d++) {
    f.sub[d] = v->sub[d];
    bool safe = range_guard(v, f.sub[d], v->s->target->extent[d]) == NONE;
    if (!safe) f.sub[d] = fold_where(m, guard, f.sub[d], ex_int(m, 0));
  }
  order_indices(v, &f);
  PUSH(m->arena, *out, f);
}

void invert(Module *m, const Scatter *s, Forms *out) {
  Inversion v = {.m = m, .s = s, .n = s->nindex, .solved = NONE, .equal = NONE};
  memcpy(v.index, s->index, s->nindex * sizeof(Index));
  for (uint32_t t = 0; t < s->term.n; t++) PUSH(m->arena, v.term, s->term.at[t]);
  claim_all(&v);
  settle(&v);
  drop_unit_sums(&v);
  bool guarded = v.solved != NONE;
  for (uint32_t t = 0; t < v.term.n; t++) guarded |= v.term.at[t].guard != NONE;
  if (!v.clamp || !guarded) {
    finish(&v, &v.term, false, out);
    return;
  }
  for (uint32_t t = 0; t < v.term.n; t++) {
    Terms one = {0};
    PUSH(m->arena, one, v.term.at[t]);
    finish(&v, &one, true, out);
  }
}
