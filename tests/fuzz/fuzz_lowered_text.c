// Any text: the parser of the lowered level ends with a module or with diagnostics. A module prints to a text that parses
// to the same text again, and the verifier of its kernels ends with a word on them.
#include <stdlib.h>

#include "codegen/lower/text.h"
#include "codegen/lower/verify.h"
#include "codegen/target.h"
#include "ir/verify.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static Module *parse(Arena *a, const char *text, size_t n) {
  static FILE *nowhere;
  if (!nowhere) nowhere = fopen("/dev/null", "w");
  Sources *s = sources_new(a);
  s->out = nowhere;
  Module *m = level_parse(a, s, str_intern("fuzz.ir"), text, n);
  if (m) target_use(m, target_named("cpu"));
  return m;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Arena *a = arena_new();
  Buf first = {0}, second = {0}, why = {0};
  Module *m = parse(a, (const char *)data, size);
  if (m && ir_verify(m, &why)) {
    level_print(m, true, &first);
    Module *again = parse(a, first.text, first.n);
    if (again) level_print(again, true, &second);
    if (!again || first.n != second.n || memcmp(first.text, second.text, first.n)) {
      fprintf(stderr, "printed\n%s\nthen\n%s\n", first.text, again ? second.text : "nothing");
      abort();
    }
    if (m->lowered) plan_verify(m->lowered, &why);
  }
  buf_free(&first);
  buf_free(&second);
  buf_free(&why);
  arena_free(a);
  return 0;
}
