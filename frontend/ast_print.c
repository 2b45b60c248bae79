// The syntax tree as text, for --emit ast and for messages.
#include "frontend/ast.h"

// Binding strength, loosest first: how much of an operand needs parentheses.
static int level(const Ast *e) {
  static const int of_op[] = {6, 6, 7, 7, 7, 7, 9, 5, 5, 5, 5, 5, 5, 3, 2};
  switch (e->kind) {
  case A_COND: case A_STACK: return 1;
  case A_BINARY: return of_op[e->op];
  case A_NOT: return 4;
  case A_NEG: return 8;
  default: return 10;
  }
}

static void operand(const Ast *e, int least, Buf *out) {
  bool paren = level(e) < least;
  if (paren) buf_printf(out, "(");
  ast_print_expr(e, out);
  if (paren) buf_printf(out, ")");
}

static void print_args(const ArgList *arg, const char *sep, Buf *out) {
  for (uint32_t i = 0; i < arg->n; i++) {
    const Arg *a = &arg->at[i];
    if (i) buf_printf(out, "%s", sep);
    if (a->name) buf_printf(out, "%s%s", a->name, a->value ? *sep == ' ' ? "=" : " = " : "");
    if (a->value) ast_print_expr(a->value, out);
    if (a->note) {
      buf_printf(out, ": ");
      ast_print_expr(a->note, out);
    }
  }
}

static void print_stack(const Ast *e, Buf *out) {
  buf_printf(out, "stack ");
  if (e->name) buf_printf(out, "%s < ", e->name);
  ast_print_expr(e->b, out);
  buf_printf(out, " of ");
  ast_print_expr(e->a, out);
}

static void print_real(double v, Buf *out) {
  char text[40];
  int digits = 1;
  double back;
  do snprintf(text, sizeof text, "%.*g", digits, v);
  while (sscanf(text, "%lf", &back) == 1 && back != v && digits++ < 17);
  buf_printf(out, "%s%s", text, strpbrk(text, ".en") ? "" : ".0");
}

void ast_print_expr(const Ast *e, Buf *out) {
  int l = level(e);
  switch (e->kind) {
  case A_ERROR: buf_printf(out, "<error>"); return;
  case A_INT: buf_printf(out, "%lld", (long long)e->integer); return;
  case A_REAL: print_real(e->real, out); return;
  case A_STR: buf_printf(out, "\"%s\"", e->name); return;
  case A_BOOL: buf_printf(out, "%s", e->integer ? "true" : "false"); return;
  case A_NAME: buf_printf(out, "%s", e->name); return;
  case A_DOTS: buf_printf(out, "..."); return;
  case A_FIELD:
    operand(e->a, l, out);
    buf_printf(out, ".%s", e->name);
    return;
  case A_INDEX: case A_CALL:
    operand(e->a, l, out);
    buf_printf(out, e->kind == A_CALL ? "(" : "[");
    print_args(&e->arg, ", ", out);
    buf_printf(out, e->kind == A_CALL ? ")" : "]");
    return;
  case A_GROUP: case A_TUPLE:
    buf_printf(out, "(");
    print_args(&e->arg, e->kind == A_GROUP ? " " : ", ", out);
    buf_printf(out, ")");
    return;
  case A_NEG: case A_NOT:
    buf_printf(out, e->kind == A_NEG ? "-" : "not ");
    operand(e->a, l, out);
    return;
  case A_BINARY:
    operand(e->a, l + (e->op == B_POW || l == 5), out);
    buf_printf(out, " %s ", binop_text[e->op]);
    operand(e->b, l + (e->op != B_POW), out);
    return;
  case A_COND:
    operand(e->a, 2, out);
    buf_printf(out, " if ");
    operand(e->b, 2, out);
    if (e->c) {
      buf_printf(out, " else ");
      operand(e->c, 1, out);
    }
    return;
  case A_STACK: print_stack(e, out); return;
  }
}

static void print_list(const AstList *l, int bar, Buf *out) {
  for (uint32_t i = 0; i < l->n; i++) {
    if (i) buf_printf(out, (int)i == bar ? " | " : ", ");
    ast_print_expr(l->at[i], out);
  }
}

static void print_shard(const ArgList *shard, Buf *out) {
  for (uint32_t i = 0; i < shard->n; i++) {
    buf_printf(out, i ? ", " : " shard(");
    ast_print_expr(shard->at[i].value, out);
    buf_printf(out, ": %s", shard->at[i].name);
  }
  if (shard->n) buf_printf(out, ")");
}

static void print_body(const StmtList *body, int indent, Buf *out);

static void print_param(const AstStmt *s, Buf *out) {
  buf_printf(out, "param %s[", s->name);
  if (s->bar == 0) buf_printf(out, "| ");
  print_list(&s->target, s->bar > 0 ? s->bar : -1, out);
  buf_printf(out, "]");
  print_shard(&s->shard, out);
  if (s->value) {
    buf_printf(out, " = ");
    ast_print_expr(s->value, out);
  }
  if (s->cond) {
    buf_printf(out, " if ");
    ast_print_expr(s->cond, out);
  }
  if (s->formal.n) buf_printf(out, ", ");
  print_args(&s->formal, ", ", out);
}

static void print_stmt(const AstStmt *s, int indent, Buf *out) {
  buf_printf(out, "%*s", indent, "");
  switch (s->tag) {
  case S_RETURN: buf_printf(out, "return "); // fall through
  case S_ASSIGN: case S_ACC:
    print_list(&s->target, -1, out);
    if (!s->value) break;
    buf_printf(out, s->tag == S_ACC ? " += " : " = ");
    ast_print_expr(s->value, out);
    print_shard(&s->shard, out);
    break;
  case S_IF:
    buf_printf(out, "if ");
    ast_print_expr(s->value, out);
    print_body(&s->body, indent, out);
    if (s->other.n) {
      buf_printf(out, " else");
      print_body(&s->other, indent, out);
    }
    break;
  case S_PARAM: print_param(s, out); break;
  case S_METHOD:
    buf_printf(out, "%s(", s->name ? s->name : "?");
    print_args(&s->formal, ", ", out);
    buf_printf(out, ")");
    print_body(&s->body, indent, out);
    break;
  case S_METRIC:
    buf_printf(out, "metric %s = ", s->name);
    ast_print_expr(s->value, out);
    break;
  }
  buf_printf(out, "\n");
}

static void print_body(const StmtList *body, int indent, Buf *out) {
  buf_printf(out, " {\n");
  for (uint32_t i = 0; i < body->n; i++) print_stmt(body->at[i], indent + 2, out);
  buf_printf(out, "%*s}", indent, "");
}

void ast_print_decl(const AstDecl *d, Buf *out) {
  static const char *const word[] = {"use", "layer", "model", "fn", "train"};
  buf_printf(out, "%s%s %s", d->intrinsic ? "intrinsic " : "", word[d->kind], d->name);
  if (d->kind == D_LAYER || d->kind == D_FN || d->formal.n) {
    buf_printf(out, "(");
    print_args(&d->formal, ", ", out);
    buf_printf(out, ")");
  }
  if (d->kind != D_USE) print_body(&d->body, 0, out);
  buf_printf(out, "\n");
}
