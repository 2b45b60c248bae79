// overlap: collectives run while kernels do.
//
// does        puts a wait behind every collective: before the first kernel that needs its result or
//             overwrites its operand, or at the end; kernels that need neither, nor anything that
//             does, come before the wait, and kernels that it does not need come after it: in a
//             backward pass the products that make gradients of weights
// requires    kernels in an order that is a valid schedule
// guarantees  the same, with K_WAITs; kernels that depend on one another keep their order, as
//             collectives do: all ranks post them alike
// invalidates positions of kernels
#include "codegen/fuse.h"
#include "codegen/plan.h"

typedef VEC(Kernel) Kernels;

typedef struct Overlap {
  const Plan *p;
  FnPlan *fp;
  const Fn *f;
  Kernels out;
  VEC(uint32_t) pending; // positions in `out` of collectives not waited for
} Overlap;

typedef struct Touched {
  Id buffer;
  bool written;
} Touched;
typedef VEC(Touched) Touches;

typedef struct Collect {
  Arena *a;
  Touches t;
} Collect;

static void collect(Id buffer, bool written, void *ctx) {
  Collect *c = ctx;
  PUSH(c->a, c->t, (Touched){buffer, written});
}

// What a kernel touches; arguments that a callee accumulates into are written.
static Touches touches(const Overlap *o, const Kernel *k) {
  Collect c = {.a = o->p->m->arena};
  kernel_touch(o->p, o->fp->fn, k, collect, &c);
  if (k->kind != K_CALL && k->kind != K_INTRINSIC) return c.t;
  const Call *call = o->f->stmt.at[k->stmt.at[0]].call;
  const Fn *g = &o->p->m->fn.at[call->fn];
  for (uint32_t i = 0; i < call->narg; i++)
    if (call->arg[i].mode != ACT_ITER && g->value.at[g->arg.at[i]].role == ROLE_INOUT)
      collect(o->fp->layout[call->arg[i].value].buffer, true, &c);
  return c.t;
}

static bool conflict(const Touches *a, const Touches *b) {
  for (uint32_t i = 0; i < a->n; i++)
    for (uint32_t j = 0; j < b->n; j++)
      if (a->at[i].buffer == b->at[j].buffer && (a->at[i].written || b->at[j].written)) return true;
  return false;
}

static bool conflicts(const Overlap *o, const Kernel *a, const Kernel *b) {
  Touches x = touches(o, a), y = touches(o, b);
  return conflict(&x, &y);
}

// Whether kernel `at` of the list must come before some needed one.
static bool is_needed(const Overlap *o, const Kernels *list, uint32_t at, const bool *needed,
                      uint32_t end) {
  for (uint32_t j = at + 1; j <= end; j++)
    if (needed[j] && conflicts(o, &list->at[at], &list->at[j])) return true;
  return false;
}

// Moves what collective `at` does not need, from kernel `from` on, behind it. Returns where the kernels
// after those begin.
static uint32_t post_early(const Overlap *o, Kernels *list, uint32_t from, uint32_t at) {
  Arena *a = o->p->m->arena;
  bool *needed = NEWN(a, bool, at + 1);
  Kernels later = {0};
  needed[at] = true;
  for (uint32_t i = at; i-- > from;) needed[i] = is_needed(o, list, i, needed, at);
  uint32_t n = from;
  for (uint32_t i = from; i <= at; i++) {
    if (needed[i]) list->at[n++] = list->at[i];
    else PUSH(a, later, list->at[i]);
  }
  for (uint32_t i = 0; i < later.n; i++) list->at[n++] = later.at[i];
  return n;
}

static void wait_for(Overlap *o, uint32_t pending) {
  uint32_t at = o->pending.at[pending];
  const Kernel *coll = &o->out.at[at];
  Kernel k = {.kind = K_WAIT, .name = coll->name, .fill = NONE, .stmt = coll->stmt};
  o->out.at[at].wait = o->out.n;
  PUSH(o->p->m->arena, o->out, k);
  for (uint32_t i = pending + 1; i < o->pending.n; i++) o->pending.at[i - 1] = o->pending.at[i];
  o->pending.n--;
}

static void emit(Overlap *o, Kernel k) {
  if (k.kind == K_COLL) PUSH(o->p->m->arena, o->pending, o->out.n);
  PUSH(o->p->m->arena, o->out, k);
}

// Emits what depends on nothing pending; returns the rest, in order.
static Kernels advance(Overlap *o, const Kernels *list) {
  Kernels later = {0};
  bool coll_later = false;
  for (uint32_t i = 0; i < list->n; i++) {
    const Kernel *k = &list->at[i];
    bool blocked = k->kind == K_COLL && coll_later; // collectives keep their order
    for (uint32_t j = 0; !blocked && j < o->pending.n; j++)
      blocked = conflicts(o, k, &o->out.at[o->pending.at[j]]);
    for (uint32_t j = 0; !blocked && j < later.n; j++) blocked = conflicts(o, k, &later.at[j]);
    coll_later |= blocked && k->kind == K_COLL;
    if (blocked) PUSH(o->p->m->arena, later, *k);
    else emit(o, *k);
  }
  return later;
}

// The waits that the first of the list asks for.
static void wait_for_first(Overlap *o, const Kernels *list) {
  for (uint32_t j = o->pending.n; j-- > 0;)
    if (conflicts(o, &list->at[0], &o->out.at[o->pending.at[j]])) wait_for(o, j);
}

static bool has_collectives(const Kernels *list) {
  for (uint32_t i = 0; i < list->n; i++)
    if (list->at[i].kind == K_COLL) return true;
  return false;
}

void fuse_overlap(const Plan *p, FnPlan *fp) {
  Overlap o = {.p = p, .fp = fp, .f = &p->m->fn.at[fp->fn]};
  Kernels list = {fp->kernel.at, fp->kernel.n, fp->kernel.cap};
  if (!has_collectives(&list)) return;
  for (uint32_t i = 0, from = 0; i < list.n; i++)
    if (list.at[i].kind == K_COLL) from = post_early(&o, &list, from, i);
  while (list.n) {
    list = advance(&o, &list);
    if (list.n) wait_for_first(&o, &list);
  }
  while (o.pending.n) wait_for(&o, 0);
  fp->kernel.at = o.out.at;
  fp->kernel.n = o.out.n;
  fp->kernel.cap = o.out.cap;
}
