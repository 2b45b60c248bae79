// Makes the loss a sum over microbatches: b is the global batch, and a function sees a part of it.
// requires: inline. ENTRY_LOSS and ENTRY_EVAL_LOSS take (data, params).
// guarantees: both take (data, first, batch, total.N..., params), the latter as ENTRY_EVAL; the
//   results of all microbatches, added up, are those of the whole batch; padding (samples from
//   `batch` on) counts nothing; ENTRY_COUNT gives a microbatch's share of the totals, if there are
//   any; no index is local.
// invalidates: positions of functions and statements.
//
// passes/samples.c says where the samples are. A sum over them gets the guard b + first < batch,
// and a mean divides by the batch; if it depends on data alone it is a total, added up before the
// first forward pass and usable in any way; else it is partial, and only what is linear in it has a
// meaning. A term that is added to it once for the whole batch is added in the first microbatch. An index
// over samples that is used as a value becomes the sample's number in the batch.
//
// A reduction over a local index sees the samples of this microbatch alone, with the same guard; a mean
// divides by how many there are, and over none of them everything is 0. Added to a sum over the
// batch, a value that differs between microbatches counts with its part of the samples.
#include "passes/bounds.h"
#include "passes/passes.h"
#include "passes/samples.h"

// Callees that are done, by the types of their arguments.
typedef struct Done {
  struct Done *next;
  Id from, to;
  SampleType *formal;
  bool batched; // takes first and batch after its own arguments
} Done;

typedef struct Batch {
  Samples s;
  Done *done;
} Batch;

// One function being rewritten.
typedef struct Rewrite {
  Batch *b;
  Module *m;
  Id fn;
  SampleType *type;
  Id first, batch; // its arguments; NONE until something needs them
  bool entry, changed;
  VEC(Id) total; // local values that are this microbatch's part of totals
} Rewrite;

static Fn *fn_of(const Rewrite *w) { return &w->m->fn.at[w->fn]; }

static void need_scalars(Rewrite *w) {
  w->changed = true;
  if (w->first != NONE) return;
  Fn *f = fn_of(w);
  const Value scalar = {.type = DT_I32, .loc = f->loc};
  w->first = fn_meant(w->m, f, str_intern("$first"), MEANS_FIRST, 0, &scalar, ROLE_IN);
  w->batch = fn_meant(w->m, f, str_intern("$batch"), MEANS_BATCH, 0, &scalar, ROLE_IN);
}

static Id read_first(Rewrite *w) {
  need_scalars(w);
  return ex_read(w->m, fn_of(w), w->first, NULL);
}

static Id read_batch(Rewrite *w) {
  need_scalars(w);
  return ex_read(w->m, fn_of(w), w->batch, NULL);
}

// ---- an index over samples as a value

typedef struct Global {
  Rewrite *w;
  const Stmt *s;
  SampleIndex i;
} Global;

// The number, in the whole batch, of what index g->i numbers in the microbatch.
static Id global_number(Global *g) {
  Module *m = g->w->m;
  Id i = ex_index(m, (uint32_t)g->i.index), first = read_first(g->w);
  int64_t block = g->i.inner * g->w->b->s.size, extent = g->s->index[g->i.index].extent;
  Id shift = fold_mul(m, first, ex_int(m, g->i.inner));
  if (extent == block) return fold_add(m, i, shift);
  Id outer = fold_mul(m, ex2(m, OP_IDIV, i, ex_int(m, block)),
                      fold_mul(m, read_batch(g->w), ex_int(m, g->i.inner)));
  return fold_add(m, fold_add(m, outer, ex2(m, OP_MOD, i, ex_int(m, block))), shift);
}

static bool mentions(const Module *m, Id e, int index) { return ex_indices(m, e) >> index & 1; }

// The extent of an index in the whole batch.
static Id global_extent(Global *g, int64_t i) {
  Module *m = g->w->m;
  int64_t extent = g->s->index[i].extent;
  if (i != g->i.index) return ex_int(m, extent);
  return fold_mul(m, read_batch(g->w), ex_int(m, extent / g->w->b->s.size));
}

static Id globalise(Global *g, Id e);

static Id global_group(Global *g, Id e) {
  Module *m = g->w->m;
  Id r = globalise(g, ex_arg(m, e, 0));
  Id first = ex_arg(m, e, 0), arg[MAX_INDEX];
  uint32_t n = ex(m, e)->narg;
  if (ex_is(m, first, OP_INDEX) && ex(m, first)->integer == g->i.index) {
    for (uint32_t k = 0; k < n; k++) arg[k] = k ? ex_arg(m, e, k) : r;
    return ex_group(m, arg, n);
  }
  for (uint32_t k = 1; k < n; k++) {
    Id a = ex_arg(m, e, k);
    r = fold_add(m, fold_mul(m, r, global_extent(g, ex(m, a)->integer)), globalise(g, a));
  }
  return r;
}

// e with the sample index replaced by its number in the batch wherever it is not a sample's own
// subscript.
static Id globalise(Global *g, Id e) {
  Module *m = g->w->m;
  if (!mentions(m, e, g->i.index)) return e;
  Expr x = *ex(m, e);
  Id arg[64];
  if (x.op == OP_INDEX) return global_number(g);
  if (x.op == OP_GROUP) return global_group(g, e);
  CHECK(x.narg <= 64);
  for (uint32_t k = 0; k < x.narg; k++) {
    const SampleType *t = x.op == OP_READ ? &g->w->type[x.integer] : NULL;
    bool sample = t && ((t->kind == SAMPLE_SPLIT && t->dim == k) || t->other[k]);
    Id a = ex_arg(m, e, k);
    arg[k] = sample ? a : globalise(g, a);
  }
  return ex_like(m, e, x.integer, arg);
}

// ---- sums over samples

// Whether the sample of index i is one of the batch and not padding.
static Id in_batch(Rewrite *w, const Stmt *s, SampleIndex i) {
  Module *m = w->m;
  Id sample = ex_index(m, (uint32_t)i.index);
  int64_t size = w->b->s.size;
  if (i.inner > 1) sample = ex2(m, OP_IDIV, sample, ex_int(m, i.inner));
  if (s->index[i.index].extent != i.inner * size) sample = ex2(m, OP_MOD, sample, ex_int(m, size));
  return ex2(m, OP_LT, fold_add(m, sample, read_first(w)), read_batch(w));
}

static Id new_like(Rewrite *w, Id of, Str name) {
  Fn *f = fn_of(w);
  Value v = f->value.at[of];
  Id id = fn_value(w->m, f, name, v.type, v.extent, v.rank, ROLE_LOCAL, v.loc);
  return id;
}

// lhs[free] (+)= sum / (batch * the other extents), where sum has been stored.
static void divide(Rewrite *w, const Stmt *s, Id sum, SampleIndex i) {
  Module *m = w->m;
  double others = (double)s->index[i.index].extent / (double)w->b->s.size;
  for (uint32_t k = s->nfree; k < s->nindex; k++)
    if ((int)k != i.index) others *= (double)s->index[k].extent;
  Id count = fold_mul(m, ex1(m, OP_TO_REAL, read_batch(w)), ex_real(m, others));
  Id body = fold_div(m, ex_read(m, fn_of(w), sum, s->sub), count);
  fn_comp(m, fn_of(w), s->lhs, s->sub, s->acc, RED_NONE, s->index, s->nfree, s->nfree, body,
          s->loc);
}

static void emit_sum(Rewrite *w, const Stmt *s, Id lhs, bool acc, Id body) {
  fn_comp(w->m, fn_of(w), lhs, s->sub, acc, RED_SUM, s->index, s->nfree, s->nindex, body, s->loc);
}

static Id new_total(Rewrite *w, Dtype type, Id loc) {
  Str name = str_printf("$total.%u", w->total.n);
  Id t = fn_value(w->m, fn_of(w), name, type, NULL, 0, ROLE_LOCAL, loc);
  PUSH(w->m->arena, w->total, t);
  return t;
}

// A total of several elements: `part`, of this microbatch, to scalars and back. The value that holds
// them.
static Id total_elements(Rewrite *w, const Stmt *s, Id part) {
  Module *m = w->m;
  Value v = fn_of(w)->value.at[part];
  Index index[MAX_RANK];
  Id sub[MAX_RANK], at[MAX_RANK], body = NONE;
  Id whole = new_like(w, part, fn_of(w)->value.at[s->lhs].name);
  for (uint32_t d = 0; d < v.rank; d++) {
    index[d] = (Index){.name = str_printf("i%u", d), .extent = v.extent[d]};
    sub[d] = ex_index(m, d);
  }
  Id flat = v.rank > 1 ? ex_group(m, sub, v.rank) : sub[0];
  for (int64_t k = 0; k < value_count(&v); k++) {
    Id t = new_total(w, v.type, s->loc);
    int64_t rest = k;
    for (uint32_t d = v.rank; d-- > 0; rest /= v.extent[d]) at[d] = ex_int(m, rest % v.extent[d]);
    fn_comp(m, fn_of(w), t, NULL, false, RED_NONE, NULL, 0, 0, ex_read(m, fn_of(w), part, at),
            s->loc);
    Id read = ex_read(m, fn_of(w), t, NULL);
    body = k ? ex3(m, OP_WHERE, ex2(m, OP_EQ, flat, ex_int(m, k)), read, body) : read;
  }
  fn_comp(m, fn_of(w), whole, sub, false, RED_NONE, index, v.rank, v.rank, body, s->loc);
  return whole;
}

// total.N is real: an integer's total is converted on the way there and back.
static void total_stmt(Rewrite *w, const Stmt *s, SampleIndex i, Id body) {
  Module *m = w->m;
  bool integer = ex(m, body)->type == SC_INT;
  Value v = fn_of(w)->value.at[s->lhs];
  Dtype type = integer ? DT_REAL : v.type;
  if (integer) body = ex1(m, OP_TO_REAL, body);
  Id t = v.rank ? fn_value(m, fn_of(w), str_printf("%s.part", v.name), type, v.extent, v.rank,
                           ROLE_LOCAL, s->loc)
                : new_total(w, type, s->loc);
  emit_sum(w, s, t, false, body);
  if (v.rank) t = total_elements(w, s, t);
  if (s->red == RED_MEAN) {
    divide(w, s, t, i);
    return;
  }
  Id value = ex_read(m, fn_of(w), t, s->sub);
  if (integer) value = ex1(m, OP_TO_INT, value);
  fn_comp(m, fn_of(w), s->lhs, s->sub, false, RED_NONE, s->index, s->nfree, s->nfree, value,
          s->loc);
}

static void sum_stmt(Rewrite *w, const Stmt *s, SampleIndex i, Id body) {
  Module *m = w->m;
  body = fold_where(m, in_batch(w, s, i), body, ex_zero(m, (Scalar)ex(m, body)->type));
  if (w->type[s->lhs].kind == SAMPLE_TOTAL) {
    total_stmt(w, s, i, body);
  } else if (s->red == RED_SUM) {
    emit_sum(w, s, s->lhs, s->acc, body);
  } else {
    Id sum = new_like(w, s->lhs, str_printf("%s.sum", fn_of(w)->value.at[s->lhs].name));
    emit_sum(w, s, sum, s->acc, body);
    divide(w, s, sum, i);
  }
}

// ---- local: the samples of this microbatch

// How many samples of the batch the microbatch has; at least `least`.
static Id sample_count(Rewrite *w, int64_t least) {
  Module *m = w->m;
  Id left = fold_sub(m, read_batch(w), read_first(w));
  left = ex2(m, OP_MIN, left, ex_int(m, w->b->s.size));
  return ex1(m, OP_TO_REAL, ex2(m, OP_MAX, left, ex_int(m, least)));
}

// lhs[free] (+)= of the value stored in `from`: a sum's mean, a maximum if there is any sample.
static void finish_local(Rewrite *w, const Stmt *s, Id from, const SampleIndices *all) {
  Module *m = w->m;
  Id e = ex_read(m, fn_of(w), from, s->sub);
  if (s->red == RED_MEAN) {
    double others = 1;
    for (uint32_t k = s->nfree; k < s->nindex; k++) others *= (double)s->index[k].extent;
    Id count = NONE;
    for (uint32_t k = 0; k < all->nlocal; k++) {
      if (all->local[k].index < s->nfree) continue;
      others /= (double)w->b->s.size;
      count = count == NONE ? sample_count(w, 1) : fold_mul(m, count, sample_count(w, 1));
    }
    e = fold_div(m, e, fold_mul(m, count, ex_real(m, others)));
  } else {
    Id any = ex2(m, OP_LT, read_first(w), read_batch(w));
    e = fold_where(m, any, e, ex_zero(m, (Scalar)ex(m, e)->type));
  }
  fn_comp(m, fn_of(w), s->lhs, s->sub, s->acc, RED_NONE, s->index, s->nfree, s->nfree, e, s->loc);
}

// A reduction over the samples of the microbatch; body is for all of them, padding too.
static void local_stmt(Rewrite *w, const Stmt *s, const SampleIndices *all, Id body) {
  Module *m = w->m;
  Fn *f = fn_of(w);
  Red red = s->red == RED_MEAN ? RED_SUM : s->red;
  Id identity = reduction_identity(m, s, body), lhs = s->lhs;
  for (uint32_t k = 0; k < all->nlocal; k++)
    if (all->local[k].index >= s->nfree)
      body = fold_where(m, in_batch(w, s, all->local[k]), body, identity);
  bool direct = s->red == RED_SUM;
  if (!direct) lhs = new_like(w, lhs, str_printf("%s.%s", f->value.at[lhs].name, red_name[red]));
  fn_comp(m, fn_of(w), lhs, s->sub, direct && s->acc, red, s->index, s->nfree, s->nindex, body,
          s->loc);
  if (!direct) finish_local(w, s, lhs, all);
}

// ---- linearity in partial sums

// e, which is no partial sum, as a term of one. NONE for an int that differs between microbatches,
// which can't be cut into parts.
static Id once(Rewrite *w, Id e) {
  Module *m = w->m;
  if (ex_is(m, e, OP_REAL) && ex(m, e)->real == 0) return e;
  if (ex_is(m, e, OP_INT) && ex(m, e)->integer == 0) return e;
  if (reads_local(m, e, w->type)) {
    if (ex(m, e)->type != SC_REAL) return NONE;
    // A statistic of no samples is 0, and its logarithm would not vanish with the count.
    Id any = ex2(m, OP_LT, read_first(w), read_batch(w));
    Id share = fold_div(m, sample_count(w, 0), ex1(m, OP_TO_REAL, read_batch(w)));
    return ex3(m, OP_WHERE, any, fold_mul(m, e, share), ex_real(m, 0));
  }
  Id first = ex2(m, OP_EQ, read_first(w), ex_int(m, 0));
  return ex3(m, OP_WHERE, first, e, ex_zero(m, (Scalar)ex(m, e)->type));
}

// e, which reads partial sums, so that the sum over microbatches is right; NONE where it is not
// linear.
static Id linear(Rewrite *w, Id e) {
  Module *m = w->m;
  Expr x = *ex(m, e);
  Id a = x.narg > 0 ? ex_arg(m, e, 0) : NONE, b = x.narg > 1 ? ex_arg(m, e, 1) : NONE;
  bool pa = x.narg > 0 && reads_part(m, a, w->type), pb = x.narg > 1 && reads_part(m, b, w->type);
  switch (x.op) {
  case OP_READ:
    for (uint32_t k = 0; k < x.narg; k++)
      if (reads_part(m, ex_arg(m, e, k), w->type)) return NONE;
    return e;
  case OP_NEG:
  case OP_STOP:
  case OP_TO_REAL:
    return (a = linear(w, a)) == NONE ? NONE : ex1(m, (Op)x.op, a);
  case OP_ADD:
  case OP_SUB:
    a = pa ? linear(w, a) : once(w, a);
    b = pb ? linear(w, b) : once(w, b);
    return a == NONE || b == NONE ? NONE : ex2(m, (Op)x.op, a, b);
  case OP_MUL:
    if (pa && pb) return NONE;
    if (pa) a = linear(w, a);
    if (pb) b = linear(w, b);
    return a == NONE || b == NONE ? NONE : ex2(m, OP_MUL, a, b);
  case OP_DIV:
    if (pb || (a = linear(w, a)) == NONE) return NONE;
    return ex2(m, OP_DIV, a, b);
  case OP_WHERE: {
    Id c = ex_arg(m, e, 2);
    if (pa) return NONE;
    b = pb ? linear(w, b) : once(w, b);
    c = reads_part(m, c, w->type) ? linear(w, c) : once(w, c);
    return b == NONE || c == NONE ? NONE : ex3(m, OP_WHERE, a, b, c);
  }
  default:
    return NONE;
  }
}

static bool part_stmt(Rewrite *w, Stmt s) {
  Module *m = w->m;
  bool red_ok = s.red == RED_NONE || s.red == RED_SUM || s.red == RED_MEAN;
  Id body = reads_part(m, s.body, w->type) ? linear(w, s.body) : once(w, s.body);
  if (!red_ok || body == NONE)
    return samples_couple_sum(&w->b->s, &s, w->type,
                              "a sum over all of them is not used linearly");
  w->changed |= body != s.body;
  s.body = body;
  PUSH(m->arena, fn_of(w)->stmt, s);
  return true;
}

// ---- functions

static bool comp_stmt(Rewrite *w, const Stmt *s) {
  Module *m = w->m;
  SampleIndices all = sample_indices(&w->b->s, fn_of(w), s, w->type);
  Stmt t = *s;
  bool local = false;
  for (uint32_t k = 0; k < all.nlocal; k++) {
    t.body = globalise(&(Global){w, s, all.local[k]}, t.body);
    local |= all.local[k].index >= s->nfree;
  }
  if (all.own.index >= 0) t.body = globalise(&(Global){w, s, all.own}, t.body);
  else if (w->type[s->lhs].kind == SAMPLE_PART) return part_stmt(w, *s);
  if (all.own.index >= s->nfree) sum_stmt(w, s, all.own, t.body);
  else if (local) local_stmt(w, s, &all, t.body);
  else PUSH(m->arena, fn_of(w)->stmt, t);
  return true;
}

static bool rewrite(Rewrite *w);

static bool same_formals(const Fn *g, const SampleType *a, const SampleType *b) {
  for (uint32_t i = 0; i < g->arg.n; i++)
    if (a[i].kind != b[i].kind || a[i].dim != b[i].dim || a[i].inner != b[i].inner ||
        a[i].local != b[i].local)
      return false;
  return true;
}

// The callee for arguments of these types: itself where nothing in it changes.
static Done *callee_for(Batch *b, Id callee, SampleType *type) {
  Module *m = b->s.m;
  const Fn *g = &m->fn.at[callee];
  SampleType *formal = NEWN(m->arena, SampleType, g->arg.n + 1);
  for (uint32_t i = 0; i < g->arg.n; i++) formal[i] = type[g->arg.at[i]];
  for (Done *d = b->done; d; d = d->next)
    if (d->from == callee && same_formals(g, d->formal, formal)) return d;
  Id clone = fn_clone(m, callee, g->name);
  Rewrite w = {.b = b, .m = m, .fn = clone, .type = type, .first = NONE, .batch = NONE};
  if (!rewrite(&w)) return NULL;
  Done *d = NEW(m->arena, Done);
  *d = (Done){b->done, callee, w.changed ? clone : callee, formal, w.first != NONE};
  return b->done = d;
}

static bool call_stmt(Rewrite *w, const Stmt *s) {
  SampleType *in;
  if (!samples_of_callee(&w->b->s, fn_of(w), s, w->type, &in)) return false;
  Done *d = callee_for(w->b, s->call->fn, in);
  if (!d) return false;
  Stmt t = stmt_copy(w->m, fn_of(w), s);
  w->changed |= t.call->fn != d->to;
  t.call->fn = d->to;
  if (d->batched) {
    need_scalars(w);
    call_add_arg(w->m, t.call, ACT_WHOLE, w->first);
    call_add_arg(w->m, t.call, ACT_WHOLE, w->batch);
  }
  PUSH(w->m->arena, fn_of(w)->stmt, t);
  return true;
}

// Rewrites all statements of w->fn, a copy of the function that w->type is of.
static bool rewrite(Rewrite *w) {
  Fn *f = fn_of(w);
  uint32_t n = f->stmt.n;
  Stmt *old = f->stmt.at;
  f->stmt.at = NULL;
  f->stmt.n = f->stmt.cap = 0;
  for (uint32_t i = 0; i < n; i++)
    if (!(old[i].kind == ST_COMP ? comp_stmt(w, &old[i]) : call_stmt(w, &old[i]))) return false;
  return true;
}

// ---- entries

// A term that does not depend on the samples is counted once: a penalty of the weights alone.
static void count_results_once(Rewrite *w, uint32_t nvalue) {
  Module *m = w->m;
  for (uint32_t r = 0; r < fn_of(w)->result.n; r++) {
    Id v = fn_of(w)->result.at[r];
    if (v >= nvalue || w->type[v].kind == SAMPLE_PART) continue;
    Id once_v = new_like(w, v, fn_of(w)->value.at[v].name);
    Id body = once(w, ex_read(m, fn_of(w), v, NULL));
    fn_comp(m, fn_of(w), once_v, NULL, false, RED_NONE, NULL, 0, 0, body,
            fn_of(w)->value.at[v].loc);
    fn_of(w)->result.at[r] = once_v;
  }
}

// A copy of a loss for one microbatch, its totals still computed inside. NONE after an error.
static Id batched_loss(Batch *b, Id loss, Str name, Rewrite *w) {
  Module *m = b->s.m;
  const Fn *f = &m->fn.at[loss];
  uint32_t nvalue = f->value.n;
  SampleType *type = NEWN(m->arena, SampleType, nvalue + 1);
  for (uint32_t i = 0; i < f->arg.n; i++) {
    SampleType *t = &type[f->arg.at[i]];
    if (i < m->ndata) *t = (SampleType){.kind = SAMPLE_SPLIT, .inner = 1};
    else t->params = true;
  }
  if (!samples_of(&b->s, loss, type, true)) return NONE;
  *w = (Rewrite){.b = b, .m = m, .fn = fn_clone(m, loss, name), .type = type,
                 .first = NONE, .batch = NONE, .entry = true};
  need_scalars(w);
  if (!rewrite(w)) return NONE;
  count_results_once(w, nvalue);
  return w->fn;
}

// Moves first, batch and `total` after the data.
static void order_arguments(Module *m, Fn *f, const Id *extra, uint32_t n) {
  uint32_t ndata = m->ndata, nold = f->arg.n;
  Id *old = arena_copy(m->arena, f->arg.at, nold * sizeof(Id));
  f->arg.n = 0;
  for (uint32_t i = 0; i < ndata; i++) PUSH(m->arena, f->arg, old[i]);
  for (uint32_t i = 0; i < n; i++) PUSH(m->arena, f->arg, extra[i]);
  for (uint32_t i = ndata; i < nold; i++) {
    bool moved = false;
    for (uint32_t k = 0; k < n; k++) moved |= extra[k] == old[i];
    if (!moved) PUSH(m->arena, f->arg, old[i]);
  }
}

static void add_total(Module *m, Fn *f, Id value) {
  f->value.at[value].means = MEANS_TOTAL;
  f->value.at[value].of = f->result.n;
  PUSH(m->arena, f->result, value);
}

// (data, first, batch) -> the microbatch's part of each total. NONE where there are none.
static Id count_fn(Rewrite *w) {
  Module *m = w->m;
  if (!w->total.n) return NONE;
  Id fn = fn_clone(m, w->fn, str_intern("count"));
  Fn *f = &m->fn.at[fn];
  f->result.n = 0;
  for (uint32_t i = 0; i < w->total.n; i++) add_total(m, f, w->total.at[i]);
  order_arguments(m, f, (Id[]){w->first, w->batch}, 2);
  f->arg.n = m->ndata + 2;
  fn_remove_dead(m, f, NULL);
  fn_compact(m, f);
  return fn;
}

static bool same_count(const Module *m, Id a, Id b) {
  if (a == NONE || b == NONE) return a == b;
  const Fn *f = &m->fn.at[a], *g = &m->fn.at[b];
  if (f->value.n != g->value.n || f->stmt.n != g->stmt.n || f->result.n != g->result.n)
    return false;
  if (memcmp(f->result.at, g->result.at, f->result.n * sizeof(Id))) return false;
  for (uint32_t i = 0; i < f->stmt.n; i++) {
    const Stmt *s = &f->stmt.at[i], *t = &g->stmt.at[i];
    if (s->kind != ST_COMP || t->kind != ST_COMP || s->lhs != t->lhs || s->body != t->body ||
        s->red != t->red || s->acc != t->acc || s->nfree != t->nfree || s->nindex != t->nindex)
      return false;
    for (uint32_t d = 0; d < f->value.at[s->lhs].rank; d++)
      if (s->sub[d] != t->sub[d]) return false;
    for (uint32_t k = 0; k < s->nindex; k++)
      if (s->index[k].extent != t->index[k].extent) return false;
  }
  return true;
}

// Appends the statements and results of `from`, whose arguments are the same, to count function
// `to`.
static void append_count(Module *m, Id to, Id from) {
  Fn *f = &m->fn.at[to];
  const Fn *g = &m->fn.at[from];
  Id *map = NEWN(m->arena, Id, g->value.n + 1);
  for (Id v = 0; v < g->value.n; v++) map[v] = NONE;
  for (uint32_t i = 0; i < g->arg.n; i++) map[g->arg.at[i]] = f->arg.at[i];
  for (Id v = 0; v < g->value.n; v++) {
    Value x = g->value.at[v];
    if (map[v] == NONE)
      map[v] = fn_value(m, f, x.name, x.type, x.extent, x.rank, ROLE_LOCAL, x.loc);
  }
  for (uint32_t i = 0; i < g->stmt.n; i++)
    PUSH(m->arena, f->stmt, stmt_renumber(m, g, &g->stmt.at[i], map));
  for (uint32_t i = 0; i < g->result.n; i++) add_total(m, f, map[g->result.at[i]]);
}

// The totals become arguments: `before` of other functions, the function's own, and `after`.
static void take_totals(Rewrite *w, uint32_t before, uint32_t after) {
  Module *m = w->m;
  Fn *f = fn_of(w);
  VEC(Id) extra = {0};
  PUSH(m->arena, extra, w->first);
  PUSH(m->arena, extra, w->batch);
  for (uint32_t i = 0; i < w->total.n; i++) f->value.at[w->total.at[i]].name = str_intern("");
  for (uint32_t i = 0; i < before + w->total.n + after; i++) {
    bool own = i >= before && i - before < w->total.n;
    Str name = str_printf("$total.%u", i);
    if (own) {
      Id t = w->total.at[i - before];
      fn_rename(m, f, t, name);
      f->value.at[t].role = ROLE_IN;
      f->value.at[t].means = MEANS_TOTAL;
      f->value.at[t].of = i;
      PUSH(m->arena, f->arg, t);
      PUSH(m->arena, extra, t);
    } else {
      const Value scalar = {.type = DT_REAL, .loc = f->loc};
      PUSH(m->arena, extra, fn_meant(m, f, name, MEANS_TOTAL, i, &scalar, ROLE_IN));
    }
  }
  uint32_t n = 0;
  for (uint32_t i = 0; i < f->stmt.n; i++) { // what computes them goes
    bool total = false;
    for (uint32_t k = 0; k < w->total.n; k++)
      total |= f->stmt.at[i].kind == ST_COMP && f->stmt.at[i].lhs == w->total.at[k];
    if (!total) f->stmt.at[n++] = f->stmt.at[i];
  }
  f->stmt.n = n;
  order_arguments(m, f, extra.at, extra.n);
  fn_remove_dead(m, f, NULL);
  fn_compact(m, f);
}

static bool microbatch_size(Module *m, int64_t *size) {
  Fn *f = entry_fn(m, ENTRY_LOSS);
  *size = 0;
  for (uint32_t i = 0; i < m->ndata; i++) {
    const Value *v = &f->value.at[f->arg.at[i]];
    if (v->rank && (!*size || *size == v->extent[0])) {
      *size = v->extent[0];
      continue;
    }
    diag_error(m->src, v->loc,
               "every data argument needs the batch as its leading dimension; `%s` has %s", v->name,
               v->rank ? "another extent there" : "no dimensions");
    return false;
  }
  return true;
}

// The meaning of local indices is written out now, or, in a function of no loss, they are all of its samples.
static void forget_local(Module *m) {
  for (uint32_t f = 0; f < m->fn.n; f++)
    for (uint32_t i = 0; i < m->fn.at[f].stmt.n; i++) {
      Stmt *s = &m->fn.at[f].stmt.at[i];
      for (uint32_t k = 0; s->kind == ST_COMP && k < s->nindex; k++)
        s->index[k].local = s->index[k].batch = false;
    }
}

bool pass_batch(Module *m) {
  if (m->entry[ENTRY_LOSS] == NONE) {
    forget_local(m);
    return true;
  }
  Batch b = {.s = {.m = m}};
  if (!microbatch_size(m, &b.s.size)) return false;
  if (!m->ndata) b.s.size = 1;
  Rewrite loss, eval = {.first = NONE};
  Id fn = batched_loss(&b, m->entry[ENTRY_LOSS], str_intern("loss"), &loss), efn = NONE;
  if (fn == NONE) return false;
  if (m->entry[ENTRY_EVAL_LOSS] != NONE) {
    efn = batched_loss(&b, m->entry[ENTRY_EVAL_LOSS], str_intern("eval"), &eval);
    if (efn == NONE) return false;
  }
  Id count = count_fn(&loss), ecount = efn != NONE ? count_fn(&eval) : NONE;
  uint32_t nloss = loss.total.n, neval = eval.total.n;
  if (efn == NONE || same_count(m, count, ecount)) {
    take_totals(&loss, 0, 0);
    if (efn != NONE) take_totals(&eval, 0, 0);
  } else { // training and validation need different ones: both get all
    if (count == NONE) count = ecount;
    else if (ecount != NONE) append_count(m, count, ecount);
    take_totals(&loss, 0, neval);
    take_totals(&eval, nloss, 0);
  }
  if (count != NONE && m->fn.at[count].result.n > MAX_TOTALS) {
    diag_error(m->src, m->fn.at[fn].loc,
               "limit: sums of data over the batch have %u elements in all, and %d are possible",
               m->fn.at[count].result.n, MAX_TOTALS);
    return false;
  }
  m->entry[ENTRY_COUNT] = count;
  m->entry[ENTRY_LOSS] = fn;
  m->entry[ENTRY_EVAL] = efn;
  m->entry[ENTRY_EVAL_LOSS] = NONE;
  module_sweep(m);
  forget_local(m);
  return true;
}
