#include "frontend/ast.h"

const char *const binop_text[] = {"+",  "-", "*",  "/",  "//", "%",   "**", "<",
                                  "<=", ">", ">=", "==", "!=", "and", "or"};

// Where the line of this byte ends. It is kept for the next call: the spans of a sum of many terms
// all begin at the first of them.
static uint32_t line_end(Parser *p, uint32_t at) {
  if (at >= p->line_from && at <= p->line_end && p->line_end) return p->line_end;
  const char *nl = at < p->n ? memchr(p->text + at, '\n', p->n - at) : NULL;
  p->line_from = at;
  p->line_end = nl ? (uint32_t)(nl - p->text) : (uint32_t)p->n;
  return p->line_end;
}

// A span of several lines is underlined to the end of its first.
Id span_loc(Parser *p, Span s) {
  uint32_t end = s.end < p->n ? s.end : (uint32_t)p->n, line = line_end(p, s.begin);
  if (line < end) end = line;
  while (end > s.begin && (p->text[end - 1] == ' ' || p->text[end - 1] == '\r')) end--;
  return loc_new(p->src, p->file, s.line, s.col, end > s.begin ? end - s.begin : 1, 0);
}

Ast *ast_new(Parser *p, AstKind kind, Span s) {
  Ast *e = NEW(p->arena, Ast);
  e->kind = kind;
  e->loc = span_loc(p, s);
  e->depth = 1;
  return e;
}

static void deeper(Ast *e, const Ast *operand) {
  if (operand && operand->depth >= e->depth) e->depth = operand->depth + 1;
}

// An expression that nests too deeply becomes an error node that is one level too deep, and so does
// all around it: the first is reported.
static Ast *limit(Parser *p, Ast *e) {
  if (e->depth <= MAX_DEPTH) return e;
  if (e->depth == MAX_DEPTH + 1)
    diag_error(p->src, e->loc,
               "this expression nests more than %d levels deep; bind parts of it to names",
               MAX_DEPTH);
  Ast *bad = NEW(p->arena, Ast);
  bad->kind = A_ERROR;
  bad->loc = e->loc;
  bad->depth = MAX_DEPTH + 1;
  return bad;
}

Ast *ast_unary(Parser *p, AstKind kind, Ast *a, Span s) {
  Ast *e = ast_new(p, kind, s);
  e->a = a;
  deeper(e, a);
  return limit(p, e);
}

Ast *ast_binary(Parser *p, BinOp op, Ast *a, Ast *b, Span s) {
  Ast *e = ast_new(p, A_BINARY, s);
  e->op = op;
  e->a = a;
  e->b = b;
  deeper(e, a);
  deeper(e, b);
  return limit(p, e);
}

Ast *ast_cond(Parser *p, Ast *then, Ast *cond, Ast *other, Span s) {
  Ast *e = ast_new(p, A_COND, s);
  e->a = then;
  e->b = cond;
  e->c = other;
  deeper(e, then);
  deeper(e, cond);
  deeper(e, other);
  return limit(p, e);
}

Ast *ast_field(Parser *p, Ast *a, Str name, Span s) {
  Ast *e = ast_unary(p, A_FIELD, a, s);
  if (e->kind == A_FIELD) e->name = name;
  return e;
}

Ast *ast_args(Parser *p, AstKind kind, Ast *a, const ArgList *arg, Span s) {
  Ast *e = ast_new(p, kind, s);
  e->a = a;
  e->arg = *arg;
  deeper(e, a);
  for (uint32_t i = 0; i < arg->n; i++) {
    deeper(e, arg->at[i].value);
    deeper(e, arg->at[i].note);
  }
  return limit(p, e);
}

// `stack i < n of L`: the comparison is the iteration's name and range.
Ast *ast_stack(Parser *p, Ast *count, Ast *layer, Span s) {
  Ast *e = ast_new(p, A_STACK, s);
  e->a = layer;
  e->b = count;
  if (count->kind == A_BINARY && count->op == B_LT && count->a->kind == A_NAME) {
    e->name = count->a->name;
    e->b = count->b;
  }
  deeper(e, layer);
  deeper(e, count);
  return limit(p, e);
}

AstStmt *stmt_new(Parser *p, StmtTag tag, Span s) {
  AstStmt *st = NEW(p->arena, AstStmt);
  st->tag = tag;
  st->loc = span_loc(p, s);
  return st;
}

static bool binder(const Ast *e) {
  return e->kind == A_CALL && e->a->kind == A_NAME && e->arg.n && e->arg.at[e->arg.n - 1].note;
}

bool ast_is_reduce(const Ast *e) {
  static const char *const red[] = {"sum", "mean", "max", "min", "argmax"};
  for (size_t i = 0; binder(e) && i < sizeof red / sizeof red[0]; i++)
    if (!strcmp(e->a->name, red[i])) return true;
  return false;
}

bool ast_is_local(const Ast *e) { return binder(e) && !strcmp(e->a->name, "local"); }

const Ast *ast_without_local(const Ast *e) {
  while (ast_is_local(e)) e = e->arg.at[e->arg.n - 1].note;
  return e;
}
