// The syntax tree, and the parser that makes it. Nothing here knows names, sizes or types.
#ifndef DTC_AST_H
#define DTC_AST_H

#include "ir/diag.h"

typedef enum AstKind {
  A_ERROR, // after a syntax error: what uses it stays silent
  A_INT, // integer
  A_REAL, // real
  A_STR, // name is the text
  A_BOOL, // integer 0 or 1
  A_NAME, // name
  A_DOTS, // ...
  A_FIELD, // a.name
  A_INDEX, // a[arg, ...]
  A_CALL, // a(arg, ...); a reduction where the last argument has a note: sum(i, j: body)
  A_GROUP, // (c=3 h e): name and maybe value for each arg; the first may be a value alone
  A_TUPLE, // (arg, arg)
  A_NEG, // -a
  A_NOT, // not a
  A_BINARY, // a op b
  A_COND, // a if b else c; c is NULL where there is no else
  A_STACK // stack [name <] b of a
} AstKind;

typedef enum BinOp {
  B_ADD, B_SUB, B_MUL, B_DIV, B_IDIV, B_MOD, B_POW, B_LT, B_LE, B_GT, B_GE, B_EQ, B_NE, B_AND, B_OR
} BinOp;
extern const char *const binop_text[];

typedef struct Ast Ast;
// An argument: [name =] value [: note].
typedef struct Arg {
  Str name; // NULL: by position
  Id name_loc;
  Ast *value; // NULL: a group's bare name
  Ast *note; // after a colon: the type in a signature, the body of a reduction
} Arg;
typedef VEC(Arg) ArgList;
typedef VEC(Ast *) AstList;

struct Ast {
  AstKind kind;
  BinOp op;
  uint32_t depth; // 1 + the deepest operand; at most MAX_DEPTH
  Id loc;
  Str name;
  int64_t integer;
  double real;
  Ast *a, *b, *c;
  ArgList arg;
};

typedef enum StmtTag {
  S_ASSIGN, // target, ... = value; a layer's fields too
  S_ACC, // target += value
  S_RETURN, // target, ...; or target = value
  S_IF, // if value { body } else { other }
  S_PARAM, // param name[dim, dim | dim] = value if cond, option = ...
  S_METHOD, // name(formal, ...) { body }
  S_METRIC // metric name = value
} StmtTag;

typedef struct AstStmt AstStmt;
typedef VEC(AstStmt *) StmtList;
struct AstStmt {
  StmtTag tag;
  Id loc; // of the whole first line
  Str name; // PARAM, METHOD, METRIC
  Id name_loc;
  AstList target; // also a parameter's dimensions
  int bar; // PARAM: dimensions before the bar, -1 without one
  Ast *value; // PARAM: NULL without an initialiser
  Ast *cond; // PARAM: after `if`
  ArgList shard; // ASSIGN, ACC, RETURN, PARAM: name is the axis, value an index or dimension
  ArgList formal; // METHOD; options of a PARAM
  StmtList body, other;
};

typedef enum DeclKind { D_USE, D_LAYER, D_MODEL, D_FN, D_TRAIN, D_KINDS } DeclKind;
typedef struct AstDecl {
  DeclKind kind;
  bool intrinsic; // of a FN
  Str name;
  Id loc, name_loc;
  ArgList formal;
  StmtList body;
  void *owner; // the SourceUnit that it is in; set when loaded
} AstDecl;
typedef VEC(AstDecl *) DeclList;

// How deep an expression or a block may nest. The checker and the passes recurse over expressions.
enum { MAX_DEPTH = 500 };

// A place in the text while parsing: byte offsets and the start's line and column.
typedef struct Span {
  uint32_t line, col, begin, end;
} Span;

typedef struct Parser {
  Arena *arena;
  Sources *src;
  uint32_t file;
  const char *text;
  size_t n;
  uint32_t line_from, line_end; // a part of a line without its end: nothing in between ends a line
  bool only_expr; // parse one expression
  DeclList decl; // the result
  Ast *expr;
  // The lexer's state.
  Span at; // of the token before
  char nest[256]; // open brackets, innermost last
  uint32_t nnest;
  int last; // token before
  int queue[2];
  Span queue_span[2];
  Ast *queue_value[2];
  int nqueue;
  int start; // a first token that selects what is parsed, or 0
} Parser;

// Parses a file of declarations (or, with only_expr, one expression). Errors go to p->src.
void parse_text(Parser *p);

Id span_loc(Parser *p, Span s);
// After a syntax error: brackets that are open on this line no longer hide the ends of lines.
void lexer_resync(Parser *p);
// Constructors: they set the depth, and report what nests too deeply.
Ast *ast_new(Parser *p, AstKind kind, Span s);
Ast *ast_unary(Parser *p, AstKind kind, Ast *a, Span s);
Ast *ast_binary(Parser *p, BinOp op, Ast *a, Ast *b, Span s);
Ast *ast_cond(Parser *p, Ast *then, Ast *cond, Ast *other, Span s);
Ast *ast_field(Parser *p, Ast *a, Str name, Span s);
Ast *ast_args(Parser *p, AstKind kind, Ast *a, const ArgList *arg, Span s);
Ast *ast_stack(Parser *p, Ast *count, Ast *layer, Span s);
AstStmt *stmt_new(Parser *p, StmtTag tag, Span s);

// True for sum(i: ...) and the like.
bool ast_is_reduce(const Ast *e);
bool ast_is_local(const Ast *e); // local(b: ...), which is no reduction itself
const Ast *ast_without_local(const Ast *e);
// The tree as indented text.
void ast_print_decl(const AstDecl *d, Buf *out);
// An expression as source text, as short as possible.
void ast_print_expr(const Ast *e, Buf *out);

#endif
