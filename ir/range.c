#include "ir/range.h"

#include <stdlib.h>

// The ranges of data that are required depend on the ranges of ints, and those on the data's: they
// are found by going round until nothing changes.
enum { MAX_ROUNDS = 8 };

static const Interval any_int32 = {INT32_MIN, INT32_MAX};

// What was found for a function when it was last checked.
typedef struct Visited {
  ValueFact *arg, *result; // NULL: not yet
} Visited;

typedef struct Checker {
  const Module *m;
  Arena *a; // scratch
  RangeResult *r;
  bool infer, changed, silent;
  DataRange *data; // for each data argument; lo > hi means no element fits
  Visited *seen; // for each function
  Id fn; // being checked
  const Fn *f;
  uint32_t stmt;
  ValueFact *fact; // for each value of f
  bool *begun; // for each value of f, whether something was added to it
  Prover *p;
  uint8_t *reads; // for each expression: 1 + whether it holds a read; 0: not known
  uint32_t *done, assumed; // for each expression, under which assumptions it was checked last
  uint32_t next_assumed;
} Checker;

// ---- reading an expression

static bool has_read(Checker *c, Id e) {
  if (c->reads[e]) return c->reads[e] - 1;
  bool r = ex_is(c->m, e, OP_READ);
  for (uint32_t i = 0; i < ex(c->m, e)->narg; i++) r |= has_read(c, ex_arg(c->m, e, i));
  c->reads[e] = 1 + r;
  return r;
}

static void report(Checker *c, RangeIssue issue) {
  if (c->silent) return;
  for (uint32_t i = 0; i < c->r->issue.n; i++) {
    const RangeIssue *o = &c->r->issue.at[i];
    if (o->fn == issue.fn && o->stmt == issue.stmt && o->value == issue.value &&
        o->write == issue.write && o->dim == issue.dim && o->sub == issue.sub)
      return;
  }
  PUSH(c->m->arena, c->r->issue, issue);
}

// Requires that a data argument's elements make the form fit, on the sides that need it. False
// where it isn't of that kind.
static bool require(Checker *c, const Lin *form, int64_t extent, bool low, bool high) {
  Interval need;
  Id k = c->infer ? prover_data(c->p, form, extent, &need) : NONE;
  if (k == NONE) return false;
  DataRange *d = &c->data[k];
  int64_t lo = low && need.lo > d->lo ? need.lo : d->lo;
  int64_t hi = high && need.hi + 1 < d->hi ? need.hi + 1 : d->hi;
  if (lo >= hi) return false;
  if (lo != d->lo || hi != d->hi) c->changed = true, d->loc = c->f->stmt.at[c->stmt].loc;
  d->lo = lo;
  d->hi = hi;
  return true;
}

static bool below(Checker *c, const Lin *form, int64_t extent) {
  Lin above = *form;
  for (uint32_t i = 0; i < above.n; i++) above.term[i].coef = -above.term[i].coef;
  return !__builtin_sub_overflow(extent - 1, form->constant, &above.constant) &&
         prover_nonneg(c->p, &above);
}

// Whether the form, which is in 64 bits, fits 32, if need be since that is required of data.
static bool fits(Checker *c, const Lin *form) {
  Lin up = *form;
  if (!add_ok(up.constant, (int64_t)1 << 31, &up.constant)) return false;
  return (prover_nonneg(c->p, &up) || require(c, &up, INT32_MAX, true, false)) &&
         (below(c, form, (int64_t)1 << 31) || require(c, form, INT32_MAX, false, true));
}

// max(0, label[b]) is below an extent where both are, and min(9, label[b]) not negative. Both are of 32 bits.
static bool require_both(Checker *c, Id sub, int64_t extent, bool low, bool high) {
  Op op = (Op)ex(c->m, sub)->op;
  if (op == OP_MAX ? low : op != OP_MIN || high) return false;
  for (uint32_t i = 0; i < 2; i++) {
    Lin form = prover_form(c->p, ex_arg(c->m, sub, i), false);
    if (low ? prover_nonneg(c->p, &form) : below(c, &form, extent)) continue;
    form = prover_form(c->p, ex_arg(c->m, sub, i), true);
    if (!require(c, &form, extent, low, high) || !fits(c, &form)) return false;
  }
  return true;
}

static void check_subscript(Checker *c, Id value, bool write, uint32_t dim, Id sub) {
  int64_t extent = c->f->value.at[value].extent[dim];
  const Expr *x = ex(c->m, sub);
  const Stmt *s = &c->f->stmt.at[c->stmt];
  if (x->op == OP_INDEX && s->index[x->integer].extent <= extent) return;
  Lin form = prover_form(c->p, sub, true);
  bool low = !prover_nonneg(c->p, &form), high = !below(c, &form, extent);
  if ((!low && !high) || require(c, &form, extent, low, high)) return;
  if (require_both(c, sub, extent, low, high)) return;
  report(c, (RangeIssue){c->fn, c->stmt, value, write, dim, sub, low, high,
                         prover_bounds(c->p, &form)});
}

static void check_expr(Checker *c, Id e);

// Checks `e` where `cond` holds, or doesn't; nothing where that can't be.
static void check_under(Checker *c, Id cond, bool holds, Id e) {
  if (!has_read(c, e)) return;
  Mark mark = prover_mark(c->p);
  uint32_t was = c->assumed;
  c->assumed = ++c->next_assumed;
  prover_assume(c->p, cond, holds);
  if (!prover_dead(c->p)) check_expr(c, e);
  c->assumed = was;
  prover_undo(c->p, mark);
}

static void check_expr(Checker *c, Id e) {
  if (!has_read(c, e) || c->done[e] == c->assumed) return;
  c->done[e] = c->assumed;
  const Expr *x = ex(c->m, e);
  switch (x->op) {
  case OP_WHERE:
    check_expr(c, ex_arg(c->m, e, 0));
    check_under(c, ex_arg(c->m, e, 0), true, ex_arg(c->m, e, 1));
    check_under(c, ex_arg(c->m, e, 0), false, ex_arg(c->m, e, 2));
    return;
  case OP_AND:
  case OP_OR:
    check_expr(c, ex_arg(c->m, e, 0));
    check_under(c, ex_arg(c->m, e, 0), x->op == OP_AND, ex_arg(c->m, e, 1));
    return;
  default: break;
  }
  for (uint32_t i = 0; i < x->narg; i++) {
    check_expr(c, ex_arg(c->m, e, i));
    if (x->op == OP_READ) check_subscript(c, (Id)x->integer, false, i, ex_arg(c->m, e, i));
  }
}

// ---- ranges of int values

static int64_t saturate(__int128 v) {
  return v < INT32_MIN   ? (int64_t)INT32_MIN - 1
         : v > INT32_MAX ? (int64_t)INT32_MAX + 1
                         : (int64_t)v;
}

// A sum of n numbers of a range; everything where it may wrap.
static Interval sum_range(Interval r, int64_t n) {
  Interval s = {saturate((__int128)r.lo * n), saturate((__int128)r.hi * n)};
  return s.lo < INT32_MIN || s.hi > INT32_MAX ? any_int32 : s;
}

static int64_t points(const Stmt *s, uint32_t from, uint32_t to) {
  int64_t n = 1;
  for (uint32_t i = from; i < to; i++)
    if (!mul_ok(n, s->index[i].extent, &n)) return INT64_MAX;
  return n;
}

// How many of the free indices' points may write one element: those that are subscripts tell
// elements apart.
static int64_t hits(const Checker *c, const Stmt *s) {
  int64_t n = points(s, 0, s->nfree);
  uint32_t seen = 0;
  for (uint32_t d = 0; d < c->f->value.at[s->lhs].rank; d++) {
    const Expr *x = ex(c->m, s->sub[d]);
    if (x->op != OP_INDEX || seen >> x->integer & 1) continue;
    seen |= 1u << x->integer;
    n /= s->index[x->integer].extent;
  }
  return n;
}

// Of the elements that the statement writes (or adds, all of its additions to one element
// together).
static Interval written_range(Checker *c, const Stmt *s) {
  int64_t n = points(s, s->nfree, s->nindex);
  if (s->red == RED_ARGMAX) {
    Interval r = {0, n - 1 > INT32_MAX ? INT32_MAX : n - 1};
    return s->acc ? any_int32 : r;
  }
  Interval r = prover_range(c->p, s->body);
  if (s->red == RED_SUM) r = sum_range(r, n);
  if (!s->acc) return r;
  Interval zero_too = {r.lo < 0 ? r.lo : 0, r.hi > 0 ? r.hi : 0};
  return sum_range(zero_too, hits(c, s));
}

// An accumulator is zero before its first statement, and read after its last.
static void add_range(ValueFact *f, bool first, Interval r) {
  Interval sum = {saturate((__int128)f->range.lo + r.lo), saturate((__int128)f->range.hi + r.hi)};
  if (sum.lo < INT32_MIN || sum.hi > INT32_MAX) sum = any_int32;
  *f = (ValueFact){first ? r : sum, NONE};
}

static void learn(Checker *c, const Stmt *s) {
  const Value *v = &c->f->value.at[s->lhs];
  ValueFact *f = &c->fact[s->lhs];
  if (v->type != DT_I32 || v->role != ROLE_LOCAL) return;
  Interval r = written_range(c, s);
  if (s->acc) {
    add_range(f, !c->begun[s->lhs], r);
    c->begun[s->lhs] = true;
    return;
  }
  *f = (ValueFact){r, NONE};
  const Expr *x = ex(c->m, s->body); // a copy of data is data
  if (s->red == RED_NONE && x->op == OP_READ) f->data = c->fact[x->integer].data;
}

// ---- calls

static ValueFact *check_fn(Checker *c, Id fn, const ValueFact *arg);

static void check_call(Checker *c, const Call *call) {
  const Fn *callee = &c->m->fn.at[call->fn];
  ValueFact *arg = NEWN(c->a, ValueFact, callee->arg.n + 1);
  for (uint32_t i = 0; i < call->narg; i++) {
    const Actual *a = &call->arg[i];
    arg[i] = (ValueFact){any_int32, NONE};
    if (a->mode == ACT_ITER && call->count <= INT32_MAX)
      arg[i].range = (Interval){0, call->count - 1};
    bool same = a->mode == ACT_WHOLE || a->mode == ACT_SLICE;
    if (same && callee->value.at[callee->arg.at[i]].role == ROLE_IN) arg[i] = c->fact[a->value];
    if (same && callee->value.at[callee->arg.at[i]].role == ROLE_INOUT) {
      c->fact[a->value] = (ValueFact){any_int32, NONE};
      c->begun[a->value] = true;
    }
  }
  ValueFact *result = check_fn(c, call->fn, arg);
  for (uint32_t i = 0; i < call->nresult; i++)
    if (call->result[i].mode != RES_DROP) c->fact[call->result[i].value] = result[i];
}

// ---- functions

// A conversion and what passes arrays on keep the range; sums over ranks do not.
static void learn_move(Checker *c, const Stmt *s) {
  ValueFact f = {c->fact[s->from].range, NONE};
  bool sums = s->kind == ST_COLL && coll_reduces(s->coll) && s->red == RED_SUM;
  if (s->kind == ST_CONVERT) f.data = c->fact[s->from].data;
  if (sums) f.range = sum_range(f.range, coll_size(c->m, s));
  c->fact[s->lhs] = f;
}

static void check_stmt(Checker *c, const Stmt *s) {
  if (s->call) check_call(c, s->call);
  if (s->kind != ST_COMP) {
    if (!s->call) learn_move(c, s);
    return;
  }
  prover_stmt(c->p, s);
  c->assumed = ++c->next_assumed;
  const Value *v = &c->f->value.at[s->lhs];
  for (uint32_t d = 0; d < v->rank; d++) {
    check_expr(c, s->sub[d]);
    if (s->acc) check_subscript(c, s->lhs, true, d, s->sub[d]); // `=` covers its value: verified
  }
  check_expr(c, s->body);
  learn(c, s);
}

// Starts every value of the function: arguments as given, locals as anything.
static ValueFact *start_facts(Checker *c, const Fn *f, const ValueFact *arg) {
  ValueFact *fact = NEWN(c->a, ValueFact, f->value.n + 1);
  for (Id i = 0; i < f->value.n; i++) fact[i] = (ValueFact){any_int32, NONE};
  for (uint32_t i = 0; i < f->arg.n; i++) {
    const Value *v = &f->value.at[f->arg.at[i]];
    if (v->role == ROLE_IN && v->type == DT_I32) fact[f->arg.at[i]] = arg[i];
  }
  return fact;
}

static bool same_facts(const ValueFact *a, const ValueFact *b, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (a[i].range.lo != b[i].range.lo || a[i].range.hi != b[i].range.hi || a[i].data != b[i].data)
      return false;
  return true;
}

// Checks the function for arguments of which this is known; what is known of its results.
static ValueFact *check_fn(Checker *c, Id fn, const ValueFact *arg) {
  const Fn *f = &c->m->fn.at[fn];
  Visited *seen = &c->seen[fn];
  if (seen->arg && same_facts(seen->arg, arg, f->arg.n)) return seen->result;
  Checker outer = *c;
  c->fn = fn;
  c->f = f;
  c->fact = start_facts(c, f, arg);
  c->begun = NEWN(c->a, bool, f->value.n + 1);
  c->p = prover_new(c->a, c->m);
  prover_fn(c->p, f, c->fact);
  for (c->stmt = 0; c->stmt < f->stmt.n; c->stmt++) check_stmt(c, &f->stmt.at[c->stmt]);
  seen->arg = arena_copy(c->a, arg, f->arg.n * sizeof *arg);
  seen->result = NEWN(c->a, ValueFact, f->result.n + 1);
  for (uint32_t i = 0; i < f->result.n; i++) seen->result[i] = c->fact[f->result.at[i]];
  c->fn = outer.fn;
  c->f = outer.f;
  c->stmt = outer.stmt;
  c->fact = outer.fact;
  c->begun = outer.begun;
  c->p = outer.p;
  return seen->result;
}

static void check_root(Checker *c, Id fn) {
  const Fn *f = &c->m->fn.at[fn];
  ValueFact *arg = NEWN(c->a, ValueFact, f->arg.n + 1);
  for (uint32_t i = 0; i < f->arg.n; i++) {
    const Value *v = &f->value.at[f->arg.at[i]];
    arg[i] = (ValueFact){any_int32, NONE};
    if (v->means == MEANS_DATA) arg[i] = (ValueFact){{c->data[v->of].lo, c->data[v->of].hi - 1}, v->of};
    if (v->means == MEANS_FIRST) arg[i].range.lo = 0;
    if (v->means == MEANS_BATCH) arg[i].range.lo = 1;
    if (v->means == MEANS_RANK) arg[i].range = (Interval){0, c->m->axis.at[v->of].size - 1};
  }
  check_fn(c, fn, arg);
}

static void check_roots(Checker *c) {
  bool any = false;
  memset(c->seen, 0, c->m->fn.n * sizeof *c->seen);
  for (int e = 0; e < NENTRY; e++) {
    if (c->m->entry[e] == NONE) continue;
    any = true;
    check_root(c, c->m->entry[e]);
  }
  if (any) return;
  bool *called = NEWN(c->a, bool, c->m->fn.n + 1);
  for (Id i = 0; i < c->m->fn.n; i++)
    for (uint32_t s = 0; s < c->m->fn.at[i].stmt.n; s++)
      if (c->m->fn.at[i].stmt.at[s].call)
        called[c->m->fn.at[i].stmt.at[s].call->fn] = true;
  for (Id i = 0; i < c->m->fn.n; i++)
    if (!called[i]) check_root(c, i);
}

static void start_data(Checker *c) {
  c->data = NEWN(c->a, DataRange, c->m->ndata + 1);
  for (Id k = 0; k < c->m->ndata; k++)
    c->data[k] = (DataRange){k, INT32_MIN, (int64_t)INT32_MAX + 1, 0};
  for (uint32_t i = 0; i < c->m->range.n; i++) {
    const DataRange *r = &c->m->range.at[i];
    DataRange *d = &c->data[r->arg];
    if (r->lo > d->lo) d->lo = r->lo;
    if (r->hi < d->hi) d->hi = r->hi;
    d->loc = r->loc;
  }
}

void range_check(const Module *m, bool infer, RangeResult *result) {
  Checker c = {.m = m, .a = arena_new(), .r = result, .infer = infer, .silent = infer};
  *result = (RangeResult){0};
  c.seen = NEWN(c.a, Visited, m->fn.n + 1);
  c.reads = arena_alloc(c.a, m->expr.n + 1);
  c.done = NEWN(c.a, uint32_t, m->expr.n + 1);
  start_data(&c);
  for (int round = 0; infer && round < MAX_ROUNDS; round++) {
    c.changed = false;
    check_roots(&c);
    if (!c.changed) break;
  }
  c.silent = false;
  c.infer = infer && !c.changed;
  check_roots(&c);
  for (Id k = 0; k < m->ndata; k++)
    if (c.data[k].lo != INT32_MIN || c.data[k].hi != (int64_t)INT32_MAX + 1)
      PUSH(m->arena, result->range, c.data[k]);
  arena_free(c.a);
}
