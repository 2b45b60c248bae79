// Programs in the global form, with layouts written by hand (tests/passes/localise): localise keeps
// the rules and the proofs of ranges, and on the ranks of the mesh every function that none calls
// computes what the program of one rank does.
#include <stdlib.h>

#include "ir/verify.h"
#include "passes/passes.h"
#include "support/load.h"
#include "tests/oracle/oracle.h"

static bool called(const Module *m, Id fn) {
  for (Id f = 0; f < m->fn.n; f++)
    for (uint32_t i = 0; i < m->fn.at[f].stmt.n; i++)
      if (m->fn.at[f].stmt.at[i].call && m->fn.at[f].stmt.at[i].call->fn == fn) return true;
  return false;
}

static bool check_fn(const char *name, const Module *whole, const Module *local, Id fn) {
  double most = 0;
  Buf error = {0};
  for (uint64_t seed = 1; seed <= 3; seed++) {
    double worst;
    if (!ranks_compare(whole, local, fn, &(ArgOptions){.seed = seed},
                       &(InterpOptions){.seed = 7, .step = seed}, &worst, &error)) {
      printf("FAIL %s, %s: %s\n", name, whole->fn.at[fn].name, error.text);
      buf_free(&error);
      return false;
    }
    if (!(worst <= most)) most = worst;
  }
  bool ok = most <= 1e-11;
  printf("%-4s %-50s %-12s error %.1e\n", ok ? "ok" : "FAIL", name, whole->fn.at[fn].name, most);
  return ok;
}

static bool check(const char *dir, const char *name) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  Arena *a = arena_new();
  char *text = load_text(path, 0);
  Module *whole = text ? load_module(a, path, text) : NULL;
  Module *local = whole ? load_module(a, path, text) : NULL;
  bool ok = local && run_pass(local, "localise", path);
  Buf why = {0};
  if (ok && !ir_verify_ranges(local, &why)) {
    Buf dump = {0};
    ir_print(local, &dump);
    printf("FAIL %s: %s\n%s", name, why.text, dump.text);
    buf_free(&dump);
    ok = false;
  }
  for (Id fn = 0; ok && fn < whole->fn.n; fn++)
    if (!called(whole, fn)) ok = check_fn(name, whole, local, fn);
  buf_free(&why);
  free(text);
  arena_free(a);
  return ok;
}

int main(void) {
  static char name[256][256];
  const char *dir = SOURCE_DIR "/tests/passes/localise";
  int n = list_files(dir, ".ir", name, 256), bad = 0;
  for (int i = 0; i < n; i++) bad += !check(dir, name[i]);
  printf("%d of %d files fail\n", bad, n);
  return bad || !n;
}
