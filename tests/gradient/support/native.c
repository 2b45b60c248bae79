// A compiled program, loaded into this process and run as the runtime runs it.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include "codegen/target.h"
#include "codegen/lower/kernel.h"
#include "codegen/link.h"
#include "runtime/train/zero.h"
#include "tests/gradient/support/case.h"

enum { GUARD = 4096 };

bool native_build(const Case *c, Module *m, Native *n) {
  Plan *p = plan_lower(m);
  Buf text = {0}, object = {0};
  KernelOptions ko = {.arch = str_intern("native"), .optimise = 3};
  host_c(p, ko.arch, str_intern("test"), &text);
  m->target->kernels(p, &ko, NULL, &object);
  char path[] = "/tmp/dtc-gradient-XXXXXX";
  int fd = mkstemp(path);
  if (fd >= 0) close(fd);
  LinkOptions o = {.output = str_intern(path), .arch = ko.arch, .plan = p, .shared = true};
  bool ok = link_program(&o, &text, &object);
  *n = (Native){.lib = ok ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL};
  if (!n->lib) printf("%s: no shared object: %s\n", c->name, ok ? dlerror() : "see above");
  unlink(path);
  buf_free(&text);
  buf_free(&object);
  if (!n->lib) return false;
  union {
    void *p;
    void (*f)(int);
  } threads = {dlsym(n->lib, "dt_parallel_init")};
  n->threads = threads.f;
  union {
    void *p;
    int (*f)(size_t);
  } scratch = {dlsym(n->lib, "dt_scratch_plan")};
  n->scratch = scratch.f;
  n->program = dlsym(n->lib, "dt_program");
  if (!n->program || !n->threads || !n->scratch)
    printf("%s: the shared object lacks dt_program or the runtime\n", c->name);
  return n->program && n->threads && n->scratch;
}

// ---- storage between guards, full of bytes that are no numbers: what is read before it is written
// shows

typedef struct Region {
  char *at;
  int64_t bytes;
} Region;

static Region region_new(int64_t bytes) {
  size_t whole = (size_t)(bytes + 63) / 64 * 64 + 2 * GUARD;
  char *p = aligned_alloc(64, whole);
  memset(p, 0xff, whole);
  return (Region){p + GUARD, bytes};
}

static bool region_free(const Case *c, Region *r, Str name) {
  bool intact = true;
  for (int64_t i = 1; i <= GUARD; i++)
    intact &= (unsigned char)r->at[-i] == 0xff && (unsigned char)r->at[r->bytes + i - 1] == 0xff;
  if (!intact) printf("%s: memory beside %s is written\n", c->name, name);
  free(r->at - GUARD);
  return intact;
}

static void put(DtType type, void *p, int64_t i, double v) {
  if (type == DT_TYPE_F32) ((float *)p)[i] = (float)v;
  else if (type == DT_TYPE_F64) ((double *)p)[i] = v;
  else ((int32_t *)p)[i] = (int32_t)v;
}

static double get(DtType type, const void *p, int64_t i) {
  return type == DT_TYPE_F32 ? ((const float *)p)[i] : ((const double *)p)[i];
}

static int size_of(DtType type) { return type == DT_TYPE_F64 ? 8 : 4; }

typedef struct Batch {
  const Case *c;
  const DtProgram *p;
  const Inputs *in;
  Region data[DT_MAX_DATA], scalars, param, grad, frame, out;
  DtZero *zero;
  DtCall call;
} Batch;

// Element e of parameter i, all layers counted, in a region.
static int64_t place(const DtProgram *p, int i, int64_t e) {
  const DtParam *a = &p->param[i];
  if (!a->stack) return a->offset + e;
  const DtStack *s = &p->stack[a->stack - 1];
  int64_t layer = a->count / s->count;
  return a->offset + e / layer * s->stride + e % layer;
}

static DtScalars *scalars_of(const Batch *b) { return (DtScalars *)(void *)b->scalars.at; }

static Batch batch_new(const Case *c, const DtProgram *p, const Inputs *in) {
  Batch b = {.c = c, .p = p, .in = in};
  int size = size_of(p->type), most = p->ntotal > MAX_OUT ? p->ntotal : MAX_OUT;
  for (int i = 0; i < p->ndata; i++) {
    int64_t count = tensor_count(in->data[i]) / in->parts;
    b.data[i] = region_new(count * size_of(p->data[i].type));
    b.call.data[i] = b.data[i].at;
  }
  b.scalars = region_new(sizeof(DtScalars));
  b.param = region_new(p->param_count * size);
  b.grad = region_new(p->param_count * size);
  b.frame = region_new(p->frame_bytes);
  b.out = region_new(most * size);
  for (int i = 0; i < p->nparam; i++)
    for (int64_t e = 0; e < p->param[i].count; e++)
      put(p->type, b.param.at, place(p, i, e), in->param[i]->real[e]);
  if (!p->stores_grad) memset(b.grad.at, 0, (size_t)b.grad.bytes);
  DtError error;
  b.zero = malloc(sizeof *b.zero);
  static bool connected;
  if (!connected && dt_comm_start(p, 1, 0, &error)) BUG("%s", error.text);
  connected = true;
  if (dt_zero_open(b.zero, p, &error)) BUG("%s", error.text);
  b.zero->param = b.param.at;
  b.zero->grad = b.grad.at;
  b.call = (DtCall){.zero = b.zero,
                    .scalars = (const void *)b.scalars.at,
                    .param = b.param.at,
                    .grad = b.grad.at,
                    .frame = b.frame.at,
                    .out = b.out.at};
  DtScalars *s = scalars_of(&b);
  *s = (DtScalars){.key = {7, 3}, .batch = (int32_t)in->batch};
  put(p->type, &s->loss_scale, 0, 1);
  return b;
}

static bool batch_free(Batch *b) {
  bool ok = true;
  dt_zero_close(b->zero);
  free(b->zero);
  for (int i = 0; i < b->p->ndata; i++) ok &= region_free(b->c, &b->data[i], b->p->data[i].name);
  ok &= region_free(b->c, &b->scalars, "the scalars");
  ok &= region_free(b->c, &b->param, "the parameters");
  ok &= region_free(b->c, &b->grad, "the gradients");
  ok &= region_free(b->c, &b->frame, "the frame");
  return region_free(b->c, &b->out, "the results") && ok;
}

// Points the call to microbatch `part`.
static void batch_load(Batch *b, int64_t part) {
  for (int i = 0; i < b->p->ndata; i++) {
    const Tensor *all = b->in->data[i];
    int64_t count = tensor_count(all) / b->in->parts;
    for (int64_t e = 0; e < count; e++) {
      int64_t from = part * count + e;
      put(b->p->data[i].type, b->data[i].at, e, all->real ? all->real[from] : all->integer[from]);
    }
    b->call.data[i] = b->data[i].at;
  }
  scalars_of(b)->first = (int32_t)(part * b->in->micro);
  b->call.fresh = part == 0;
}

static void count_all(Batch *b) {
  double total[DT_MAX_TOTALS] = {0};
  for (int64_t part = 0; b->p->count && part < b->in->parts; part++) {
    batch_load(b, part);
    b->p->count(&b->call);
    for (int i = 0; i < b->p->ntotal; i++) total[i] += get(b->p->type, b->out.at, i);
  }
  for (int i = 0; i < b->p->ntotal; i++) put(b->p->type, &scalars_of(b)->total, i, total[i]);
}

static bool same_tables(const Case *c, const DtProgram *p, const Inputs *in) {
  bool ok = p->ndata == (int)in->ndata && p->nparam == (int)in->nparam && 1 + p->nmetric <= MAX_OUT;
  for (int i = 0; ok && i < p->ndata; i++)
    for (int d = 1; d < p->data[i].rank; d++) ok &= p->data[i].extent[d] == in->data[i]->extent[d];
  for (int i = 0; ok && i < p->nparam; i++) ok &= p->param[i].count == tensor_count(in->param[i]);
  if (!ok) printf("%s: dt_program's tables differ from the module's\n", c->name);
  return ok;
}

bool native_run(const Case *c, const Native *n, Entry e, const Inputs *in, int threads,
                Outcome *r) {
  const DtProgram *p = n->program;
  *r = (Outcome){0};
  if (!same_tables(c, p, in)) return false;
  *r = (Outcome){.nout = 1 + (uint32_t)p->nmetric, .nparam = in->nparam, .parts = in->parts};
  r->out = calloc((size_t)(r->nout * r->parts), sizeof *r->out);
  n->threads(threads);
  CHECK(n->scratch((size_t)p->scratch_bytes) == 0);
  Batch b = batch_new(c, p, in);
  count_all(&b);
  for (int64_t part = 0; part < in->parts; part++) {
    batch_load(&b, part);
    (e == ENTRY_STEP ? p->step : p->eval)(&b.call);
    for (uint32_t i = 0; i < r->nout; i++) r->out[part * r->nout + i] = get(p->type, b.out.at, i);
  }
  if (e == ENTRY_STEP) {
    r->grad = calloc(in->nparam + 1, sizeof *r->grad);
    for (uint32_t i = 0; i < in->nparam; i++) {
      r->grad[i] = tensor_new(DT_REAL, in->param[i]->extent, in->param[i]->rank);
      for (int64_t k = 0; k < p->param[i].count; k++)
        r->grad[i]->real[k] = get(p->type, b.grad.at, place(p, (int)i, k));
    }
  }
  n->threads(1);
  return batch_free(&b);
}
