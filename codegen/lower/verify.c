// The verifier of the lowered level. doc/ir.md lists its rules; the parts are in verify/.
//
// It reads kernels and storage as they stand, and the statements that they are made of; how the passes came to them it
// does not ask, but for how subscripts and intrinsics are understood (affine.c, group.c, the target).
#include "codegen/lower/verify.h"

#include "codegen/lower/verify/verifier.h"
#include "ir/text/text.h"

bool v_fail(Verifier *v, const Kernel *k, uint32_t stmt, const char *fmt, ...) {
  buf_printf(v->why, "function `%s`", v->f->name);
  if (k) buf_printf(v->why, ", kernel `%s`", k->name);
  buf_printf(v->why, ": ");
  if (stmt != NONE) {
    const Stmt *s = &v->f->stmt.at[stmt];
    buf_printf(v->why, "statement %u `", stmt);
    ir_print_stmt(v->m, v->f, s, v->why);
    buf_printf(v->why, "`: ");
  }
  va_list ap;
  va_start(ap, fmt);
  const char *text = arena_vprintf(v->m->arena, fmt, ap);
  va_end(ap);
  buf_printf(v->why, "%s", text);
  return false;
}

void v_reads(const Verifier *v, const Stmt *s, ReadVisit *visit, void *ctx) {
  ex_reads(v->m, s->body, visit, ctx);
  for (uint32_t d = 0; d < v->f->value.at[s->lhs].rank; d++) ex_reads(v->m, s->sub[d], visit, ctx);
}

Affine v_element(const Verifier *v, const Stmt *s, Id value, const Id *sub) {
  Layout l = layout_own(v->f, value);
  Affine a = {0};
  for (uint32_t d = 0; d < v->f->value.at[value].rank; d++) affine_add(v->m, s, sub[d], l.stride[d], &a);
  return a;
}

bool v_same_point(const NestStmt *x, const Affine *a, const NestStmt *y, const Affine *b) {
  int64_t by[MAX_VAR] = {0};
  if (a->nrest || b->nrest || a->base != b->base) return false;
  // An index that another's variable counts over moves as that one says: verify_computes.
  for (uint32_t i = 0; i < MAX_INDEX; i++) {
    if (x->var[i] != NO_VAR) by[x->var[i]] += a->coef[i];
    if (y->var[i] != NO_VAR) by[y->var[i]] -= b->coef[i];
  }
  for (uint32_t i = 0; i < MAX_VAR; i++)
    if (by[i]) return false;
  return true;
}

bool v_same_grid_point(const Verifier *v, const Kernel *k, const When *w, const Stmt *writer, const When *r,
                       const Stmt *reader, const Id *sub, uint32_t rank) {
  for (uint32_t g = 0; g < k->loops->ngrid; g++) {
    if (k->loops->var.at[g].extent == 1) continue;
    uint32_t i = nest_index_of(w->ns, (uint8_t)g);
    Slot slot;
    if (i == NONE || !fuse_slot(v->m, writer, writer->sub, v->f->value.at[writer->lhs].rank, i, &slot))
      return false;
    uint8_t j = fuse_index_at(v->m, reader, sub, rank, slot);
    if (j == NO_VAR || r->ns->var[j] != g) return false;
  }
  return true;
}

// ---- what kernels touch

typedef struct Collect {
  Verifier *v;
  Accesses *to;
  uint32_t stmt;
} Collect;

static void touch(Collect *c, Id value, Id read, bool written) {
  if (value == NONE) return;
  Access a = {value, c->v->fp->layout[value].buffer, c->stmt, read, written};
  PUSH(c->v->m->arena, *c->to, a);
}

static void touch_read(const Module *m, Id read, void *ctx) { touch(ctx, (Id)ex(m, read)->integer, read, false); }

static void touch_call(Collect *c, const Call *call) {
  const Fn *callee = &c->v->m->fn.at[call->fn];
  for (uint32_t i = 0; i < call->narg; i++) {
    if (call->arg[i].mode == ACT_ITER) continue;
    touch(c, call->arg[i].value, NONE, false);
    if (callee->value.at[callee->arg.at[i]].role == ROLE_INOUT) touch(c, call->arg[i].value, NONE, true);
  }
  for (uint32_t i = 0; i < call->nresult; i++)
    if (call->result[i].mode != RES_DROP) touch(c, call->result[i].value, NONE, true);
}

static void touch_stmt(Collect *c, uint32_t stmt) {
  const Stmt *s = &c->v->f->stmt.at[stmt];
  c->stmt = stmt;
  if (s->call) {
    touch_call(c, s->call);
    return;
  }
  if (s->kind == ST_COMP) v_reads(c->v, s, touch_read, c);
  else touch(c, s->from, NONE, false);
  touch(c, s->lhs, NONE, true);
}

static void find_accesses(Verifier *v) {
  v->access = NEWN(v->m->arena, Accesses, v->fp->kernel.n + 1);
  for (uint32_t i = 0; i < v->fp->kernel.n; i++) {
    const Kernel *k = &v->fp->kernel.at[i];
    Collect c = {v, &v->access[i], NONE};
    if (k->fill != NONE) touch(&c, k->fill, NONE, true);
    for (uint32_t j = 0; j < k->stmt.n; j++) touch_stmt(&c, k->stmt.at[j]);
  }
}

static bool verify_function(const Plan *p, Id fn, Buf *why) {
  Verifier v = {.p = p, .m = p->m, .fn = fn, .f = &p->m->fn.at[fn], .fp = &p->fn[fn], .why = why};
  v.u = (Fuse){.m = p->m, .f = &p->m->fn.at[fn], .fp = &p->fn[fn]};
  v.when = NEWN(p->m->arena, When, v.f->stmt.n + 1);
  find_accesses(&v);
  return verify_computes(&v) && verify_order(&v) && verify_inplace(&v) &&
         (p->level < LEVEL_PLAN || verify_addresses(&v));
}

// Emitted code has one thing by each name.
static bool names_fit(const Plan *p, Buf *why) {
  VEC(Str) name = {0};
  for (Id fn = 0; fn < p->m->fn.n; fn++)
    for (uint32_t i = 0; p->reached[fn] && i < p->fn[fn].kernel.n; i++) {
      const Kernel *k = &p->fn[fn].kernel.at[i];
      if (!kernel_is_named(k)) continue;
      for (uint32_t j = 0; j < name.n; j++)
        if (name.at[j] == k->name) return buf_printf(why, "two kernels have the name `%s`", k->name), false;
      PUSH(p->m->arena, name, k->name);
    }
  return true;
}

// Functions that the program calls have kernels.
static bool entries_fit(const Plan *p, Buf *why) {
  const Module *m = p->m;
  bool *called = NEWN(m->arena, bool, m->fn.n + 1);
  for (int e = ENTRY_SAMPLE; e < NENTRY; e++)
    if (m->entry[e] != NONE) called[m->entry[e]] = true;
  for (uint32_t i = 0; i < m->chunk.n * NCHUNK_PART; i++) {
    Id fn = m->chunk.at[i / NCHUNK_PART].fn[i % NCHUNK_PART];
    if (fn != NONE) called[fn] = true;
  }
  for (Id fn = 0; fn < m->fn.n; fn++)
    if (called[fn] && !p->reached[fn]) return buf_printf(why, "function `%s` has no kernels", m->fn.at[fn].name), false;
  return true;
}

bool plan_verify(const Plan *p, Buf *why) {
  if (!entries_fit(p, why) || !names_fit(p, why)) return false;
  for (Id fn = 0; fn < p->m->fn.n; fn++) {
    Verifier v = {.p = p, .m = p->m, .fn = fn, .f = &p->m->fn.at[fn], .fp = &p->fn[fn], .why = why};
    if (p->reached[fn] && !verify_layouts(&v)) return false;
  }
  for (Id fn = 0; fn < p->m->fn.n; fn++)
    if (p->reached[fn] && !verify_function(p, fn, why)) return false;
  return true;
}
