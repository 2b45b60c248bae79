// What a kernel reads was written before: by earlier kernels, or by earlier nests at the same point of the grid, or by an
// earlier statement of the nest at the same point of its loops. Accumulators start once, before all that is added to
// them. A collective is waited for before its result is touched and before what it reads is overwritten.
#include "codegen/lower/verify/verifier.h"

enum { UNKNOWN = -1, BUSY = -2 };

// ---- collectives

static bool touches(const Verifier *v, uint32_t kernel, Id buffer, bool written_only) {
  const Accesses *a = &v->access[kernel];
  for (uint32_t i = 0; i < a->n; i++)
    if (a->at[i].buffer == buffer && (a->at[i].written || !written_only)) return true;
  return false;
}

static bool coll_is_waited_for(Verifier *v, uint32_t at) {
  const Kernel *k = &v->fp->kernel.at[at];
  uint32_t stmt = k->stmt.at[0];
  const Stmt *s = &v->f->stmt.at[stmt];
  Id result = v->fp->layout[s->lhs].buffer, operand = v->fp->layout[s->from].buffer;
  uint32_t waits = 0;
  for (uint32_t i = 0; i < v->fp->kernel.n; i++) {
    const Kernel *w = &v->fp->kernel.at[i];
    if (w->kind != K_WAIT || w->stmt.at[0] != stmt) continue;
    if (i < at) return v_fail(v, k, stmt, "it is waited for before it is started");
    waits++;
  }
  if (waits != 1 || k->wait <= at)
    return v_fail(v, k, stmt, waits ? "it is waited for more than once" : "`%s` is never waited for",
                  value_name(v, s->lhs));
  for (uint32_t i = at + 1; i < k->wait; i++) {
    const Kernel *between = &v->fp->kernel.at[i];
    if (touches(v, i, result, false))
      return v_fail(v, between, NONE, "it touches `%s` before the wait for `%s`", value_name(v, result),
                    value_name(v, s->lhs));
    if (touches(v, i, operand, true))
      return v_fail(v, between, NONE, "it writes `%s` before the wait for `%s`, which reads that", value_name(v, operand),
                    value_name(v, s->lhs));
  }
  return true;
}

static bool waits_fit(Verifier *v) {
  for (uint32_t i = 0; i < v->fp->kernel.n; i++) {
    const Kernel *k = &v->fp->kernel.at[i];
    if (k->kind == K_COLL && v->p->level >= LEVEL_OVERLAP && !coll_is_waited_for(v, i)) return false;
    if (k->kind != K_WAIT) continue;
    if (v->p->level < LEVEL_OVERLAP) return v_fail(v, k, NONE, "there are no waits before pass overlap");
    if (!v->when[k->stmt.at[0]].runs) return v_fail(v, k, k->stmt.at[0], "it is waited for, and never started");
  }
  return true;
}

// ---- when values are whole

// The key of what a statement has written, once it has run. A collective's result is there when it was waited for.
static int64_t done_key(const Verifier *v, uint32_t stmt) {
  When w = v->when[stmt];
  const Kernel *k = &v->fp->kernel.at[w.kernel];
  if (k->kind == K_COLL && v->p->level >= LEVEL_OVERLAP) w.kernel = k->wait;
  return when_key(&w) + 1;
}

static int64_t value_ready(Verifier *v, Id value);

typedef struct Latest {
  Verifier *v;
  int64_t key;
} Latest;

static void latest_read(const Module *m, Id read, void *ctx) {
  Latest *x = ctx;
  int64_t key = value_ready(x->v, (Id)ex(m, read)->integer);
  if (key > x->key) x->key = key;
}

static bool defines(const Verifier *v, const Stmt *s, Id value) {
  if (!s->call) return s->lhs == value;
  const Fn *callee = &v->m->fn.at[s->call->fn];
  for (uint32_t i = 0; i < s->call->nresult; i++)
    if (s->call->result[i].mode != RES_DROP && s->call->result[i].value == value) return true;
  for (uint32_t i = 0; i < s->call->narg; i++)
    if (s->call->arg[i].mode != ACT_ITER && s->call->arg[i].value == value &&
        callee->value.at[callee->arg.at[i]].role == ROLE_INOUT)
      return true;
  return false;
}

// After which key the value is whole: all that defines it has run, or, where that moves nothing, what it reads is whole.
// 0: an argument is from the start.
static int64_t value_ready(Verifier *v, Id value) {
  if (v->ready[value] == BUSY) return 0; // what is added moves nothing, and reads what is added to
  if (v->ready[value] != UNKNOWN) return v->ready[value];
  v->ready[value] = BUSY;
  Latest x = {v, 0};
  for (uint32_t i = 0; i < v->f->stmt.n; i++) {
    const Stmt *s = &v->f->stmt.at[i];
    if (!defines(v, s, value)) continue;
    int64_t key = v->when[i].runs ? done_key(v, i) : 0;
    if (!v->when[i].runs) v_reads(v, s, latest_read, &x);
    if (key > x.key) x.key = key;
  }
  return v->ready[value] = x.key;
}

// ---- reads

// Two statements of one kernel of loops, of which one reads what the other writes.
typedef struct Pair {
  const Kernel *k;
  uint32_t writer, reader; // statements
  Id value, read;
} Pair;

static void read_subs(const Verifier *v, Id read, Id *sub) {
  for (uint32_t d = 0; d < ex(v->m, read)->narg; d++) sub[d] = ex_arg(v->m, read, d);
}

static bool one_point(const Kernel *k) { return k->grid == 1 && !k->loops->tile; }

static bool pair_fits(Verifier *v, const Pair *p) {
  const When *w = &v->when[p->writer], *r = &v->when[p->reader];
  const Stmt *writer = &v->f->stmt.at[p->writer], *reader = &v->f->stmt.at[p->reader];
  Id sub[MAX_RANK];
  read_subs(v, p->read, sub);
  bool same = writer->lhs == p->value;
  if (same && when_key(w) >= when_key(r))
    return v_fail(v, p->k, p->reader, "it reads `%s` before statement %u writes it", value_name(v, p->value), p->writer);
  if (!same && when_key(w) > when_key(r)) return true; // parts of one buffer: what is whole is not written again
  if (w->nest == r->nest) {
    Affine a = v_element(v, writer, writer->lhs, writer->sub), b = v_element(v, reader, p->value, sub);
    if (writer->red != RED_NONE || !same || !v_same_point(w->ns, &a, r->ns, &b))
      return v_fail(v, p->k, p->reader, "it reads elements of `%s` that its nest writes at other points",
                    value_name(v, p->value));
  }
  if (one_point(p->k)) return true;
  if (same && v_same_grid_point(v, p->k, w, writer, r, reader, sub, ex(v->m, p->read)->narg)) return true;
  return v_fail(v, p->k, p->reader, "it reads elements of `%s` that other points of the grid write",
                value_name(v, p->value));
}

// The elements that the access reads were written before, but for those that the same kernel writes at this point.
static bool read_fits(Verifier *v, uint32_t kernel, const Access *a) {
  const Kernel *k = &v->fp->kernel.at[kernel];
  int64_t key = value_ready(v, a->value);
  if (k->kind == K_LOOPS) {
    for (uint32_t i = 0; i < k->stmt.n; i++) {
      const Stmt *s = &v->f->stmt.at[k->stmt.at[i]];
      Pair p = {k, k->stmt.at[i], a->stmt, a->value, a->read};
      if (v->fp->layout[s->lhs].buffer == a->buffer && p.writer != a->stmt && !pair_fits(v, &p)) return false;
    }
  }
  if (key <= when_key(&v->when[a->stmt])) return true;
  return v_fail(v, k, a->stmt, "it reads `%s` before that is %s", value_name(v, a->value),
                v->fp->kernel.at[key >> 32].kind == K_WAIT ? "waited for" : "written");
}

static bool is_formal(const Verifier *v, const Access *a, Role role) {
  const Stmt *s = &v->f->stmt.at[a->stmt];
  if (!s->call) return false;
  const Fn *callee = &v->m->fn.at[s->call->fn];
  for (uint32_t i = 0; i < s->call->narg; i++)
    if (s->call->arg[i].mode != ACT_ITER && s->call->arg[i].value == a->value &&
        callee->value.at[callee->arg.at[i]].role == role)
      return true;
  return false;
}

// Arguments in their buffers, inside values in one kernel.
static bool access_fits(Verifier *v, uint32_t kernel, const Access *a) {
  const Kernel *k = &v->fp->kernel.at[kernel];
  bool inside = v->fp->layout[a->buffer].internal;
  if (k->kind == K_LOOPS && !inside) {
    uint32_t i = 0;
    while (i < k->arg.n && k->arg.at[i] != a->buffer) i++;
    if (i == k->arg.n)
      return v_fail(v, k, a->stmt, "it touches `%s`, which is no argument of the kernel", value_name(v, a->buffer));
    if (a->written && !k->written.at[i])
      return v_fail(v, k, a->stmt, "it writes `%s`, which the kernel's arguments do not say", value_name(v, a->buffer));
  }
  if (a->written && v->f->value.at[a->buffer].role == ROLE_IN)
    return v_fail(v, k, a->stmt, "it writes `%s`, an argument that is only read", value_name(v, a->buffer));
  if (!inside) return true;
  if (k->kind != K_LOOPS)
    return v_fail(v, k, a->stmt, "it touches `%s`, which lives inside of another kernel", value_name(v, a->buffer));
  for (uint32_t i = 0; i < v->fp->kernel.n; i++)
    if (i != kernel && touches(v, i, a->buffer, false))
      return v_fail(v, k, a->stmt, "`%s` lives inside of the kernel, and kernel `%s` touches it",
                    value_name(v, a->buffer), v->fp->kernel.at[i].name);
  return true;
}

static bool reads_fit(Verifier *v) {
  v->ready = NEWN(v->m->arena, int64_t, v->f->value.n + 1);
  for (Id i = 0; i < v->f->value.n; i++) v->ready[i] = UNKNOWN;
  for (uint32_t i = 0; i < v->fp->kernel.n; i++)
    for (uint32_t j = 0; j < v->access[i].n; j++) {
      const Access *a = &v->access[i].at[j];
      if (!access_fits(v, i, a)) return false;
      if (a->written || v->fp->kernel.at[i].kind == K_WAIT) continue;
      // An accumulator is not whole; its first value is checked below.
      if (is_formal(v, a, ROLE_INOUT) && !is_formal(v, a, ROLE_IN)) continue;
      if (!read_fits(v, i, a)) return false;
    }
  return true;
}

// ---- accumulators

// How a statement that adds to a value finds it.
typedef enum Start { ADDS, STORES, NO_ADD } Start;

static Start start_of(const Verifier *v, uint32_t stmt, Id value) {
  const Stmt *s = &v->f->stmt.at[stmt];
  const When *w = &v->when[stmt];
  if (s->call) {
    Access a = {.value = value, .stmt = stmt};
    if (!is_formal(v, &a, ROLE_INOUT)) return NO_ADD;
    return v->fp->kernel.at[w->kernel].kind == K_INTRINSIC ? STORES : ADDS;
  }
  if (s->kind != ST_COMP || s->lhs != value || !s->acc) return NO_ADD;
  if (!w->runs) return STORES; // it lies there
  const Kernel *k = &v->fp->kernel.at[w->kernel];
  if (k->kind == K_GEMM) return k->gemm.accumulate ? ADDS : STORES;
  if (k->kind == K_SCAN) return k->scan.add ? ADDS : STORES;
  return w->ns->init ? STORES : ADDS;
}

typedef struct Starts {
  uint32_t adds, stores; // how many statements
  uint32_t store; // the last that stores
  int64_t first; // least key of all
} Starts;

static Starts starts_of(const Verifier *v, Id value) {
  Starts x = {0, 0, NONE, INT64_MAX};
  for (uint32_t i = 0; i < v->f->stmt.n; i++) {
    Start s = start_of(v, i, value);
    if (s == NO_ADD) continue;
    x.adds += s == ADDS;
    x.stores += s == STORES;
    if (s == STORES) x.store = i;
    if (v->when[i].runs && when_key(&v->when[i]) < x.first) x.first = when_key(&v->when[i]);
  }
  return x;
}

static bool fill_fits(Verifier *v, Id value, const Starts *x, bool *filled) {
  *filled = false;
  for (uint32_t i = 0; i < v->fp->kernel.n; i++) {
    const Kernel *k = &v->fp->kernel.at[i];
    if (k->kind != K_LOOPS || k->fill != value) continue;
    if (*filled) return v_fail(v, k, NONE, "`%s` is filled with zeros twice", value_name(v, value));
    if ((int64_t)i << 32 > x->first)
      return v_fail(v, k, NONE, "`%s` is filled with zeros after it was added to", value_name(v, value));
    *filled = true;
  }
  return true;
}

static bool accumulator_fits(Verifier *v, Id value) {
  Starts x = starts_of(v, value);
  bool filled, local = v->f->value.at[value].role == ROLE_LOCAL;
  if (!fill_fits(v, value, &x, &filled)) return false;
  if (!x.adds && !x.stores)
    return !filled || v_fail(v, NULL, NONE, "`%s` is filled with zeros, and never added to", value_name(v, value));
  if (x.stores && (!local || filled))
    return v_fail(v, NULL, x.store, "it overwrites what `%s` starts with", value_name(v, value));
  if (!local || filled) return true;
  if (!x.stores) return v_fail(v, NULL, NONE, "`%s` is added to, and nothing makes it zero before", value_name(v, value));
  if (!x.adds && view_in_pieces(&v->u, value)) return true;
  const Stmt *s = &v->f->stmt.at[x.store];
  const When *w = &v->when[x.store];
  if (x.stores > 1 || !w->runs || when_key(w) != x.first)
    return v_fail(v, NULL, x.store, "it overwrites what was added to `%s`", value_name(v, value));
  return s->call || fuse_whole(v->m, v->f, s) ||
         v_fail(v, NULL, x.store, "it stores only a part of `%s`, and nothing makes the rest zero", value_name(v, value));
}

bool verify_order(Verifier *v) {
  if (!waits_fit(v) || !reads_fit(v)) return false;
  for (Id i = 0; i < v->f->value.n; i++)
    if (!accumulator_fits(v, i)) return false;
  return true;
}
