// pass_range says exactly the errors that the head of each file of tests/ir/range expects (`#
// error:`, `# note:`), and requires of data what `# range:` lines say, in the printer's words.
#include "ir/verify.h"
#include "passes/passes.h"
#include "support/cases.h"

static bool ranges_match(const Case *c) {
  for (uint32_t i = 0;; i++) {
    const char *want = case_expects(c, "range", (int)i), *got = NULL;
    if (i < c->m->range.n) {
      const DataRange *r = &c->m->range.at[i];
      got = arena_printf(c->a, "%u in [%lld, %lld)", r->arg, (long long)r->lo, (long long)r->hi);
    }
    if (!want && !got) return true;
    if (want && got && !strcmp(want, got)) continue;
    printf("range %u\n  want %s\n  got  %s\n", i, want ? want : "nothing", got ? got : "nothing");
    return false;
  }
}

static bool check(Case *c) {
  Buf why = {0};
  if (!c->m) return printf("%s", case_said(c)), false;
  if (!ir_verify(c->m, &why)) return printf("%s\n", why.text), false;
  bool ok = pass_range(c->m), fine = case_errors_match(c) && ranges_match(c);
  if (ok == (case_expects(c, "error", 0) != NULL)) fine = printf("wrong outcome\n") < 0;
  if (ok != ir_verify_ranges(c->m, &why))
    fine = printf("the verifier disagrees: %s\n", why.n ? why.text : "") < 0;
  buf_free(&why);
  return fine;
}

int main(void) { return cases_run(SOURCE_DIR "/tests/ir/range", check); }
