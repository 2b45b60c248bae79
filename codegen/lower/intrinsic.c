// Which calls of intrinsics a target's own implementation may compute, and what they cost.
#include "codegen/lower/intrinsic.h"

#include "codegen/target.h"

bool intrinsic_values(const Module *m, const Stmt *s, Id value[NOPERAND]) {
  const Fn *callee = &m->fn.at[s->call->fn];
  uint32_t at[NOPERAND];
  if (!intrinsic_operands(callee, at)) return false;
  for (int i = 0; i < NOPERAND; i++) {
    bool result = !callee->backward && (i == OPD_O || i == OPD_LSE);
    value[i] = at[i] == NONE ? NONE
               : result      ? s->call->result[at[i]].value
                             : s->call->arg[at[i]].value;
  }
  return true;
}

static bool call_mentions(const Call *c, Id v) {
  for (uint32_t i = 0; i < c->narg; i++)
    if (c->arg[i].value == v) return true;
  return false;
}

static bool is_fresh(const Fn *f, const Stmt *call, Id v) {
  if (f->value.at[v].role != ROLE_LOCAL) return false;
  for (const Stmt *s = f->stmt.at; s != call; s++)
    if (s->call ? call_mentions(s->call, v) : s->lhs == v) return false;
  return true;
}

// An implementation of the backward stores where the definition adds, so nothing may have been added there before, and
// no two gradients share a value.
static bool may_store(const Fn *f, const Stmt *call, const Id *value) {
  for (int i = OPD_DQ; i < NOPERAND; i++) {
    if (value[i] == NONE) continue;
    if (!is_fresh(f, call, value[i])) return false;
    for (int j = OPD_DQ; j < i; j++)
      if (value[j] == value[i]) return false;
  }
  return true;
}

// Two products of each pair of positions forward, five backward, of those that are seen.
static Cost cost_of(const Module *m, const Fn *f, const Stmt *call, const Id *value) {
  const Fn *callee = &m->fn.at[call->call->fn];
  const Value *q = &f->value.at[value[OPD_Q]], *keys = &f->value.at[value[OPD_K]];
  Cost c = {0, (double)value_count(q) * (double)keys->extent[1] * (callee->backward ? 10 : 4)};
  c.flops *= intrinsic_density(callee);
  for (int i = 0; i < NOPERAND; i++)
    if (value[i] != NONE)
      c.bytes += (double)value_count(&f->value.at[value[i]]) * dtype_size(f->value.at[value[i]].type);
  return c;
}

bool match_intrinsic(const Module *m, const Fn *f, const Stmt *s, Cost *cost) {
  Id value[NOPERAND];
  // Other operands: such as an adjoint of lse.
  if (s->kind != ST_CALL || m->fn.at[s->call->fn].intrinsic == INTR_NONE || !intrinsic_values(m, s, value) ||
      value[OPD_O] == NONE || !may_store(f, s, value) || !m->target->takes_intrinsic(m, f, s, value))
    return false;
  if (cost) *cost = cost_of(m, f, s, value);
  return true;
}
