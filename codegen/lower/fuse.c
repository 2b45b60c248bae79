// fuse: statements -> kernels.
//
// Does: finds views, matrix products and calls; groups what is left by shared outer indices.
// Requires: normalise.
// Guarantees: a Plan whose kernels, run in order, compute what the statements say, with the same
//       bits however they are grouped.
// Invalidates: nothing; the Module is not changed.
#include "codegen/lower/fuse.h"
#include "codegen/target.h"

typedef struct Touch {
  const Fuse *u;
  uint32_t group;
  uint32_t *by; // for each buffer: 1 + the one group that touches it, or UINT32_MAX
} Touch;

static void touch(Touch *t, Id value) {
  Id b = t->u->fp->layout[value].buffer;
  if (t->by[b] && t->by[b] != t->group + 1) t->by[b] = UINT32_MAX;
  else t->by[b] = t->group + 1;
  if (b != value) t->by[b] = UINT32_MAX; // a view: its buffer is in memory
}

static void touch_value(Id value, void *ctx) { touch(ctx, value); }

static void touch_outside(Id value, void *ctx) {
  Touch *t = ctx;
  t->by[t->u->fp->layout[value].buffer] = UINT32_MAX;
}

static void touch_stmt(Touch *t, const Stmt *s) {
  void (*visit)(Id, void *) = s->kind == ST_COMP ? touch_value : touch_outside;
  stmt_writes(t->u->m, s, visit, t);
  stmt_reads(t->u->m, t->u->f, s, visit, t);
}

// Values that more than one kernel needs, or the caller, or the library.
static bool *outside_values(const Fuse *u) {
  uint32_t n = u->f->value.n;
  Touch t = {.u = u, .by = NEWN(u->m->arena, uint32_t, n)};
  for (t.group = 0; t.group < u->group.n; t.group++) {
    const Group *g = &u->group.at[t.group];
    for (uint32_t i = 0; i < g->member.n; i++) touch_stmt(&t, &u->f->stmt.at[g->member.at[i].stmt]);
    if (g->kind == K_LOOPS && g->fill == NONE) continue;
    if (g->fill != NONE) t.by[g->fill] = UINT32_MAX;
    for (uint32_t i = 0; i < g->member.n; i++) {
      const Stmt *s = &u->f->stmt.at[g->member.at[i].stmt];
      if (s->kind == ST_COMP) t.by[u->fp->layout[s->lhs].buffer] = UINT32_MAX;
    }
  }
  bool *outside = NEWN(u->m->arena, bool, n);
  for (Id v = 0; v < n; v++)
    outside[v] = t.by[v] == UINT32_MAX || u->f->value.at[v].role != ROLE_LOCAL;
  for (uint32_t i = 0; i < u->f->result.n; i++)
    outside[u->fp->layout[u->f->result.at[i]].buffer] = true;
  return outside;
}

static Str call_name(const Fuse *u, const Kernel *k) {
  const Stmt *s = &u->f->stmt.at[k->stmt.at[k->stmt.n - 1]];
  if (s->call) return str_printf("%s_%s", u->f->name, u->m->fn.at[s->call->fn].name);
  return str_printf("%s_%s", u->f->name, u->f->value.at[s->lhs].name);
}

static Kernel library_kernel(Fuse *u, const Group *g) {
  Kernel k = {.kind = g->kind, .fill = NONE, .gemm = g->gemm, .scan = g->scan};
  for (uint32_t i = 0; i < g->member.n; i++) PUSH(u->m->arena, k.stmt, g->member.at[i].stmt);
  k.name = call_name(u, &k);
  const Stmt *only = &u->f->stmt.at[k.stmt.at[0]];
  if (g->kind == K_COLL && only->coll == COLL_ALL_REDUCE)
    PUSH(u->m->arena, k.inplace, (InPlace){only->lhs, u->fp->layout[only->from].buffer});
  Cost cost;
  if (g->kind == K_INTRINSIC && match_intrinsic(u->m, u->f, &u->f->stmt.at[k.stmt.at[0]], &cost)) {
    k.bytes = cost.bytes;
    k.flops = cost.flops;
  }
  if (g->kind == K_SCAN) {
    const Value *y = &u->f->value.at[u->f->stmt.at[k.stmt.at[0]].lhs];
    k.flops = (double)value_count(y);
    k.bytes = k.flops * dtype_size(y->type) * (g->scan.add ? 3 : 2);
  }
  if (g->kind != K_GEMM) return k;
  const GemmPlan *p = &g->gemm;
  double batch = 1;
  for (uint32_t i = 0; i < p->nbatch; i++) batch *= (double)p->batch[i].count;
  k.flops = 2 * batch * (double)p->m * (double)p->n * (double)p->k;
  const Stmt *s = &u->f->stmt.at[k.stmt.at[0]];
  double elements = (double)(p->m * p->k + p->k * p->n + p->m * p->n * (p->accumulate ? 2 : 1));
  k.bytes = batch * elements * dtype_size(u->f->value.at[s->lhs].type);
  if (p->plus != NONE) k.bytes += (double)(p->m * p->n) * dtype_size(u->f->value.at[p->plus].type);
  if (p->kept != NONE) k.bytes += (double)(p->m * p->n) * dtype_size(u->f->value.at[p->kept].type);
  return k;
}

// Names that C, its library or the runtime may have: int_t, strtok_r, dt_launch, INT_MAX.
static bool foreign(const char *s) {
  static const char *const tail[] = {"_t", "_r", "_l", "_MAX", "_MIN", "_WIDTH"};
  size_t n = strlen(s);
  for (size_t i = 0; i < sizeof tail / sizeof *tail; i++)
    if (n >= strlen(tail[i]) && !strcmp(s + n - strlen(tail[i]), tail[i])) return true;
  return !strncmp(s, "dt_", 3) || !strncmp(s, "Dt", 2) || !strncmp(s, "DT_", 3) || *s == '_';
}

static Str clean(Arena *a, Str name) {
  char *text = arena_printf(a, foreign(name) ? "k_%s_" : "%s", name);
  for (char *p = text; *p; p++)
    if (!((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9')))
      *p = '_';
  return str_intern(text);
}

static bool name_taken(const Plan *p, Str name) {
  for (uint32_t f = 0; f < p->m->fn.n; f++)
    for (uint32_t k = 0; k < p->fn[f].kernel.n; k++)
      if (p->fn[f].kernel.at[k].name == name) return true;
  return false;
}

static void add_kernel(Plan *p, FnPlan *fp, Kernel k) {
  Str base = clean(p->m->arena, k.name);
  k.name = base;
  for (int i = 2; name_taken(p, k.name); i++) k.name = str_printf("%s_%d", base, i);
  PUSH(p->m->arena, fp->kernel, k);
}

static void plan_function(Plan *p, Id id) {
  Module *m = p->m;
  const Limits limits = m->limits;
  if (id == m->entry[ENTRY_UPDATE]) m->limits = *m->usual_limits; // it must be one kernel
  FnPlan *fp = &p->fn[id];
  Fuse u = {.m = m, .f = &m->fn.at[id], .fp = fp};
  fp->fn = id;
  fp->layout = NEWN(m->arena, Layout, u.f->value.n);
  u.alias = NEWN(m->arena, Id, u.f->value.n);
  memset(u.alias, 0xff, u.f->value.n * sizeof *u.alias);
  for (uint32_t i = 0; i < u.f->alias.n; i++) u.alias[u.f->result.at[i]] = u.f->alias.at[i];
  bool *skip = NEWN(m->arena, bool, u.f->stmt.n);
  fuse_layouts(&u, skip);
  fuse_epilogues(&u, skip);
  fuse_groups(&u, skip);
  bool *outside = outside_values(&u);
  for (uint32_t i = 0; i < u.group.n; i++) {
    Kernel k = {.fill = NONE};
    if (u.group.at[i].kind == K_LOOPS) fuse_loops(&u, &u.group.at[i], outside, &k);
    else k = library_kernel(&u, &u.group.at[i]);
    add_kernel(p, fp, k);
  }
  m->limits = limits;
}

// Functions that entries reach; not the bodies of intrinsics with an implementation.
static void reach(Plan *p, Id fn) {
  if (p->reached[fn]) return;
  p->reached[fn] = true;
  const Fn *f = &p->m->fn.at[fn];
  for (uint32_t i = 0; i < f->stmt.n; i++) {
    if (!f->stmt.at[i].call) continue;
    Id callee = f->stmt.at[i].call->fn;
    if (!match_intrinsic(p->m, f, &f->stmt.at[i], NULL)) reach(p, callee);
  }
}

static void reach_entries(Plan *p) {
  const Module *m = p->m;
  static const Entry compiled[] = {ENTRY_SAMPLE, ENTRY_COUNT, ENTRY_STEP,
                                   ENTRY_EVAL,   ENTRY_UPDATE};
  for (unsigned i = 0; i < sizeof compiled / sizeof *compiled; i++)
    if (m->entry[compiled[i]] != NONE) reach(p, m->entry[compiled[i]]);
  for (uint32_t i = 0; i < m->chunk.n * NCHUNK_PART; i++) {
    Id fn = m->chunk.at[i / NCHUNK_PART].fn[i % NCHUNK_PART];
    if (fn != NONE) reach(p, fn);
  }
}

static bool has_stop(const Module *m, Id e) {
  bool found = ex_is(m, e, OP_STOP);
  for (uint32_t i = 0; i < ex(m, e)->narg && !found; i++) found = has_stop(m, ex_arg(m, e, i));
  return found;
}

// Refuses IR text of an earlier level, and of types that the target does not store.
static bool can_lower(const Plan *p, Id fn) {
  const Module *m = p->m;
  const Fn *f = &m->fn.at[fn];
  for (Id i = 0; i < f->value.n; i++) {
    const Value *v = &f->value.at[i];
    if (v->type == DT_REAL)
      diag_error(m->src, v->loc, "pass fuse comes after pass precision: `%s` of `%s` has no storage type", v->name,
                 f->name);
    else if (!m->target->stores(v->type))
      diag_error(m->src, v->loc, "target %s has no %s, the type of `%s` of `%s`", m->target->name, dtype_name[v->type],
                 v->name, f->name);
    else continue;
    return false;
  }
  for (uint32_t i = 0; i < f->stmt.n; i++) {
    const Stmt *x = &f->stmt.at[i];
    if (x->kind == ST_CONVERT)
      diag_error(m->src, x->loc, "pass fuse comes after pass localise: `%s` has a conversion", f->name);
    else if (x->kind == ST_COMP && has_stop(m, x->body))
      diag_error(m->src, x->loc, "pass fuse comes after pass normalise: `%s` has a `stop_gradient`", f->name);
    else continue;
    return false;
  }
  return true;
}

bool pass_fuse(Module *m) {
  CHECK(m->target);
  Plan *p = NEW(m->arena, Plan);
  p->m = m;
  p->fn = NEWN(m->arena, FnPlan, m->fn.n + 1);
  p->reached = NEWN(m->arena, bool, m->fn.n + 1);
  reach_entries(p);
  for (Id f = 0; f < m->fn.n; f++)
    if (p->reached[f] && !can_lower(p, f)) return false;
  for (Id f = 0; f < m->fn.n; f++)
    if (p->reached[f]) plan_function(p, f);
  m->lowered = p;
  return true;
}

Plan *plan_lower(Module *m) {
  CHECK(pass_fuse(m) && pass_overlap(m) && pass_plan(m));
  return m->lowered;
}
