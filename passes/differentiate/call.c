// The adjoint of a call of an intrinsic: a call of NAME.backward(forward arguments, forward
// results, adjoints of the results in `used`, INOUT adjoints of all real arguments), whose body
// recomputes the values that the adjoints read.
#include "passes/differentiate/differentiate.h"

// The forward results become arguments; statements that read them read these.
static void results_to_arguments(Module *m, Fn *f) {
  uint32_t n = f->value.n, nresult = f->result.n;
  Id *to = NEWN(m->arena, Id, n + nresult);
  for (Id v = 0; v < n; v++) to[v] = v;
  for (uint32_t r = 0; r < nresult; r++) {
    Id old = f->result.at[r];
    Str name = f->value.at[old].name;
    fn_rename(m, f, old, str_printf("%s.again", name));
    to[old] = value_like(m, f, old, name, ROLE_IN);
    for (Id v = 0; v < n; v++)
      if (value_means(&f->value.at[v], MEANS_ADJOINT, old)) f->value.at[v].of = to[old];
  }
  for (uint32_t i = 0; i < f->stmt.n; i++) {
    Id lhs = f->stmt.at[i].lhs;
    CHECK(f->stmt.at[i].kind == ST_COMP);
    f->stmt.at[i] = stmt_renumber(m, f, &f->stmt.at[i], to);
    f->stmt.at[i].lhs = lhs; // what defines it is dead
  }
}

// What becomes an argument, behind the others.
static Id adjoint_like(Module *m, Fn *f, Id of) {
  const Value like = f->value.at[of];
  return fn_meant(m, f, d_name(like.name), MEANS_ADJOINT, of, &like, ROLE_LOCAL);
}

static Id intrinsic_backward(Module *m, Id callee, uint32_t used, Memo *memo) {
  Id fn = fn_clone(m, callee, str_printf("%s.backward", m->fn.at[callee].name));
  Fn *f = &m->fn.at[fn];
  f->backward = true;
  uint32_t narg = f->arg.n, nresult = f->result.n;
  Id *seed = NEWN(m->arena, Id, nresult + 1);
  Diff d = diff_new(m, fn, memo);
  VEC(Id) result = {0};
  for (uint32_t r = 0; r < nresult; r++) PUSH(m->arena, result, f->result.at[r]);
  // The derivative first, with results as they are; then they become arguments.
  diff_room(&d);
  VEC(Id) darg = {0};
  for (uint32_t r = 0; r < nresult; r++) {
    seed[r] = NONE;
    if (!(used >> r & 1)) continue;
    Id v = f->result.at[r];
    seed[r] = adjoint_like(m, f, v);
    PUSH(m->arena, darg, seed[r]);
    f->value.at[seed[r]].role = ROLE_IN;
  }
  for (uint32_t i = 0; i < narg; i++) {
    Id v = f->arg.at[i];
    if (!is_real_value(&f->value.at[v])) continue;
    Id into = d.into[v] = adjoint_like(m, f, v);
    f->value.at[into].role = ROLE_INOUT;
    PUSH(m->arena, darg, into);
    d.varied[v] = true;
  }
  for (uint32_t r = 0; r < nresult; r++)
    if (seed[r] != NONE) contribute_value(&d, result.at[r], seed[r], f->loc);
  diff_walk_back(&d);
  diff_join(&d);
  f = fn_of(&d);
  results_to_arguments(m, f);
  f->result.n = 0;
  for (uint32_t i = 0; i < darg.n; i++) PUSH(m->arena, f->arg, darg.at[i]);
  fn_remove_dead(m, f, NULL);
  fn_compact(m, f);
  return fn;
}

void back_call(Diff *d, const Stmt *s) {
  Module *m = d->m;
  const Call *c = s->call;
  CHECK(m->fn.at[c->fn].intrinsic != INTR_NONE); // inline has left no other
  uint32_t used = 0;
  for (uint32_t r = 0; r < c->nresult; r++) {
    Id v = c->result[r].value;
    CHECK(v != NONE);
    if (d->varied[v] && d->adj[v].form.n) used |= 1u << r;
  }
  if (!used) return;
  Memo *memo = d->memo->next;
  while (memo && (memo->fn != c->fn || memo->used != used)) memo = memo->next;
  if (!memo) {
    Id back = intrinsic_backward(m, c->fn, used, d->memo);
    memo = NEW(m->arena, Memo);
    *memo = (Memo){d->memo->next, c->fn, back, used};
    d->memo->next = memo;
  }
  Call *b = NEW(m->arena, Call);
  b->fn = memo->backward;
  b->count = 1;
  for (uint32_t i = 0; i < c->narg; i++) call_add_arg(m, b, ACT_WHOLE, c->arg[i].value);
  for (uint32_t r = 0; r < c->nresult; r++) call_add_arg(m, b, ACT_WHOLE, c->result[r].value);
  for (uint32_t r = 0; r < c->nresult; r++)
    if (used >> r & 1) call_add_arg(m, b, ACT_WHOLE, adjoint_value(d, c->result[r].value));
  uint32_t first = b->narg;
  for (uint32_t i = 0; i < c->narg; i++) {
    const Value v = value_of(d, c->arg[i].value);
    // Each adjoint has a value: an implementation stores, and ranks may share it out in other ways
    // than a gradient that is handed to the caller.
    if (is_real_value(&v)) call_add_arg(m, b, ACT_WHOLE, new_adjoint(d, c->arg[i].value));
  }
  push_call(d, ST_CALL, b, s->loc);
  for (uint32_t i = 0; i < c->narg; i++) {
    const Value v = value_of(d, c->arg[i].value);
    if (!is_real_value(&v)) continue;
    Id to = b->arg[first++].value, target = c->arg[i].value;
    if (d->varied[target]) contribute_value(d, target, to, s->loc);
  }
}

