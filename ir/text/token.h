// The tokens of the IR's text form.
#ifndef DTC_TOKEN_H
#define DTC_TOKEN_H

#include "ir/diag.h"

// Single-character punctuation is its own kind.
typedef enum Tok {
  TOK_END = 256,
  TOK_LINE, // the end of a line, outside brackets
  TOK_NAME, // dotted words, or a quoted name
  TOK_STRING, // "..."
  TOK_INT,
  TOK_REAL,
  TOK_ARROW, // ->
  TOK_ADD_TO, // +=
  TOK_LE,
  TOK_GE,
  TOK_EQ,
  TOK_NE,
  TOK_IDIV // //
} Tok;

typedef struct Token {
  int kind; // Tok or a character
  uint32_t line, col, len;
  Str text; // NAME, STRING (unescaped)
  union {
    uint64_t integer; // INT
    double real; // REAL
  };
} Token;

typedef VEC(Token) Tokens;

// Cuts text into tokens, ending with TOK_END. False after a diagnostic.
bool tokenize(Arena *a, Sources *s, uint32_t file, const char *text, size_t n, Tokens *out);
// "`x`", "a number", "the end of the line": what a message calls a token.
const char *token_text(Arena *a, const Token *t);

#endif
