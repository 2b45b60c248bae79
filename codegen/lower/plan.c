// Plan: a static address for every buffer.
//
// does        gives each local buffer of each function a place in the function's frame, so that
// buffers which are
//             never alive together share memory; a called function's frame is a block of its
//             caller's that lives for the call alone
// requires    kernels, and waits (overlap)
// guarantees  address, callee_frame, frame_bytes, frame_bound; buffers alive in one kernel do not overlap,
// unless the
//             kernel says that it may work in place
// invalidates nothing
#include "codegen/lower/plan.h"

#include "codegen/target.h"
#include "runtime/base/pack.h"

static int64_t value_bytes(const Value *v) {
  int64_t bytes;
  if (!mul_ok(value_count(v), dtype_size(v->type), &bytes) || bytes > INT64_C(1) << ADDRESS_BITS)
    too_large("`%s` has more than 256 TiB, all that a process can address: make the batch or a size "
          "smaller",
          v->name);
  return bytes;
}

bool layout_is_dense(const Value *v, const Layout *l) {
  int64_t stride = 1;
  for (uint32_t d = v->rank; d-- > 0;) {
    if (v->extent[d] != 1 && l->stride[d] != stride) return false;
    stride *= v->extent[d];
  }
  return true;
}

// Position of the value in the list, or NONE.
static uint32_t position(const Id *list, uint32_t n, Id value) {
  for (uint32_t i = 0; i < n; i++)
    if (list[i] == value) return i;
  return NONE;
}

ResultPlace result_place(const Plan *p, Id fn, uint32_t result) {
  const Fn *f = &p->m->fn.at[fn];
  const Layout *layout = p->fn[fn].layout;
  if (!p->reached[fn])
    return (ResultPlace){RESULT_OWN, NONE}; // an intrinsic with an implementation
  if (f->alias.n && f->alias.at[result] != NONE) {
    uint32_t arg = position(f->arg.at, f->arg.n, f->alias.at[result]);
    CHECK(arg != NONE);
    return (ResultPlace){RESULT_ALIAS, arg};
  }
  Id v = f->result.at[result], buffer = layout[v].buffer;
  uint32_t arg = position(f->arg.at, f->arg.n, buffer);
  uint32_t same = position(f->result.at, result, buffer);
  if (v != buffer && arg == NONE && same == NONE)
    BUG("result %s of %s is a view", f->value.at[v].name, f->name);
  if ((arg != NONE || same != NONE) &&
      (!layout_is_dense(&f->value.at[v], &layout[v]) || layout[v].offset ||
       value_bytes(&f->value.at[v]) != value_bytes(&f->value.at[buffer])))
    BUG("result %s of %s is a part of %s", f->value.at[v].name, f->name, f->value.at[buffer].name);
  if (arg != NONE) return (ResultPlace){RESULT_ARG, arg};
  if (same != NONE) return (ResultPlace){RESULT_SAME, same};
  return (ResultPlace){RESULT_OWN, NONE};
}

uint32_t carry_arg(const Call *c, uint32_t result) {
  uint32_t nth = 0;
  for (uint32_t i = 0; i < result; i++) nth += c->result[i].mode == RES_CARRY;
  for (uint32_t i = 0; i < c->narg; i++)
    if (c->arg[i].mode == ACT_CARRY && nth-- == 0) return i;
  BUG("a carried result without its argument");
}

uint32_t carry_stack(const Plan *p, const Call *c, uint32_t arg) {
  if (c->arg[arg].mode != ACT_CARRY) return NONE;
  for (uint32_t i = 0; i < c->nresult; i++) {
    if (c->result[i].mode != RES_SLICE) continue;
    ResultPlace r = result_place(p, c->fn, i);
    if (r.kind == RESULT_ARG && r.arg == arg) return i;
  }
  return NONE;
}

static bool needs_scratch(const Plan *p, const Call *c, uint32_t result) {
  ResultKind kind = result_place(p, c->fn, result).kind;
  switch (c->result[result].mode) {
  case RES_DROP: return kind == RESULT_OWN;
  case RES_CARRY: return c->count > 1 && carry_stack(p, c, carry_arg(c, result)) == NONE;
  default: return false;
  }
}

int64_t call_scratch(const Plan *p, const Call *c, uint32_t result) {
  const Fn *f = &p->m->fn.at[c->fn];
  int64_t at = p->fn[c->fn].frame_bytes;
  for (uint32_t i = 0; i < c->nresult; i++) {
    bool needed = needs_scratch(p, c, i);
    if (i == result) return needed ? at : -1;
    if (needed) at += dt_aligned(value_bytes(&f->value.at[f->result.at[i]]), p->m->target->alignment);
  }
  return at;
}

static void touch_call(const Layout *layout, const Call *c, TouchVisit *visit, void *ctx) {
  for (uint32_t i = 0; i < c->narg; i++)
    if (c->arg[i].mode != ACT_ITER) visit(layout[c->arg[i].value].buffer, false, ctx);
  for (uint32_t i = 0; i < c->nresult; i++)
    if (c->result[i].mode != RES_DROP) visit(layout[c->result[i].value].buffer, true, ctx);
}

void kernel_touch(const Plan *p, Id fn, const Kernel *k, TouchVisit *visit, void *ctx) {
  const Layout *layout = p->fn[fn].layout;
  switch (k->kind) {
  case K_LOOPS:
    for (uint32_t i = 0; i < k->arg.n; i++) visit(k->arg.at[i], k->written.at[i], ctx);
    return;
  case K_GEMM:
    visit(layout[k->gemm.a].buffer, false, ctx);
    visit(layout[k->gemm.b].buffer, false, ctx);
    if (k->gemm.bias != NONE) visit(layout[k->gemm.bias].buffer, false, ctx);
    if (k->gemm.plus != NONE) visit(layout[k->gemm.plus].buffer, false, ctx);
    if (k->gemm.kept != NONE) visit(layout[k->gemm.kept].buffer, true, ctx);
    visit(layout[k->gemm.c].buffer, true, ctx);
    return;
  case K_COLL:
  case K_WAIT:
    visit(layout[p->m->fn.at[fn].stmt.at[k->stmt.at[0]].from].buffer, false, ctx);
    visit(layout[p->m->fn.at[fn].stmt.at[k->stmt.at[0]].lhs].buffer, true, ctx);
    return;
  case K_SCAN:
    visit(k->scan.from, false, ctx);
    visit(k->scan.to, true, ctx);
    return;
  case K_INTRINSIC:
  case K_CALL: touch_call(layout, p->m->fn.at[fn].stmt.at[k->stmt.at[0]].call, visit, ctx); return;
  }
}

typedef struct Touching {
  Life *life;
  uint32_t now;
} Touching;

static void touch_life(Id buffer, bool written, void *ctx) {
  Touching *t = ctx;
  (void)written;
  if (t->life[buffer].first == UINT32_MAX) t->life[buffer].first = t->now;
  t->life[buffer].last = t->now;
}

Life *plan_lives(const Plan *p, Id fn) {
  const Fn *f = &p->m->fn.at[fn];
  Touching t = {.life = NEWN(p->m->arena, Life, f->value.n ? f->value.n : 1)};
  for (Id v = 0; v < f->value.n; v++) t.life[v].first = UINT32_MAX;
  for (; t.now < p->fn[fn].kernel.n; t.now++)
    kernel_touch(p, fn, &p->fn[fn].kernel.at[t.now], touch_life, &t);
  return t.life;
}

typedef struct Frame {
  Plan *p;
  Id fn;
  const Fn *f;
  FnPlan *fp;
  Life *life;
  uint32_t *host; // for each value: the value whose block it shares; itself at first
} Frame;

// Buffers of the function's own: not arguments, and not results, which are the caller's.
static bool is_local(const Frame *r, Id v) {
  const Layout *l = &r->fp->layout[v];
  return l->buffer == v && !l->internal && r->f->value.at[v].role == ROLE_LOCAL &&
         r->life[v].first != UINT32_MAX && position(r->f->result.at, r->f->result.n, v) == NONE;
}

static Id host_of(const Frame *r, Id v) {
  while (r->host[v] != v) v = r->host[v];
  return v;
}

// Whether a kernel touches block `host`.
typedef struct InBlock {
  const Frame *r;
  Id host;
  bool found;
} InBlock;

static void touch_block(Id buffer, bool written, void *ctx) {
  InBlock *b = ctx;
  (void)written;
  b->found |= host_of(b->r, buffer) == b->host;
}

// Whether kernel `at` may write over block `host`, which it reads: no later kernel touches it. A
// collective writes at any time until it is waited for, and until then no kernel may.
static bool is_last_use(const Frame *r, uint32_t at, Id host) {
  const Kernel *k = &r->fp->kernel.at[at];
  InBlock b = {r, host, false};
  if (k->kind != K_COLL) return r->life[host].last == at;
  for (uint32_t i = at + 1; i < k->wait; i++)
    kernel_touch(r->p, r->fn, &r->fp->kernel.at[i], touch_block, &b);
  return r->life[host].last == k->wait && !b.found;
}

// A buffer that a kernel makes takes the storage of one that it is the last to read, where the
// kernel says that it may: each element is read before it is overwritten, and by the same grid
// point.
static void share_in_place(Frame *r) {
  uint32_t *taken =
      NEWN(r->p->m->arena, uint32_t, r->f->value.n + 1); // 1 + the last kernel that gave it away
  for (uint32_t i = 0; i < r->fp->kernel.n; i++) {
    const Kernel *k = &r->fp->kernel.at[i];
    for (uint32_t j = 0; j < k->inplace.n; j++) {
      Id out = k->inplace.at[j].out, in = k->inplace.at[j].in;
      if (!is_local(r, out) || !is_local(r, in)) continue;
      Id host = host_of(r, in);
      if (taken[host] == i + 1 || host_of(r, out) != out) continue;
      if (r->life[out].first != i || !is_last_use(r, i, host)) continue;
      if (value_bytes(&r->f->value.at[out]) != value_bytes(&r->f->value.at[in])) continue;
      r->host[out] = host;
      r->life[host].last = r->life[out].last;
      taken[host] = i + 1;
    }
  }
}

static bool has_callee(const Kernel *k) { return k->kind == K_CALL || k->kind == K_INTRINSIC; }

// The frame's blocks, each alive from one kernel to another.
typedef struct Blocks {
  DtBlock *at;
  Life *life;
  uint32_t n;
} Blocks;

static uint32_t add_block(Blocks *b, int64_t bytes, Life life) {
  b->at[b->n] = (DtBlock){.bytes = bytes, .first = life.first, .life = life.last - life.first + 1};
  b->life[b->n] = life;
  return b->n++;
}

static bool alive_together(const void *ctx, uint32_t i, uint32_t j) {
  const Blocks *b = ctx;
  return b->life[i].first <= b->life[j].last && b->life[j].first <= b->life[i].last;
}

// The largest sum of bytes that are alive at one kernel. `spare`: by kernel, bytes to leave out.
static int64_t most_alive(const Frame *r, const Blocks *b, const int64_t *spare) {
  int64_t most = 0, now = 0, *change = NEWN(r->p->m->arena, int64_t, r->fp->kernel.n + 1);
  for (uint32_t i = 0; i < b->n; i++) {
    int64_t bytes = dt_aligned(b->at[i].bytes, r->p->m->target->alignment);
    change[b->life[i].first] += bytes;
    change[b->life[i].last + 1] -= bytes;
  }
  for (uint32_t i = 0; i < r->fp->kernel.n; i++) {
    now += change[i];
    if (now - (spare ? spare[i] : 0) > most) most = now - (spare ? spare[i] : 0);
  }
  return most;
}

static void place_frame(Frame *r) {
  Arena *a = r->p->m->arena;
  int64_t alignment = r->p->m->target->alignment;
  uint32_t nkernel = r->fp->kernel.n, room = r->f->value.n + nkernel + 1;
  Blocks b = {NEWN(a, DtBlock, room), NEWN(a, Life, room), 0};
  uint32_t *of_value = NEWN(a, uint32_t, r->f->value.n + 1), *of_call = NEWN(a, uint32_t, nkernel + 1);
  int64_t *spare = NEWN(a, int64_t, nkernel + 1); // of called functions' frames
  for (Id v = 0; v < r->f->value.n; v++) {
    if (!is_local(r, v) || r->host[v] != v) continue;
    of_value[v] = add_block(&b, value_bytes(&r->f->value.at[v]), r->life[v]);
  }
  for (uint32_t i = 0; i < nkernel; i++) {
    const Kernel *k = &r->fp->kernel.at[i];
    if (!has_callee(k)) continue;
    const Call *c = r->f->stmt.at[k->stmt.at[0]].call;
    of_call[i] = add_block(&b, call_scratch(r->p, c, c->nresult), (Life){i, i});
    spare[i] = r->p->fn[c->fn].frame_bytes - r->p->fn[c->fn].frame_bound;
  }
  r->fp->frame_bound = most_alive(r, &b, spare);
  r->fp->frame_bytes = dt_pack(b.at, b.n, alignment, most_alive(r, &b, NULL), alive_together, &b);
  ALLOCATED(r->fp->frame_bytes >= 0);
  for (Id v = 0; v < r->f->value.n; v++)
    r->fp->address[v] = is_local(r, v) ? b.at[of_value[host_of(r, v)]].offset : -1;
  for (uint32_t i = 0; i < nkernel; i++)
    r->fp->callee_frame[i] = has_callee(&r->fp->kernel.at[i]) ? b.at[of_call[i]].offset : -1;
}

static bool subscripts_are_bare(const Module *m, const Id *sub, uint32_t rank) {
  uint32_t seen = 0;
  for (uint32_t d = 0; d < rank; d++) {
    uint32_t here = ex_indices(m, sub[d]);
    if (ex_is(m, sub[d], OP_INT)) continue;
    if (!ex_is(m, sub[d], OP_INDEX) || (here & seen)) return false;
    seen |= here;
  }
  return true;
}

typedef struct AliasRead {
  const Layout *layout;
  Id value;
  bool found, bare; // bare: not through a view, and each subscript a different index
} AliasRead;

static void visit_alias_read(const Module *m, Id read, void *ctx) {
  AliasRead *r = ctx;
  const Expr *e = ex(m, read);
  if (r->layout[e->integer].buffer != r->value) return;
  r->found = true;
  r->bare &= (Id)e->integer == r->value && subscripts_are_bare(m, m->arg.at + e->arg, e->narg);
}

static void touch_finds(Id buffer, bool written, void *ctx) {
  (void)written;
  Id *wanted = ctx;
  if (*wanted == buffer) *wanted = NONE;
}

static bool kernel_touches(const Frame *r, const Kernel *k, Id v) {
  Id wanted = v;
  kernel_touch(r->p, r->fn, k, touch_finds, &wanted);
  return wanted == NONE;
}

// A result that takes over an argument's storage: within the kernel that writes it every read of
// the argument is at the element written, by the same or an earlier statement, and no later kernel
// reads the argument.
static bool alias_is_legal(const Frame *r, Id result, Id arg) {
  bool begun = false;
  for (uint32_t i = 0; i < r->fp->kernel.n; i++) {
    const Kernel *k = &r->fp->kernel.at[i];
    bool writes = kernel_touches(r, k, result);
    if (begun && kernel_touches(r, k, arg)) return false;
    if (!writes) continue;
    if (k->kind != K_LOOPS && kernel_touches(r, k, arg)) return false;
    bool written = false;
    for (uint32_t j = 0; k->kind == K_LOOPS && j < k->stmt.n; j++) {
      const Stmt *s = &r->f->stmt.at[k->stmt.at[j]];
      AliasRead reads = {.layout = r->fp->layout, .value = arg, .bare = true};
      ex_reads(r->p->m, s->body, visit_alias_read, &reads);
      if (reads.found && (written || !reads.bare || s->nfree != s->nindex)) return false;
      if (s->lhs != result) continue;
      written = true;
      if (!subscripts_are_bare(r->p->m, s->sub, r->f->value.at[result].rank)) return false;
    }
    begun = true;
  }
  return true;
}

static void check_aliases(const Frame *r) {
  for (uint32_t i = 0; i < r->f->alias.n; i++) {
    Id arg = r->f->alias.at[i], result = r->f->result.at[i];
    if (arg == NONE || arg == result) continue;
    if (!alias_is_legal(r, result, arg))
      BUG("%s: result %s may not take over the storage of %s", r->f->name,
          r->f->value.at[result].name, r->f->value.at[arg].name);
  }
}

static void plan_fn(Plan *p, Id fn, bool *done) {
  if (done[fn]) return;
  done[fn] = true;
  Frame r = {.p = p, .fn = fn, .f = &p->m->fn.at[fn], .fp = &p->fn[fn]};
  for (uint32_t i = 0; i < r.fp->kernel.n; i++) {
    const Kernel *k = &r.fp->kernel.at[i];
    if (k->kind == K_CALL) plan_fn(p, r.f->stmt.at[k->stmt.at[0]].call->fn, done);
  }
  uint32_t nvalue = r.f->value.n ? r.f->value.n : 1, nkernel = r.fp->kernel.n ? r.fp->kernel.n : 1;
  r.fp->address = NEWN(p->m->arena, int64_t, nvalue);
  r.fp->callee_frame = NEWN(p->m->arena, int64_t, nkernel);
  r.life = plan_lives(p, fn);
  r.host = NEWN(p->m->arena, uint32_t, nvalue);
  for (Id v = 0; v < r.f->value.n; v++) r.host[v] = v;
  check_aliases(&r);
  share_in_place(&r);
  place_frame(&r);
}

bool pass_plan(Module *m) {
  Plan *p = m->lowered;
  bool *done = NEWN(m->arena, bool, m->fn.n + 1);
  for (Id f = 0; f < m->fn.n; f++)
    if (p->reached[f]) plan_fn(p, f, done);
  p->level = LEVEL_PLAN;
  return true;
}
