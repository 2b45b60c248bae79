#include "driver/fmt.h"

#include <ctype.h>

#include "driver/command.h"
#include "driver/options.h"
#include "frontend/ast.h"
#include "ir/diag.h"

typedef enum TokenKind { WORD, KEYWORD, NUMBER, STRING, DOTS, SIGN } TokenKind;

typedef struct Token {
  TokenKind kind;
  const char *at;
  int n;
  int was, col;     // column in the text as it was; in the new code, without its indentation
  bool call, unary; // a `(` right behind the name it calls; a `-` with nothing on its left
} Token;

typedef struct Line {
  Token *token;
  int ntoken;
  const char *comment; // NULL: none
  int ncomment;
  int code_end, comment_at, equal_at; // columns in the text as it was; -1: there is none
  int equal;                          // the token `=` outside of brackets; -1: there is none
  int blank;                          // lines without anything before this one
  // In the new layout.
  int indent, braces; // levels; braces: without those of a continued line
  int margin;         // columns before the code
  bool inside;        // begins within brackets
  char *code;
  int ncode, nequal; // bytes of code; of it, those before its `=`
} Line;

typedef struct Fmt {
  Arena *arena;
  VEC(Line) line;
} Fmt;

static bool is(const Token *t, const char *text) {
  return (int)strlen(text) == t->n && !memcmp(t->at, text, (size_t)t->n);
}

static bool is_any(const Token *t, const char *const *of) {
  for (; *of; of++)
    if (is(t, *of)) return true;
  return false;
}

// ---- tokens, as lexer.l has them ----

static bool is_keyword(const Token *t) {
  static const char *const of[] = {"use",       "layer", "model",  "fn",   "train", "param",
                                   "stack",     "of",    "if",     "else", "and",   "or",
                                   "intrinsic", "not",   "return", NULL};
  return is_any(t, of);
}

static const char *digits(const char *p, const char *end) {
  while (p < end && (isdigit((unsigned char)*p) || *p == '_')) p++;
  return p;
}

static const char *number_end(const char *p, const char *end) {
  p = digits(p, end);
  if (p < end && *p == '.') p = digits(p + 1, end);
  if (p >= end || (*p != 'e' && *p != 'E')) return p;
  const char *q = p + 1;
  if (q < end && (*q == '+' || *q == '-')) q++;
  return q < end && isdigit((unsigned char)*q) ? digits(q, end) : p;
}

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

static Token token_at(const char *p, const char *end) {
  static const char *const longer[] = {"...", "+=", "//", "**", "==", "!=", "<=", ">=", NULL};
  Token t = {.kind = SIGN, .at = p, .n = 1};
  const char *q = p;
  if (*p == '"') {
    for (q++; q < end && *q != '"'; q++) q += *q == '\\' && q + 1 < end;
    t.kind = STRING;
    t.n = (int)(q < end ? q + 1 - p : q - p);
  } else if (isdigit((unsigned char)*p) ||
             (*p == '.' && p + 1 < end && isdigit((unsigned char)p[1]))) {
    t.kind = NUMBER;
    t.n = (int)(number_end(p, end) - p);
  } else if (is_word(*p)) {
    while (q < end && is_word(*q)) q++;
    t.n = (int)(q - p);
    t.kind = is_keyword(&t) ? KEYWORD : WORD;
  } else {
    for (const char *const *s = longer; *s && t.n == 1; s++)
      if (strlen(*s) <= (size_t)(end - p) && !memcmp(p, *s, strlen(*s))) t.n = (int)strlen(*s);
    if (t.n == 3) t.kind = DOTS;
  }
  return t;
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\f'; }

// One line, without its end.
static Line scan_line(Arena *a, const char *p, const char *end) {
  Line l = {.equal = -1, .equal_at = -1, .comment_at = -1};
  VEC(Token) token = {0};
  const char *start = p;
  while (p < end) {
    if (is_blank(*p)) {
      p++;
      continue;
    }
    if (*p == '#') {
      while (is_blank(end[-1])) end--;
      l.comment = p;
      l.ncomment = (int)(end - p);
      l.comment_at = (int)(p - start);
      break;
    }
    Token t = token_at(p, end);
    t.was = (int)(p - start);
    PUSH(a, token, t);
    p += t.n;
    l.code_end = (int)(p - start);
  }
  l.token = token.at;
  l.ntoken = (int)token.n;
  return l;
}

static void scan(Fmt *f, const char *text, size_t n) {
  const char *end = text + n;
  if (n >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) text += 3; // a mark that editors put there
  int blank = 0;
  while (text < end) {
    const char *stop = memchr(text, '\n', (size_t)(end - text));
    Line l = scan_line(f->arena, text, stop ? stop : end);
    l.blank = blank;
    blank = l.ntoken || l.comment ? 0 : blank + 1;
    for (int i = 0, depth = 0; i < l.ntoken && l.equal < 0; i++) {
      depth += is(&l.token[i], "(") || is(&l.token[i], "[");
      depth -= is(&l.token[i], ")") || is(&l.token[i], "]");
      if (!is(&l.token[i], "=") || depth || !i) continue;
      l.equal = i;
      l.equal_at = (int)(l.token[i].at - text);
    }
    if (!blank) PUSH(f->arena, f->line, l);
    text = stop ? stop + 1 : end;
  }
}

// ---- indentation ----

static bool goes_on(const Token *t) {
  static const char *const of[] = {
      ",",  "=",  "+=", "+",  "-",   "*",  "/",   "%",  "<", ">", "//", "**",
      "==", "!=", "<=", ">=", "and", "or", "not", "of", ".", "|", ":",  NULL};
  return is_any(t, of);
}

static bool continues(const Token *t) {
  static const char *const of[] = {"+",  "-",  "*",  "/",  "%",   "<",  ">", "//", "**",
                                   "==", "!=", "<=", ">=", "and", "or", ".", ",",  NULL};
  return is_any(t, of);
}

// Levels: one for each open brace, and one more where the line continues one before, unless it
// begins by closing the bracket that was left open.
static void indent(Fmt *f) {
  int braces = 0, brackets = 0;
  bool open = false; // the last line of code continues
  for (uint32_t i = 0; i < f->line.n; i++) {
    Line *l = &f->line.at[i];
    int lead = 0, closed = 0;
    for (; lead < l->ntoken && strchr(")]}", *l->token[lead].at); lead++)
      *(*l->token[lead].at == '}' ? &braces : &brackets) -= 1, closed++;
    if (braces < 0) braces = 0;
    bool first_continues = lead < l->ntoken && !closed && continues(&l->token[0]);
    l->braces = braces;
    l->inside = brackets > 0;
    l->indent = braces + (brackets > 0 || (!closed && open) || first_continues);
    for (int k = lead; k < l->ntoken; k++) {
      char c = *l->token[k].at;
      braces += l->token[k].kind == SIGN ? (c == '{') - (c == '}') : 0;
      brackets += l->token[k].kind == SIGN ? (c == '(' || c == '[') - (c == ')' || c == ']') : 0;
    }
    if (l->ntoken) open = goes_on(&l->token[l->ntoken - 1]);
  }
}

// ---- spaces within a line ----

// Whether a value may end in this token: the next one is then an operator, or its call.
static bool is_value(const Token *t) {
  return t->kind == WORD || t->kind == NUMBER || t->kind == STRING || t->kind == DOTS ||
         is(t, ")") || is(t, "]");
}

static bool space_between(const Token *p, const Token *t, bool group) {
  static const char *const tight[] = {")", "]", ",", ":", ";", ".", NULL};
  if (t->kind == SIGN && is_any(t, tight)) return false;
  if (p->unary || (p->kind == SIGN && (is(p, "(") || is(p, "[") || is(p, ".")))) return false;
  if (t->kind == SIGN && (is(t, "(") || is(t, "["))) return !t->call;
  if (group && (is(p, "=") || is(t, "="))) return false; // (c=2 i)
  return !(is(p, "{") && is(t, "}"));
}

// `nest` holds the open brackets of lines before: `(` of a call, `g` of one that groups, `[`.
// `before` is the token before the line, or NULL.
static void print_line(Line *l, const Token *before, char *nest, int *depth, int most, Buf *out) {
  for (int i = 0; i < l->ntoken; i++) {
    Token *t = &l->token[i];
    const Token *p = i ? t - 1 : before;
    t->unary = is(t, "-") && !(p && is_value(p));
    t->call = i && is_value(p) && p->kind != NUMBER;
    bool group = *depth > 0 && nest[*depth - 1] == 'g';
    if (i && space_between(p, t, group)) buf_write(out, " ", 1);
    t->col = (int)out->n;
    if (i == l->equal && !l->inside && (!*depth || nest[*depth - 1] == '{'))
      l->nequal = (int)out->n;
    buf_write(out, t->at, (size_t)t->n);
    if (t->kind != SIGN) continue;
    if (strchr("([{", *t->at) && *depth < most)
      nest[(*depth)++] = *t->at == '(' && !t->call ? 'g' : *t->at;
    else if (strchr(")]}", *t->at) && *depth > 0) (*depth)--;
  }
}

static void print_lines(Fmt *f, size_t most) {
  char *nest = arena_alloc(f->arena, most + 1);
  int depth = 0;
  const Token *before = NULL;
  for (uint32_t i = 0; i < f->line.n; i++) {
    Line *l = &f->line.at[i];
    Buf b = {0};
    print_line(l, before, nest, &depth, (int)most, &b);
    l->code = arena_copy(f->arena, b.text ? b.text : "", b.n + 1);
    l->ncode = (int)b.n;
    buf_free(&b);
    if (l->ntoken) before = &l->token[l->ntoken - 1];
  }
}

// ---- columns ----

// A run of lines that follow each other with `=` in one column keeps one, at the distance that it
// had from the longest, where some line has blanks to that end.
static uint32_t align_equals(Fmt *f, uint32_t from) {
  Line *l = f->line.at;
  uint32_t to = from + 1;
  while (to < f->line.n && !l[to].blank && l[to].nequal && l[to].equal_at == l[from].equal_at &&
         l[to].indent == l[from].indent)
    to++;
  int widest = 0, was = 0;
  bool wanted = false;
  for (uint32_t i = from; i < to; i++) {
    const Token *t = &l[i].token[l[i].equal];
    int end = t[-1].was + t[-1].n;
    if (l[i].nequal > widest) widest = l[i].nequal;
    if (end > was) was = end;
    wanted |= t->was >= end + 2;
  }
  int gap = l[from].equal_at - was;
  wanted &= to - from > 1;
  for (uint32_t i = from; wanted && i < to; i++) {
    int more = widest + (gap > 1 ? gap - 1 : 0) - l[i].nequal;
    l[i].code = arena_printf(f->arena, "%.*s%*s%s", l[i].nequal, l[i].code, more, "",
                             l[i].code + l[i].nequal);
    l[i].ncode += more;
    for (int k = l[i].equal; k < l[i].ntoken; k++) l[i].token[k].col += more;
  }
  return to;
}

// A line within brackets stays aligned to the first token in the innermost bracket, if it was.
static void place(Fmt *f) {
  typedef struct Open {
    int was, now; // column of the token after the bracket in its line; -1: none
  } Open;
  VEC(Open) open = {0};
  for (uint32_t i = 0; i < f->line.n; i++) {
    Line *l = &f->line.at[i];
    l->margin = 2 * l->indent;
    int was = l->ntoken ? l->token[0].was : l->comment_at;
    if (l->inside && open.n && was == open.at[open.n - 1].was) l->margin = open.at[open.n - 1].now;
    for (int k = 0; k < l->ntoken; k++) {
      const Token *t = &l->token[k];
      if (t->kind != SIGN) continue;
      bool last = k + 1 == l->ntoken;
      Open o = {last ? -1 : t[1].was, last ? -1 : l->margin + t[1].col};
      if (strchr("([{", *t->at)) PUSH(f->arena, open, o);
      else if (strchr(")]}", *t->at) && open.n) open.n--;
    }
  }
}

// Comments behind code, in one column in lines that follow each other, keep one, at the distance
// that they had from the longest line.
static uint32_t align_comments(Fmt *f, uint32_t from) {
  Line *l = f->line.at;
  uint32_t to = from + 1;
  while (to < f->line.n && !l[to].blank && l[to].ntoken && l[to].comment_at == l[from].comment_at)
    to++;
  int was = 0, longest = 0;
  for (uint32_t i = from; i < to; i++) {
    if (l[i].code_end > was) was = l[i].code_end;
    if (l[i].margin + l[i].ncode > longest) longest = l[i].margin + l[i].ncode;
  }
  int gap = l[from].comment_at - was;
  for (uint32_t i = from; i < to; i++) l[i].comment_at = longest + (gap > 1 ? gap : 1);
  return to;
}

static void align(Fmt *f) {
  for (uint32_t i = 0; i < f->line.n;) i = f->line.at[i].nequal ? align_equals(f, i) : i + 1;
  place(f);
  for (uint32_t i = 0; i < f->line.n;)
    i = f->line.at[i].ntoken && f->line.at[i].comment ? align_comments(f, i) : i + 1;
}

static bool ends_in(const Line *l, char c) { return l->ntoken && *l->token[l->ntoken - 1].at == c; }

// Blank lines that stay: at most two between declarations, one within a block, none at its ends.
static int blank_before(const Fmt *f, uint32_t i) {
  const Line *l = &f->line.at[i];
  if (!i || ends_in(l - 1, '{') || (l->ntoken && *l->token[0].at == '}')) return 0;
  int most = l->braces ? 1 : 2;
  return l->blank < most ? l->blank : most;
}

void fmt_text(Arena *a, const char *text, size_t n, Buf *out) {
  Fmt f = {.arena = a};
  scan(&f, text, n);
  indent(&f);
  print_lines(&f, n);
  align(&f);
  for (uint32_t i = 0; i < f.line.n; i++) {
    const Line *l = &f.line.at[i];
    for (int k = blank_before(&f, i); k > 0; k--) buf_write(out, "\n", 1);
    buf_printf(out, "%*s%s", l->margin, "", l->code);
    int gap = l->ntoken ? l->comment_at - l->margin - l->ncode : 0;
    if (l->comment) buf_printf(out, "%*s%.*s", gap, "", l->ncomment, l->comment);
    buf_write(out, "\n", 1);
  }
}

// ---- the command ----

static bool syntax_tree(Arena *a, const char *path, const char *text, size_t n, Buf *out) {
  Sources *src = sources_new(a);
  src->out = stderr;
  Parser p = {
      .arena = a, .src = src, .text = text, .n = n, .file = sources_add(src, path, text, n)};
  parse_text(&p);
  for (uint32_t i = 0; i < p.decl.n && !src->nerror; i++) ast_print_decl(p.decl.at[i], out);
  return !src->nerror;
}

// The layout of a text, checked to mean the same. NULL after the errors of a text that cannot be
// parsed.
static char *layout(Arena *a, const char *path, const char *text, size_t n, Buf *out) {
  Buf before = {0}, after = {0};
  bool parsed = syntax_tree(a, path, text, n, &before);
  if (parsed) {
    fmt_text(a, text, n, out);
    const char *now = out->n ? out->text : "", *was = before.n ? before.text : "";
    bool same = syntax_tree(a, path, now, out->n, &after) && before.n == after.n &&
                (!after.n || !memcmp(was, after.text, after.n));
    if (!same)
      BUG("dtc fmt: the new layout of %s would change its meaning; the file is left unchanged",
          path);
  }
  buf_free(&before);
  buf_free(&after);
  return parsed ? out->text : NULL;
}

static int fmt_file(Arena *a, const char *path, bool check) {
  size_t n;
  Buf out = {0};
  int status = 0;
  char *text = command_read(a, "fmt", path, &n);
  if (!text) return EXIT_MODEL;
  bool is_stdin = !strcmp(path, "-");
  if (strlen(text) != n) {
    fprintf(stderr, "dtc fmt: %s: this is not text: it holds a NUL\n", path);
    status = EXIT_MODEL;
  } else if (!layout(a, is_stdin ? "<stdin>" : path, text, n, &out)) {
    status = n ? EXIT_MODEL : 0;
  } else if (is_stdin && !check) {
    fwrite(out.text, 1, out.n, stdout);
  } else if (out.n != n || memcmp(out.text, text, n)) {
    if (check) puts(path);
    status = check || !command_write("fmt", path, &out) ? EXIT_MODEL : 0;
  }
  buf_free(&out);
  return status;
}

int fmt_command(Arena *a, int argc, char **argv) {
  bool check = false;
  int i = 1, status = 0;
  for (; i < argc && argv[i][0] == '-' && argv[i][1]; i++) {
    if (!strcmp(argv[i], "--help"))
      return command_help(
          "fmt",
          "Rewrites models in the standard layout: two spaces a block, single spaces around\n"
          "operators. Comments, line ends and the model's meaning do not change; `=`\n"
          "and comments that were aligned stay aligned.\n\n"
          "  --check   write nothing, name the files that would change; status 1 if any");
    if (strcmp(argv[i], "--check")) return command_usage("fmt", "unknown option '%s'", argv[i]);
    check = true;
  }
  if (i == argc) return fmt_file(a, "-", check);
  for (; i < argc; i++) {
    int bad = fmt_file(a, argv[i], check);
    if (bad) status = bad;
  }
  return status;
}
