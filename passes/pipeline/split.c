// Parts the backward pass of each chunk: what the chunk before waits for, the gradient of the
// chunk's input, stays in PHASE_B; what only gradients of parameters need goes to PHASE_W (Qi et
// al. 2023, "Zero bubble pipeline parallelism"). The first chunk, on which nobody waits, has all of
// it in W.
//
// A repeat does both: its function is parted in two. NAME.input has the carried results, and saves
// for each layer what NAME.weights reads of it. So are repeats inside, one in each half.
#include "passes/pipeline/pipeline.h"
#include "passes/product.h"

#include <stdlib.h>

typedef struct Marks {
  const Cut *c; // NULL: of a function that is not cut
  bool *wanted; // by value
  bool any;
} Marks;

static void want(Id v, void *ctx) {
  Marks *x = ctx;
  if (!x->c || !is_held(x->c, v)) x->wanted[v] = true;
}
static void test(Id v, void *ctx) {
  Marks *x = ctx;
  x->any |= x->wanted[v];
}

static bool in_phase(const Task *t, uint32_t chunk) {
  return !t->free && t->phase == PHASE_B && t->chunk == chunk;
}

// Marks what chunks below `chunk` read.
static void want_below(Marks *x, uint32_t chunk) {
  const Cut *c = x->c;
  for (uint32_t i = 0; i < cut_fn(c)->stmt.n; i++) {
    const Task *t = &c->task.at[i];
    if (!t->free && t->phase != PHASE_F && t->chunk < chunk)
      cut_reads(c, &cut_fn(c)->stmt.at[i], want, x);
  }
}

// ---- a function in two

typedef struct Parts {
  struct Parts *next;
  Module *m;
  Id called; // the function that is to be parted
  Id whole; // it, or a copy of it in which the repeats inside are parted
  Id input, weights;
  uint64_t sums; // bit i: what argument i accumulates belongs to input
  bool *first; // by statement of `whole`: belongs to input
  bool *cross; // by value: weights reads it, and input makes it, or it is a carried argument
  bool *again; // by statement: it only renames elements, so weights does it again
  VEC(Id) saved; // those values, in order
  // Which of the whole's arguments each has; weights has `saved` after them.
  VEC(uint32_t) input_arg, weights_arg;
} Parts;

static bool renames(const Module *m, const Stmt *s) {
  if (s->kind != ST_COMP || s->acc || s->red != RED_NONE || !ex_is(m, s->body, OP_READ))
    return false;
  for (uint32_t k = 0; k < ex(m, s->body)->narg; k++) {
    Op op = (Op)ex(m, ex_arg(m, s->body, k))->op;
    if (op != OP_INDEX && op != OP_GROUP && op != OP_INT) return false;
  }
  return true;
}

// By value: the function's results, and the arguments whose sums belong to the input.
static bool *wanted_first(Module *m, const Fn *f, uint64_t sums) {
  bool *wanted = NEWN(m->arena, bool, f->value.n + 1);
  for (uint32_t i = 0; i < f->arg.n; i++)
    if (i < 64 && (sums >> i & 1)) wanted[f->arg.at[i]] = true;
  for (uint32_t i = 0; i < f->result.n; i++) wanted[f->result.at[i]] = true;
  return wanted;
}

static bool *needed(Module *m, const Fn *f, uint64_t sums) {
  bool *need = NEWN(m->arena, bool, f->stmt.n + 1), *wanted = wanted_first(m, f, sums);
  for (uint32_t i = f->stmt.n; i-- > 0;) {
    Marks x = {NULL, wanted, false};
    stmt_writes(m, &f->stmt.at[i], test, &x);
    if (!(need[i] = x.any)) continue;
    stmt_reads(m, f, &f->stmt.at[i], want, &x);
  }
  return need;
}

static void find_crossing(Parts *p, const Call *call) {
  Module *m = p->m;
  const Fn *f = &m->fn.at[p->whole];
  p->cross = NEWN(m->arena, bool, f->value.n + 1);
  p->again = NEWN(m->arena, bool, f->stmt.n + 1);
  bool *read = NEWN(m->arena, bool, f->value.n + 1);
  Marks x = {NULL, read, false};
  for (uint32_t i = f->stmt.n; i-- > 0;) {
    const Stmt *s = &f->stmt.at[i];
    p->again[i] = p->first[i] && renames(m, s) && read[s->lhs];
    if (!p->first[i] || p->again[i]) stmt_reads(m, f, s, want, &x);
    if (p->again[i]) read[s->lhs] = false;
  }
  for (uint32_t i = 0; i < f->stmt.n; i++) { // what weights makes itself does not cross
    x.wanted = p->cross;
    if (p->first[i]) stmt_writes(m, &f->stmt.at[i], want, &x);
  }
  for (uint32_t i = 0; i < f->arg.n; i++) p->cross[f->arg.at[i]] = call->arg[i].mode == ACT_CARRY;
  for (Id v = 0; v < f->value.n; v++)
    if (p->cross[v] && read[v]) PUSH(m->arena, p->saved, v);
    else p->cross[v] = false;
}

static void keep_stmts(Module *m, Fn *g, const bool *keep, const bool *also, bool inverse) {
  VEC(Stmt) kept = {0};
  for (uint32_t i = 0; i < g->stmt.n; i++)
    if (keep[i] != inverse || (also && also[i])) PUSH(m->arena, kept, g->stmt.at[i]);
  g->stmt.at = kept.at;
  g->stmt.n = g->stmt.cap = kept.n;
}

// Results of the whole, and what is saved.
static void make_input(Parts *p, Str name) {
  Module *m = p->m;
  p->input = fn_clone(m, p->whole, str_printf("%s.input", name));
  Fn *g = &m->fn.at[p->input];
  keep_stmts(m, g, p->first, NULL, false);
  for (uint32_t i = 0; i < p->saved.n; i++) {
    Id v = p->saved.at[i];
    bool own = g->value.at[v].role == ROLE_LOCAL;
    for (uint32_t r = 0; r < g->result.n; r++) own &= g->result.at[r] != v;
    if (!own) {
      const Value *o = &g->value.at[v];
      Id copy = fn_value(m, g, str_printf("%s.saved", o->name), o->type, o->extent, o->rank,
                         ROLE_LOCAL, o->loc);
      fn_copy_stmt(m, g, copy, v, g->value.at[copy].loc);
      v = copy;
    }
    PUSH(m->arena, g->result, v);
  }
}

static void make_weights(Parts *p, Str name) {
  Module *m = p->m;
  p->weights = fn_clone(m, p->whole, str_printf("%s.weights", name));
  Fn *g = &m->fn.at[p->weights];
  keep_stmts(m, g, p->first, p->again, true);
  g->result.n = 0;
  for (uint32_t i = 0; i < p->saved.n; i++) g->value.at[p->saved.at[i]].role = ROLE_IN;
}

static bool *mentioned(Module *m, const Fn *g) {
  bool *used = NEWN(m->arena, bool, g->value.n + 1);
  Marks x = {NULL, used, false};
  for (uint32_t i = 0; i < g->stmt.n; i++) {
    stmt_reads(m, g, &g->stmt.at[i], want, &x);
    stmt_writes(m, &g->stmt.at[i], want, &x);
  }
  return used;
}

// Arguments that the function does not mention are dropped, but for carried ones. A value that
// neither half adds to stays zero by the first.
static void drop_unused(Parts *p, const Call *call, Id fn, bool weights) {
  Module *m = p->m;
  Fn *g = &m->fn.at[fn];
  const Fn *f = &m->fn.at[p->whole];
  bool *used = mentioned(m, g), *whole = mentioned(m, f);
  for (uint32_t i = 0; i < f->arg.n; i++) {
    Id v = f->arg.at[i];
    if (!weights && f->value.at[v].role == ROLE_INOUT && !whole[v]) used[v] = true;
  }
  g->arg.at = NULL;
  g->arg.n = g->arg.cap = 0;
  for (uint32_t i = 0; i < f->arg.n; i++) {
    bool carried = call->arg[i].mode == ACT_CARRY;
    if (weights ? carried || !used[f->arg.at[i]] : !carried && !used[f->arg.at[i]]) continue;
    PUSH(m->arena, g->arg, f->arg.at[i]);
    if (weights) PUSH(m->arena, p->weights_arg, i);
    else PUSH(m->arena, p->input_arg, i);
  }
  for (uint32_t i = 0; weights && i < p->saved.n; i++) PUSH(m->arena, g->arg, p->saved.at[i]);
  fn_compact(m, g);
}

// A value of `fn` that holds v of each of `count` layers; fn is that of the cut, if there is one.
static Id stacked(Module *m, Id fn, Cut *c, const Value *v, int64_t count) {
  int64_t extent[MAX_RANK] = {count};
  CHECK(v->rank < MAX_RANK);
  memcpy(extent + 1, v->extent, v->rank * sizeof *extent);
  Id id = fn_value(m, &m->fn.at[fn], v->name, v->type, extent, v->rank + 1u, ROLE_LOCAL, v->loc);
  if (c) PUSH(m->arena, c->held, (Held){.param = NONE});
  return id;
}

// NAME of NAME.backward, and of NAME.backward.2, which another count of layers calls.
static Str part_name(Str name) {
  const char *end = strstr(name, ".backward");
  return end ? str_internn(name, (size_t)(end - name)) : name;
}

// The repeat, of function fn, becomes that of the parts' input; the other half is the result.
static Stmt halve(Parts *p, Id fn, Cut *c, Stmt *s) {
  Module *m = p->m;
  const Call *call = s->call;
  Stmt input = stmt_copy(m, &m->fn.at[fn], s), weights = stmt_copy(m, &m->fn.at[fn], s);
  Call *a = input.call, *b = weights.call;
  *a = *b =
      (Call){.fn = p->input, .count = call->count, .iter = call->iter, .reverse = call->reverse};
  b->fn = p->weights;
  for (uint32_t i = 0; i < p->input_arg.n; i++) {
    const Actual *from = &call->arg[p->input_arg.at[i]];
    call_add_arg(m, a, from->mode, from->value);
  }
  for (uint32_t i = 0; i < p->weights_arg.n; i++) {
    const Actual *from = &call->arg[p->weights_arg.at[i]];
    call_add_arg(m, b, from->mode, from->value);
  }
  for (uint32_t i = 0; i < call->nresult; i++)
    call_add_result(m, a, call->result[i].mode, call->result[i].value);
  for (uint32_t i = 0; i < p->saved.n; i++) {
    Value v = m->fn.at[p->whole].value.at[p->saved.at[i]];
    Id slice = stacked(m, fn, c, &v, call->count);
    call_add_result(m, a, RES_SLICE, slice);
    call_add_arg(m, b, ACT_SLICE, slice);
  }
  *s = input;
  return weights;
}

// ---- small sums

typedef VEC(Stmt) StmtList;

enum { MUCH = 16 }; // terms of each sum, at least

static void test_unmade(Id v, void *ctx) {
  Marks *x = ctx;
  x->any |= !x->wanted[v];
}

// Whether statement s only adds sums over much more than it makes, of values that are `made`, to an argument: it is the
// gradient of a norm's gain, or of a bias.
static bool is_small_sum(const Module *m, const Fn *f, const Stmt *s, bool *made) {
  if (s->kind != ST_COMP || !s->acc || s->red != RED_SUM || stmt_is_product(m, s)) return false;
  const Value *v = &f->value.at[s->lhs];
  double points = 1;
  for (uint32_t i = 0; i < s->nindex; i++) points *= (double)s->index[i].extent;
  if (v->role != ROLE_INOUT || v->rank != s->nfree || points < MUCH * (double)value_count(v)) return false;
  for (uint32_t d = 0; d < v->rank; d++)
    if (!ex_is(m, s->sub[d], OP_INDEX) || ex(m, s->sub[d])->integer != d || s->index[d].extent != v->extent[d])
      return false;
  Marks x = {NULL, made, false};
  stmt_reads(m, f, s, test_unmade, &x);
  return !x.any;
}

// The sum becomes a value, which the input makes and the weights add: so that what it is the sum of is not saved.
static void part_sum(Module *m, Id fn, const Stmt *s, StmtList *stmt) {
  Fn *g = &m->fn.at[fn];
  Value v = g->value.at[s->lhs];
  Id sum = fn_value(m, g, str_printf("%s.sum", v.name), v.type, v.extent, v.rank, ROLE_LOCAL, s->loc);
  Stmt first = stmt_copy(m, g, s);
  first.acc = false;
  first.lhs = sum;
  fn_copy_stmt(m, g, s->lhs, sum, s->loc);
  Stmt add = g->stmt.at[--g->stmt.n];
  add.acc = true;
  PUSH(m->arena, *stmt, first);
  PUSH(m->arena, *stmt, add);
}

// Parts the small sums of p->whole, a copy of it where there are any, and marks which statements belong to the input.
static void part_sums(Parts *p) {
  Module *m = p->m;
  const Fn *f = &m->fn.at[p->whole];
  uint32_t n = f->stmt.n, found = 0;
  bool *small = NEWN(m->arena, bool, n + 1), *made = NEWN(m->arena, bool, f->value.n + 1);
  Marks x = {NULL, made, false};
  p->first = needed(m, f, p->sums);
  for (uint32_t i = 0; i < f->arg.n; i++) made[f->arg.at[i]] = f->value.at[f->arg.at[i]].role == ROLE_IN;
  for (uint32_t i = 0; i < n; i++) {
    small[i] = !p->first[i] && is_small_sum(m, f, &f->stmt.at[i], made);
    found += small[i];
    if (p->first[i]) stmt_writes(m, &f->stmt.at[i], want, &x);
  }
  if (!found) return;
  p->whole = fn_clone(m, p->whole, str_printf("%s.summed", f->name));
  StmtList stmt = {0};
  bool *first = NEWN(m->arena, bool, n + found + 1);
  for (uint32_t i = 0; i < n; i++) {
    Stmt s = m->fn.at[p->whole].stmt.at[i];
    first[stmt.n] = p->first[i] || small[i];
    if (small[i]) part_sum(m, p->whole, &s, &stmt);
    else PUSH(m->arena, stmt, s);
  }
  Fn *g = &m->fn.at[p->whole];
  g->stmt.at = stmt.at;
  g->stmt.n = g->stmt.cap = stmt.n;
  p->first = first;
}

static Id part_inside(Module *m, Id fn, uint64_t sums, Parts **known);

// Marks the values that the repeat's first half reads.
static void want_half(const Parts *p, const Call *call, Marks *x) {
  for (uint32_t i = 0; i < p->input_arg.n; i++)
    if (call->arg[p->input_arg.at[i]].mode != ACT_ITER)
      want(call->arg[p->input_arg.at[i]].value, x);
}

// The parts of a function, made once; NULL where the results need all of it.
static Parts *parts_of(Module *m, const Call *call, uint64_t sums, Parts **known) {
  for (Parts *p = *known; p; p = p->next)
    if (p->called == call->fn && p->sums == sums) return p->weights == NONE ? NULL : p;
  Parts *p = NEW(m->arena, Parts);
  *p = (Parts){.m = m, .called = call->fn, .weights = NONE, .sums = sums};
  p->whole = part_inside(m, call->fn, sums, known);
  p->next = *known;
  *known = p;
  part_sums(p);
  bool both = false;
  for (uint32_t i = 0; i < m->fn.at[p->whole].stmt.n; i++) both |= !p->first[i];
  if (!both) return NULL;
  find_crossing(p, call);
  Str name = part_name(m->fn.at[p->called].name);
  make_input(p, name);
  make_weights(p, name);
  drop_unused(p, call, p->input, false);
  drop_unused(p, call, p->weights, true);
  return p;
}

// The parts of the function that a repeat calls, of whose accumulated arguments those that are
// wanted belong to the input; NULL where all of it does.
static Parts *parts_of_repeat(Module *m, const Call *call, const bool *wanted, Parts **known) {
  uint64_t sums = 0;
  for (uint32_t i = 0; i < call->narg; i++) {
    const Fn *f = &m->fn.at[call->fn];
    if (f->value.at[f->arg.at[i]].role != ROLE_INOUT || !wanted[call->arg[i].value]) continue;
    if (i >= 64) return NULL;
    sums |= UINT64_C(1) << i;
  }
  return parts_of(m, call, sums, known);
}

// A copy of function fn in which repeats that its results, or the `sums`, need are parted, the other
// half behind each; fn itself where there is none.
static Id part_inside(Module *m, Id fn, uint64_t sums, Parts **known) {
  uint32_t n = m->fn.at[fn].stmt.n, nvalue = m->fn.at[fn].value.n;
  Parts **parts = NEWN(m->arena, Parts *, n + 1);
  bool *wanted = wanted_first(m, &m->fn.at[fn], sums), any = false;
  for (uint32_t i = n; i-- > 0;) {
    const Stmt *s = &m->fn.at[fn].stmt.at[i];
    Marks x = {NULL, wanted, false};
    stmt_writes(m, s, test, &x);
    if (!x.any) continue;
    if (s->kind == ST_REPEAT) {
      // An argument that it adds to for later statements alone counts as its use, not theirs.
      parts[i] = parts_of_repeat(m, s->call, wanted, known);
      any |= parts[i] != NULL;
    }
    if (!parts[i]) stmt_reads(m, &m->fn.at[fn], &m->fn.at[fn].stmt.at[i], want, &x);
    else want_half(parts[i], m->fn.at[fn].stmt.at[i].call, &x);
  }
  CHECK(m->fn.at[fn].value.n == nvalue);
  if (!any) return fn;
  Id whole = fn_clone(m, fn, str_printf("%s.parted", m->fn.at[fn].name));
  VEC(Stmt) stmt = {0};
  for (uint32_t i = 0; i < n; i++) {
    Stmt s = m->fn.at[whole].stmt.at[i];
    if (!parts[i]) {
      PUSH(m->arena, stmt, s);
      continue;
    }
    Stmt rest = halve(parts[i], whole, NULL, &s);
    PUSH(m->arena, stmt, s);
    PUSH(m->arena, stmt, rest);
  }
  Fn *g = &m->fn.at[whole];
  g->stmt.at = stmt.at;
  g->stmt.n = g->stmt.cap = stmt.n;
  return whole;
}

// ---- the cut function

// Marks the chunk's statements that what is wanted depends on; others go to W. A repeat that is
// marked is parted, its other half put behind it.
static void split_chunk(Cut *c, uint32_t chunk, Parts **known) {
  Marks x = {c, NEWN(c->m->arena, bool, cut_fn(c)->value.n + 1), false};
  bool *mark = NEWN(c->m->arena, bool, cut_fn(c)->stmt.n + 1);
  want_below(&x, chunk);
  for (uint32_t i = cut_fn(c)->stmt.n; i-- > 0;) {
    if (!in_phase(&c->task.at[i], chunk)) continue;
    const Stmt *s = &cut_fn(c)->stmt.at[i];
    x.any = false;
    stmt_writes(c->m, s, test, &x);
    if ((mark[i] = x.any)) cut_reads(c, s, want, &x);
  }
  VEC(Stmt) stmt = {0};
  VEC(Task) task = {0};
  uint32_t n = cut_fn(c)->stmt.n;
  for (uint32_t i = 0; i < n; i++) {
    Stmt s = cut_fn(c)->stmt.at[i], rest;
    Task t = c->task.at[i], w = t;
    w.phase = PHASE_W;
    bool here = in_phase(&t, chunk), repeat = here && mark[i] && s.kind == ST_REPEAT;
    Parts *parts = repeat ? parts_of_repeat(c->m, s.call, x.wanted, known) : NULL;
    if (parts) rest = halve(parts, c->fn, c, &s);
    PUSH(c->m->arena, stmt, s);
    PUSH(c->m->arena, task, here && !mark[i] ? w : t);
    if (!parts) continue;
    PUSH(c->m->arena, stmt, rest);
    PUSH(c->m->arena, task, w);
  }
  Fn *f = cut_fn(c);
  f->stmt.at = stmt.at;
  f->stmt.n = f->stmt.cap = stmt.n;
  c->task.at = task.at;
  c->task.n = c->task.cap = task.n;
}

static void test_grad(Id v, void *ctx) {
  Marks *x = ctx;
  x->any |= is_held(x->c, v);
}

// Gradients of parameters are made by W alone, so that it can be the one to begin them.
static bool check_split(Cut *c) {
  for (uint32_t i = 0; i < cut_fn(c)->stmt.n; i++) {
    const Stmt *s = &cut_fn(c)->stmt.at[i];
    Marks x = {c, NULL, false};
    if (c->task.at[i].free || c->task.at[i].phase != PHASE_B) continue;
    stmt_writes(c->m, s, test_grad, &x);
    if (!x.any) continue;
    diag_error(c->m->src, s->loc,
               "schedule zb cannot split this into the gradient of its input and the gradients of "
               "its parameters; use --schedule 1f1b");
    return false;
  }
  return true;
}

bool cut_split(Cut *c) {
  Parts *known = NULL;
  for (uint32_t k = 0; k < c->nchunk; k++) {
    split_chunk(c, k, &known);
    cut_defs(c); // of statements that have moved, and of values that are new
  }
  return check_split(c);
}
