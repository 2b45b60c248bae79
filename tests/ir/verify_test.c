// The verifier refuses each file of tests/ir/verify for the reason that its head gives (`# why:
// text`), and accepts those without one.
#include "ir/verify.h"
#include "ir/text/text.h"
#include "support/cases.h"

static bool check(Case *c) {
  if (!c->m) return printf("%s", case_said(c)), false;
  Buf why = {0};
  bool ok = ir_verify(c->m, &why);
  const char *want = case_expects(c, "why", 0);
  bool pass = want ? !ok && strstr(why.text, want) : ok;
  if (!pass) printf("  want %s\n  got  %s\n", want ? want : "no fault", ok ? "no fault" : why.text);
  buf_free(&why);
  return pass;
}

// IR text cannot say that two statements share an array.
static bool sharing_is_refused(void) {
  static const char text[] = "module m\n"
                             "func f(x: real[3]) -> (y: real[3], z: real[3]) {\n"
                             "  y[i<3] = x[i]\n"
                             "  z[i<3] = x[i]\n"
                             "}\n";
  Arena *a = arena_new();
  Module *m = ir_parse(a, sources_new(a), str_intern("shared.ir"), text, sizeof text - 1);
  Buf why = {0};
  bool pass = m && ir_verify(m, &why);
  if (pass) m->fn.at[0].stmt.at[1].sub = m->fn.at[0].stmt.at[0].sub;
  pass = pass && !ir_verify(m, &why) && strstr(why.text, "shares an array with statement 0 of `f`");
  printf("%-4s statements that share subscripts are refused\n", pass ? "ok" : "FAIL");
  buf_free(&why);
  arena_free(a);
  return pass;
}

int main(void) {
  int bad = cases_run(SOURCE_DIR "/tests/ir/verify", check);
  return bad || !sharing_is_refused();
}
