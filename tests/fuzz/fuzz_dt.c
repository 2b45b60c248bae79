// Any text: the front end ends with a module, which the verifier accepts, or with diagnostics.
#include <stdlib.h>

#include "frontend/frontend.h"
#include "ir/verify.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static FILE *nowhere;
  if (!nowhere) nowhere = fopen("/dev/null", "w");
  Arena *a = arena_new();
  Sources *s = sources_new(a);
  s->out = nowhere;
  char *text = arena_alloc(a, size + 1);
  memcpy(text, data, size);
  FrontendOptions o = {.path = str_intern("fuzz.dt"), .text = text};
  Buf why = {0};
  Module *m = frontend_compile(a, s, &o);
  if (!m && !s->nerror) {
    fprintf(stderr, "refused without a diagnostic\n");
    abort();
  }
  if (m && !ir_verify(m, &why)) {
    fprintf(stderr, "%s\n", why.text);
    abort();
  }
  buf_free(&why);
  arena_free(a);
  return 0;
}
