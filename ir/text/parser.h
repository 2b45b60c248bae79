// The parser of the IR's text form: what its two files share. A rule returns false or NONE after a
// diagnostic.
#ifndef DTC_PARSER_H
#define DTC_PARSER_H

#include "ir/ir.h"
#include "ir/text/token.h"

// Of an expression, of rules within rules, of a function's arguments, of a place's chain of calls.
// One level of an expression is at most two rules, so whatever was parsed parses again once
// printed.
enum { MAX_HEIGHT = 400, MAX_NESTING = 2 * MAX_HEIGHT + 2, MAX_ARGS = 64, MAX_CHAIN = 1000 };

// A call's callee may come later in the text: names are resolved at the end.
typedef struct Pending {
  Id fn; // caller; NONE: entry `stmt`, or, from NENTRY on, the parts of chunks in order
  uint32_t stmt;
  uint32_t token;
} Pending;

struct Parser;
// Rules of a level that adds to a module's text: called where an item begins, sets *mine where its word is one of
// theirs. Returns false after a diagnostic.
typedef bool MoreItems(struct Parser *p, void *ctx, bool *mine);

typedef struct Parser {
  Arena *a;
  Sources *src;
  Module *m;
  uint32_t file; // of the text itself
  Tokens tok;
  uint32_t at;
  VEC(uint32_t) files; // number in the text to file of src
  VEC(uint16_t) height; // of each expression, to bound recursion
  VEC(Pending) pending;
  uint32_t nesting; // of brackets being parsed
  Fn *f; // being parsed
  Index index[MAX_INDEX]; // of the statement
  uint32_t nindex;
  Assign assign[MAX_AXIS]; // of the statement
  bool lhs; // in the left side: `i<3` makes a free index
  MoreItems *more; // or NULL
  void *ctx; // of more
  bool failed;
} Parser;

static inline const Token *tok(const Parser *p) { return &p->tok.at[p->at]; }
static inline const Token *ahead(const Parser *p, uint32_t k) {
  return &p->tok.at[p->at + k < p->tok.n ? p->at + k : p->tok.n - 1];
}
static inline bool is(const Parser *p, int kind) { return tok(p)->kind == kind; }
static inline void next(Parser *p) {
  if (p->at + 1 < p->tok.n) p->at++;
}
static inline bool accept(Parser *p, int kind) {
  if (!is(p, kind)) return false;
  next(p);
  return true;
}
static inline bool is_word(const Token *t, const char *word) {
  return t->kind == TOK_NAME && !strcmp(t->text, word);
}
static inline bool accept_word(Parser *p, const char *word) {
  if (!is_word(tok(p), word)) return false;
  next(p);
  return true;
}

// Reports at token t; false.
bool p_fail(Parser *p, const Token *t, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
// Takes a token of this kind, or fails with "expected `what`".
bool p_expect(Parser *p, int kind, const char *what);
bool p_name_here(const Parser *p); // a name that is not reserved, or a quoted one
bool p_name(Parser *p, const char *what, Str *out);
bool p_integer(Parser *p, int64_t *out);
bool p_extent(Parser *p, int64_t *out); // at least 1
bool p_small(Parser *p, uint32_t *out); // at most INT32_MAX
bool p_real(Parser *p, double *out);
bool p_loc(Parser *p, Id *out);
bool p_new_index(Parser *p); // NAME '<' extent {'@' AXIS ['/' block]}
bool p_axis_here(const Parser *p); // '@' AXIS, and no place
bool p_axis(Parser *p, uint32_t *axis); // AXIS
bool p_block(Parser *p, int64_t extent, uint32_t axis, int64_t *block); // ['/' block]
bool p_assign(Parser *p, const Token *t, uint32_t axis, Assign a); // each axis once
Id p_find_value(Parser *p, const Token *t); // the value of that name
Id p_expr(Parser *p, int least); // 0: any
bool p_list(Parser *p, int close, Id *arg, uint32_t max, uint32_t *n); // expressions up to `close`
bool p_all_ints(Parser *p, const Token *t, const Id *sub, uint32_t n);

// As ir_parse, with items that `more` knows.
Module *ir_parse_more(Arena *a, Sources *s, Str name, const char *text, size_t n, MoreItems *more, void *ctx);

#endif
