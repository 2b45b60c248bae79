// Kernels as text: for each file of tests/passes/lowered whose head says `# why: text` the verifier of the lowered level
// refuses what it holds for that reason; the others verify and print as they are.
#include <stdlib.h>

#include "codegen/lower/text.h"
#include "codegen/lower/verify.h"
#include "ir/verify.h"
#include "support/load.h"

static bool prints_the_same(const Module *m, const char *text) {
  Buf again = {0};
  level_print(m, true, &again);
  bool same = again.text && !strcmp(again.text, text);
  if (!same) printf("  it prints differently:\n%s", again.text);
  buf_free(&again);
  return same;
}

static bool refused(const Module *m, const char *want) {
  Buf why = {0};
  bool ok = plan_verify(m->lowered, &why), pass = !ok && strstr(why.text, want);
  if (!pass) printf("  want %s\n  got  %s\n", want, ok ? "no fault" : why.text);
  buf_free(&why);
  return pass;
}

static bool accepted(const Module *m) {
  Buf why = {0};
  bool ok = plan_verify(m->lowered, &why);
  if (!ok) printf("  %s\n", why.text);
  buf_free(&why);
  return ok;
}

static bool check(const char *path) {
  static const char lead[] = "# why: ";
  char *text = load_text(path, 0), *rest = text;
  Str want = NULL;
  Arena *a = arena_new();
  Sources *s = sources_new(a);
  Buf why = {0};
  s->out = stdout;
  if (text && !strncmp(text, lead, sizeof lead - 1)) {
    rest = strchr(text, '\n') + 1;
    want = str_internn(text + sizeof lead - 1, (size_t)(rest - text) - sizeof lead);
  }
  Module *m = text ? level_parse(a, s, str_intern(path), rest, strlen(rest)) : NULL;
  bool ok = m && m->lowered;
  if (ok && !ir_verify(m, &why)) printf("  the module: %s\n", why.text), ok = false;
  ok = ok && prints_the_same(m, rest) && (want ? refused(m, want) : accepted(m));
  printf("%-4s %s\n", ok ? "ok" : "FAIL", path);
  buf_free(&why);
  free(text);
  arena_free(a);
  return ok;
}

int main(void) {
  static char name[256][256];
  const char *dir = SOURCE_DIR "/tests/passes/lowered";
  int n = list_files(dir, ".ir", name, 256), bad = 0;
  for (int i = 0; i < n; i++) {
    Str path = str_printf("%s/%s", dir, name[i]);
    bad += !check(path);
  }
  return bad || !n;
}
