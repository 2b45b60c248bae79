// A target that has nothing of its own: no lanes, no matrix products, no running sums, no intrinsics, one type, another
// alignment. What passes and codegen/lower make for it is right: programs/*.ir run as the interpreter does (on the CPU,
// whose printers take any schedule), from loops and bodies alone.
#include <dirent.h>

#include "codegen/lower/plan.h"
#include "codegen/lower/verify.h"
#include "codegen/target.h"
#include "ir/text/text.h"
#include "passes/passes.h"
#include "support/harness.h"

enum { ALIGNMENT = 256 };

static bool stores(Dtype t) { return t == DT_F32 || t == DT_I32 || t == DT_BOOL; }
static bool takes_product(const Module *m, const Fn *f, const GemmPlan *g) { return (void)m, (void)f, (void)g, false; }
static bool takes_scan(const Module *m, Dtype t) { return (void)m, (void)t, false; }
static bool takes_intrinsic(const Module *m, const Fn *f, const Stmt *call, const Id *value) {
  return (void)m, (void)f, (void)call, (void)value, false;
}
static uint8_t lane_index(const struct Fuse *u, const Stmt *s) { return (void)u, (void)s, NO_VAR; }
static void schedule(Schedule *s) { (void)s; }
static void tasks(const Module *m, Kernel *k) { (void)m, k->chunk = k->grid < 3 ? k->grid : 3; }

static Target other_target(void) {
  Target t = *target_named("cpu");
  t.name = "other";
  t.limits.row_bytes = 64;
  t.limits.join_points = 2;
  t.alignment = ALIGNMENT;
  t.stores = stores;
  t.takes_product = takes_product;
  t.takes_scan = takes_scan;
  t.takes_intrinsic = takes_intrinsic;
  t.lane_index = lane_index;
  t.schedule = schedule;
  t.tasks = tasks;
  return t;
}

// Kernels are loops and calls, without lanes and tiles; storage is aligned.
static bool is_plain(const Plan *p) {
  bool plain = true;
  for (Id fn = 0; fn < p->m->fn.n; fn++) {
    if (!p->reached[fn]) continue;
    const FnPlan *fp = &p->fn[fn];
    for (Id v = 0; v < p->m->fn.at[fn].value.n; v++) plain &= fp->address[v] < 0 || fp->address[v] % ALIGNMENT == 0;
    for (uint32_t i = 0; i < fp->kernel.n; i++) {
      const Kernel *k = &fp->kernel.at[i];
      plain &= k->kind == K_LOOPS || k->kind == K_CALL;
      if (!k->loops) continue;
      plain &= !k->loops->tile && k->chunk <= 3;
      for (uint32_t j = 0; j < k->loops->nest.n; j++) plain &= k->loops->nest.at[j].vec == NO_VAR;
    }
  }
  return plain;
}

static bool has_doubles(const Module *m) { return m->compute == DT_F64; }

static bool run_file(const Target *t, const char *path, int *compiled) {
  Arena *a = arena_new();
  Module *m = harness_parse(a, path);
  bool ok = m;
  if (m) target_use(m, t);
  for (Id f = 0; ok && !has_doubles(m) && f < m->fn.n; f++) {
    Buf why = {0};
    ok = harness_run(m, f, false);
    if (ok && !plan_verify(m->lowered, &why)) ok = printf("%s: %s\n", path, why.text) < 0;
    if (ok && !is_plain(m->lowered)) ok = printf("%s: %s has what the target has not\n", path, m->fn.at[f].name) < 0;
    buf_free(&why);
    (*compiled)++;
  }
  if (!ok) printf("FAIL %s\n", path);
  arena_free(a);
  return ok;
}

// A type that it does not store is an error of the program.
static bool refuses_doubles(const Target *t) {
  static const char text[] = "module m\ncompute f64\nentry step = f\n\nfunc f() -> (y: f64[3]) {\n  y[i<3] = 1.0\n}\n";
  Arena *a = arena_new();
  Sources *s = sources_new(a);
  char said[200] = "";
  s->out = tmpfile();
  Module *m = s->out ? ir_parse(a, s, str_intern("doubles.ir"), text, sizeof text - 1) : NULL;
  if (m) target_use(m, t);
  bool refused = m && !pass_fuse(m);
  if (refused) rewind(s->out), fread(said, 1, sizeof said - 1, s->out);
  if (s->out) fclose(s->out);
  refused &= strstr(said, "target other has no f64, the type of `y` of `f`") != NULL;
  if (!refused) printf("FAIL doubles: %s\n", said);
  arena_free(a);
  return refused;
}

// So is a precision that needs one.
static bool refuses_precision(const Target *t, const char *precision, const char *type) {
  static const char text[] = "module m\n\nfunc f() -> (y: real[3]) {\n  y[i<3] = 1.0\n}\n";
  Arena *a = arena_new();
  Sources *s = sources_new(a);
  char said[200] = "";
  s->out = tmpfile();
  Module *m = s->out ? ir_parse(a, s, str_intern("reals.ir"), text, sizeof text - 1) : NULL;
  if (m) m->train.precision = str_intern(precision);
  if (m) target_use(m, t);
  bool refused = m && !pass_precision(m);
  if (refused) rewind(s->out), fread(said, 1, sizeof said - 1, s->out);
  if (s->out) fclose(s->out);
  bool right = type ? refused && strstr(said, str_printf("precision = %s: the target has no values of type %s", precision, type))
                    : m && !refused;
  if (!right) printf("FAIL %s: %s\n", precision, said);
  arena_free(a);
  return right;
}

// Every limit is stated.
static bool has_limits(const Target *t) {
  const char *which;
  return limits_legal(&t->limits, &which) || printf("FAIL target %s: limit %s\n", t->name, which) < 0;
}

int main(void) {
  const char *dir = SOURCE_DIR "/tests/codegen/programs";
  const Target other = other_target();
  int bad = !refuses_doubles(&other) + !has_limits(target_named("cpu")), n = 0;
  bad += !refuses_precision(&other, "bf16", "bf16") + !refuses_precision(&other, "fp64", "f64");
  bad += !refuses_precision(&other, "fp32", NULL) + !refuses_precision(target_named("cpu"), "fp16", NULL);
  DIR *d = opendir(dir);
  for (struct dirent *e; d && (e = readdir(d));)
    if (strlen(e->d_name) > 3 && !strcmp(e->d_name + strlen(e->d_name) - 3, ".ir"))
      bad += !run_file(&other, str_printf("%s/%s", dir, e->d_name), &n);
  if (d) closedir(d);
  printf("%d functions, %d failures\n", n, bad);
  return bad || n < 20;
}
