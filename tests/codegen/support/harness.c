#define _GNU_SOURCE
#include "harness.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "codegen/target.h"
#include "codegen/link.h"
#include "ir/interp/interp.h"
#include "ir/text/text.h"
#include "runtime/base/real.h"
#include "tests/emulated/emulated.h"
#include "tests/support/scratch.h"

enum { MOST = 80 };

bool harness_cuda;
const char *harness_limits;
double harness_unit;

// Everything of one run: storage as the compiled function sees it, tensors as the interpreter does.
typedef struct Run {
  const Module *m;
  const Fn *f;
  Id fn;
  Tensor *arg[MOST], *want[MOST];
  void *in[MOST], *out[MOST];
  double unit;
} Run;

Module *harness_parse(Arena *a, const char *path) {
  FILE *f = fopen(path, "rb");
  if (!f) return printf("%s: can't be read\n", path), NULL;
  Buf b = {0};
  char part[4096];
  for (size_t k; (k = fread(part, 1, sizeof part, f)) > 0;) buf_write(&b, part, k);
  fclose(f);
  Sources *s = sources_new(a);
  s->out = stdout;
  Module *m = ir_parse(a, s, str_intern(path), arena_copy(a, b.text, b.n + 1), b.n);
  buf_free(&b);
  return m;
}

static void *storage(const Value *v) {
  size_t bytes = (size_t)(value_count(v) * dtype_size(v->type));
  void *p;
  CHECK(!posix_memalign(&p, 64, bytes)); // not a byte more: the address sanitizer sees what is beside it
  return memset(p, 0xa5, bytes); // what nobody writes shows
}

static double element(const Value *v, const void *p, int64_t i) {
  switch (v->type) {
  case DT_F64: return ((const double *)p)[i];
  case DT_F32: return ((const float *)p)[i];
  case DT_I32: return ((const int32_t *)p)[i];
  default: return ((const uint8_t *)p)[i];
  }
}

static void fill(Run *r, uint32_t which, bool integers) {
  const Value *v = &r->f->value.at[r->f->arg.at[which]];
  Tensor *t = r->arg[which] = tensor_like(v);
  void *p = r->in[which] = storage(v);
  for (int64_t i = 0; i < tensor_count(t); i++) {
    uint32_t h = (uint32_t)(i + 1) * 2654435761u + which * 40503u;
    h ^= h >> 15;
    double x = integers ? (double)(h % 5) - 2 : (double)(float)((double)h / 2147483648.0 - 1);
    if (v->type == DT_F64)
      t->real[i] = ((double *)p)[i] = x;
    else if (v->type == DT_F32)
      t->real[i] = ((float *)p)[i] = (float)x;
    else if (v->type == DT_BF16)
      t->real[i] = dt_from_bf16(((uint16_t *)p)[i] = dt_to_bf16((float)x));
    else if (v->type == DT_F16)
      t->real[i] = dt_from_f16(((uint16_t *)p)[i] = dt_to_f16((float)x));
    else if (v->type == DT_I32)
      t->integer[i] = ((int32_t *)p)[i] = (int32_t)(h % 3);
    else
      t->integer[i] = ((uint8_t *)p)[i] = h % 2;
  }
}

static bool same(const Run *r, const Value *v, const void *got, const Tensor *want) {
  for (int64_t i = 0; i < tensor_count(want); i++) {
    double g = element(v, got, i), w = want->real ? want->real[i] : want->integer[i];
    double room = want->scale ? 2 * want->scale[i] * r->unit : 0;
    if (g == w || fabs(g - w) <= room || (isnan(g) && isnan(w))) continue;
    printf("%s: %s[%lld] is %.9g, the interpreter says %.9g +- %.3g\n", r->f->name, v->name,
           (long long)i, g, w, room);
    return false;
  }
  return true;
}

static bool compare(Run *r) {
  bool ok = true;
  for (uint32_t i = 0; i < r->f->result.n; i++) {
    const void *got = r->out[i];
    if (r->f->alias.n && r->f->alias.at[i] != NONE)
      for (uint32_t a = 0; a < r->f->arg.n; a++)
        if (r->f->arg.at[a] == r->f->alias.at[i]) got = r->in[a];
    ok &= same(r, &r->f->value.at[r->f->result.at[i]], got, r->want[i]);
  }
  for (uint32_t i = 0; i < r->f->arg.n; i++) {
    const Value *v = &r->f->value.at[r->f->arg.at[i]];
    if (v->role == ROLE_INOUT) ok &= same(r, v, r->in[i], r->arg[i]);
  }
  return ok;
}

static bool emits_the_same_twice(const Plan *p, Buf *c) {
  Buf again = {0};
  host_c_test(p, c);
  host_c_test(p, &again);
  bool same = c->n == again.n && !memcmp(c->text, again.text, c->n);
  if (!same) printf("the emitted C differs the second time\n");
  buf_free(&again);
  return same;
}

static TestFn *function_of(void *lib, Id fn) {
  union {
    void *p;
    TestFn *f;
  } symbol = {dlsym(lib, str_printf("dt_test_%u", fn))};
  return symbol.f;
}

static void *build_cuda(const Plan *p) {
  Buf error = {0};
  void *lib = emulated_load(p, true, &error);
  if (!lib) printf("%s\n", error.text);
  buf_free(&error);
  return lib;
}

// The compiled program, loaded; NULL after a message.
static void *build(const Plan *p, Str arch) {
  Buf c = {0}, object = {0};
  KernelOptions ko = {.arch = arch, .optimise = 3};
  char path[] = "/tmp/dtc-test-XXXXXX";
  int fd = mkstemp(path);
  if (fd >= 0) close(fd);
  setenv("CC", "cc -Werror", 1);
  LinkOptions o = {.output = str_intern(path), .arch = ko.arch, .plan = p, .shared = true};
  p->m->target->kernels(p, &ko, NULL, &object);
  if (!emits_the_same_twice(p, &c) || !link_program(&o, &c, &object)) return printf("%s\n", c.text), NULL;
  void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  unlink(path);
  if (!lib) return printf("%s\n", dlerror()), NULL;
  plan_scratch(lib, p);
  buf_free(&c);
  buf_free(&object);
  return lib;
}

TestFn *harness_build(const Plan *p, Id fn, Str arch) {
  void *lib = build(p, arch);
  return lib ? function_of(lib, fn) : NULL;
}

static bool run_once(Run *r, const Plan *p, void *lib, bool integers) {
  TestFn *run = function_of(lib, r->fn);
  for (uint32_t i = 0; i < r->f->arg.n; i++) fill(r, i, integers);
  for (uint32_t i = 0; i < r->f->result.n; i++)
    r->out[i] = storage(&r->f->value.at[r->f->result.at[i]]);
  size_t bytes = (size_t)p->fn[r->fn].frame_bytes;
  char *frame = aligned_alloc(64, bytes + 64);
  memset(frame, 0xa5, bytes);
  Buf why = {0};
  InterpOptions io = {.scale = !integers, .unit = r->unit};
  bool ok = interp_run(r->m, r->fn, r->arg, r->want, &io, &why);
  if (!ok) printf("%s\n", why.text);
  run(r->in, r->out, frame, (const uint64_t[2]){0, 0});
  if (harness_cuda) emulated_wait(lib);
  ok = ok && compare(r);
  for (uint32_t i = 0; i < r->f->arg.n; i++) tensor_free(r->arg[i]), free(r->in[i]);
  for (uint32_t i = 0; i < r->f->result.n; i++) tensor_free(r->want[i]), free(r->out[i]);
  free(frame);
  return ok;
}

bool harness_run(Module *m, Id fn, bool integers) {
  Run r = {.m = m, .f = &m->fn.at[fn], .fn = fn, .unit = harness_unit != 0 ? harness_unit : m->compute == DT_F64 ? 0x1p-53 : 0x1p-24};
  CHECK(r.f->arg.n <= MOST && r.f->result.n <= MOST);
  m->entry[ENTRY_STEP] = fn;
  if (!m->target || harness_cuda) target_use(m, target_named(harness_cuda ? "cuda" : "cpu"));
  Buf wrong = {0};
  if (harness_limits) CHECK(limits_set(&m->limits, harness_limits, &wrong));
  Plan *p = plan_lower(m);
  void *lib = harness_cuda ? build_cuda(p) : build(p, str_intern("native"));
  if (!lib) return false;
  bool ok = true;
  for (int order = 0; order < (harness_cuda ? EMULATED_ORDERS : 1); order++) {
    if (harness_cuda) emulated_order(lib, order);
    bool good = run_once(&r, p, lib, integers);
    if (!good && harness_cuda) printf("%s: in order %d of threads\n", r.f->name, order);
    ok = ok && good;
  }
  return ok;
}
