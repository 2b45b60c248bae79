%require "3.8"
%define api.pure full
%define api.prefix {dt_yy}
%define api.value.type union
%define api.location.type {Span}
%define parse.lac full
%define parse.error custom
%locations
%param {Parser *p} {void *scanner}

%code requires {
#include "frontend/ast.h"
}
%code provides {
int dt_yylex(DT_YYSTYPE *value, Span *at, Parser *p, void *scanner);
}
%code {
// An empty rule stands where the next token would.
#define YYLLOC_DEFAULT(cur, rhs, n)                                                                \
  do {                                                                                             \
    if (n) {                                                                                       \
      (cur) = YYRHSLOC(rhs, 1);                                                                    \
      (cur).end = YYRHSLOC(rhs, n).end;                                                            \
    } else {                                                                                       \
      (cur) = YYRHSLOC(rhs, 0);                                                                    \
      (cur).begin = (cur).end;                                                                     \
    }                                                                                              \
  } while (0)

static void dt_yyerror(Span *at, Parser *p, void *scanner, const char *text);
#define PUT(list, x) PUSH(p->arena, list, x)
#define BINARY(op, a, b, at) ast_binary(p, op, a, b, at)
#define NAMED(n, at, v) ((Arg){.name = (n), .name_loc = span_loc(p, at), .value = (v)})

static AstDecl *decl(Parser *p, DeclKind kind, Str name, Span at, Span name_at,
                     const ArgList *formal, const StmtList *body) {
  AstDecl *d = NEW(p->arena, AstDecl);
  d->kind = kind;
  d->name = name;
  d->loc = span_loc(p, at);
  d->name_loc = span_loc(p, name_at);
  if (formal) d->formal = *formal;
  if (body) d->body = *body;
  PUSH(p->arena, p->decl, d);
  return d;
}

// The options of a parameter: a bare value is the initialiser, a bare note the condition.
static AstStmt *param(Parser *p, Str name, Span at, Span name_at, const ArgList *option) {
  AstStmt *s = stmt_new(p, S_PARAM, at);
  s->name = name;
  s->name_loc = span_loc(p, name_at);
  s->bar = -1;
  for (uint32_t i = 0; i < option->n; i++) {
    Arg a = option->at[i];
    if (a.name) PUSH(p->arena, s->formal, a);
    else if (a.value) s->value = a.value;
    else s->cond = a.note;
  }
  if (s->value && s->value->kind == A_COND && !s->value->c) {
    s->cond = s->value->b;
    s->value = s->value->a;
  }
  return s;
}

// A group is a list of factors: the first, then the rest.
static Ast *group(Parser *p, Arg first, const ArgList *rest, Span at) {
  ArgList l = {0};
  PUSH(p->arena, l, first);
  for (uint32_t i = 0; rest && i < rest->n; i++) PUSH(p->arena, l, rest->at[i]);
  return ast_args(p, A_GROUP, NULL, &l, at);
}
}

%token T_END 0 "the end of the file"
%token T_NL "the end of the line"
%token T_START_FILE T_START_EXPR
%token <Ast *> T_INT "an integer" T_REAL "a number" T_STR "a string"
%token <Str> T_NAME "a name"
%token T_USE "'use'" T_LAYER "'layer'" T_MODEL "'model'" T_FN "'fn'" T_TRAIN "'train'"
%token T_PARAM "'param'" T_STACK "'stack'" T_OF "'of'" T_IF "'if'" T_ELSE "'else'"
%token T_AND "'and'" T_OR "'or'" T_NOT "'not'" T_RETURN "'return'" T_TRUE "'true'" T_FALSE "'false'"
%token T_INTRINSIC "'intrinsic'" T_SHARD "'shard'"
%token T_DOTS "'...'" T_ACC "'+='" T_IDIV "'//'" T_POW "'**'"
%token T_EQ "'=='" T_NE "'!='" T_LE "'<='" T_GE "'>='"

%right T_IF T_ELSE
%left T_OR
%left T_AND
%precedence T_NOT
%nonassoc T_EQ T_NE '<' T_LE '>' T_GE
%left '+' '-'
%left '*' '/' T_IDIV '%'
%precedence NEG
%right T_POW

%type <Ast *> expr postfix primary group
%type <Arg> arg gitem one
%type <ArgList> args arglist gitems formals options shard sharded
%type <AstList> exprs dims dimlist
%type <AstStmt *> stmt if_stmt param
%type <StmtList> stmts block

%%

start: T_START_FILE decls
  | T_START_EXPR expr T_NL { p->expr = $2; }
  ;

decls: %empty
  | decls decl_ T_NL
  | decls error T_NL { yyerrok; }
  | decls error '{' { yyerrok; } stmts '}' T_NL
  ;

decl_: T_USE T_NAME { decl(p, D_USE, $2, @$, @2, NULL, NULL); }
  | T_LAYER T_NAME formals block { decl(p, D_LAYER, $2, @$, @2, &$3, &$4); }
  | T_MODEL T_NAME formals block { decl(p, D_MODEL, $2, @$, @2, &$3, &$4); }
  | T_MODEL T_NAME block { decl(p, D_MODEL, $2, @$, @2, NULL, &$3); }
  | T_FN T_NAME formals block { decl(p, D_FN, $2, @$, @2, &$3, &$4); }
  | T_INTRINSIC T_FN T_NAME formals block {
      decl(p, D_FN, $3, @$, @3, &$4, &$5)->intrinsic = true;
    }
  | T_TRAIN T_NAME block { decl(p, D_TRAIN, $2, @$, @2, NULL, &$3); }
  ;

formals: '(' args ')' { $$ = $2; }
  ;

block: '{' stmts '}' { $$ = $2; }
  ;

stmts: %empty { $$ = (StmtList){0}; }
  | stmts stmt T_NL { $$ = $1; PUT($$, $2); }
  | stmts error T_NL { $$ = $1; yyerrok; }
  | stmts error '{' { yyerrok; } stmts '}' T_NL { $$ = $1; }
  ;

stmt: exprs '=' expr shard {
      $$ = stmt_new(p, S_ASSIGN, @$);
      $$->target = $1;
      $$->value = $3;
      $$->shard = $4;
    }
  | expr T_ACC expr shard {
      $$ = stmt_new(p, S_ACC, @$);
      PUT($$->target, $1);
      $$->value = $3;
      $$->shard = $4;
    }
  | T_RETURN exprs { $$ = stmt_new(p, S_RETURN, @$); $$->target = $2; }
  | T_RETURN exprs '=' expr shard {
      $$ = stmt_new(p, S_RETURN, @$);
      $$->target = $2;
      $$->value = $4;
      $$->shard = $5;
    }
  | if_stmt
  | param
  | postfix block {
      $$ = stmt_new(p, S_METHOD, @1);
      bool named = $1->kind == A_CALL && $1->a->kind == A_NAME;
      $$->name = named ? $1->a->name : NULL;
      $$->name_loc = named ? $1->a->loc : $1->loc;
      $$->formal = $1->arg;
      $$->body = $2;
    }
  | T_NAME T_NAME '=' expr {
      $$ = stmt_new(p, S_METRIC, @$);
      $$->name = $2;
      $$->name_loc = span_loc(p, @2);
      $$->value = $4;
      if (strcmp($1, "metric"))
        diag_error(p->src, span_loc(p, @1), "expected 'metric NAME = ...' or one name before '='");
    }
  ;

if_stmt: T_IF expr block { $$ = stmt_new(p, S_IF, @2); $$->value = $2; $$->body = $3; }
  | T_IF expr block T_ELSE block {
      $$ = stmt_new(p, S_IF, @2);
      $$->value = $2;
      $$->body = $3;
      $$->other = $5;
    }
  | T_IF expr block T_ELSE if_stmt {
      $$ = stmt_new(p, S_IF, @2);
      $$->value = $2;
      $$->body = $3;
      PUT($$->other, $5);
    }
  ;

param: T_PARAM T_NAME '[' dims '|' dims ']' shard options {
      $$ = param(p, $2, @$, @2, &$9);
      $$->shard = $8;
      $$->target = $4;
      $$->bar = (int)$4.n;
      for (uint32_t i = 0; i < $6.n; i++) PUT($$->target, $6.at[i]);
    }
  | T_PARAM T_NAME '[' dims ']' shard options {
      $$ = param(p, $2, @$, @2, &$7);
      $$->shard = $6;
      $$->target = $4;
    }
  ;

// shard(o: tp, t: cp): the index or dimension that an axis of the mesh cuts.
shard: %empty { $$ = (ArgList){0}; }
  | T_SHARD '(' sharded ')' { $$ = $3; }
  ;

sharded: one { $$ = (ArgList){0}; PUT($$, $1); }
  | sharded ',' one { $$ = $1; PUT($$, $3); }
  ;

one: T_NAME ':' T_NAME {
      Ast *key = ast_new(p, A_NAME, @1);
      key->name = $1;
      $$ = NAMED($3, @3, key);
    }
  | T_INT ':' T_NAME { $$ = NAMED($3, @3, $1); }
  ;

dims: %empty { $$ = (AstList){0}; }
  | dimlist
  ;

dimlist: expr { $$ = (AstList){0}; PUT($$, $1); }
  | dimlist ',' expr { $$ = $1; PUT($$, $3); }
  ;

options: %empty { $$ = (ArgList){0}; }
  | '=' expr { $$ = (ArgList){0}; PUT($$, ((Arg){.value = $2})); }
  | T_IF expr { $$ = (ArgList){0}; PUT($$, ((Arg){.note = $2})); }
  | options ',' T_NAME '=' expr {
      $$ = $1;
      PUT($$, NAMED($3, @3, $5));
    }
  ;

exprs: expr { $$ = (AstList){0}; PUT($$, $1); }
  | exprs ',' expr { $$ = $1; PUT($$, $3); }
  ;

expr: postfix
  | '-' expr %prec NEG { $$ = ast_unary(p, A_NEG, $2, @$); }
  | T_NOT expr { $$ = ast_unary(p, A_NOT, $2, @$); }
  | expr '+' expr { $$ = BINARY(B_ADD, $1, $3, @$); }
  | expr '-' expr { $$ = BINARY(B_SUB, $1, $3, @$); }
  | expr '*' expr { $$ = BINARY(B_MUL, $1, $3, @$); }
  | expr '/' expr { $$ = BINARY(B_DIV, $1, $3, @$); }
  | expr T_IDIV expr { $$ = BINARY(B_IDIV, $1, $3, @$); }
  | expr '%' expr { $$ = BINARY(B_MOD, $1, $3, @$); }
  | expr T_POW expr { $$ = BINARY(B_POW, $1, $3, @$); }
  | expr '<' expr { $$ = BINARY(B_LT, $1, $3, @$); }
  | expr T_LE expr { $$ = BINARY(B_LE, $1, $3, @$); }
  | expr '>' expr { $$ = BINARY(B_GT, $1, $3, @$); }
  | expr T_GE expr { $$ = BINARY(B_GE, $1, $3, @$); }
  | expr T_EQ expr { $$ = BINARY(B_EQ, $1, $3, @$); }
  | expr T_NE expr { $$ = BINARY(B_NE, $1, $3, @$); }
  | expr T_AND expr { $$ = BINARY(B_AND, $1, $3, @$); }
  | expr T_OR expr { $$ = BINARY(B_OR, $1, $3, @$); }
  | expr T_IF expr %prec T_IF { $$ = ast_cond(p, $1, $3, NULL, @$); }
  | expr T_IF expr T_ELSE expr { $$ = ast_cond(p, $1, $3, $5, @$); }
  | T_STACK expr T_OF postfix { $$ = ast_stack(p, $2, $4, @$); }
  ;

postfix: primary
  | postfix '.' T_NAME { $$ = ast_field(p, $1, $3, @$); }
  | postfix '(' args ')' { $$ = ast_args(p, A_CALL, $1, &$3, @$); }
  | postfix '[' args ']' { $$ = ast_args(p, A_INDEX, $1, &$3, @$); }
  ;

primary: T_INT
  | T_REAL
  | T_STR
  | T_TRUE { $$ = ast_new(p, A_BOOL, @$); $$->integer = 1; }
  | T_FALSE { $$ = ast_new(p, A_BOOL, @$); }
  | T_NAME { $$ = ast_new(p, A_NAME, @$); $$->name = $1; }
  | T_DOTS { $$ = ast_new(p, A_DOTS, @$); }
  | '(' expr ')' { $$ = $2; }
  | '(' expr ',' exprs ')' {
      ArgList l = {0};
      PUT(l, ((Arg){.value = $2}));
      for (uint32_t i = 0; i < $4.n; i++) PUT(l, ((Arg){.value = $4.at[i]}));
      $$ = ast_args(p, A_TUPLE, NULL, &l, @$);
    }
  | '(' group ')' { $$ = $2; $$->loc = span_loc(p, @$); }
  ;

// (c=3 h e): merged dimensions. A name alone in parentheses is just that name.
group: T_NAME gitems { $$ = group(p, NAMED($1, @1, NULL), &$2, @$); }
  | T_NAME '=' expr { $$ = group(p, NAMED($1, @1, $3), NULL, @$); }
  | T_NAME '=' expr gitems { $$ = group(p, NAMED($1, @1, $3), &$4, @$); }
  | T_INT gitems { $$ = group(p, (Arg){.value = $1}, &$2, @$); }
  | '(' expr ')' gitems { $$ = group(p, (Arg){.value = $2}, &$4, @$); }
  ;

gitems: gitem { $$ = (ArgList){0}; PUT($$, $1); }
  | gitems gitem { $$ = $1; PUT($$, $2); }
  ;

gitem: T_NAME { $$ = NAMED($1, @1, NULL); }
  | T_NAME '=' expr { $$ = NAMED($1, @1, $3); }
  ;

args: %empty { $$ = (ArgList){0}; }
  | arglist
  | arglist ','
  ;

arglist: arg { $$ = (ArgList){0}; PUT($$, $1); }
  | arglist ',' arg { $$ = $1; PUT($$, $3); }
  ;

arg: expr { $$ = (Arg){.value = $1}; }
  | T_NAME '=' expr { $$ = NAMED($1, @1, $3); }
  | expr ':' expr { $$ = (Arg){.value = $1, .note = $3}; }
  ;

%%

static void dt_yyerror(Span *at, Parser *p, void *scanner, const char *text) {
  (void)scanner;
  if (!strcmp(text, "memory exhausted")) text = "this is nested too deeply";
  diag_error(p->src, span_loc(p, *at), "%s", text);
}

// Whether the token can only go on an expression: such tokens may come almost anywhere and say
// little.
static bool operator_like(const char *name) {
  static const char *const op[] = {"'+'",  "'-'",  "'*'",  "'/'",   "'%'",  "'//'", "'**'",
                                   "'<'",  "'>'",  "'=='", "'!='",  "'<='", "'>='", "'and'",
                                   "'or'", "'if'", "'.'",  "'('",   "'['"};
  for (size_t i = 0; i < sizeof op / sizeof op[0]; i++)
    if (!strcmp(name, op[i])) return true;
  return false;
}

// The symbol of a token that is one character.
static yysymbol_kind_t yysymbol_of(int c) { return YYTRANSLATE(c); }

static bool starts_expr(yysymbol_kind_t t) {
  return t == YYSYMBOL_T_NAME || t == YYSYMBOL_T_INT || t == YYSYMBOL_T_REAL ||
         t == YYSYMBOL_T_STR || t == YYSYMBOL_T_TRUE || t == YYSYMBOL_T_FALSE ||
         t == YYSYMBOL_T_DOTS || t == YYSYMBOL_T_STACK || t == YYSYMBOL_T_NOT;
}

// The tokens to leave out: a longer list of possible tokens does not help.
static bool unsaid(yysymbol_kind_t t, const bool *may) {
  const char *name = yysymbol_name(t);
  if (operator_like(name)) return true;
  if (may[YYSYMBOL_T_NL]) return t != YYSYMBOL_T_NL;
  if (may[YYSYMBOL_T_ACC]) return t != YYSYMBOL_T_ACC && strcmp(name, "'='");
  bool closing = may[yysymbol_of(')')] || may[yysymbol_of(']')];
  return closing && (!strcmp(name, "'='") || !strcmp(name, "':'"));
}

// What may come next, in the words of a person: "an expression or ')'".
static void describe(const yypcontext_t *ctx, Buf *out) {
  yysymbol_kind_t list[YYNTOKENS];
  const char *item[YYNTOKENS + 1];
  bool may[YYNTOKENS] = {0};
  int count = yypcontext_expected_tokens(ctx, list, YYNTOKENS), n = 0;
  for (int i = 0; i < count; i++) may[list[i]] = true;
  bool expr = may[YYSYMBOL_T_INT] && !may[YYSYMBOL_T_RETURN]; // RETURN: any statement
  if (may[YYSYMBOL_T_USE]) item[n++] = "a declaration (use, layer, model, fn or train)", count = 0;
  if (expr) item[n++] = "an expression";
  for (int i = 0; i < count; i++)
    if (!(expr && starts_expr(list[i])) && (count == 1 || !unsaid(list[i], may)))
      item[n++] = yysymbol_name(list[i]);
  if (n > 5) n = 0;
  for (int i = 0; i < n; i++)
    buf_printf(out, "%s%s", i == 0 ? "expected " : i + 1 == n ? " or " : ", ", item[i]);
  buf_printf(out, n ? ", found " : "unexpected ");
}

// Whether a name may stand here, and the user took a word of the language for one: `layer = 3`.
static bool is_reserved(const yypcontext_t *ctx, const Parser *p, Span at) {
  yysymbol_kind_t list[YYNTOKENS], token = yypcontext_token(ctx);
  char c = p->text[at.begin];
  const char *after = p->text + at.end + strspn(p->text + at.end, " \t");
  if (token == YYSYMBOL_T_NAME || c < 'a' || c > 'z' || *after != '=' || after[1] == '=')
    return false;
  for (int i = yypcontext_expected_tokens(ctx, list, YYNTOKENS); i-- > 0;)
    if (list[i] == YYSYMBOL_T_NAME) return true;
  return false;
}

// What other languages write so, and how it is said here; NULL for all else. The line's first word
// tells most of them.
static const char *said_here(const yypcontext_t *ctx, const Parser *p, Span at) {
  static const struct {
    const char *word, *here;
  } known[] = {
      {"def __init__", "a layer has its arguments after its name, layer NAME(n) { ... }, and its "
                       "body makes its sublayers: fc = nn.Linear(n, n)"},
      {"def", "a method is NAME(x[b, n]) { ... } in a layer's body, a function "
              "fn NAME(x[b, n]) { ... }"},
      {"class", "a layer is layer NAME(n) { ... }"},
      {"for", "there are no loops: an index takes all its values, y[b, t] = 2.0 * x[b, t], and "
              "sum(t: x[b, t]) adds up; layers one after the other are stack n of NAME(...)"},
      {"while", "there are no loops: an index takes all its values, y[b, t] = 2.0 * x[b, t]"},
      {"import", "a file is used by its name: use nn"},
      {"from", "a file is used by its name: use nn"}};
  uint32_t from = at.begin;
  while (from > 0 && p->text[from - 1] != '\n') from--;
  from += (uint32_t)strspn(p->text + from, " \t");
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
    size_t n = strlen(known[i].word);
    if (!strncmp(p->text + from, known[i].word, n) && strchr(" \t(", p->text[from + n]) &&
        at.begin <= from + n + 40)
      return known[i].here;
  }
  yysymbol_kind_t list[YYNTOKENS];
  bool expr = false;
  for (int i = yypcontext_expected_tokens(ctx, list, YYNTOKENS); i-- > 0;)
    expr |= list[i] == YYSYMBOL_T_INT;
  return expr && p->text[at.begin] == '['
             ? "there are no lists: concat(a, b, axis = 0) joins tensors, and stack n of NAME(...) "
               "layers"
             : NULL;
}

static int yyreport_syntax_error(const yypcontext_t *ctx, Parser *p, void *scanner) {
  (void)scanner;
  Span at = *yypcontext_location(ctx);
  yysymbol_kind_t token = yypcontext_token(ctx);
  Buf b = {0};
  if (token == YYSYMBOL_YYEOF) {
    diag_error(p->src, span_loc(p, at), "the file ends inside a block; expected '}'");
    return 0;
  }
  const char *here = said_here(ctx, p, at);
  if (is_reserved(ctx, p, at))
    buf_printf(&b, "this is a reserved word, not a name: ");
  else describe(ctx, &b);
  if (token != YYSYMBOL_T_NL)
    buf_printf(&b, "'%.*s'", (int)(at.end - at.begin), p->text + at.begin);
  else if (at.end > at.begin && p->text[at.begin] == ';') buf_printf(&b, "';'");
  else if (at.begin >= p->n) buf_printf(&b, "end of the file");
  else if (p->text[at.begin] == '}') buf_printf(&b, "'}'");
  else buf_printf(&b, "end of the line");
  diag_error(p->src, span_loc(p, at), "%s%s%s", b.text, here ? "; " : "", here ? here : "");
  buf_free(&b);
  lexer_resync(p);
  return 0;
}
