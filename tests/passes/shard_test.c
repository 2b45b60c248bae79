// Pass shard on the examples. Small ones, in float64: the entries compute on the ranks of each mesh
// what one rank does. At their sizes: the plans are Megatron's, counted collective by collective, and
// proved to be least ones. Arguments: only those examples.
#include <stdlib.h>
#include <time.h>

#include "driver/pipeline.h"
#include "frontend/frontend.h"
#include "ir/verify.h"
#include "passes/passes.h"
#include "passes/shard.h"
#include "support/load.h"
#include "tests/oracle/oracle.h"

enum { MAX_DEFINES = 12 };

typedef struct Mesh {
  const char *name;
  int64_t tp, cp;
  bool sequence;
} Mesh;

static Module *compile(Arena *a, const char *example, const char *const *define) {
  Str d[MAX_DEFINES + 1] = {str_intern("train.precision=fp64")};
  uint32_t n = 1;
  for (; define && n <= MAX_DEFINES && define[n - 1]; n++) d[n] = str_intern(define[n - 1]);
  FrontendOptions o = {.path = str_printf(SOURCE_DIR "/examples/%s.dt", example),
                       .stdlib = str_intern(SOURCE_DIR "/stdlib"), .define = d, .ndefine = n};
  Sources *s = sources_new(a);
  s->out = stdout;
  Module *m = frontend_compile(a, s, &o);
  PipelineOptions p = {.until = str_intern("simplify")};
  return m && pipeline_run(m, &p) ? m : NULL;
}

static void add_axis(Module *m, const char *name, int64_t n, bool sequence) {
  Axis x = {.name = str_intern(name), .size = n, .sequence = sequence};
  if (n > 1) PUSH(m->arena, m->axis, x);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// The example in the global form on a mesh, verified; NULL after a message.
static Module *sharded(Arena *a, const char *example, const char *const *define, const Mesh *k, bool *exact) {
  Module *m = compile(a, example, define);
  Buf why = {0};
  if (!m) return NULL;
  add_axis(m, "tp", k->tp, k->sequence);
  add_axis(m, "cp", k->cp, false);
  bool ok = shard_module(m, exact);
  if (ok && !ir_verify(m, &why)) {
    Buf text = {0};
    ir_print(m, &text);
    printf("FAIL %s, %s: %s\n%s", example, k->name, why.text, text.text);
    buf_free(&text);
    ok = false;
  }
  buf_free(&why);
  return ok ? m : NULL;
}

static Module *copy(Arena *a, const Module *m) {
  Buf text = {0};
  ir_print(m, &text);
  const char *kept = arena_copy(a, text.text, text.n + 1);
  buf_free(&text);
  return load_module(a, "printed.ir", kept);
}

// ---- what they compute

static const struct {
  const char *name, *define[MAX_DEFINES];
} small[] = {
    {"mlp", {"inputs=13", "hidden=18", "classes=5", "train.batch=5", "train.microbatch=2"}},
    {"classifier",
     {"vocab=11", "length=8", "layers=2", "heads=4", "dim=16", "train.batch=3", "train.microbatch=2"}},
    {"chargpt",
     {"context=9", "layers=2", "heads=6", "dim=24", "train.length=8", "train.batch=3", "train.microbatch=2"}},
    {"gpt2",
     {"vocab=19", "context=9", "layers=3", "heads=4", "dim=16", "train.length=8", "train.batch=3",
      "train.microbatch=2"}},
    {"llama",
     {"vocab=19", "layers=2", "heads=8", "kv_heads=4", "dim=32", "hidden=22", "train.length=8", "train.batch=3",
      "train.microbatch=2"}},
};
static const Mesh mesh[] = {
    {"tp=2", 2, 1, false},        {"tp=3", 3, 1, false},        {"tp=4", 4, 1, false},
    {"tp=2, t too", 2, 1, true},  {"tp=4, t too", 4, 1, true},  {"cp=2", 1, 2, false},
    {"cp=3", 1, 3, false},        {"tp=2 cp=2", 2, 2, false},   {"tp=2 cp=2, t too", 2, 2, true},
};
enum { SMALL = sizeof small / sizeof *small, MESHES = sizeof mesh / sizeof *mesh };

static bool compare(const char *example, const Mesh *k, const Module *whole, const Module *local, double *most) {
  const Entry entry[] = {ENTRY_STEP, ENTRY_EVAL, ENTRY_SAMPLE, ENTRY_COUNT};
  Buf error = {0};
  for (int e = 0; e < 4; e++) {
    double worst;
    if (whole->entry[entry[e]] == NONE) continue;
    ArgOptions args = {.seed = 11 + (uint64_t)e};
    bool ran = ranks_compare(whole, local, whole->entry[entry[e]], &args, &(InterpOptions){.seed = 7, .step = 2},
                             &worst, &error);
    if (!ran || !(worst <= 1e-11)) {
      printf("FAIL %s, %s, %s: error %.1e %s\n", example, k->name, entry_name[entry[e]], worst,
             error.text ? error.text : "");
      buf_free(&error);
      return false;
    }
    if (worst > *most) *most = worst;
  }
  return true;
}

static bool check_small(int i, const Mesh *k) {
  Arena *a = arena_new();
  double most = 0, start = now();
  bool exact;
  Buf why = {0};
  Module *whole = sharded(a, small[i].name, small[i].define, k, &exact);
  double took = now() - start;
  Module *local = whole ? copy(a, whole) : NULL;
  bool ok = local && pass_localise(local);
  if (ok && !ir_verify_ranges(local, &why)) ok = printf("FAIL %s, %s: %s\n", small[i].name, k->name, why.text) < 0;
  ok = ok && compare(small[i].name, k, whole, local, &most);
  if (ok) printf("ok   %-12s %-18s error %.1e  %.2f s%s\n", small[i].name, k->name, most, took, exact ? "" : "  not proved least");
  buf_free(&why);
  arena_free(a);
  return ok;
}

int main(int argc, char **argv) {
  int bad = 0, n = 0;
  for (int i = 0; i < SMALL; i++)
    for (int k = 0; k < MESHES; k++) {
      bool asked = argc < 2;
      for (int j = 1; j < argc; j++) asked |= !strcmp(argv[j], small[i].name);
      if (!asked || (mesh[k].cp > 1 && !strcmp(small[i].name, "mlp"))) continue;
      n++;
      bad += !check_small(i, &mesh[k]);
    }
  printf("%d of %d fail\n", bad, n);
  return bad || !n;
}
