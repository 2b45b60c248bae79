// Random layouts: for programs of tests/passes/adjoint, forward and backward, whatever assignments
// and conversions the rule of ir/shard.h accepts. Every program passes the verifier, keeps its
// proofs of ranges once it is local, and gives the loss and the gradients of one rank on 2, 3, 4, 2
// x 2 and 3 x 2 ranks, and on folded axes. `passes_typing_test 1000` draws that many for each
// program and mesh.
#include <stdlib.h>

#include "ir/verify.h"
#include "passes/passes.h"
#include "support/typing.h"
#include "tests/oracle/oracle.h"

typedef struct Mesh {
  uint32_t n;
  int64_t size[2];
  bool folded[2];
} Mesh;
static const Mesh mesh[] = {
    {1, {2}, {0}},    {1, {3}, {0}},    {1, {4}, {0}},          {2, {2, 2}, {0}},
    {2, {3, 2}, {0}}, {1, {2}, {true}}, {1, {3}, {true}},       {2, {2, 2}, {0, true}},
    {2, {2, 3}, {true, true}},
};
enum { MESHES = sizeof mesh / sizeof *mesh };

static Module *step_of(Arena *a, const char *path, const char *text) {
  Module *m = load_module(a, path, text);
  return m && run_pass(m, "inline", path) && pass_range(m) && run_pass(m, "differentiate", path)
             ? m
             : NULL;
}

static bool fail(const Module *m, const char *what, const Buf *why) {
  Buf dump = {0};
  ir_print(m, &dump);
  printf("FAIL %s: %s\n%s\n", what, why->text ? why->text : "", dump.text);
  buf_free(&dump);
  return false;
}

static void type_it(Module *m, const Mesh *k, uint64_t seed, TypingCount *count) {
  Rng rng = {.state = seed};
  Axis axis[2] = {axis_new(str_intern("tp"), k->size[0]), axis_new(str_intern("cp"), k->size[1])};
  for (int a = 0; a < 2; a++) axis[a].folded = k->folded[a];
  random_typing(m, axis, k->n, &rng, count);
}

// One typing; the drawing repeats, so the same one is drawn again to be localised.
static bool check(const char *path, const char *text, const Mesh *k, uint64_t seed,
                  TypingCount *count) {
  Arena *a = arena_new();
  TypingCount unused = {0};
  Module *whole = step_of(a, path, text), *local = whole ? step_of(a, path, text) : NULL;
  Buf why = {0};
  bool ok = local != NULL;
  if (ok) {
    type_it(whole, k, seed, count);
    type_it(local, k, seed, &unused);
    ok = ir_verify(whole, &why) || fail(whole, "verify", &why);
  }
  if (ok)
    ok = pass_localise(local) && (ir_verify_ranges(local, &why) || fail(local, "ranges", &why));
  double worst = 0;
  Id step = ok ? whole->entry[ENTRY_STEP] : 0;
  if (ok && !ranks_compare(whole, local, step, &(ArgOptions){.seed = seed},
                           &(InterpOptions){.seed = 7, .step = 1}, &worst, &why))
    ok = fail(whole, "run", &why);
  if (ok && !(worst <= 1e-11)) {
    printf("error %.1e\n", worst);
    ok = fail(whole, "differs", &why);
  }
  if (!ok) printf("%s, mesh of %u, seed %llu\n", path, k->n, (unsigned long long)seed);
  buf_free(&why);
  arena_free(a);
  return ok;
}

static bool check_program(const char *name, int each, TypingCount *count, int *done) {
  char path[4096];
  snprintf(path, sizeof path, "%s/tests/passes/adjoint/%s", SOURCE_DIR, name);
  char *text = load_text(path, 0);
  bool ok = text != NULL;
  for (int k = 0; ok && k < MESHES; k++)
    for (int i = 0; ok && i < each; i++, ++*done)
      ok = check(path, text, &mesh[k], (uint64_t)(1 + i * MESHES + k), count);
  free(text);
  return ok;
}

int main(int argc, char **argv) {
  static char name[256][256];
  int each = argc > 1 ? atoi(argv[1]) : 2, bad = 0, done = 0;
  int n = list_files(SOURCE_DIR "/tests/passes/adjoint", ".ir", name, 256);
  TypingCount c = {0};
  for (int i = 0; i < n; i++) bad += !check_program(name[i], each, &c, &done);
  printf("%d typings: %d indices assigned, %d of them reduced, %d with a remainder, %d in blocks; "
         "%d guarded "
         "writes; %d partial with nothing assigned; %d conversions; %d terms converted before they "
         "were "
         "added\n",
         done, c.indices, c.reduced, c.uneven, c.cyclic, c.writes, c.partial_reads, c.conversions,
         c.accumulated);
  printf("%d of %d programs fail\n", bad, n);
  return bad || !n || !c.writes || !c.reduced || !c.uneven || !c.cyclic || !c.partial_reads ||
         !c.accumulated;
}
