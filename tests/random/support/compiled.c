// Compiles programs together, runs them and compares with the interpreter.
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "codegen/target.h"
#include "codegen/lower/kernel.h"
#include "codegen/link.h"
#include "codegen/lower/text.h"
#include "codegen/lower/verify.h"
#include "tests/random/support/check.h"
#include "tests/random/support/merge.h"
#include "tests/emulated/emulated.h"
#include "tests/support/scratch.h"
#include "runtime/base/real.h"

typedef void TestFn(void *const *arg, void *const *result, char *frame, const uint64_t *key);

static void put(Dtype t, void *p, int64_t i, const Tensor *from) {
  switch (t) {
  case DT_BF16: dt_put_real(DT_TYPE_BF16, p, i, from->real[i]); break;
  case DT_F16: dt_put_real(DT_TYPE_F16, p, i, from->real[i]); break;
  case DT_F32: ((float *)p)[i] = (float)from->real[i]; break;
  case DT_F64: ((double *)p)[i] = from->real[i]; break;
  case DT_I32: ((int32_t *)p)[i] = from->integer[i]; break;
  default: ((uint8_t *)p)[i] = (uint8_t)from->integer[i];
  }
}

static void get(Dtype t, const void *p, int64_t i, Tensor *to) {
  switch (t) {
  case DT_BF16: to->real[i] = dt_from_bf16(((const uint16_t *)p)[i]); break;
  case DT_F16: to->real[i] = dt_from_f16(((const uint16_t *)p)[i]); break;
  case DT_F32: to->real[i] = ((const float *)p)[i]; break;
  case DT_F64: to->real[i] = ((const double *)p)[i]; break;
  case DT_I32: to->integer[i] = ((const int32_t *)p)[i]; break;
  default: to->integer[i] = ((const uint8_t *)p)[i];
  }
}

enum { GUARD = 256 };

// Storage between guards: what is written beside it shows. Contents are not zero.
static char *storage(int64_t bytes) {
  size_t n = (size_t)(bytes + 63) / 64 * 64 + 2 * GUARD;
  char *p = aligned_alloc(64, n);
  memset(p, 0xa5, n);
  return p + GUARD;
}

static bool intact(const char *p, int64_t bytes) {
  for (int i = 1; i <= GUARD; i++)
    if ((unsigned char)p[-i] != 0xa5 || (unsigned char)p[bytes + i - 1] != 0xa5) return false;
  return true;
}

typedef struct Side {
  void *in[256], *out[256];
  char *frame;
  int64_t frame_bytes;
} Side;

static int64_t bytes_of(const Value *v) { return value_count(v) * dtype_size(v->type); }

static Side side_new(const Fn *f, const Activation *args, int64_t frame) {
  Side s = {.frame_bytes = frame};
  CHECK(f->arg.n <= 256 && f->result.n <= 256);
  for (uint32_t i = 0; i < f->arg.n; i++) {
    const Value *v = &f->value.at[f->arg.at[i]];
    s.in[i] = storage(bytes_of(v));
    for (int64_t e = 0; e < value_count(v); e++) put(v->type, s.in[i], e, args->arg[i]);
  }
  for (uint32_t i = 0; i < f->result.n; i++)
    s.out[i] = storage(bytes_of(&f->value.at[f->result.at[i]]));
  s.frame = storage(frame);
  return s;
}

static void side_free(Side *s, const Fn *f) {
  for (uint32_t i = 0; i < f->arg.n; i++) free((char *)s->in[i] - GUARD);
  for (uint32_t i = 0; i < f->result.n; i++) free((char *)s->out[i] - GUARD);
  free(s->frame - GUARD);
}

static const char *trespass(const Side *s, const Fn *f) {
  for (uint32_t i = 0; i < f->arg.n; i++)
    if (!intact(s->in[i], bytes_of(&f->value.at[f->arg.at[i]])))
      return f->value.at[f->arg.at[i]].name;
  for (uint32_t i = 0; i < f->result.n; i++)
    if (!intact(s->out[i], bytes_of(&f->value.at[f->result.at[i]])))
      return f->value.at[f->result.at[i]].name;
  return intact(s->frame, s->frame_bytes) ? NULL : "the frame";
}

static uint64_t hash_more(uint64_t h, const void *p, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i++) h = (h ^ ((const unsigned char *)p)[i]) * 0x100000001b3u;
  return h;
}

// Of all that the function may have written.
static uint64_t hash_of(const Side *s, const Fn *f) {
  uint64_t h = 0xcbf29ce484222325u;
  for (uint32_t i = 0; i < f->arg.n; i++) h = hash_more(h, s->in[i], bytes_of(&f->value.at[f->arg.at[i]]));
  for (uint32_t i = 0; i < f->result.n; i++) h = hash_more(h, s->out[i], bytes_of(&f->value.at[f->result.at[i]]));
  return h;
}

// Returns a hash of the results. emulated: the program, where it is CUDA.
static uint64_t run_job(const Job *j, void *emulated, TestFn *run, int64_t frame, Failure *failure) {
  const Fn *f = &j->low.m->fn.at[j->low.fn];
  const uint64_t key[2] = {7, 3};
  Activation got = activation_new(j->low.m, j->low.fn, &(ArgOptions){0});
  Buf error = {0};
  got.result = calloc(f->result.n + 1, sizeof *got.result);
  Side s = side_new(f, &j->low.start, frame);
  run(s.in, s.out, s.frame, key);
  if (emulated) emulated_wait(emulated);
  for (uint32_t i = 0; i < f->arg.n; i++) {
    const Value *v = &f->value.at[f->arg.at[i]];
    for (int64_t e = 0; e < value_count(v); e++) get(v->type, s.in[i], e, got.arg[i]);
  }
  for (uint32_t i = 0; i < f->result.n; i++) {
    const Value *v = &f->value.at[f->result.at[i]];
    got.result[i] = tensor_like(v);
    for (int64_t e = 0; e < value_count(v); e++) get(v->type, s.out[i], e, got.result[i]);
  }
  const char *beside = trespass(&s, f);
  if (beside) fail_with(failure, j->low.stage, "memory beside %s is written", beside);
  // Passes add terms in another order, which may have a wider bound than the order as generated. Those
  // bounds know nothing of 16 bits.
  else if (!is_half(j->low.m->store) &&
           !activation_same(&j->low.origin, &got, 100, j->low.unit, &error))
    fail_with(failure, j->low.stage, "as generated, %s", error.text);
  else if (!activation_same(&j->low.want, &got, j->low.exact ? 0 : 3, j->low.unit, &error))
    fail_with(failure, j->low.stage, "%s%s", error.text, j->low.exact ? " (exactly)" : "");
  uint64_t hash = hash_of(&s, f);
  side_free(&s, f);
  activation_free(&got);
  buf_free(&error);
  return hash;
}

// As CUDA: in each order of threads, and with the same bits in all.
static void run_orders(const Job *j, void *lib, TestFn *run, int64_t frame, Failure *failure) {
  uint64_t first = 0;
  for (int order = 0; order < EMULATED_ORDERS && !failure->failed; order++) {
    emulated_order(lib, order);
    uint64_t hash = run_job(j, lib, run, frame, failure);
    if (failure->failed) {
      size_t n = strlen(failure->message);
      snprintf(failure->message + n, sizeof failure->message - n, " (in order %d of threads)", order);
    } else if (order && hash != first) {
      fail_with(failure, j->low.stage, "other bits in order %d of threads than in order 0", order);
    }
    first = order ? first : hash;
  }
}

// The kernels verify, print, parse back, and print and verify the same again.
static bool round_trip(Arena *a, const Module *m, bool places, Buf *error) {
  Buf one = {0}, two = {0}, why = {0};
  Sources *s = sources_new(a);
  s->out = stderr;
  level_print(m, places, &one);
  Module *again = level_parse(a, s, str_intern("kernels.ir"), one.text, one.n);
  if (again) target_use(again, m->target);
  if (again) level_print(again, places, &two);
  bool same = again && one.n == two.n && !memcmp(one.text, two.text, one.n);
  bool ok = plan_verify(m->lowered, &why) && same && plan_verify(again->lowered, &why);
  if (!ok)
    buf_printf(error, "after pass %s: %s", level_name[m->lowered->level],
               why.n ? why.text : again ? "kernels print differently after parsing" : "kernels do not parse back");
  buf_free(&one);
  buf_free(&two);
  buf_free(&why);
  return ok;
}

// The text for people names every kernel.
static bool names_kernels(const Plan *p, Buf *error) {
  Buf text = {0};
  bool ok = true;
  plan_print(p, &text);
  for (Id f = 0; f < p->m->fn.n; f++)
    for (uint32_t k = 0; ok && p->reached[f] && k < p->fn[f].kernel.n; k++) {
      Str name = p->fn[f].kernel.at[k].name;
      ok = !name || strstr(text.text, name);
      if (!ok) buf_printf(error, "the text of kernels does not name %s", name);
    }
  buf_free(&text);
  return ok;
}

static Plan *lower_program(Arena *a, Module *m, Buf *error) {
  static bool (*const pass[])(Module *) = {pass_fuse, pass_overlap, pass_plan};
  for (int i = 0; i < 3; i++) {
    CHECK(pass[i](m));
    if (i != 1 && !round_trip(a, m, i == 0, error)) return NULL;
  }
  return names_kernels(m->lowered, error) ? m->lowered : NULL;
}

static bool is_cuda(const CompileOptions *o) { return !strcmp(o->arch, "cuda"); }

static void *build(const Plan *p, const CompileOptions *with, Buf *error) {
  if (is_cuda(with)) return emulated_load(p, false, error);
  Buf c = {0}, object = {0};
  KernelOptions ko = {.arch = str_intern(with->arch), .optimise = with->opt};
  host_c_test(p, &c);
  p->m->target->kernels(p, &ko, NULL, &object);
  char path[] = "/tmp/dtc-random-XXXXXX";
  int fd = mkstemp(path);
  if (fd >= 0) close(fd);
  LinkOptions o = {.output = str_intern(path), .arch = ko.arch, .plan = p, .shared = true,
                   .quick = true};
  bool ok = link_program(&o, &c, &object);
  void *lib = ok ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  if (!lib) buf_printf(error, "no shared object: %s", ok ? dlerror() : "see above");
  unlink(path);
  buf_free(&c);
  buf_free(&object);
  return lib;
}

bool check_compiled(Arena *a, Job *job, uint32_t n, const CompileOptions *o, Failure *failure,
                    Buf *error) {
  *current_stage = STAGE_COMPILE;
  Module *m = module_new(a, sources_new(a));
  Id *fn = NEWN(a, Id, n + 1);
  for (uint32_t i = 0; i < n; i++) fn[i] = merge_fn(m, job[i].low.m, job[i].low.fn);
  m->compute = job[0].low.m->compute;
  target_use(m, target_named(is_cuda(o) ? "cuda" : "cpu"));
  m->limits = o->limits;
  if (n == 1) m->entry[ENTRY_UPDATE] = fn[0];
  else merge_top(m, fn, n);
  Plan *p = lower_program(a, m, error);
  void *lib = p ? build(p, o, error) : NULL;
  if (!lib) return false;
  if (!is_cuda(o)) plan_scratch(lib, p);
  for (uint32_t i = 0; i < n; i++) {
    union {
      void *p;
      TestFn *f;
    } symbol = {dlsym(lib, str_printf("dt_test_%u", fn[i]))};
    *current_stage = job[i].low.stage;
    if (!symbol.f) fail_with(&failure[i], STAGE_COMPILE, "no function dt_test_%u", fn[i]);
    else if (is_cuda(o)) run_orders(&job[i], lib, symbol.f, p->fn[fn[i]].frame_bytes, &failure[i]);
    else run_job(&job[i], NULL, symbol.f, p->fn[fn[i]].frame_bytes, &failure[i]);
  }
  dlclose(lib);
  return true;
}
