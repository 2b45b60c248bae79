// Gradients that need not be zeros before the first microbatch. A parameter's gradient is an in-out
// argument, added to; where a product is the first to touch it and writes all of it, it can as well
// store (beta = 0) in the first microbatch. That saves writing zeros, and reading them back: for a
// model of 124M parameters 1 GB a step.
#include "codegen/host/host.h"

static bool product_writes_all(const Host *h, Id fn, const Kernel *k, Id value) {
  const GemmPlan *g = &k->gemm;
  const Fn *f = &h->m->fn.at[fn];
  int64_t n = g->m * g->n;
  for (uint32_t i = 0; i < g->nbatch; i++)
    if (g->batch[i].c) n *= g->batch[i].count;
  return h->p->fn[fn].layout[g->c].buffer == value && g->accumulate &&
         n == value_count(&f->value.at[value]) && h->p->fn[fn].layout[g->a].buffer != value &&
         h->p->fn[fn].layout[g->b].buffer != value;
}

// The call hands the value on once, whole or slice by slice, to an argument that the callee stores
// into.
static bool call_writes_all(const Host *h, Id fn, const Kernel *k, Id value) {
  const Stmt *s = &h->m->fn.at[fn].stmt.at[k->stmt.at[0]];
  const Call *c = s->call;
  bool stores = false;
  for (uint32_t i = 0; i < c->narg; i++) {
    if (c->arg[i].mode == ACT_ITER || h->p->fn[fn].layout[c->arg[i].value].buffer != value)
      continue;
    if (stores) return false;
    stores =
        h->stores[c->fn][i] && (s->kind == ST_CALL || c->arg[i].mode == ACT_SLICE || c->count == 1);
    if (!stores) return false;
  }
  return stores;
}

typedef struct Find {
  Id value;
  bool found;
} Find;

static void touch_find(Id buffer, bool written, void *ctx) {
  Find *f = ctx;
  (void)written;
  f->found = f->found || buffer == f->value;
}

// The first kernel that touches the value, or UINT32_MAX.
static uint32_t first_touch(const Host *h, Id fn, Id value) {
  const FnPlan *fp = &h->p->fn[fn];
  for (uint32_t i = 0; i < fp->kernel.n; i++) {
    Find f = {value, false};
    kernel_touch(h->p, fn, &fp->kernel.at[i], touch_find, &f);
    if (f.found) return i;
  }
  return UINT32_MAX;
}

static void find_in(Host *h, Id fn, bool *const *banned) {
  const Fn *f = &h->m->fn.at[fn];
  for (uint32_t i = 0; i < f->arg.n; i++) {
    Id v = f->arg.at[i];
    h->stores[fn][i] = false;
    uint32_t first =
        f->value.at[v].role == ROLE_INOUT && !banned[fn][i] ? first_touch(h, fn, v) : UINT32_MAX;
    if (first == UINT32_MAX) continue;
    const Kernel *k = &h->p->fn[fn].kernel.at[first];
    if (k->kind == K_GEMM) h->stores[fn][i] = product_writes_all(h, fn, k, v);
    if (k->kind == K_CALL) h->stores[fn][i] = call_writes_all(h, fn, k, v);
  }
}

// Whether kernel `call` of fn may hand its own beta on for value v: then it is the first to touch
// it.
static bool hands_on(const Host *h, Id fn, uint32_t call, Id v) {
  const Fn *f = &h->m->fn.at[fn];
  for (uint32_t i = 0; i < f->arg.n; i++)
    if (f->arg.at[i] == v) return h->stores[fn][i] && first_touch(h, fn, v) == call;
  return false;
}

// A function has one beta for all that it stores, so every caller must want it for all: bans what
// one does not.
static bool ban_refused(const Host *h, Id fn, bool **banned) {
  const FnPlan *fp = &h->p->fn[fn];
  bool changed = false;
  for (uint32_t k = 0; k < fp->kernel.n; k++) {
    if (fp->kernel.at[k].kind != K_CALL) continue;
    const Call *c = h->m->fn.at[fn].stmt.at[fp->kernel.at[k].stmt.at[0]].call;
    for (uint32_t i = 0; i < c->narg; i++) {
      if (!h->stores[c->fn][i] || banned[c->fn][i] ||
          hands_on(h, fn, k, fp->layout[c->arg[i].value].buffer))
        continue;
      banned[c->fn][i] = changed = true;
    }
  }
  return changed;
}

void host_find_stores(Host *h) {
  bool **banned = NEWN(h->a, bool *, h->m->fn.n + 1), changed = true;
  h->stores = NEWN(h->a, bool *, h->m->fn.n + 1);
  for (uint32_t i = 0; i < h->order.n; i++) {
    Id fn = h->order.at[i];
    h->stores[fn] = NEWN(h->a, bool, h->m->fn.at[fn].arg.n + 1);
    banned[fn] = NEWN(h->a, bool, h->m->fn.at[fn].arg.n + 1);
  }
  while (changed) {
    changed = false;
    for (uint32_t i = 0; i < h->order.n; i++) find_in(h, h->order.at[i], banned);
    for (uint32_t i = 0; i < h->order.n; i++) changed |= ban_refused(h, h->order.at[i], banned);
  }
}

bool host_takes_beta(const Host *h, Id fn) {
  for (uint32_t i = 0; i < h->m->fn.at[fn].arg.n; i++)
    if (h->stores[fn][i]) return true;
  return false;
}

bool host_kernel_stores(const Host *h, Id fn, uint32_t kernel) {
  return hands_on(h, fn, kernel, h->p->fn[fn].layout[h->p->fn[fn].kernel.at[kernel].gemm.c].buffer);
}
