#include "tests/random/support/merge.h"

#include <stdlib.h>

typedef struct Merge {
  Module *dst;
  const Module *src;
  Id *fn; // by function of src: its copy or NONE
  Id *expr; // by expression of src, for the function being copied
} Merge;

static Id merge_expr(Merge *g, const Fn *f, Id e) {
  if (e == NONE) return NONE;
  if (g->expr[e] != NONE) return g->expr[e];
  const Expr x = *ex(g->src, e);
  Id arg[64], r;
  for (uint32_t i = 0; i < x.narg; i++) arg[i] = merge_expr(g, f, ex_arg(g->src, e, i));
  switch (x.op) {
  case OP_REAL: r = ex_real(g->dst, x.real); break;
  case OP_INT: r = ex_int(g->dst, x.integer); break;
  case OP_BOOL: r = ex_bool(g->dst, x.integer); break;
  case OP_INDEX: r = ex_index(g->dst, (uint32_t)x.integer); break;
  case OP_READ: r = ex_read(g->dst, f, (Id)x.integer, arg); break;
  case OP_GROUP: r = ex_group(g->dst, arg, x.narg); break;
  default: r = ex_op(g->dst, x.op, arg, x.narg);
  }
  return g->expr[e] = r;
}

static Id merge_one(Merge *g, Id fn) {
  if (g->fn[fn] != NONE) return g->fn[fn];
  const Fn *from = &g->src->fn.at[fn];
  Module *dst = g->dst;
  for (uint32_t i = 0; i < from->stmt.n; i++)
    if (from->stmt.at[i].kind != ST_COMP) merge_one(g, from->stmt.at[i].call->fn);
  Id id = g->fn[fn] = fn_new(dst, from->name, 0);
  Fn *f = &dst->fn.at[id];
  Str name = f->name;
  *f = *from;
  f->name = name;
  f->loc = 0;
  f->value.at = arena_copy(dst->arena, from->value.at, from->value.n * sizeof *from->value.at);
  for (uint32_t i = 0; i < f->value.n; i++) { // of parameters and data that the merged module lacks
    f->value.at[i].loc = 0;
    f->value.at[i].means = MEANS_NONE;
    f->value.at[i].of = 0;
  }
  f->value.cap = f->value.n;
  f->arg.at = arena_copy(dst->arena, from->arg.at, from->arg.n * sizeof(Id));
  f->result.at = arena_copy(dst->arena, from->result.at, from->result.n * sizeof(Id));
  f->alias.at = arena_copy(dst->arena, from->alias.at, from->alias.n * sizeof(Id));
  f->stmt.at = arena_copy(dst->arena, from->stmt.at, from->stmt.n * sizeof *from->stmt.at);
  memset(g->expr, 0xff, (g->src->expr.n + 1) * sizeof(Id));
  for (uint32_t i = 0; i < f->stmt.n; i++) {
    Stmt *s = &f->stmt.at[i];
    s->loc = 0;
    if (s->kind != ST_COMP) {
      s->call = arena_copy(dst->arena, s->call, sizeof *s->call);
      s->call->fn = g->fn[s->call->fn];
      continue;
    }
    uint32_t rank = f->value.at[s->lhs].rank;
    s->sub = arena_copy(dst->arena, s->sub, rank * sizeof(Id));
    for (uint32_t d = 0; d < rank; d++) s->sub[d] = merge_expr(g, f, s->sub[d]);
    s->body = merge_expr(g, f, s->body);
  }
  return id;
}

Id merge_fn(Module *dst, const Module *src, Id fn) {
  Merge g = {.dst = dst, .src = src, .fn = malloc((src->fn.n + 1) * sizeof(Id)),
             .expr = malloc((src->expr.n + 1) * sizeof(Id))};
  memset(g.fn, 0xff, (src->fn.n + 1) * sizeof(Id));
  Id id = merge_one(&g, fn);
  free(g.fn);
  free(g.expr);
  return id;
}

void merge_top(Module *m, const Id *fn, uint32_t n) {
  Id top = fn_new(m, str_intern("everything"), 0);
  Fn *f = &m->fn.at[top];
  for (uint32_t i = 0; i < n; i++) {
    const Fn *g = &m->fn.at[fn[i]];
    Call *k = NEW(m->arena, Call);
    *k = (Call){.fn = fn[i], .count = 1, .narg = g->arg.n, .nresult = g->result.n};
    k->arg = NEWN(m->arena, Actual, g->arg.n + 1);
    k->result = NEWN(m->arena, Result, g->result.n + 1);
    for (uint32_t a = 0; a < g->arg.n; a++) {
      const Value v = g->value.at[g->arg.at[a]];
      k->arg[a].value =
          fn_value(m, f, str_printf("%s.%u", v.name, i), v.type, v.extent, v.rank, v.role, 0);
    }
    for (uint32_t r = 0; r < g->result.n; r++) {
      const Value v = g->value.at[g->result.at[r]];
      Id mine =
          fn_value(m, f, str_printf("%s.%u", v.name, i), v.type, v.extent, v.rank, ROLE_LOCAL, 0);
      k->result[r] = (Result){RES_WHOLE, mine};
      PUSH(m->arena, f->result, mine);
    }
    fn_stmt(m, f, ST_CALL, 0)->call = k;
  }
  m->entry[ENTRY_UPDATE] = top;
}
