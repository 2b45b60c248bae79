// The adjoint of a repeat: its body, differentiated as a whole, is split into NAME.forward and
// NAME.backward.
#include "passes/differentiate/differentiate.h"

#include <stdlib.h>

// The body of a repeat, differentiated as a whole and being split.
typedef struct Body {
  Diff d;
  const Call *call; // of the forward repeat, in the caller
  uint32_t narg, nresult; // of the original body
  uint32_t nforward; // forward statements
  Id *seed; // for each result: the argument that is its adjoint, or NONE
  Id *back; // for each argument: INOUT accumulator, or the result that is its adjoint; or NONE
  bool *defined; // by value: by a forward statement
  VEC(Id) need; // arguments of the backward function that are the forward's own
  VEC(Id) save; // forward values that it reads, besides
  VEC(Id)
  saved_as; // for each save: the forward result it is (a copy where it is an argument or result)
  VEC(Stmt) renamed; // forward statements that the backward function repeats, last ones first
  Id forward, backward; // functions
} Body;

static uint32_t carry_arg(const Call *c, uint32_t result) {
  uint32_t nth = 0, i = 0;
  for (uint32_t r = 0; r < result; r++) nth += c->result[r].mode == RES_CARRY;
  for (;; i++)
    if (c->arg[i].mode == ACT_CARRY && nth-- == 0) return i;
}

static bool listed(const Id *at, uint32_t n, Id v) {
  for (uint32_t i = 0; i < n; i++)
    if (at[i] == v) return true;
  return false;
}

static bool has_adjoint(const Diff *d, Id v) {
  return v != NONE && d->varied[v] && d->adj[v].form.n;
}

// Adds the backward pass's arguments to the body: adjoints of results, accumulators.
static void body_arguments(Body *b, const Diff *caller, const bool *varied) {
  Diff *d = &b->d;
  Module *m = d->m;
  Fn *f = fn_of(d);
  diff_room(d);
  memcpy(d->varied, varied, d->nvalue * sizeof(bool));
  for (uint32_t r = 0; r < b->nresult; r++) {
    Id v = f->result.at[r];
    const Result *to = &b->call->result[r];
    bool carried = to->mode == RES_CARRY && varied[f->arg.at[carry_arg(b->call, r)]];
    b->seed[r] = NONE;
    if (!carried && !has_adjoint(caller, to->value)) continue;
    b->seed[r] = value_like(m, f, v, d_name(f->value.at[v].name), ROLE_IN);
  }
  for (uint32_t i = 0; i < b->narg; i++) {
    Id v = f->arg.at[i];
    b->back[i] = NONE;
    if (!varied[v] || b->call->arg[i].mode == ACT_CARRY) continue;
    b->back[i] = d->into[v] = value_like(m, f, v, d_name(f->value.at[v].name), ROLE_INOUT);
  }
}

static void set_defined(Id v, void *ctx) { ((bool *)ctx)[v] = true; }

// A gradient that nothing is added to, as for a parameter under stop_gradient, is no argument of the backward pass.
static void forget_unwritten(Body *b) {
  const Fn *f = fn_of(&b->d);
  bool *written = NEWN(b->d.m->arena, bool, f->value.n + 1);
  for (uint32_t i = 0; i < f->stmt.n; i++) stmt_writes(b->d.m, &f->stmt.at[i], set_defined, written);
  for (uint32_t i = 0; i < b->narg; i++)
    if (b->back[i] != NONE && f->value.at[b->back[i]].role == ROLE_INOUT && !written[b->back[i]]) b->back[i] = NONE;
}

static void differentiate_body(Body *b) {
  Diff *d = &b->d;
  Module *m = d->m;
  for (uint32_t r = 0; r < b->nresult; r++)
    if (b->seed[r] != NONE) contribute_value(d, fn_of(d)->result.at[r], b->seed[r], fn_of(d)->loc);
  diff_walk_back(d);
  for (uint32_t i = 0; i < b->narg; i++) {
    Id v = fn_of(d)->arg.at[i];
    if (!d->varied[v] || b->call->arg[i].mode != ACT_CARRY) continue;
    Id dv = adjoint_value(d, v);
    if (fn_of(d)->value.at[dv].role != ROLE_LOCAL || listed(b->back, i, dv)) { // it needs storage
      Id copy = new_adjoint(d, v);
      fn_copy_stmt(m, fn_of(d), copy, dv, fn_of(d)->loc);
      dv = copy;
    }
    b->back[i] = dv;
  }
  b->nforward = diff_join(d);
  Fn *f = fn_of(d);
  for (uint32_t i = 0; i < b->narg; i++)
    if (b->back[i] != NONE && f->value.at[b->back[i]].role == ROLE_LOCAL)
      PUSH(m->arena, f->result, b->back[i]);
  fn_remove_dead(m, f, &b->nforward);
  f->result.n = b->nresult;
  forget_unwritten(b);
}

static void note_use(Id v, void *ctx) {
  Body *b = ctx;
  Module *m = b->d.m;
  Fn *f = fn_of(&b->d);
  for (uint32_t i = 0; i < b->narg; i++) {
    if (f->arg.at[i] != v) continue;
    if (b->call->arg[i].mode != ACT_CARRY) {
      if (!listed(b->need.at, b->need.n, v)) PUSH(m->arena, b->need, v);
      return;
    }
    if (!listed(b->save.at, b->save.n, v)) PUSH(m->arena, b->save, v);
    return;
  }
  if (b->defined[v] && !listed(b->save.at, b->save.n, v)) PUSH(m->arena, b->save, v);
}

// Finds the forward values that the backward statements read.
static void find_crossing(Body *b) {
  Module *m = b->d.m;
  Fn *f = fn_of(&b->d);
  b->defined = NEWN(m->arena, bool, f->value.n + 1);
  for (uint32_t i = 0; i < b->nforward; i++)
    stmt_writes(m, &f->stmt.at[i], set_defined, b->defined);
  for (uint32_t i = b->nforward; i < f->stmt.n; i++) stmt_reads(m, f, &f->stmt.at[i], note_use, b);
}

// Whether a statement only renames elements: y[b, t, h, e] = x[b, t, 1, (h e)].
static bool renames_elements(const Module *m, const Stmt *s) {
  if (s->kind != ST_COMP || s->acc || s->red != RED_NONE || !ex_is(m, s->body, OP_READ))
    return false;
  for (uint32_t k = 0; k < ex(m, s->body)->narg; k++) {
    Op op = (Op)ex(m, ex_arg(m, s->body, k))->op;
    if (op != OP_INDEX && op != OP_GROUP && op != OP_INT) return false;
  }
  return true;
}

// A value that only renames elements of another is not saved, but named again in the backward
// pass. The statements move to the head of the backward part; the values that they read cross in their
// place.
static void rename_again(Body *b) {
  Module *m = b->d.m;
  Fn *f = fn_of(&b->d);
  for (uint32_t i = b->nforward; i-- > 0;) {
    Stmt s = f->stmt.at[i];
    if (!renames_elements(m, &s) || !listed(b->save.at, b->save.n, s.lhs)) continue;
    uint32_t n = 0;
    for (uint32_t k = 0; k < b->save.n; k++)
      if (b->save.at[k] != s.lhs) b->save.at[n++] = b->save.at[k];
    b->save.n = n;
    stmt_reads(m, f, &s, note_use, b);
    PUSH(m->arena, b->renamed, s);
  }
}

static int by_id(const void *a, const void *b) {
  Id x = *(const Id *)a, y = *(const Id *)b;
  return x < y ? -1 : x > y;
}

// A function of fn's values with statements [from, to), to get its own arguments and results.
static Id part_of(Body *b, Str name, uint32_t from, uint32_t to) {
  Module *m = b->d.m;
  Id id = fn_clone(m, b->d.fn, name);
  Fn *g = &m->fn.at[id];
  g->stmt.at += from;
  g->stmt.n = g->stmt.cap = to - from;
  g->arg.n = g->result.n = g->alias.n = 0;
  return id;
}

static void make_forward(Body *b, Str name) {
  Module *m = b->d.m;
  b->forward = part_of(b, str_printf("%s.forward", name), 0, b->nforward);
  Fn *g = &m->fn.at[b->forward], *f = fn_of(&b->d);
  for (uint32_t i = 0; i < b->narg; i++) PUSH(m->arena, g->arg, f->arg.at[i]);
  for (uint32_t i = 0; i < b->nresult; i++) PUSH(m->arena, g->result, f->result.at[i]);
  for (uint32_t i = 0; i < b->save.n; i++) {
    Id v = b->save.at[i];
    bool own = g->value.at[v].role == ROLE_LOCAL && !listed(g->result.at, b->nresult, v);
    if (!own) {
      Id copy = value_like(m, g, v, str_printf("%s.saved", g->value.at[v].name), ROLE_LOCAL);
      fn_copy_stmt(m, g, copy, v, g->value.at[v].loc);
      v = copy;
    }
    PUSH(m->arena, b->saved_as, v);
    PUSH(m->arena, g->result, v);
  }
}

static void make_backward(Body *b, Str name) {
  Module *m = b->d.m;
  b->backward = part_of(b, str_printf("%s.backward", name), b->nforward, fn_of(&b->d)->stmt.n);
  Fn *g = &m->fn.at[b->backward];
  Stmt *back = g->stmt.at;
  uint32_t nback = g->stmt.n;
  g->stmt.at = NULL;
  g->stmt.n = g->stmt.cap = 0;
  for (uint32_t i = b->renamed.n; i-- > 0;)
    PUSH(m->arena, g->stmt, stmt_copy(m, g, &b->renamed.at[i]));
  for (uint32_t i = 0; i < nback; i++) PUSH(m->arena, g->stmt, back[i]);
  for (uint32_t i = 0; i < b->need.n; i++) PUSH(m->arena, g->arg, b->need.at[i]);
  for (uint32_t i = 0; i < b->save.n; i++) {
    g->value.at[b->save.at[i]].role = ROLE_IN;
    PUSH(m->arena, g->arg, b->save.at[i]);
  }
  for (uint32_t r = 0; r < b->nresult; r++)
    if (b->seed[r] != NONE) PUSH(m->arena, g->arg, b->seed[r]);
  for (uint32_t i = 0; i < b->narg; i++) {
    if (b->back[i] == NONE) continue;
    if (b->call->arg[i].mode == ACT_CARRY) PUSH(m->arena, g->result, b->back[i]);
    else PUSH(m->arena, g->arg, b->back[i]);
  }
}

static Id slice_value(Diff *d, const Fn *f, Id of, int64_t count, Str prefix) {
  Value v = f->value.at[of];
  int64_t extent[MAX_RANK];
  CHECK(v.rank < MAX_RANK);
  extent[0] = count;
  memcpy(extent + 1, v.extent, v.rank * sizeof(int64_t));
  Str name = str_printf("%s.%s", prefix, v.name);
  return fn_value(d->m, fn_of(d), name, v.type, extent, v.rank + 1, ROLE_LOCAL, v.loc);
}

static Str body_prefix(const Diff *d, const Call *c) {
  for (uint32_t r = 0; r < c->nresult; r++)
    if (c->result[r].value != NONE) return value_of(d, c->result[r].value).name;
  BUG("a repeat without results has an adjoint");
}

// The forward repeat runs the forward part and keeps what crosses, a slice for each iteration.
static Id *forward_repeat(Diff *d, Body *b, Call *c) {
  Module *m = d->m;
  Id *slice = NEWN(m->arena, Id, b->save.n + 1);
  Str prefix = body_prefix(d, c);
  for (uint32_t i = 0; i < b->save.n; i++) {
    slice[i] = slice_value(d, &m->fn.at[b->forward], b->saved_as.at[i], c->count, prefix);
    call_add_result(m, c, RES_SLICE, slice[i]);
  }
  c->fn = b->forward;
  return slice;
}

static void backward_repeat(Diff *d, Body *b, const Call *c, const Id *slice, Id loc) {
  Module *m = d->m;
  const Fn *f = fn_of(&b->d);
  Call *k = NEW(m->arena, Call);
  *k = (Call){.fn = b->backward, .count = c->count, .iter = c->iter, .reverse = !c->reverse};
  for (uint32_t n = 0; n < b->need.n; n++)
    for (uint32_t i = 0; i < b->narg; i++)
      if (f->arg.at[i] == b->need.at[n]) {
        call_add_arg(m, k, c->arg[i].mode, c->arg[i].value);
        break;
      }
  for (uint32_t i = 0; i < b->save.n; i++) call_add_arg(m, k, ACT_SLICE, slice[i]);
  for (uint32_t r = 0; r < b->nresult; r++)
    if (b->seed[r] != NONE) {
      bool carry = c->result[r].mode == RES_CARRY;
      call_add_arg(m, k, carry ? ACT_CARRY : ACT_SLICE, adjoint_value(d, c->result[r].value));
    }
  VEC(Id) local = {0};
  VEC(Id) target = {0};
  for (uint32_t i = 0; i < b->narg; i++) {
    if (b->back[i] == NONE) continue;
    Id t = c->arg[i].value, acc;
    if (c->arg[i].mode == ACT_CARRY) call_add_result(m, k, RES_CARRY, acc = new_adjoint(d, t));
    else call_add_arg(m, k, c->arg[i].mode, acc = accumulator(d, t, k));
    if (acc == d->into[t] || !d->varied[t]) continue;
    PUSH(m->arena, local, acc);
    PUSH(m->arena, target, t);
  }
  push_call(d, ST_REPEAT, k, loc);
  for (uint32_t i = 0; i < local.n; i++) contribute_value(d, target.at[i], local.at[i], loc);
}

// Block of Block.forward, which is what a layer's function is called.
static Str base_name(Str name) {
  size_t n = strlen(name);
  return n > 8 && !strcmp(name + n - 8, ".forward") ? str_internn(name, n - 8) : name;
}

void back_repeat(Diff *d, Stmt *s) {
  Module *m = d->m;
  Call *c = s->call;
  bool any = false;
  for (uint32_t r = 0; r < c->nresult; r++) any |= has_adjoint(d, c->result[r].value);
  if (!any) return;
  Str name = base_name(m->fn.at[c->fn].name);
  bool *varied = diff_callee_varied(m, c, d->varied);
  Body b = {.call = c, .narg = c->narg, .nresult = c->nresult};
  b.seed = NEWN(m->arena, Id, b.nresult + 1);
  b.back = NEWN(m->arena, Id, b.narg + 1);
  b.d = diff_new(m, fn_clone(m, c->fn, str_printf("%s.whole", name)), d->memo);
  body_arguments(&b, d, varied);
  differentiate_body(&b);
  find_crossing(&b);
  rename_again(&b);
  if (b.save.n) qsort(b.save.at, b.save.n, sizeof(Id), by_id);
  make_forward(&b, name);
  make_backward(&b, name);
  Id *slice = forward_repeat(d, &b, c);
  backward_repeat(d, &b, c, slice, s->loc);
  fn_compact(m, &m->fn.at[b.forward]);
  fn_compact(m, &m->fn.at[b.backward]);
}

