// print(parse(text)) == text for every file of tests/ir/text: each is in the shape that the printer
// gives it, but for the comments at its head. The files of tests/ir/parse do not parse, and say
// why.
#include "support/cases.h"

static void show_difference(const char *want, const char *got) {
  size_t line = 1, start = 0, i = 0;
  for (; want[i] && want[i] == got[i]; i++)
    if (want[i] == '\n') line++, start = i + 1;
  printf("  line %zu\n  want %.*s\n  got  %.*s\n", line, (int)strcspn(want + start, "\n"),
         want + start, (int)strcspn(got + start, "\n"), got + start);
}

static bool round_trips(Case *c) {
  const char *want = c->text;
  while (*want == '#') want = strchr(want, '\n') + 1;
  if (!c->m) return printf("%s", case_said(c)), false;
  Buf got = {0};
  ir_print(c->m, &got);
  bool same = !strcmp(want, got.text);
  if (!same) show_difference(want, got.text);
  buf_free(&got);
  return same;
}

static bool refused(Case *c) {
  if (c->m) return printf("it parses\n"), false;
  return case_errors_match(c);
}

int main(void) {
  return cases_run(SOURCE_DIR "/tests/ir/text", round_trips) +
         cases_run(SOURCE_DIR "/tests/ir/parse", refused);
}
