// Pass shard on small examples and on the models of tests/gradient, in float64: the entries compute
// on the ranks of each mesh what one rank does. Arguments: `all` meshes, or only the models
// whose names have one of them.
#include <stdlib.h>

#include "ir/verify.h"
#include "passes/passes.h"
#include "support/mesh.h"
#include "tests/oracle/oracle.h"

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
    {"examples/mlp",
     {"inputs=13", "hidden=18", "classes=5", "train.batch=5", "train.microbatch=2"}},
    {"examples/classifier",
     {"vocab=11", "length=8", "layers=2", "heads=4", "dim=16", "train.batch=3",
      "train.microbatch=2"}},
    {"examples/chargpt",
     {"context=9", "layers=2", "heads=6", "dim=24", "train.length=8", "train.batch=3",
      "train.microbatch=2"}},
    {"examples/gpt2",
     {"vocab=19", "context=9", "layers=3", "heads=4", "dim=16", "train.length=8", "train.batch=3",
      "train.microbatch=2"}},
    {"examples/llama",
     {"vocab=19", "layers=2", "heads=8", "kv_heads=4", "dim=32", "hidden=22", "train.length=8",
      "train.batch=3", "train.microbatch=2"}},
    {"examples/gpt2", // 3 heads
     {"vocab=19", "context=9", "layers=2", "heads=3", "dim=12", "train.length=7", "train.batch=3",
      "train.microbatch=2"}},
    {"examples/llama", // 2 heads of keys and values
     {"vocab=19", "layers=2", "heads=4", "kv_heads=2", "dim=16", "hidden=23", "train.length=7",
      "train.batch=3", "train.microbatch=2"}},
    {"tests/gradient/models/attention", {NULL}}, // parameters along the sequence, too
};
static const Mesh mesh[] = {
    {"tp=2", 2, 1, false, false, false},
    {"tp=3", 3, 1, false, false, false},
    {"tp=4", 4, 1, false, false, false},
    {"tp=2, t too", 2, 1, true, false, false},
    {"tp=4, t too", 4, 1, true, false, false},
    {"cp=2", 1, 2, false, false, false},
    {"cp=3", 1, 3, false, false, false},
    {"tp=2 cp=2", 2, 2, false, false, false},
    {"tp=2 cp=2, t too", 2, 2, true, false, false},
    {"tp=6", 6, 1, false, false, false},
    {"tp=8, t too", 8, 1, true, false, false},
    {"tp=3 cp=4", 3, 4, false, false, false},
    {"cp=2, heads", 1, 2, false, true, false},
    {"tp=2 cp=2, heads", 2, 2, false, true, false},
    {"tp=2 cp=2, t and heads", 2, 2, true, true, false},
    {"tp=2 cp=2, t, ring", 2, 2, true, false, true},
    {"cp=2, ring", 1, 2, false, false, true},
    {"tp=3 cp=4, ring", 3, 4, false, false, true},
};
enum { SMALL = sizeof small / sizeof *small, MESHES = sizeof mesh / sizeof *mesh };

static bool compare(const char *example, const Mesh *k, const Module *plain, const Module *whole,
                    const Module *local, double *most) {
  const Entry entry[] = {ENTRY_STEP, ENTRY_EVAL, ENTRY_SAMPLE, ENTRY_COUNT};
  Buf error = {0};
  for (int e = 0; e < 4; e++) {
    double worst;
    if (whole->entry[entry[e]] == NONE) continue;
    ArgOptions args = {.seed = 11 + (uint64_t)e};
    bool ran = ranks_compare_to(plain, plain->entry[entry[e]], whole, local,
                                whole->entry[entry[e]], &args,
                                &(InterpOptions){.seed = 7, .step = 2}, &worst, &error);
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

static bool check_small(const char *name, const char *const *define, const Mesh *k) {
  Arena *a = arena_new();
  double most = 0, start = mesh_now();
  bool exact, refused = false;
  Buf why = {0};
  Module *whole = mesh_shard(a, name, define, k, &exact, &refused);
  double took = mesh_now() - start;
  Module *local = whole ? copy(a, whole) : NULL;
  bool ok = local && pass_localise(local);
  if (ok && !ir_verify_ranges(local, &why))
    ok = printf("FAIL %s, %s: %s\n", name, k->name, why.text) < 0;
  Module *plain = ok ? mesh_compile(a, name, define) : NULL;
  ok = plain && compare(name, k, plain, whole, local, &most);
  if (ok)
    printf("ok   %-36s %-16s error %.1e  %.2f s%s\n", name, k->name, most, took,
           exact ? "" : "  not proved least");
  if (refused) printf("ok   %-36s %-16s refused\n", name, k->name);
  buf_free(&why);
  arena_free(a);
  return ok || refused;
}

// Whether model number i is to be run on mesh k of n: without arguments each is on a quarter of
// them (less under the sanitizers), with `all` on all, or with names only those models, on all.
static bool asked(const char *name, int i, int k, int argc, char **argv) {
  bool found = argc < 2 ? (i + k) % (4 * SPARSE) == 0 : !strcmp(argv[1], "all");
  for (int j = 1; j < argc; j++) found |= strstr(name, argv[j]) != NULL;
  return found;
}

// Models that are made for this, and those of tests/gradient, which have every layer of the
// standard library.
static int check_models(const char *dir, int argc, char **argv, int *n) {
  static char file[256][256];
  int bad = 0, files = list_files(str_printf(SOURCE_DIR "/%s", dir), ".dt", file, 256);
  for (int i = 0; i < files; i++) {
    const char *name = str_printf("%s/%.*s", dir, (int)strlen(file[i]) - 3, file[i]);
    for (int k = 0; k < MESHES; k++) {
      bool simple = !strcmp(dir, "tests/gradient/models");
      if (!asked(name, i, k, argc, argv) || (simple && argc < 2 && k >= 4)) continue;
      bad += !check_small(name, NULL, &mesh[k]);
      ++*n;
    }
  }
  return bad;
}

int main(int argc, char **argv) {
  int bad = 0, n = 0;
  for (int i = 0; i < SMALL; i++)
    for (int k = 0; k < MESHES; k++) {
      bool heads = mesh[k].heads && !strncmp(small[i].name, "tests/", 6);
      if (!heads && !asked(small[i].name, i, k, argc, argv)) continue;
      n++;
      bad += !check_small(small[i].name, small[i].define, &mesh[k]);
    }
  bad += check_models("tests/passes/shard", argc, argv, &n);
  bad += check_models("tests/gradient/models", argc, argv, &n);
  printf("%d of %d fail\n", bad, n);
  return bad || !n;
}
