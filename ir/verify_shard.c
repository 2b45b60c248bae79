// Checks a module of form A against the rule of ir/shard.h, statement by statement and axis by
// axis. The first broken clause ends the check.
#include "ir/shard.h"
#include "ir/text/text.h"

typedef struct Check {
  const Module *m;
  Buf *why;
  const Fn *f;
  const Stmt *s; // NULL: between statements
  uint32_t axis;
  Shard *type[MAX_AXIS]; // of f's values
} Check;

// ` (gpt2.dt:28:12)`, where the place is known.
static void put_place(Check *c, Id loc) {
  const Sources *src = c->m->src;
  if (!loc || loc >= src->loc.n || src->loc.at[loc].file >= src->file.n) return;
  const Loc *l = &src->loc.at[loc];
  buf_printf(c->why, " (%s:%u:%u)", src->file.at[l->file].name, l->line, l->col);
}

static bool fail_at(Check *c, bool axis, const char *text) {
  if (c->f) buf_printf(c->why, "function `%s`: ", c->f->name);
  if (c->s) {
    buf_printf(c->why, "statement `");
    ir_print_stmt(c->m, c->f, c->s, c->why);
    buf_printf(c->why, "`: ");
  }
  if (axis) buf_printf(c->why, "axis %s: ", c->m->axis.at[c->axis].name);
  buf_printf(c->why, "%s", text);
  put_place(c, c->s ? c->s->loc : c->f ? c->f->loc : 0);
  return false;
}

__attribute__((format(printf, 3, 4))) static bool fail(Check *c, bool axis, const char *fmt, ...) {
  char text[768];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  return fail_at(c, axis, text);
}

// "`x` is split 0/4, not whole": what is against what should be.
static bool fail_types(Check *c, const char *what, Str name, Shard is, Shard should) {
  Buf a = {0}, b = {0};
  shard_text(is, &a);
  shard_text(should, &b);
  fail(c, true, "%s `%s` is %s, not %s", what, name, a.text, b.text);
  buf_free(&a);
  buf_free(&b);
  return false;
}

static const Value *value_at(const Check *c, Id v) { return &c->f->value.at[v]; }

// ---- comprehensions

// Two axes on one index: no remainder, and blocks that nest.
static bool assigns_nest(Check *c) {
  const Stmt *s = c->s;
  for (uint32_t i = 0; i < c->axis; i++) {
    Assign a = s->assign[i], b = s->assign[c->axis];
    if (a.kind != ASSIGN_INDEX || b.kind != ASSIGN_INDEX || a.index != b.index) continue;
    if (!shard_nest(c->m, s->index[a.index].extent, i, a.block, c->axis, b.block))
      return fail(c, true, "`%s` is also on axis %s, and the blocks do not nest",
                  s->index[a.index].name, c->m->axis.at[i].name);
  }
  return true;
}

static bool comp_ok(Check *c) {
  const Stmt *s = c->s;
  Assign a = s->assign[c->axis];
  ShardAsk q = {c->m, c->f, s, c->axis, c->type[c->axis]};
  Buf clause = {0};
  Shard made;
  bool ok = shard_result(&q, a, &made, &clause);
  if (!ok) fail_at(c, true, clause.text ? clause.text : "");
  buf_free(&clause);
  if (!ok || !assigns_nest(c)) return false;
  Shard to = c->type[c->axis][s->lhs];
  if (s->acc ? shard_added(a, made, to) : shard_same(made, to)) return true;
  return fail_types(c, s->acc ? "the term added to" : "the right side of",
                    value_at(c, s->lhs)->name, made, to);
}

// ---- conversions and calls

static bool convert_ok(Check *c) {
  const Stmt *s = c->s;
  uint32_t changed = 0;
  for (c->axis = 0; c->axis < c->m->axis.n; c->axis++) {
    Shard from = c->type[c->axis][s->from], to = c->type[c->axis][s->lhs];
    if (shard_same(from, to)) continue;
    changed++;
    if (shard_convertible(from, to)) continue;
    Buf a = {0}, b = {0};
    shard_text(from, &a);
    shard_text(to, &b);
    fail(c, true, "no conversion leads from %s to %s", a.text, b.text);
    buf_free(&a);
    buf_free(&b);
    return false;
  }
  if (changed == 1) return true;
  return fail(c, false, changed ? "a conversion changes one axis, this one %u"
                                : "the conversion changes nothing: the value is reduced or "
                                  "gathered already (%u axes)", changed);
}

// The callee's layout seen by the caller, where a stack's extent comes first.
static Shard stacked(Shard s, bool slice) {
  if (s.kind == SHARD_SPLIT && slice) s.dim++;
  return s;
}

static bool call_ok(Check *c) {
  const Call *call = c->s->call;
  const Fn *g = &c->m->fn.at[call->fn];
  uint32_t k = 0;
  for (uint32_t i = 0; i < call->narg; i++) {
    const Value *formal = &g->value.at[g->arg.at[i]];
    Shard want = formal->shard[c->axis];
    if (call->arg[i].mode == ACT_ITER) {
      if (want.kind != SHARD_WHOLE)
        return fail_types(c, "argument", formal->name, want, shard_whole());
      continue;
    }
    Shard is = c->type[c->axis][call->arg[i].value];
    want = stacked(want, call->arg[i].mode == ACT_SLICE);
    if (!shard_same(is, want))
      return fail_types(c, "argument", value_at(c, call->arg[i].value)->name, is, want);
    if (call->arg[i].mode != ACT_CARRY) continue;
    while (call->result[k].mode != RES_CARRY) k++;
    const Value *next = &g->value.at[g->result.at[k++]];
    if (!shard_same(next->shard[c->axis], want))
      return fail_types(c, "carried result", next->name, next->shard[c->axis], want);
  }
  for (uint32_t i = 0; i < call->nresult; i++) {
    const Result *r = &call->result[i];
    if (r->mode == RES_DROP) continue;
    Shard is = stacked(g->value.at[g->result.at[i]].shard[c->axis], r->mode == RES_SLICE);
    if (!shard_same(is, c->type[c->axis][r->value]))
      return fail_types(c, "result", value_at(c, r->value)->name, is, c->type[c->axis][r->value]);
  }
  return true;
}

// ---- functions and entries

static bool stmt_ok(Check *c) {
  if (c->s->kind == ST_CONVERT) return convert_ok(c);
  if (c->s->kind == ST_COLL) return fail(c, false, "a collective, which the local form alone has");
  for (c->axis = 0; c->axis < c->m->axis.n; c->axis++)
    if (!(c->s->kind == ST_COMP ? comp_ok(c) : call_ok(c))) return false;
  return true;
}

static bool fn_ok(Check *c) {
  const Fn *f = c->f;
  for (uint32_t i = 0; i < c->m->axis.n; i++) {
    c->type[i] = NEWN(c->m->arena, Shard, f->value.n + 1);
    shard_types(f, i, c->type[i]);
  }
  c->s = NULL;
  Buf clause = {0};
  bool ok = true;
  for (Id v = 0; ok && v < f->value.n; v++) ok = shard_value_ok(c->m, &f->value.at[v], &clause);
  if (!ok) fail_at(c, false, clause.text ? clause.text : "");
  buf_free(&clause);
  for (uint32_t i = 0; ok && i < f->stmt.n; i++) {
    c->s = &f->stmt.at[i];
    ok = stmt_ok(c);
  }
  c->s = NULL;
  for (c->axis = 0; ok && c->axis < c->m->axis.n; c->axis++)
    for (uint32_t i = 0; ok && i < f->alias.n; i++) {
      if (f->alias.at[i] == NONE) continue;
      Shard is = c->type[c->axis][f->result.at[i]], over = c->type[c->axis][f->alias.at[i]];
      if (!shard_same(is, over))
        ok = fail_types(c, "result", value_at(c, f->result.at[i])->name, is, over);
    }
  return ok;
}

static bool param_ok(Check *c, const Param *q) {
  Value v = {.name = q->name, .type = DT_REAL, .rank = q->rank};
  memcpy(v.extent, q->extent, sizeof v.extent);
  memcpy(v.shard, q->shard, sizeof v.shard);
  Buf clause = {0};
  bool ok = shard_value_ok(c->m, &v, &clause);
  for (uint32_t i = 0; ok && i < c->m->axis.n; i++)
    if (q->shard[i].kind == SHARD_PARTIAL ||
        (q->shard[i].kind == SHARD_SPLIT && q->shard[i].dim < q->nstack)) {
      buf_printf(&clause, "parameter `%s` is partial, or split along its stack", q->name);
      ok = false;
    }
  if (!ok) fail_at(c, false, clause.text ? clause.text : "");
  buf_free(&clause);
  return ok;
}

// The update is of pieces of any parameter, and whole. Else parameters and their gradients lie as
// Module.param says (or gradients are partial sums, where the parameter is whole), all other
// arguments are whole, as are the results.
static bool entry_ok(Check *c, Entry e) {
  const Module *m = c->m;
  c->f = &m->fn.at[m->entry[e]];
  for (c->axis = 0; c->axis < m->axis.n; c->axis++) {
    for (uint32_t i = 0; i < c->f->arg.n; i++) {
      const Value *v = value_at(c, c->f->arg.at[i]);
      Shard want = shard_whole(), is = v->shard[c->axis];
      bool grad = v->means == MEANS_GRAD;
      if (grad || v->means == MEANS_PARAM) want = m->param.at[v->of].shard[c->axis];
      if (grad && want.kind == SHARD_WHOLE && is.kind == SHARD_PARTIAL && is.op == RED_SUM)
        want = is;
      if (!shard_same(is, want)) return fail_types(c, "argument", v->name, is, want);
    }
    for (uint32_t i = 0; i < c->f->result.n && e != ENTRY_UPDATE; i++) {
      const Value *v = value_at(c, c->f->result.at[i]);
      if (v->shard[c->axis].kind != SHARD_WHOLE)
        return fail_types(c, "result", v->name, v->shard[c->axis], shard_whole());
    }
  }
  return true;
}

bool shard_verify(const Module *m, Buf *why) {
  Check c = {.m = m, .why = why};
  for (uint32_t i = 0; i < m->param.n; i++)
    if (!param_ok(&c, &m->param.at[i])) return false;
  for (uint32_t i = 0; i < m->fn.n; i++) {
    c.f = &m->fn.at[i];
    if (!fn_ok(&c)) return false;
  }
  for (int e = 0; e < NENTRY; e++)
    if (m->entry[e] != NONE && !entry_ok(&c, (Entry)e)) return false;
  return true;
}
