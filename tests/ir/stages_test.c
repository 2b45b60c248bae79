// Every example, and every program of tests/passes/adjoint, after every pass: the verifier accepts it,
// its subscripts can still be proved in range, and it prints to a text that parses and prints the same.
#include <dirent.h>
#include <stdlib.h>

#include "codegen/target.h"
#include "codegen/target.h"
#include "frontend/frontend.h"
#include "ir/text/text.h"
#include "ir/verify.h"
#include "passes/passes.h"

static const struct {
  const char *name;
  bool (*run)(Module *m);
} pass[] = {
    {"inline", pass_inline},       {"range", pass_range},
    {"batch", pass_batch},         {"differentiate", pass_differentiate},
    {"optimizer", pass_optimizer}, {"precision", pass_precision},
    {"simplify", pass_simplify},   {"normalise", pass_normalise},
};
enum { NPASS = sizeof pass / sizeof *pass, RANGE = 1 };

static bool round_trips(const Module *m, const char *where) {
  Buf first = {0}, second = {0};
  Arena *a = arena_new();
  ir_print(m, &first);
  Module *again = ir_parse(a, sources_new(a), str_intern(where), first.text, first.n);
  if (again) ir_print(again, &second);
  bool same = again && !strcmp(first.text, second.text);
  buf_free(&first);
  buf_free(&second);
  arena_free(a);
  return same;
}

static bool holds(const Module *m, const char *path, const char *after, bool ranges) {
  Buf why = {0};
  const char *where = arena_printf(m->arena, "%s after %s", path, after);
  bool ok = ranges ? ir_verify_ranges(m, &why) : ir_verify(m, &why);
  if (!ok) printf("%s: %s\n", where, why.text);
  if (!round_trips(m, where)) ok = printf("%s: prints differently once parsed\n", where) < 0;
  buf_free(&why);
  return ok;
}

static Module *load(Arena *a, Sources *s, const char *path) {
  if (strcmp(path + strlen(path) - 3, ".ir")) {
    FrontendOptions o = {.path = str_intern(path), .stdlib = str_intern(SOURCE_DIR "/stdlib")};
    return frontend_compile(a, s, &o);
  }
  FILE *f = fopen(path, "rb");
  Buf text = {0};
  for (int c; f && (c = getc(f)) != EOF;) buf_write(&text, &(char){(char)c}, 1);
  if (f) fclose(f);
  Module *m = ir_parse(a, s, str_intern(path), text.text, text.n);
  buf_free(&text);
  return m;
}

// A text program has no train block: it is its own batch, and has no optimizer.
static bool check(const char *path) {
  Arena *a = arena_new();
  Module *m = load(a, sources_new(a), path);
  if (m) target_use(m, target_named("cpu"));
  bool ok = m && holds(m, path, "reading", false);
  for (int i = 0; ok && i < NPASS; i++) {
    bool text = m->train.batch == 0;
    if (text && (pass[i].run == pass_batch || pass[i].run == pass_optimizer)) continue;
    if (text && pass[i].run == pass_precision) continue;
    ok = pass[i].run(m) && holds(m, path, pass[i].name, i >= RANGE);
  }
  if (!ok) printf("FAIL %s\n", path);
  arena_free(a);
  return ok;
}

static int check_folder(const char *dir, const char *tail) {
  DIR *d = opendir(dir);
  int n = 0, bad = 0;
  for (struct dirent *e; d && (e = readdir(d));) {
    size_t k = strlen(e->d_name);
    if (k < 3 || strcmp(e->d_name + k - 3, tail)) continue;
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
    bad += !check(path);
    n++;
  }
  if (d) closedir(d);
  printf("%d of %d programs of %s hold at every stage\n", n - bad, n, dir);
  return bad + !n;
}

int main(void) {
  return check_folder(SOURCE_DIR "/examples", ".dt") +
         check_folder(SOURCE_DIR "/tests/passes/adjoint", ".ir");
}
