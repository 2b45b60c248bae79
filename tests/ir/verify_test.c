// The verifier refuses each file of tests/ir/verify for the reason that its head gives (`# why:
// text`), and accepts those without one.
#include "ir/verify.h"
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

int main(void) { return cases_run(SOURCE_DIR "/tests/ir/verify", check); }
