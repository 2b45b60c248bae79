// Names, numbers and meanings as text: what both the printer and messages write.
#include "ir/text/text.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>

bool ir_reserved(const char *w) {
  static const char *const word[] = {"and",   "or",      "not",   "true",  "false",
                                     "inf",   "nan",     "call",  "for",   "repeat",
                                     "carry", "reverse", "inout", "group", "_",
                                     "convert", "local"};
  for (size_t i = 0; i < sizeof word / sizeof *word; i++)
    if (!strcmp(w, word[i])) return true;
  for (int c = 0; c < NCOLL; c++)
    if (!strcmp(w, coll_name[c])) return true;
  return false;
}

static bool word_char(char c) { return isalnum((unsigned char)c) || c == '_'; }

static bool plain_name(Str s) {
  if (!s || ir_reserved(s)) return false;
  if (*s == '$' ? !word_char(*++s) : !isalpha((unsigned char)*s) && *s != '_') return false;
  while (word_char(*s)) s++;
  while (*s == '.') {
    s++;
    if (!word_char(*s) && *s != '*') return false;
    if (*s == '*') s++;
    else
      while (word_char(*s)) s++;
  }
  return !*s;
}

void ir_print_string(Str s, Buf *b) {
  buf_write(b, "\"", 1);
  for (; s && *s; s++) {
    unsigned char c = (unsigned char)*s;
    if (c == '"' || c == '\\') buf_printf(b, "\\%c", c);
    else if (c < 0x20 || c == 0x7f) buf_printf(b, "\\x%02x", c);
    else buf_write(b, s, 1);
  }
  buf_write(b, "\"", 1);
}

void ir_print_name(Str name, Buf *b) {
  if (plain_name(name)) buf_write(b, name, strlen(name));
  else ir_print_string(name, b);
}

void ir_print_real(double v, Buf *b) {
  if (isnan(v)) { // the sign and payload of a NaN are part of a constant's identity
    uint64_t bits;
    memcpy(&bits, &v, 8);
    if (bits == 0x7ff8000000000000u) buf_printf(b, "nan");
    else buf_printf(b, "nan(%llu)", (unsigned long long)bits);
    return;
  }
  if (isinf(v)) {
    buf_printf(b, v < 0 ? "-inf" : "inf");
    return;
  }
  char text[40];
  for (int digits = 1; digits <= 17; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, v);
    if (strtod(text, NULL) == v) break;
  }
  buf_printf(b, strpbrk(text, ".e") ? "%s" : "%s.0", text);
}

static Str meaning_of_name(const Module *m, const Fn *f, Meaning k, uint32_t of) {
  switch (meaning_of(k)) {
  case OF_NOTHING: return NULL;
  case OF_NUMBER: return str_printf("%u", of);
  case OF_PARAM: return of < m->param.n ? m->param.at[of].name : str_intern("?");
  case OF_AXIS: return of < m->axis.n ? m->axis.at[of].name : str_intern("?");
  case OF_VALUE: return of < f->value.n ? f->value.at[of].name : str_intern("?");
  case OF_WORD:
    if (of >= (k == MEANS_SCALAR ? (uint32_t)NUPDATE_SCALAR : (uint32_t)NUPDATE_PIECE)) return str_intern("?");
    return str_intern(k == MEANS_SCALAR ? update_scalar_name[of] : update_piece_name[of]);
  }
  return NULL;
}

void ir_print_meaning(const Module *m, const Fn *f, Meaning k, uint32_t of, Buf *b) {
  Str name = meaning_of_name(m, f, k, of);
  buf_printf(b, "%s%s", meaning_name[k], name ? " " : "");
  if (name && meaning_of(k) == OF_NUMBER) buf_printf(b, "%s", name);
  else if (name) ir_print_name(name, b);
}
