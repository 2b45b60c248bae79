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
#include "codegen/lower/fuse.h"
#include "codegen/lower/plan.h"

typedef struct Touched {
  Id buffer;
  bool written;
} Touched;

// A kernel on its way, with the buffers that it touches.
typedef struct Item {
  Kernel k;
  VEC(Touched) touched;
} Item;
typedef VEC(Item *) Items;

typedef struct Overlap {
  const Plan *p;
  FnPlan *fp;
  const Fn *f;
  Arena *a;
  Items out, pending; // pending: collectives not waited for
} Overlap;

typedef struct Collect {
  Arena *a;
  Item *x;
} Collect;

static void collect(Id buffer, bool written, void *ctx) {
  Collect *c = ctx;
  PUSH(c->a, c->x->touched, (Touched){buffer, written});
}

// What a kernel touches; arguments that a callee accumulates into are written.
static Item *item(const Overlap *o, const Kernel *k) {
  Collect c = {o->a, NEW(o->a, Item)};
  c.x->k = *k;
  kernel_touch(o->p, o->fp->fn, k, collect, &c);
  if (k->kind != K_CALL && k->kind != K_INTRINSIC) return c.x;
  const Call *call = o->f->stmt.at[k->stmt.at[0]].call;
  const Fn *g = &o->p->m->fn.at[call->fn];
  for (uint32_t i = 0; i < call->narg; i++)
    if (call->arg[i].mode != ACT_ITER && g->value.at[g->arg.at[i]].role == ROLE_INOUT)
      collect(o->fp->layout[call->arg[i].value].buffer, true, &c);
  return c.x;
}

static bool conflict(const Item *x, const Item *y) {
  for (uint32_t i = 0; i < x->touched.n; i++)
    for (uint32_t j = 0; j < y->touched.n; j++) {
      Touched a = x->touched.at[i], b = y->touched.at[j];
      if (a.buffer == b.buffer && (a.written || b.written)) return true;
    }
  return false;
}

// Whether item `at` of the list must come before some needed one.
static bool is_needed(const Items *list, uint32_t at, const bool *needed, uint32_t end) {
  for (uint32_t j = at + 1; j <= end; j++)
    if (needed[j] && conflict(list->at[at], list->at[j])) return true;
  return false;
}

// Moves what collective `at` does not need, from item `from` on, behind it. Returns where the items
// after those begin.
static uint32_t post_early(const Overlap *o, Items *list, uint32_t from, uint32_t at) {
  bool *needed = NEWN(o->a, bool, at + 1);
  Items later = {0};
  needed[at] = true;
  for (uint32_t i = at; i-- > from;) needed[i] = is_needed(list, i, needed, at);
  uint32_t n = from;
  for (uint32_t i = from; i <= at; i++) {
    if (needed[i])
      list->at[n++] = list->at[i];
    else
      PUSH(o->a, later, list->at[i]);
  }
  for (uint32_t i = 0; i < later.n; i++) list->at[n++] = later.at[i];
  return n;
}

static void emit(Overlap *o, Item *x) {
  if (x->k.kind == K_COLL) PUSH(o->a, o->pending, x);
  PUSH(o->a, o->out, x);
}

static void wait_for(Overlap *o, uint32_t pending) {
  Item *coll = o->pending.at[pending], *wait = NEW(o->a, Item);
  wait->k = (Kernel){.kind = K_WAIT, .name = coll->k.name, .fill = NONE, .stmt = coll->k.stmt};
  coll->k.wait = o->out.n;
  for (uint32_t i = pending + 1; i < o->pending.n; i++) o->pending.at[i - 1] = o->pending.at[i];
  o->pending.n--;
  emit(o, wait);
}

static bool conflicts_with_any(const Item *x, const Items *list) {
  for (uint32_t i = 0; i < list->n; i++)
    if (conflict(x, list->at[i])) return true;
  return false;
}

// Emits what depends on nothing pending; returns the rest, in order. Collectives keep theirs.
static Items advance(Overlap *o, const Items *list) {
  Items later = {0};
  bool coll_later = false;
  for (uint32_t i = 0; i < list->n; i++) {
    Item *x = list->at[i];
    bool blocked = (x->k.kind == K_COLL && coll_later) || conflicts_with_any(x, &o->pending) ||
                   conflicts_with_any(x, &later);
    coll_later |= blocked && x->k.kind == K_COLL;
    if (blocked)
      PUSH(o->a, later, x);
    else
      emit(o, x);
  }
  return later;
}

// The waits that the first of the list asks for.
static void wait_for_first(Overlap *o, const Items *list) {
  for (uint32_t j = o->pending.n; j-- > 0;)
    if (conflict(list->at[0], o->pending.at[j])) wait_for(o, j);
}

static bool has_collectives(const FnPlan *fp) {
  for (uint32_t i = 0; i < fp->kernel.n; i++)
    if (fp->kernel.at[i].kind == K_COLL) return true;
  return false;
}

static void overlap_function(const Plan *p, FnPlan *fp) {
  Overlap o = {.p = p, .fp = fp, .f = &p->m->fn.at[fp->fn], .a = p->m->arena};
  Items list = {0};
  if (!has_collectives(fp)) return;
  for (uint32_t i = 0; i < fp->kernel.n; i++) PUSH(o.a, list, item(&o, &fp->kernel.at[i]));
  for (uint32_t i = 0, from = 0; i < list.n; i++)
    if (list.at[i]->k.kind == K_COLL) from = post_early(&o, &list, from, i);
  while (list.n) {
    list = advance(&o, &list);
    if (list.n) wait_for_first(&o, &list);
  }
  while (o.pending.n) wait_for(&o, 0);
  fp->kernel.n = 0;
  for (uint32_t i = 0; i < o.out.n; i++) PUSH(o.a, fp->kernel, o.out.at[i]->k);
}

bool pass_overlap(Module *m) {
  Plan *p = m->lowered;
  for (Id f = 0; f < m->fn.n; f++)
    if (p->reached[f]) overlap_function(p, &p->fn[f]);
  p->level = LEVEL_OVERLAP;
  return true;
}
