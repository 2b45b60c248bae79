// Reverse mode: a function that computes the loss becomes one that also adds up gradients.
// requires: inline; the loss is result 0 of ENTRY_LOSS, a real scalar; batch, for what b means.
// guarantees: ENTRY_STEP is (the loss's arguments, INOUT grad.PARAM..., in fp16 the loss's scale) -> the loss's results; each
//   repeat of it is NAME.forward, with what the backward pass reads among its results, and
//   NAME.backward run in reverse; no ENTRY_LOSS; each adjoint statement has its free indices on the
//   left.
// invalidates: positions of functions.
//
// For y[L] = red(B: e), each read T[s] in e gives dT[s] += g * de/dT[s] over all of L and B; g is
// dy, or dy / count (mean), or dy where B is the first maximal point, whose number is kept (max,
// min). A function is first differentiated as a whole, statements forward and then backward in one
// value space; the body of a repeat is then split in two, and what crosses is saved.
#include "passes/differentiate/differentiate.h"
#include "passes/passes.h"

// Values that depend differentiably on those already set.

static void mark_varied(Module *m, const Fn *f, bool *varied);

typedef struct Any {
  const bool *set;
  const Module *m;
  bool any;
} Any;

static void any_read(Id read, void *ctx) {
  Any *a = ctx;
  a->any |= a->set[ex(a->m, read)->integer];
}

bool *diff_callee_varied(Module *m, const Call *c, const bool *varied) {
  const Fn *g = &m->fn.at[c->fn];
  bool *in = NEWN(m->arena, bool, g->value.n + 1);
  for (uint32_t i = 0; i < c->narg; i++) {
    const Value *formal = &g->value.at[g->arg.at[i]];
    in[g->arg.at[i]] = c->arg[i].value != NONE && varied[c->arg[i].value] && is_real_value(formal);
  }
  for (bool more = true;
       more;) { // what a carried result depends on, the next iteration's argument does
    more = false;
    mark_varied(m, g, in);
    for (uint32_t i = 0, r = 0; i < c->narg; i++) {
      if (c->arg[i].mode != ACT_CARRY) continue;
      while (c->result[r].mode != RES_CARRY) r++;
      Id formal = g->arg.at[i], result = g->result.at[r++];
      if (in[result] && !in[formal]) in[formal] = more = true;
    }
  }
  return in;
}

static void mark_varied(Module *m, const Fn *f, bool *varied) {
  for (uint32_t i = 0; i < f->stmt.n; i++) {
    const Stmt *s = &f->stmt.at[i];
    if (s->kind == ST_COMP) {
      Any a = {varied, m, false};
      if (s->red != RED_ARGMAX) ex_differentiable_reads(m, s->body, any_read, &a);
      varied[s->lhs] |= a.any;
      continue;
    }
    const Fn *g = &m->fn.at[s->call->fn];
    bool *in = diff_callee_varied(m, s->call, varied);
    for (uint32_t r = 0; r < s->call->nresult; r++)
      if (s->call->result[r].value != NONE) varied[s->call->result[r].value] |= in[g->result.at[r]];
  }
}

// Adjoints.

Id new_adjoint(Diff *d, Id of) {
  Value v = value_of(d, of);
  return fn_value(d->m, fn_of(d), d_name(v.name), v.type, v.extent, v.rank, ROLE_LOCAL, v.loc);
}

// The model's `shard` of the forward statement's indices and axes does not bind its derivative.
static void emit_form(Diff *d, Id lhs, bool acc, const Form *f) {
  bool sum = f->nindex > f->nfree;
  Index index[MAX_INDEX];
  memcpy(index, f->index, f->nindex * sizeof *index);
  for (uint32_t i = 0; i < f->nindex; i++) index[i].on = index[i].off = 0;
  fn_comp(d->m, fn_of(d), lhs, f->sub, acc, sum ? RED_SUM : RED_NONE, index, f->nfree, f->nindex,
          f->body, f->loc);
}

// What the model calls a value's indices where it defines it.
static void index_names(const Diff *d, Id v, Str *name) {
  const Module *m = d->m;
  for (uint32_t k = 0; k < MAX_RANK; k++) name[k] = NULL;
  for (uint32_t i = 0; i < d->forward.n; i++) {
    const Stmt *s = &d->forward.at[i];
    if (s->kind != ST_COMP || s->lhs != v) continue;
    for (uint32_t k = 0; k < value_of(d, v).rank; k++)
      if (ex_is(m, s->sub[k], OP_INDEX)) name[k] = s->index[ex(m, s->sub[k])->integer].name;
    return;
  }
}

static Form form_of(Diff *d, Id like, Id body, Id loc) {
  Value v = value_of(d, like);
  Form f = {.nfree = v.rank, .nindex = v.rank, .body = body, .loc = loc};
  bare_indices(&v, f.index);
  for (uint32_t k = 0; k < v.rank; k++) f.sub[k] = ex_index(d->m, k);
  Str name[MAX_RANK];
  index_names(d, like, name);
  for (uint32_t k = 0; k < v.rank; k++) {
    Str want = name[k] ? name[k] : f.index[k].name;
    f.index[k].name = index_name(want, f.index, k);
  }
  return f;
}

// dT += from, a value of the same shape.
void contribute_value(Diff *d, Id target, Id from, Id loc) {
  Form f = form_of(d, target, read_bare(d->m, fn_of(d), from), loc);
  if (d->into[target] != NONE) emit_form(d, d->into[target], true, &f);
  else PUSH(d->m->arena, d->adj[target].form, f);
}

static void contribute(Diff *d, const Stmt *s, Id read, Terms term) {
  Module *m = d->m;
  Id target = (Id)ex(m, read)->integer, sub[MAX_RANK];
  Value v = value_of(d, target);
  for (uint32_t k = 0; k < v.rank; k++) sub[k] = ex_arg(m, read, k);
  Id into = d->into[target];
  Str name[MAX_RANK];
  index_names(d, target, name);
  Scatter sc = {.target = &v, .sub = sub, .index = s->index, .nindex = s->nindex, .name = name,
                .term = term, .accumulate = into != NONE, .loc = s->loc};
  Forms out = {0};
  invert(m, &sc, &out);
  for (uint32_t i = 0; i < out.n; i++)
    if (into != NONE) emit_form(d, into, true, &out.at[i]);
    else PUSH(m->arena, d->adj[target].form, out.at[i]);
}

static bool is_bare(const Module *m, const Form *f, uint32_t rank) {
  for (uint32_t k = 0; k < rank; k++)
    if (!ex_is(m, f->sub[k], OP_INDEX) || ex(m, f->sub[k])->integer != k) return false;
  return true;
}

// Forms with equal subscripts over equal extents can be added point by point.
static bool same_left(const Form *a, const Form *b, uint32_t rank) {
  if (a->nfree != b->nfree || memcmp(a->sub, b->sub, rank * sizeof(Id))) return false;
  for (uint32_t i = 0; i < a->nfree; i++)
    if (a->index[i].extent != b->index[i].extent) return false;
  return true;
}

static bool pointwise(const Form *f) { return !f->scatter && f->nindex == f->nfree; }

// The value that a form only renames: dx[b, t] = dy[b, t]. NONE where it computes.
static Id renames(const Diff *d, const Form *f, Id target) {
  const Module *m = d->m;
  Value v = value_of(d, target);
  const Expr e = *ex(m, f->body);
  if (e.op != OP_READ || !pointwise(f) || !is_bare(m, f, v.rank) || e.narg != v.rank) return NONE;
  Value from = value_of(d, (Id)e.integer);
  for (uint32_t k = 0; k < v.rank; k++)
    if (ex_arg(m, f->body, k) != f->sub[k] || from.extent[k] != v.extent[k]) return NONE;
  return (Id)e.integer;
}

static Id stored(Diff *d, Id target, const Form *f) {
  Id v = new_adjoint(d, target);
  emit_form(d, v, f->scatter, f);
  return v;
}

// Scatter-sums into a target that has other contributions as well share one accumulator.
static void merge_scatters(Diff *d, Id target) {
  Forms *all = &d->adj[target].form, rest = {0};
  Id acc = NONE;
  for (uint32_t i = 0; i < all->n; i++) {
    const Form *f = &all->at[i];
    if (!f->scatter) {
      PUSH(d->m->arena, rest, *f);
      continue;
    }
    if (acc == NONE) acc = new_adjoint(d, target);
    emit_form(d, acc, true, f);
  }
  if (acc == NONE) return;
  Form f = form_of(d, target, read_bare(d->m, fn_of(d), acc), value_of(d, target).loc);
  PUSH(d->m->arena, rest, f);
  *all = rest;
}

// The left side to add contributions on: that of those which are computed point by point, if they
// agree; else bare indices, named as the model names them where it can be seen.
static Form common_left(Diff *d, Id target, const Forms *all) {
  uint32_t rank = value_of(d, target).rank;
  const Form *left = NULL, *bare = NULL;
  bool same = true;
  for (uint32_t i = 0; i < all->n; i++) {
    const Form *f = &all->at[i];
    if (is_bare(d->m, f, rank) && !bare) bare = f;
    if (!pointwise(f)) continue;
    if (!left) left = f;
    same &= same_left(left, f, rank);
  }
  for (uint32_t i = 0; i < all->n; i++)
    if (!pointwise(&all->at[i])) same &= left && is_bare(d->m, left, rank);
  if (left && same) return *left;
  Form f = form_of(d, target, NONE, all->at[0].loc);
  if (bare) memcpy(f.index, bare->index, rank * sizeof(Index));
  return f;
}

// Several contributions become one statement that adds them point by point; one that is a
// reduction, or has other subscripts on its left, is first stored by itself.
static Id add_up(Diff *d, Id target) {
  Module *m = d->m;
  const Forms *all = &d->adj[target].form;
  uint32_t rank = value_of(d, target).rank;
  Form sum = common_left(d, target, all);
  Id value = new_adjoint(d, target);
  sum.body = ex_real(m, 0.0);
  for (uint32_t i = 0; i < all->n; i++) {
    const Form *f = &all->at[i];
    bool add = pointwise(f) && same_left(f, &sum, rank);
    Id term = add ? f->body : read_bare(m, fn_of(d), stored(d, target, f));
    sum.body = fold_add(m, sum.body, term);
  }
  emit_form(d, value, false, &sum);
  return value;
}

// The adjoint of a value whose contributions are complete. False where there are none.
bool finish_adjoint(Diff *d, Id target) {
  Adj *a = &d->adj[target];
  if (a->done) return a->value != NONE || a->constant != NONE;
  a->done = true;
  a->value = a->constant = NONE;
  if (!a->form.n) return false;
  if (a->form.n > 1) merge_scatters(d, target);
  const Form *f = &a->form.at[0];
  if (a->form.n > 1)
    a->value = add_up(d, target);
  else if (pointwise(f) && ex_is(d->m, f->body, OP_REAL))
    a->constant = f->body;
  else if ((a->value = renames(d, f, target)) == NONE)
    a->value = stored(d, target, f);
  return true;
}

// The same as a value: a constant is stored, no contribution at all is zero.
Id adjoint_value(Diff *d, Id target) {
  bool any = finish_adjoint(d, target);
  Adj *a = &d->adj[target];
  if (a->value != NONE) return a->value;
  Form f = form_of(d, target, any ? a->constant : ex_real(d->m, 0.0), value_of(d, target).loc);
  return a->value = stored(d, target, &f);
}

// Comprehensions.

// The number of the first maximal (minimal) point for each assignment of the free indices.
static Id save_argmax(Diff *d, const Stmt *s, uint32_t at) {
  Module *m = d->m;
  Fn *f = fn_of(d);
  int64_t extent[MAX_INDEX];
  Id *sub = NEWN(m->arena, Id, MAX_RANK);
  CHECK(s->nfree <= MAX_RANK);
  for (uint32_t i = 0; i < s->nfree; i++) {
    extent[i] = s->index[i].extent;
    sub[i] = ex_index(m, i);
  }
  Str name = str_printf("%s.%s", f->value.at[s->lhs].name, s->red == RED_MAX ? "argmax" : "argmin");
  Id v = fn_value(m, f, name, DT_I32, extent, s->nfree, ROLE_LOCAL, s->loc);
  Stmt arg = stmt_copy(m, f, s);
  arg.red = RED_ARGMAX;
  arg.acc = false;
  arg.lhs = v;
  arg.sub = sub;
  if (s->red == RED_MIN) arg.body = fold_neg(m, s->body);
  PUSH(m->arena, d->inserted, (Inserted){at, arg});
  return v;
}

static Term seed_of(Diff *d, const Stmt *s, uint32_t at) {
  Module *m = d->m;
  const Adj *a = &d->adj[s->lhs];
  Term seed = {NONE, a->value != NONE ? ex_read(m, fn_of(d), a->value, s->sub) : a->constant};
  if (s->red == RED_MEAN) {
    double count = 1;
    for (uint32_t i = s->nfree; i < s->nindex; i++) count *= (double)s->index[i].extent;
    seed.value = fold_div(m, seed.value, ex_real(m, count));
  } else if (s->red == RED_MAX || s->red == RED_MIN) {
    Id bound[MAX_INDEX], saved = save_argmax(d, s, at);
    uint32_t n = 0;
    for (uint32_t i = s->nfree; i < s->nindex; i++) bound[n++] = ex_index(m, i);
    Id point = n == 1 ? bound[0] : n ? ex_group(m, bound, n) : ex_int(m, 0);
    seed.guard = ex2(m, OP_EQ, point, read_bare(m, fn_of(d), saved));
  }
  return seed;
}

static void back_comp(Diff *d, const Stmt *s, uint32_t at) {
  if (s->red == RED_ARGMAX || !d->varied[s->lhs] || !finish_adjoint(d, s->lhs)) return;
  Module *m = d->m;
  bool plain = s->red == RED_NONE && !s->acc;
  Id self = plain ? ex_read(m, fn_of(d), s->lhs, s->sub) : NONE;
  ReadAdjoints all = expr_adjoint(m, s->body, seed_of(d, s, at), self, d->varied);
  for (uint32_t i = 0; i < all.n; i++) contribute(d, s, all.at[i].read, all.at[i].term);
}

// Functions.

Diff diff_new(Module *m, Id fn, Memo *memo) {
  Diff d = {.m = m, .fn = fn, .memo = memo};
  return d;
}

void diff_room(Diff *d) {
  Fn *f = fn_of(d);
  d->nvalue = f->value.n;
  d->into = NEWN(d->m->arena, Id, f->value.n + 1);
  memset(d->into, 0xff, (f->value.n + 1) * sizeof(Id));
  d->adj = NEWN(d->m->arena, Adj, f->value.n + 1);
  d->varied = NEWN(d->m->arena, bool, f->value.n + 1);
}

void diff_walk_back(Diff *d) {
  Fn *f = fn_of(d);
  mark_varied(d->m, f, d->varied);
  d->forward.at = f->stmt.at;
  d->forward.n = d->forward.cap = f->stmt.n;
  f->stmt.at = NULL;
  f->stmt.n = f->stmt.cap = 0;
  for (uint32_t i = d->forward.n; i-- > 0;) {
    Stmt *s = &d->forward.at[i];
    if (s->kind == ST_COMP) back_comp(d, s, i);
    else if (s->kind == ST_CALL) back_call(d, s);
    else back_repeat(d, s);
  }
}

uint32_t diff_join(Diff *d) {
  Module *m = d->m;
  Fn *f = fn_of(d);
  Stmt *back = f->stmt.at;
  uint32_t nback = f->stmt.n, nforward;
  f->stmt.at = NULL;
  f->stmt.n = f->stmt.cap = 0;
  for (uint32_t i = 0; i < d->forward.n; i++) {
    PUSH(m->arena, f->stmt, d->forward.at[i]);
    for (uint32_t k = 0; k < d->inserted.n; k++)
      if (d->inserted.at[k].at == i) PUSH(m->arena, f->stmt, d->inserted.at[k].stmt);
  }
  nforward = f->stmt.n;
  for (uint32_t i = 0; i < nback; i++) PUSH(m->arena, f->stmt, back[i]);
  return nforward;
}

Id value_like(Module *m, Fn *f, Id like, Str name, Role role) {
  Value v = f->value.at[like];
  return fn_value(m, f, name, v.type, v.extent, v.rank, role, v.loc);
}

Id accumulator(Diff *d, Id target, const Call *c) {
  Id into = d->into[target];
  for (uint32_t i = 0; i < c->narg && into != NONE; i++)
    if (c->arg[i].value == into) into = NONE;
  return into != NONE ? into : new_adjoint(d, target);
}

void push_call(Diff *d, StmtKind kind, Call *c, Id loc) {
  Stmt *s = fn_stmt(d->m, fn_of(d), kind, loc);
  s->call = c;
}

// The adjoint of the loss: 1, or in fp16 a factor that the runtime chooses, so that small adjoints do not
// round to 0.
static Id first_adjoint(Module *m, Fn *f) {
  if (!m->train.precision || strcmp(m->train.precision, "fp16")) return ex_real(m, 1.0);
  const Value scalar = {.type = DT_REAL, .loc = f->loc};
  Id v = fn_meant(m, f, str_intern("$loss_scale"), MEANS_LOSS_SCALE, 0, &scalar, ROLE_IN);
  return ex_read(m, f, v, NULL);
}

bool pass_differentiate(Module *m) {
  if (m->entry[ENTRY_LOSS] == NONE) return true;
  if (!diff_subscripts_fit(m)) return false;
  Id fn = fn_clone(m, m->entry[ENTRY_LOSS], str_intern("step"));
  Diff d = diff_new(m, fn, NEW(m->arena, Memo));
  diff_room(&d);
  Fn *f = &m->fn.at[fn];
  for (uint32_t p = 0; p < m->param.n; p++) {
    Id v = arg_find(f, MEANS_PARAM, p);
    CHECK(v != NONE);
    const Value of = f->value.at[v];
    d.varied[v] = true;
    d.into[v] = fn_meant(m, f, str_printf("$grad.%s", m->param.at[p].name), MEANS_GRAD, p, &of, ROLE_INOUT);
  }
  Form one = form_of(&d, f->result.at[0], first_adjoint(m, f), f->loc);
  PUSH(m->arena, d.adj[f->result.at[0]].form, one);
  diff_walk_back(&d);
  diff_join(&d);
  f = &m->fn.at[fn];
  fn_remove_dead(m, f, NULL);
  fn_compact(m, f);
  m->entry[ENTRY_STEP] = fn;
  m->entry[ENTRY_LOSS] = NONE;
  module_sweep(m);
  return true;
}
