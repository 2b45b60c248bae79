#include "ir/text/token.h"

#include <ctype.h>
#include <stdlib.h>

typedef struct Lexer {
  Arena *a;
  Sources *src;
  uint32_t file;
  const char *p, *end, *line_start;
  uint32_t line;
  int depth; // open brackets: a line's end inside them means nothing
  Tokens *out;
} Lexer;

static char peek(const Lexer *x, size_t k) { return k < (size_t)(x->end - x->p) ? x->p[k] : 0; }
static bool word_char(char c) { return isalnum((unsigned char)c) || c == '_'; }

static bool fail(Lexer *x, const char *at, const char *message) {
  uint32_t col = (uint32_t)(at - x->line_start) + 1;
  diag_error(x->src, loc_new(x->src, x->file, x->line, col, 1, 0), "%s", message);
  return false;
}

static Token *push(Lexer *x, int kind, const char *start) {
  Token t = {.kind = kind, .line = x->line};
  t.col = (uint32_t)(start - x->line_start) + 1;
  t.len = x->p > start ? (uint32_t)(x->p - start) : 1;
  PUSH(x->a, *x->out, t);
  return &x->out->at[x->out->n - 1];
}

// '$'? word ('.' (word | '*'))*
static void name(Lexer *x) {
  const char *start = x->p;
  if (*x->p == '$') x->p++;
  while (word_char(peek(x, 0))) x->p++;
  while (peek(x, 0) == '.' && (word_char(peek(x, 1)) || peek(x, 1) == '*')) {
    x->p++;
    if (*x->p == '*') x->p++;
    else
      while (word_char(peek(x, 0))) x->p++;
  }
  Str text = str_internn(start, (size_t)(x->p - start));
  push(x, TOK_NAME, start)->text = text;
}

static int hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

static bool string(Lexer *x) {
  const char *start = x->p++;
  char *text = arena_alloc(x->a, 64);
  size_t n = 0, cap = 64;
  for (;; x->p++) {
    char c = peek(x, 0);
    if (x->p >= x->end || c == '\n' || c == 0) return fail(x, start, "this string has no end");
    if (c == '"') break;
    if (c == '\\') {
      c = peek(x, 1);
      int hi = hex(peek(x, 2)), lo = hex(peek(x, 3));
      if (c == 'x' && hi >= 0 && lo >= 0 && hi + lo > 0) {
        c = (char)(hi * 16 + lo);
        x->p += 2;
      } else if (c != '"' && c != '\\') {
        return fail(x, x->p, "unknown escape: \\\\, \\\" and \\xHH are known");
      }
      x->p++;
    }
    if (n == cap) { // doubled on the arena: strings are short
      char *more = arena_alloc(x->a, cap * 2);
      memcpy(more, text, n);
      text = more;
      cap *= 2;
    }
    text[n++] = c;
  }
  x->p++;
  push(x, TOK_STRING, start)->text = str_internn(text, n);
  return true;
}

static bool number(Lexer *x) {
  const char *start = x->p;
  bool real = false;
  while (isdigit((unsigned char)peek(x, 0))) x->p++;
  if (peek(x, 0) == '.' && isdigit((unsigned char)peek(x, 1))) {
    real = true;
    for (x->p++; isdigit((unsigned char)peek(x, 0));) x->p++;
  }
  size_t sign = peek(x, 1) == '+' || peek(x, 1) == '-';
  if (peek(x, 0) == 'e' && isdigit((unsigned char)peek(x, 1 + sign))) {
    real = true;
    for (x->p += 1 + sign; isdigit((unsigned char)peek(x, 0));) x->p++;
  }
  if (word_char(peek(x, 0))) return fail(x, x->p, "a number ends in a letter");
  char *text = arena_alloc(x->a, (size_t)(x->p - start) + 1);
  memcpy(text, start, (size_t)(x->p - start));
  Token *t = push(x, real ? TOK_REAL : TOK_INT, start);
  if (real) {
    t->real = strtod(text, NULL);
    return true;
  }
  t->integer = 0;
  for (char *d = text; *d; d++)
    if (__builtin_mul_overflow(t->integer, 10u, &t->integer) ||
        __builtin_add_overflow(t->integer, (uint64_t)(*d - '0'), &t->integer))
      return fail(x, start, "this number is too large");
  return true;
}

static bool punct(Lexer *x) {
  static const struct {
    char text[3];
    int kind;
  } two[] = {{"->", TOK_ARROW}, {"+=", TOK_ADD_TO}, {"<=", TOK_LE},  {">=", TOK_GE},
             {"==", TOK_EQ},    {"!=", TOK_NE},     {"//", TOK_IDIV}};
  const char *start = x->p;
  for (size_t i = 0; i < sizeof two / sizeof *two; i++) {
    if (peek(x, 0) != two[i].text[0] || peek(x, 1) != two[i].text[1]) continue;
    x->p += 2;
    push(x, two[i].kind, start);
    return true;
  }
  char c = *x->p;
  if (!c || !strchr("()[]{}<>=+-*/%,:;|@?", c)) return fail(x, start, "unexpected character");
  if (c == '(' || c == '[') x->depth++;
  if ((c == ')' || c == ']') && x->depth) x->depth--;
  x->p++;
  push(x, c, start);
  return true;
}

static void line_end(Lexer *x) {
  const char *start = x->p++;
  if (!x->depth && x->out->n && x->out->at[x->out->n - 1].kind != TOK_LINE)
    push(x, TOK_LINE, start);
  x->line++;
  x->line_start = x->p;
}

bool tokenize(Arena *a, Sources *s, uint32_t file, const char *text, size_t n, Tokens *out) {
  Lexer x = {.a = a,
             .src = s,
             .file = file,
             .p = text,
             .end = text + n,
             .line_start = text,
             .line = 1,
             .out = out};
  bool ok = true;
  while (ok && x.p < x.end) {
    char c = *x.p;
    if (c == '\n') line_end(&x);
    else if (c == ' ' || c == '\t' || c == '\r') x.p++;
    else if (c == '#')
      while (x.p < x.end && *x.p != '\n') x.p++;
    else if (isalpha((unsigned char)c) || c == '_' || (c == '$' && word_char(peek(&x, 1)))) name(&x);
    else if (isdigit((unsigned char)c)) ok = number(&x);
    else if (c == '"') ok = string(&x);
    else ok = punct(&x);
  }
  if (out->n && out->at[out->n - 1].kind != TOK_LINE) push(&x, TOK_LINE, x.p);
  push(&x, TOK_END, x.p);
  return ok;
}

const char *token_text(Arena *a, const Token *t) {
  static const char *const two[] = {"->", "+=", "<=", ">=", "==", "!=", "//"};
  switch (t->kind) {
  case TOK_END: return "the end of the text";
  case TOK_LINE: return "the end of the line";
  case TOK_NAME: return arena_printf(a, "`%s`", t->text);
  case TOK_STRING: return "a string";
  case TOK_INT: return arena_printf(a, "`%llu`", (unsigned long long)t->integer);
  case TOK_REAL: return arena_printf(a, "`%g`", t->real);
  default: break;
  }
  if (t->kind < 256) return arena_printf(a, "`%c`", t->kind);
  return arena_printf(a, "`%s`", two[t->kind - TOK_ARROW]);
}
