// Any text: the IR's parser ends with a module or with diagnostics. A module prints to a text that
// parses to the same text again; and one that the verifier accepts can be checked for ranges.
#include "ir/range.h"
#include "ir/text/text.h"
#include "ir/verify.h"
#include "tests/fuzz/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Arena *a = arena_new();
  Buf why = {0};
  Module *m = parse_quietly(ir_parse, a, (const char *)data, size);
  if (m) {
    check_printed(ir_parse, ir_print, a, m);
    RangeResult r;
    if (ir_verify(m, &why)) range_check(m, true, &r);
  }
  buf_free(&why);
  arena_free(a);
  return 0;
}
