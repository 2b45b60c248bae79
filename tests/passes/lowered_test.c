// Kernels as text: for each file of tests/passes/lowered whose head says `# why: text` the verifier of the lowered level
// refuses what it holds for that reason; the others verify and print as they are. Of these, every line counts: without it,
// or with one more than a number in it, they are refused.
#include <ctype.h>
#include <stdlib.h>

#include "codegen/target.h"
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

// ---- every line counts

static bool is_refused(const char *text, size_t n) {
  Arena *a = arena_new();
  Sources *s = sources_new(a);
  Buf why = {0};
  s->out = tmpfile();
  Module *m = s->out ? level_parse(a, s, str_intern("changed.ir"), text, n) : NULL;
  if (m) target_use(m, target_named("cpu"));
  bool ok = m && ir_verify(m, &why) && m->lowered && plan_verify(m->lowered, &why);
  if (s->out) fclose(s->out);
  buf_free(&why);
  arena_free(a);
  return !ok;
}

static bool begins(const char *line, const char *word) {
  line += strspn(line, " ");
  return !strncmp(line, word, strlen(word));
}

// Lines that say what something costs, or what may be done and need not be.
static bool may_change(const char *line) {
  return begins(line, "cost") || begins(line, "inplace") || begins(line, "\n");
}

// The text with its part [from, to) replaced.
static bool changed_is_refused(const char *text, size_t from, size_t to, const char *by) {
  Buf b = {0};
  buf_printf(&b, "%.*s%s%s", (int)from, text, by, text + to);
  bool ok = is_refused(b.text, b.n);
  if (!ok) printf("  accepted with `%s` for `%.*s` in %.*s\n", by, (int)(to - from), text + from,
                  (int)strcspn(text + from, "\n"), text + from);
  buf_free(&b);
  return ok;
}

// Numbers that something else could be as well: tiles, tasks, more room in the frame, strides of a row.
static bool is_free_number(const char *line, const char *at) {
  if (begins(line, "task") || begins(line, "inside") || !strncmp(line, "  frame", 7)) return true;
  return begins(line, "grid") && at - line > 4 && !strncmp(at - 4, " by ", 4);
}

static bool numbers_count(const char *text, const char *line, size_t n) {
  bool ok = true;
  for (const char *p = line; p < line + n && *p != '#'; p++) {
    if (!isdigit((unsigned char)*p) || isalnum((unsigned char)p[-1]) || p[-1] == '.' || p[-1] == '_') continue;
    size_t from = (size_t)(p - text), digits = strspn(p, "0123456789");
    char more[32];
    snprintf(more, sizeof more, "%lld", atoll(p) + 1);
    if (!is_free_number(line, p)) ok &= changed_is_refused(text, from, from + digits, more);
    p += digits - 1;
  }
  return ok;
}

static bool every_line_counts(const char *text) {
  bool ok = true;
  for (const char *line = strstr(text, "lowered "); *line;) {
    size_t n = strcspn(line, "\n") + 1, from = (size_t)(line - text);
    if (!may_change(line)) ok &= changed_is_refused(text, from, from + n, "") && numbers_count(text, line, n);
    line += n;
  }
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
  if (m) target_use(m, target_named("cpu"));
  bool ok = m && m->lowered;
  if (ok && !ir_verify(m, &why)) printf("  the module: %s\n", why.text), ok = false;
  ok = ok && prints_the_same(m, rest) && (want ? refused(m, want) : accepted(m) && every_line_counts(rest));
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
