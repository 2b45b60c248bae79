// The common part of harnesses of IR text.
#ifndef DTC_FUZZ_TEXT_H
#define DTC_FUZZ_TEXT_H

#include <stdlib.h>

#include "ir/diag.h"

typedef Module *Parse(Arena *a, Sources *s, Str path, const char *text, size_t n);
typedef void Print(const Module *m, Buf *out);

// The text's module, or NULL; messages go nowhere.
static inline Module *parse_quietly(Parse *parse, Arena *a, const char *text, size_t n) {
  static FILE *nowhere;
  if (!nowhere) nowhere = fopen("/dev/null", "w");
  Sources *s = sources_new(a);
  s->out = nowhere;
  return parse(a, s, str_intern("fuzz.ir"), text, n);
}

// The module prints to a text that parses to the same text again.
static inline void check_printed(Parse *parse, Print *print, Arena *a, const Module *m) {
  Buf first = {0}, second = {0};
  print(m, &first);
  Module *again = parse_quietly(parse, a, first.text, first.n);
  if (again) print(again, &second);
  if (!again || first.n != second.n || memcmp(first.text, second.text, first.n)) {
    fprintf(stderr, "printed\n%s\nthen\n%s\n", first.text, again ? second.text : "nothing");
    abort();
  }
  buf_free(&first);
  buf_free(&second);
}

#endif
