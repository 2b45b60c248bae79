// Any text: the parser of the lowered level ends with a module or with diagnostics. A module prints to a text that parses
// to the same text again, and the verifier of its kernels ends with a word on them.
#include "codegen/lower/text.h"
#include "codegen/lower/verify.h"
#include "codegen/target.h"
#include "ir/verify.h"
#include "tests/fuzz/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static Module *parse(Arena *a, Sources *s, Str path, const char *text, size_t n) {
  Module *m = level_parse(a, s, path, text, n);
  if (m) target_use(m, target_named("cpu"));
  return m;
}

static void print(const Module *m, Buf *out) { level_print(m, true, out); }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Arena *a = arena_new();
  Buf why = {0};
  Module *m = parse_quietly(parse, a, (const char *)data, size);
  if (m && ir_verify(m, &why)) {
    check_printed(parse, print, a, m);
    if (m->lowered) plan_verify(m->lowered, &why);
  }
  buf_free(&why);
  arena_free(a);
  return 0;
}
