// Any text: the IR's parser ends with a module or with diagnostics. A module prints to a text that
// parses to the same text again; and one that the verifier accepts can be checked for ranges.
#include <stdlib.h>

#include "ir/range.h"
#include "ir/text/text.h"
#include "ir/verify.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static Module *parse(Arena *a, const char *text, size_t n) {
  static FILE *nowhere;
  if (!nowhere) nowhere = fopen("/dev/null", "w");
  Sources *s = sources_new(a);
  s->out = nowhere;
  return ir_parse(a, s, str_intern("fuzz.ir"), text, n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Arena *a = arena_new();
  Buf first = {0}, second = {0}, why = {0};
  Module *m = parse(a, (const char *)data, size);
  if (m) {
    ir_print(m, &first);
    Module *again = parse(a, first.text, first.n);
    if (again) ir_print(again, &second);
    if (!again || first.n != second.n || memcmp(first.text, second.text, first.n)) {
      fprintf(stderr, "printed\n%s\nthen\n%s\n", first.text, again ? second.text : "nothing");
      abort();
    }
    RangeResult r;
    if (ir_verify(m, &why)) range_check(m, true, &r);
  }
  buf_free(&first);
  buf_free(&second);
  buf_free(&why);
  arena_free(a);
  return 0;
}
