// Parses the text form of a Module: recursive descent over tokens, one grammar rule a function, the
// rule above it. Statements recover at the next line, so that several mistakes show in one run.
#include "ir/intrinsic.h"
#include "ir/text/parser.h"
#include "ir/text/text.h"

// ---- declarations

typedef struct Shape {
  uint32_t rank;
  int64_t extent[MAX_RANK];
} Shape;

static bool dtype(Parser *p, Dtype *t) {
  for (int d = 0; d < NDTYPE; d++)
    if (accept_word(p, dtype_name[d])) return *t = (Dtype)d, true;
  return p_fail(p, tok(p), "expected a type, found %s", token_text(p->a, tok(p)));
}

static bool shape_fits(Parser *p, const Token *t, Dtype type, const Shape *s) {
  int64_t n = dtype_size(type);
  for (uint32_t d = 0; d < s->rank; d++)
    if (!mul_ok(n, s->extent[d], &n)) return p_fail(p, t, "the size of this does not fit 64 bits");
  return true;
}

// type = DTYPE ['[' {extent ','} ']']
static bool type(Parser *p, Dtype *t, Shape *s) {
  const Token *at = tok(p);
  *s = (Shape){0};
  if (!dtype(p, t)) return false;
  if (!accept(p, '[')) return true;
  do {
    if (s->rank == MAX_RANK) return p_fail(p, tok(p), "more than %d dimensions", MAX_RANK);
    if (!p_extent(p, &s->extent[s->rank++])) return false;
  } while (accept(p, ','));
  return p_expect(p, ']', "`]`") && shape_fits(p, at, *t, s);
}

// shard = '@' AXIS ('split' DIM block | 'sum' | 'max' | 'min')
static bool shard(Parser *p, const Shape *s, Shard *all) {
  const Token *t = tok(p);
  uint32_t axis, dim;
  next(p);
  if (!p_axis(p, &axis)) return false;
  Shard *one = &all[axis];
  if (one->kind != SHARD_WHOLE)
    return p_fail(p, t, "axis `%s` is here already", p->m->axis.at[axis].name);
  for (int red = RED_SUM; red <= RED_MIN; red++) {
    if (red == RED_MEAN || !accept_word(p, red_name[red])) continue;
    *one = (Shard){.kind = SHARD_PARTIAL, .op = (uint8_t)red};
    return true;
  }
  t = tok(p);
  if (!accept_word(p, "split"))
    return p_fail(p, t, "expected `split`, `sum`, `max` or `min`, found %s", token_text(p->a, t));
  t = tok(p);
  if (!p_small(p, &dim)) return false;
  if (dim >= s->rank) return p_fail(p, t, "there is no dimension %u", dim);
  *one = (Shard){.kind = SHARD_SPLIT, .dim = (uint8_t)dim};
  return p_block(p, s->extent[dim], axis, &one->block);
}

// shards = {shard}, up to what a statement does with an axis
static bool shards(Parser *p, const Shape *s, Shard *all) {
  memset(all, 0, MAX_AXIS * sizeof *all);
  while (p_axis_here(p) && !is_word(ahead(p, 2), "write"))
    if (!shard(p, s, all)) return false;
  return true;
}

static Id declare(Parser *p, const Token *t, Dtype type, const Shape *s, Role role, Id where) {
  if (value_find(p->f, t->text) != NONE) {
    p_fail(p, t, "`%s` is declared already", t->text);
    return NONE;
  }
  return fn_value(p->m, p->f, t->text, type, s->extent, s->rank, role, where);
}

static bool one_of(Parser *p, const char *const *word, uint32_t n, uint32_t *of) {
  for (*of = 0; *of < n; ++*of)
    if (accept_word(p, word[*of])) return true;
  return p_fail(p, tok(p), "expected an argument of the update, found %s", token_text(p->a, tok(p)));
}

static bool param_name(Parser *p, uint32_t *of) {
  const Token *t = tok(p);
  Str name;
  if (!p_name(p, "a parameter", &name)) return false;
  for (*of = 0; *of < p->m->param.n; ++*of)
    if (p->m->param.at[*of].name == name) return true;
  return p_fail(p, t, "there is no parameter `%s`", name);
}

// meaning = ['first' | 'batch' | ('data' | 'total' | 'received' | 'sent' | 'kept') NUMBER |
//            ('param' | 'grad') PARAM | 'rank' AXIS | ('scalar' | 'piece') WORD | 'adjoint' NAME]
// The value that an adjoint belongs to comes before it.
static bool meaning(Parser *p, Meaning *k, uint32_t *of) {
  int word = MEANS_NONE + 1;
  *of = 0;
  while (word < NMEANING && !accept_word(p, meaning_name[word])) word++;
  *k = word < NMEANING ? (Meaning)word : MEANS_NONE;
  const Token *t = tok(p);
  Str text;
  switch (meaning_of(*k)) {
  case OF_NOTHING: return true;
  case OF_NUMBER: return p_small(p, of);
  case OF_PARAM: return param_name(p, of);
  case OF_AXIS: return p_axis(p, of);
  case OF_VALUE: return p_name(p, "a value", &text) && (*of = p_find_value(p, t)) != NONE;
  case OF_WORD:
    return *k == MEANS_SCALAR ? one_of(p, update_scalar_name, NUPDATE_SCALAR, of)
                              : one_of(p, update_piece_name, NUPDATE_PIECE, of);
  }
  return false;
}

// declaration = NAME ':' type meaning shards loc
static Id declaration(Parser *p, Role role) {
  const Token *t = tok(p);
  Str text;
  Dtype dt;
  Shape s;
  Shard all[MAX_AXIS];
  Meaning means;
  uint32_t of;
  Id where;
  if (!p_name(p, "a name", &text) || !p_expect(p, ':', "`:` and a type") || !type(p, &dt, &s) ||
      !meaning(p, &means, &of) || !shards(p, &s, all))
    return NONE;
  if (role != ROLE_LOCAL && !p_loc(p, &where)) return NONE;
  Id v = declare(p, t, dt, &s, role, 0);
  if (v != NONE) memcpy(p->f->value.at[v].shard, all, sizeof all);
  if (v != NONE) p->f->value.at[v].means = means, p->f->value.at[v].of = of;
  if (v != NONE && role != ROLE_LOCAL) p->f->value.at[v].loc = where;
  return v;
}

// ---- statements

// The extent of a subscript that is an index or a group of them; 0 for any other.
static int64_t whole_extent(const Parser *p, Id e) {
  const Expr *x = ex(p->m, e);
  if (x->op == OP_INDEX) return p->index[x->integer].extent;
  if (x->op != OP_GROUP) return 0;
  int64_t n = 1;
  for (uint32_t i = 0; i < x->narg; i++) {
    Id a = ex_arg(p->m, e, i);
    if (!ex_is(p->m, a, OP_INDEX) || !mul_ok(n, p->index[ex(p->m, a)->integer].extent, &n))
      return 0;
  }
  return n;
}

// After a left side's subscripts: ':' DTYPE shards, which declares it.
static Id declare_lhs(Parser *p, const Token *t, const Id *sub, uint32_t rank) {
  Dtype dt;
  Shard all[MAX_AXIS];
  Shape s = {.rank = rank};
  if (!dtype(p, &dt)) return NONE;
  for (uint32_t d = 0; d < rank; d++)
    if ((s.extent[d] = whole_extent(p, sub[d])) < 1) {
      p_fail(p, t, "subscript %u of `%s` does not give its extent: declare it on a line above",
             d, t->text);
      return NONE;
    }
  if (!shape_fits(p, t, dt, &s) || !shards(p, &s, all)) return NONE;
  Id v = declare(p, t, dt, &s, ROLE_LOCAL, 0);
  if (v != NONE) memcpy(p->f->value.at[v].shard, all, sizeof all);
  return v;
}

// write = '@' AXIS 'write' DIM block
static bool guarded_write(Parser *p, const Value *lhs) {
  const Token *t = tok(p);
  Assign a = {.kind = ASSIGN_WRITE};
  uint32_t axis, dim;
  next(p);
  if (!p_axis(p, &axis)) return false;
  if (!accept_word(p, "write")) return p_fail(p, tok(p), "expected `write`");
  const Token *at = tok(p);
  if (!p_small(p, &dim)) return false;
  if (dim >= lhs->rank) return p_fail(p, at, "there is no dimension %u", dim);
  a.index = (uint8_t)dim;
  return p_block(p, lhs->extent[dim], axis, &a.block) && p_assign(p, t, axis, a);
}

// Whether `red '(' {index ','} ':'` comes next: `max(a, b)` and `max(i<3: a)` begin alike.
static Red reduction_ahead(const Parser *p) {
  int red = RED_SUM;
  while (red < NRED && !is_word(tok(p), red_name[red])) red++;
  if (red == NRED || ahead(p, 1)->kind != '(') return RED_NONE;
  for (uint32_t k = 2;; k += 4) {
    if (k == 2 && ahead(p, k)->kind == ':') return (Red)red;
    if ((ahead(p, k)->kind != TOK_NAME && ahead(p, k)->kind != TOK_STRING) ||
        ahead(p, k + 1)->kind != '<' || ahead(p, k + 2)->kind != TOK_INT)
      return RED_NONE;
    if (is_word(ahead(p, k + 3), "local")) k++;
    while (is_word(ahead(p, k + 3), "on") || is_word(ahead(p, k + 3), "off")) k += 2;
    while (ahead(p, k + 3)->kind == '@')
      k += ahead(p, k + 5)->kind == '/' ? 4 : 2; // '@' AXIS ['/' BLOCK]
    if (ahead(p, k + 3)->kind == ':') return (Red)red;
    if (ahead(p, k + 3)->kind != ',') return RED_NONE;
  }
}

// indices = {index ','} ':'
static bool indices(Parser *p) {
  if (accept(p, ':')) return true;
  do
    if (!p_new_index(p)) return false;
  while (accept(p, ','));
  return p_expect(p, ':', "`:`");
}

// right = red '(' indices expr ')' | expr
static bool right_side(Parser *p, Red *red, Id *body) {
  *red = reduction_ahead(p);
  if (*red != RED_NONE) {
    next(p);
    next(p);
    if (!indices(p)) return false;
  }
  *body = p_expr(p, 0);
  return *body != NONE && (*red == RED_NONE || p_expect(p, ')', "`)`"));
}

// comprehension = ['for' indices] NAME ['[' {expr ','} ']'] [':' DTYPE shards] {write}
//                 ('=' | '+=') right loc [loc]
// The second loc is of the value declared; without it, the first is.
static bool comprehension(Parser *p) {
  Id sub[MAX_RANK], lhs = NONE, body, where;
  uint32_t rank = 0;
  Red red;
  p->nindex = 0;
  memset(p->assign, 0, sizeof p->assign);
  if (accept_word(p, "for") && !indices(p)) return false;
  const Token *t = tok(p);
  Str text;
  if (!p_name(p, "a statement", &text)) return false;
  p->lhs = true;
  bool ok = !accept(p, '[') || p_list(p, ']', sub, MAX_RANK, &rank);
  p->lhs = false;
  if (!ok || !p_all_ints(p, t, sub, rank)) return false;
  uint32_t nfree = p->nindex;
  bool declares = accept(p, ':');
  lhs = declares ? declare_lhs(p, t, sub, rank) : p_find_value(p, t);
  if (lhs == NONE) return false;
  if (p->f->value.at[lhs].rank != rank)
    return p_fail(p, t, "`%s` has %u dimensions, not %u", text, p->f->value.at[lhs].rank, rank);
  while (is(p, '@'))
    if (!guarded_write(p, &p->f->value.at[lhs])) return false;
  bool acc = accept(p, TOK_ADD_TO);
  if (!acc && !p_expect(p, '=', "`=`, `+=` or a type")) return false;
  if (!right_side(p, &red, &body) || !p_loc(p, &where)) return false;
  Id *own = &p->f->value.at[lhs].loc;
  if (declares && !is(p, '@')) *own = where;
  if (declares && is(p, '@') && !p_loc(p, own)) return false;
  fn_comp(p->m, p->f, lhs, sub, acc, red, p->index, nfree, p->nindex, body, where);
  memcpy(p->f->stmt.at[p->f->stmt.n - 1].assign, p->assign, sizeof p->assign);
  return true;
}

static int coll_here(const Parser *p) {
  int k = 0;
  while (k < NCOLL && !is_word(tok(p), coll_name[k])) k++;
  return k;
}

// over = AXIS, or what two axes are factors of
static bool over(Parser *p, Stmt *s) {
  uint32_t axis = 0;
  while (axis < p->m->axis.n && !is_word(tok(p), axis_whole_name(p->m, axis))) axis++;
  s->both = axis < p->m->axis.n && axis_other(p->m, axis) != NONE;
  if (s->both) next(p);
  else if (!p_axis(p, &axis)) return false;
  s->axis = (uint8_t)axis;
  return true;
}

// what = 'convert' | COLL ['sum' | 'max' | 'min'] over
static bool move_kind(Parser *p, Stmt *s) {
  s->kind = ST_CONVERT;
  if (accept_word(p, "convert")) return true;
  s->kind = ST_COLL;
  s->coll = (CollKind)coll_here(p);
  if ((int)s->coll == NCOLL) return p_fail(p, tok(p), "expected `convert` or a collective");
  next(p);
  if (coll_reduces(s->coll)) {
    s->red = accept_word(p, "sum")   ? RED_SUM
             : accept_word(p, "max") ? RED_MAX
             : accept_word(p, "min") ? RED_MIN
                                     : RED_NONE;
    if (s->red == RED_NONE) return p_fail(p, tok(p), "expected `sum`, `max` or `min`");
  }
  return over(p, s);
}

// move = (declaration-without-loc | NAME) '=' what NAME loc [loc]
static bool move(Parser *p) {
  Stmt s = {0};
  Str text;
  const Token *t = tok(p);
  bool declares = p_name_here(p) && ahead(p, 1)->kind == ':';
  if (declares) s.lhs = declaration(p, ROLE_LOCAL);
  else s.lhs = p_name(p, "a value", &text) ? p_find_value(p, t) : NONE;
  if (s.lhs == NONE || !p_expect(p, '=', "`=`") || !move_kind(p, &s)) return false;
  t = tok(p);
  if (!p_name(p, "a value", &text) || (s.from = p_find_value(p, t)) == NONE || !p_loc(p, &s.loc))
    return false;
  Id *own = &p->f->value.at[s.lhs].loc;
  if (declares && !is(p, '@')) *own = s.loc;
  if (declares && is(p, '@') && !p_loc(p, own)) return false;
  *fn_stmt(p->m, p->f, s.kind, s.loc) = s;
  return true;
}

// result = '_' | ['carry'] NAME | NAME '[' iteration ']'
// The iteration's name comes later in the text: *iter is what stands in the brackets.
static bool result(Parser *p, Result *r, const Token **iter) {
  *iter = NULL;
  *r = (Result){RES_DROP, NONE};
  if (accept_word(p, "_")) return true;
  r->mode = accept_word(p, "carry") ? RES_CARRY : RES_WHOLE;
  const Token *t = tok(p);
  Str text;
  if (!p_name(p, "a result", &text) || (r->value = p_find_value(p, t)) == NONE) return false;
  if (r->mode == RES_CARRY || !accept(p, '[')) return true;
  r->mode = RES_SLICE;
  *iter = tok(p);
  return p_name(p, "the iteration", &text) && p_expect(p, ']', "`]`");
}

// actual = 'carry' NAME | iteration | NAME | NAME '[' [iteration] ']'
static bool actual(Parser *p, const Call *c, Actual *a) {
  a->mode = accept_word(p, "carry") ? ACT_CARRY : ACT_WHOLE;
  a->value = NONE;
  const Token *t = tok(p);
  Str text;
  if (!p_name(p, "an argument", &text)) return false;
  bool subscript = a->mode == ACT_WHOLE && accept(p, '[');
  if (a->mode == ACT_WHOLE && !subscript && c->iter == text) {
    a->mode = ACT_ITER;
    return true;
  }
  if ((a->value = p_find_value(p, t)) == NONE) return false;
  if (!subscript || accept(p, ']')) return true;
  a->mode = ACT_SLICE;
  t = tok(p);
  if (!p_name(p, "the iteration", &text)) return false;
  if (text != c->iter) return p_fail(p, t, "only the iteration may stand here");
  return p_expect(p, ']', "`]`");
}

// head = 'call' | 'repeat' ['reverse'] NAME '<' count ':'
static bool call_head(Parser *p, Call *c, StmtKind *kind) {
  *kind = accept_word(p, "call") ? ST_CALL : ST_REPEAT;
  c->count = 1;
  c->iter = str_intern("");
  if (*kind == ST_CALL) return true;
  if (!accept_word(p, "repeat")) return p_fail(p, tok(p), "expected `call` or `repeat`");
  c->reverse = accept_word(p, "reverse");
  return p_name(p, "the name of the iteration", &c->iter) && p_expect(p, '<', "`<` and a count") &&
         p_extent(p, &c->count) && p_expect(p, ':', "`:`");
}

// call = [{result ','} '='] head NAME '(' {actual ','} ')' loc
static bool call(Parser *p) {
  Call *c = NEW(p->a, Call);
  VEC(Actual) args = {0};
  VEC(Result) results = {0};
  VEC(const Token *) iters = {0};
  StmtKind kind;
  Id where;
  if (!is_word(tok(p), "call") && !is_word(tok(p), "repeat")) {
    do {
      Result r;
      const Token *iter;
      if (!result(p, &r, &iter)) return false;
      PUSH(p->a, results, r);
      PUSH(p->a, iters, iter);
    } while (accept(p, ','));
    if (!p_expect(p, '=', "`=`")) return false;
  }
  if (!call_head(p, c, &kind)) return false;
  for (uint32_t i = 0; i < iters.n; i++)
    if (iters.at[i] && iters.at[i]->text != c->iter)
      return p_fail(p, iters.at[i], "only the iteration may stand here");
  uint32_t callee = p->at;
  Str text;
  if (!p_name(p, "a function", &text) || !p_expect(p, '(', "`(`")) return false;
  while (!accept(p, ')')) {
    Actual a;
    if ((args.n && !p_expect(p, ',', "`,`")) || !actual(p, c, &a)) return false;
    PUSH(p->a, args, a);
  }
  if (!p_loc(p, &where)) return false;
  c->narg = args.n;
  c->arg = args.at;
  c->nresult = results.n;
  c->result = results.at;
  fn_stmt(p->m, p->f, kind, where)->call = c;
  PUSH(p->a, p->pending, (Pending){(Id)(p->f - p->m->fn.at), p->f->stmt.n - 1, callee});
  return true;
}

static bool is_call(const Token *t) { return is_word(t, "call") || is_word(t, "repeat"); }

static bool is_move(const Token *t) {
  bool yes = is_word(t, "convert");
  for (int k = 0; k < NCOLL; k++) yes |= is_word(t, coll_name[k]);
  return yes;
}

// What follows this line's first `=`, or NULL.
static const Token *after_equals(const Parser *p) {
  for (uint32_t k = 0; ahead(p, k)->kind != TOK_LINE && ahead(p, k)->kind != TOK_END; k++)
    if (ahead(p, k)->kind == '=') return ahead(p, k + 1);
  return NULL;
}

// Whether this line only declares a value: NAME ':' DTYPE, and no `=` after the type. A scalar's
// statement, `loss: real = ...`, begins alike.
static bool declaration_ahead(const Parser *p) {
  if (ahead(p, 1)->kind != ':') return false;
  uint32_t k = 3;
  while (ahead(p, k)->kind != TOK_LINE && ahead(p, k)->kind != TOK_END &&
         ahead(p, k)->kind != '=' && ahead(p, k)->kind != TOK_ADD_TO)
    k++;
  return ahead(p, k)->kind == TOK_LINE;
}

static bool statement(Parser *p) {
  const Token *right = after_equals(p);
  if (is_call(tok(p)) || (right && is_call(right))) return call(p);
  if (right && is_move(right)) return move(p);
  if (!p_name_here(p) || !declaration_ahead(p)) return comprehension(p);
  Id v = declaration(p, ROLE_LOCAL);
  return v != NONE && p_loc(p, &p->f->value.at[v].loc);
}

// ---- functions

// result = declaration-without-loc | NAME, then ['over' NAME] loc
static bool fn_result(Parser *p, bool *aliases) {
  const Token *t = tok(p);
  Id over = NONE, where, v;
  bool mine = p_name_here(p) && ahead(p, 1)->kind == ':';
  if (mine) {
    v = declaration(p, ROLE_LOCAL);
  } else {
    Str text;
    if (!p_name(p, "a result", &text)) return false;
    v = p_find_value(p, t);
  }
  if (v == NONE) return false;
  if (accept_word(p, "over")) {
    t = tok(p);
    Str text;
    if (!p_name(p, "an argument", &text) || (over = p_find_value(p, t)) == NONE) return false;
    *aliases = true;
  }
  if (!p_loc(p, &where)) return false;
  if (mine) p->f->value.at[v].loc = where;
  PUSH(p->a, p->f->result, v);
  PUSH(p->a, p->f->alias, over);
  return true;
}

// parameters = '(' NAME [REAL | INT {INT}] {',' NAME [REAL | INT {INT}]} ')'
static bool intrinsic_parameters(Parser *p) {
  do {
    const Token *t = tok(p);
    const IntrinsicField *field = NULL;
    int64_t integer[8] = {0};
    double real = 0;
    if (t->kind == TOK_NAME) field = intrinsic_parameter(t->text);
    if (!field) return p_fail(p, t, "unknown parameter %s", token_text(p->a, t));
    next(p);
    if (field->real && !p_real(p, &real)) return false;
    for (uint32_t i = 0; i < field->n && !field->real; i++)
      if (!p_integer(p, &integer[i])) return false;
    intrinsic_set(p->f, field, integer, real);
  } while (accept(p, ','));
  return p_expect(p, ')', "`)`");
}

// signature = 'func' NAME '(' {['inout'] declaration ','} ')' '->' '(' {result ','} ')'
//             ['intrinsic' NAME [parameters]] ['backward'] loc '{'
static bool signature(Parser *p) {
  const Token *t = tok(p);
  Str text;
  bool aliases = false;
  if (!p_name(p, "the function's name", &text)) return false;
  if (fn_find(p->m, text) != NONE) return p_fail(p, t, "function `%s` is defined already", text);
  Id f = fn_new(p->m, text, 0);
  p->f = &p->m->fn.at[f];
  if (!p_expect(p, '(', "`(`")) return false;
  while (!accept(p, ')')) {
    if (p->f->arg.n && !p_expect(p, ',', "`,`")) return false;
    if (declaration(p, accept_word(p, "inout") ? ROLE_INOUT : ROLE_IN) == NONE) return false;
  }
  if (!p_expect(p, TOK_ARROW, "`->`") || !p_expect(p, '(', "`(`")) return false;
  while (!accept(p, ')'))
    if ((p->f->result.n && !p_expect(p, ',', "`,`")) || !fn_result(p, &aliases)) return false;
  if (!aliases) p->f->alias.n = 0;
  if (accept_word(p, "intrinsic")) {
    int i = 1;
    while (i < NINTR && !is_word(tok(p), intrinsic_name[i])) i++;
    if (i == NINTR) return p_fail(p, tok(p), "unknown intrinsic %s", token_text(p->a, tok(p)));
    p->f->intrinsic = (Intrinsic)i;
    next(p);
    if (accept(p, '(') && !intrinsic_parameters(p)) return false;
  }
  p->f->backward = accept_word(p, "backward");
  return p_loc(p, &p->f->loc) && p_expect(p, '{', "`{`") &&
         p_expect(p, TOK_LINE, "the end of the line");
}

static void skip_line(Parser *p) {
  while (!is(p, TOK_LINE) && !is(p, TOK_END)) next(p);
  accept(p, TOK_LINE);
}

// function = signature LINE {statement LINE} '}' LINE
static void function_text(Parser *p) {
  bool ok = signature(p);
  if (!ok) skip_line(p);
  while (!is(p, '}') && !is(p, TOK_END) && p->src->nerror < p->src->max_errors) {
    if (!ok || !statement(p) || !p_expect(p, TOK_LINE, "the end of the line")) skip_line(p);
  }
  p_expect(p, '}', "`}`");
}

// ---- the module's tables

static bool strings(Parser *p, void *at) {
  VEC(Str) v = {0};
  if (!p_expect(p, '[', "`[`")) return false;
  while (!accept(p, ']')) {
    Str s = tok(p)->text;
    if ((v.n && !p_expect(p, ',', "`,`")) ||
        (s = tok(p)->text, !p_expect(p, TOK_STRING, "a string")))
      return false;
    PUSH(p->a, v, s);
  }
  memcpy(at, &v, sizeof v);
  return true;
}

static bool train_value(Parser *p, const TrainField *f) {
  char *at = (char *)&p->m->train + f->offset;
  const Token *t = tok(p);
  switch (f->kind) {
  case FIELD_INT: return p_integer(p, (int64_t *)(void *)at);
  case FIELD_REAL: return p_real(p, (double *)(void *)at);
  case FIELD_STRS: return strings(p, at);
  case FIELD_STR:
    if (!p_expect(p, TOK_STRING, "a string")) return false;
    memcpy(at, &t->text, sizeof t->text);
    return true;
  case FIELD_BOOL:
    *at = is_word(t, "true");
    return accept_word(p, "true") || accept_word(p, "false") ||
           p_fail(p, t, "expected `true` or `false`");
  case FIELD_ENUM:
    for (unsigned i = 0; f->word[i]; i++)
      if (accept_word(p, f->word[i])) return memcpy(at, &i, sizeof i), true;
    return p_fail(p, t, "%s is not a `%s`", token_text(p->a, t), f->name);
  }
  return false;
}

// setting = NAME '=' value LINE
static bool setting(Parser *p) {
  const Token *t = tok(p);
  uint32_t i = 0;
  while (i < ntrain_field && !is_word(t, train_field[i].name)) i++;
  if (i == ntrain_field) return p_fail(p, t, "expected a setting, found %s", token_text(p->a, t));
  next(p);
  return p_expect(p, '=', "`=`") && train_value(p, &train_field[i]) &&
         p_expect(p, TOK_LINE, "the end of the line");
}

// train = 'train' '{' LINE {setting} '}'
static bool train(Parser *p) {
  if (!p_expect(p, '{', "`{`") || !p_expect(p, TOK_LINE, "the end of the line")) return false;
  while (!is(p, '}') && !is(p, TOK_END))
    if (!setting(p)) skip_line(p);
  return p_expect(p, '}', "`}`");
}

// file = 'file' NUMBER STRING
static bool file(Parser *p) {
  uint32_t number, id = 0;
  const Token *t = tok(p);
  if (!p_small(p, &number)) return false;
  if (number != p->files.n) return p_fail(p, t, "files are numbered from 0 in order");
  Str path = tok(p)->text;
  if (!p_expect(p, TOK_STRING, "a string")) return false;
  while (id < p->src->file.n && p->src->file.at[id].name != path)
    id++; // shows lines where it is known
  if (id == p->src->file.n) id = sources_add(p->src, path, NULL, 0);
  PUSH(p->a, p->files, id);
  return true;
}

// extents = '[' [{extent ','} ';'] [{extent ','}] ['|' {extent ','}] ']'
static bool param_extents(Parser *p, Param *q) {
  bool first = true; // since the last mark
  while (!accept(p, ']')) {
    if (!q->nstack && q->bar < 0 && q->rank && accept(p, ';')) {
      q->nstack = q->rank;
      first = true;
    } else if (q->bar < 0 && accept(p, '|')) {
      q->bar = (int8_t)(q->rank - q->nstack);
      first = true;
    } else {
      if (!first && !p_expect(p, ',', "`,`")) return false;
      if (q->rank == MAX_RANK) return p_fail(p, tok(p), "more than %d dimensions", MAX_RANK);
      if (!p_extent(p, &q->extent[q->rank++])) return false;
      first = false;
    }
  }
  return true;
}

// init = NAME ['(' real [',' real] ')']
static bool init(Parser *p, Param *q) {
  int i = 0;
  while (i < NINIT && !is_word(tok(p), init_name[i])) i++;
  if (i == NINIT)
    return p_fail(p, tok(p), "expected an initialiser, found %s", token_text(p->a, tok(p)));
  next(p);
  q->init = (InitKind)i;
  if (i == INIT_ZEROS || i == INIT_ONES) return true;
  if (!p_expect(p, '(', "`(`") || !p_real(p, &q->init_a)) return false;
  if (i != INIT_CONST && (!p_expect(p, ',', "`,`") || !p_real(p, &q->init_b))) return false;
  return p_expect(p, ')', "`)`");
}

// asked = {'on' AXIS DIMENSION | 'off' AXIS}
static bool asked(Parser *p, Param *q) {
  for (;;) {
    bool on = accept_word(p, "on");
    if (!on && !accept_word(p, "off")) return true;
    const Token *t = tok(p);
    Str name;
    uint32_t dim = 0;
    if (!p_name(p, "an axis", &name)) return false;
    AxisId axis = named_axis(name);
    if (axis == AXIS_OTHER) return p_fail(p, t, "expected `tp` or `cp`");
    if (q->asked[axis]) return p_fail(p, t, "axis `%s` is here already", name);
    t = tok(p);
    if (on && !p_small(p, &dim)) return false;
    if (on && dim >= (uint32_t)(q->rank - q->nstack))
      return p_fail(p, t, "there is no dimension %u", dim);
    q->asked[axis] = on ? (int8_t)(dim + 1) : -1;
  }
}

// param = 'param' NAME [extents] asked shards '=' init ['decay'] loc
static bool param(Parser *p) {
  Param q = {.bar = -1};
  const Token *t = tok(p);
  if (!p_name(p, "a parameter", &q.name) || (accept(p, '[') && !param_extents(p, &q))) return false;
  Shape s = {.rank = q.rank};
  memcpy(s.extent, q.extent, sizeof s.extent);
  if (!shape_fits(p, t, DT_F64, &s) || !asked(p, &q) || !shards(p, &s, q.shard) ||
      !p_expect(p, '=', "`=`") || !init(p, &q))
    return false;
  q.decay = accept_word(p, "decay");
  if (!p_loc(p, &q.loc)) return false;
  PUSH(p->a, p->m->param, q);
  return true;
}

// range = 'range' NUMBER 'in' '[' lo ',' hi ')'. The lexer has `[` and `)` as brackets; they
// balance.
static bool range(Parser *p) {
  DataRange r;
  if (!p_small(p, &r.arg) || !(accept_word(p, "in") || p_fail(p, tok(p), "expected `in`")) ||
      !p_expect(p, '[', "`[`") || !p_integer(p, &r.lo) || !p_expect(p, ',', "`,`") ||
      !p_integer(p, &r.hi) || !p_expect(p, ')', "`)`") || !p_loc(p, &r.loc))
    return false;
  PUSH(p->a, p->m->range, r);
  return true;
}

// entry = 'entry' NAME '=' NAME
static bool entry(Parser *p) {
  uint32_t e = 0;
  while (e < NENTRY && !is_word(tok(p), entry_name[e])) e++;
  if (e == NENTRY) return p_fail(p, tok(p), "unknown entry %s", token_text(p->a, tok(p)));
  next(p);
  uint32_t at = p->at + 1;
  Str text;
  if (!p_expect(p, '=', "`=`") || !p_name(p, "a function", &text)) return false;
  PUSH(p->a, p->pending, (Pending){NONE, e, at});
  return true;
}

// axis = 'axis' NAME SIZE ['sequence'] ['heads'] ['ring'] ['folded']
static bool axis(Parser *p) {
  const Token *t = tok(p);
  Str name;
  int64_t size;
  if (!p_name(p, "the axis's name", &name) || !p_extent(p, &size)) return false;
  Axis x = axis_new(name, size);
  if (x.size < 2 || x.size > MAX_AXIS_SIZE)
    return p_fail(p, t, "an axis has from 2 to %d ranks, not %lld", MAX_AXIS_SIZE,
                  (long long)x.size);
  if (p->m->fn.n || p->m->param.n)
    return p_fail(p, t, "axes come before parameters and functions");
  if (p->m->axis.n == MAX_AXIS) return p_fail(p, t, "more than %d axes", MAX_AXIS);
  for (uint32_t i = 0; i < p->m->axis.n; i++)
    if (p->m->axis.at[i].name == x.name) return p_fail(p, t, "two axes `%s`", x.name);
  x.sequence = accept_word(p, "sequence");
  x.heads = accept_word(p, "heads");
  x.ring = accept_word(p, "ring");
  x.folded = accept_word(p, "folded");
  PUSH(p->a, p->m->axis, x);
  return true;
}

// pipeline = 'pipeline' STAGES ['chunks' N] ['split'] STRING
static bool pipeline(Parser *p) {
  Module *m = p->m;
  const Token *t = tok(p);
  m->chunks = 1;
  if (!p_small(p, &m->stages) || (accept_word(p, "chunks") && !p_small(p, &m->chunks))) return false;
  if (m->stages < 2 || m->stages > 1024 || m->chunks < 1 || m->chunks > 1024)
    return p_fail(p, t, "a pipeline has from 2 to 1024 stages, each of 1 to 1024 chunks");
  m->split = accept_word(p, "split");
  m->schedule = tok(p)->text;
  return p_expect(p, TOK_STRING, "the schedule's name");
}

// recompute = 'recompute' ('full' | 'selective' | 'auto' BYTES)
static bool recompute(Parser *p) {
  Module *m = p->m;
  const Token *t = tok(p);
  for (int i = RECOMPUTE_FULL; i < NRECOMPUTE; i++)
    if (accept_word(p, recompute_name[i])) m->recompute = (Recompute)i;
  if (!m->recompute) return p_fail(p, t, "expected full, selective or auto");
  if (m->recompute != RECOMPUTE_AUTO) return true;
  t = tok(p);
  return p_integer(p, &m->keep) && (m->keep >= 0 || p_fail(p, t, "a budget of bytes is not negative"));
}

// holds = 'holds' NAME ['[' FIRST ',' COUNT ']']
static bool holds(Parser *p, Chunk *c) {
  const Token *t = tok(p);
  Piece q = {.count = 1};
  if (!param_name(p, &q.param)) return false;
  const Param *of = &p->m->param.at[q.param];
  if (of->nstack && (!p_expect(p, '[', "`[`") || !p_integer(p, &q.first) || !p_expect(p, ',', "`,`") ||
                     !p_integer(p, &q.count) || !p_expect(p, ']', "`]`")))
    return false;
  if (of->nstack && (q.first < 0 || q.count < 1 || q.count > of->extent[0] || q.first > of->extent[0] - q.count))
    return p_fail(p, t, "`%s` has %lld slices", of->name, (long long)of->extent[0]);
  PUSH(p->a, c->piece, q);
  return true;
}

// chunk = 'chunk' NUMBER (holds | part {',' part}), part = NAME '=' NAME
static bool chunk(Parser *p) {
  const Token *t = tok(p);
  uint32_t number;
  if (!p_small(p, &number)) return false;
  if (number > p->m->chunk.n) return p_fail(p, t, "chunks are numbered from 0 in order");
  if (number == p->m->chunk.n) PUSH(p->a, p->m->chunk, (Chunk){.fn = {NONE, NONE, NONE, NONE, NONE}});
  if (accept_word(p, "holds")) return holds(p, &p->m->chunk.at[number]);
  do {
    uint32_t part = 0;
    Str text;
    while (part < NCHUNK_PART && !is_word(tok(p), chunk_part_name[part])) part++;
    if (part == NCHUNK_PART) return p_fail(p, tok(p), "unknown part %s", token_text(p->a, tok(p)));
    next(p);
    uint32_t at = p->at + 1;
    if (!p_expect(p, '=', "`=`") || !p_name(p, "a function", &text)) return false;
    PUSH(p->a, p->pending, (Pending){NONE, NENTRY + number * NCHUNK_PART + part, at});
  } while (accept(p, ','));
  return true;
}

static bool metric(Parser *p) {
  Str s;
  if (!p_name(p, "a name", &s)) return false;
  PUSH(p->a, p->m->metric, s);
  return true;
}

static bool data(Parser *p) {
  const Token *t = tok(p);
  if (!p_small(p, &p->m->ndata)) return false;
  if (p->m->ndata <= MAX_DATA) return true;
  p->m->ndata = 0;
  return p_fail(p, t, "a loss takes at most %d arguments of data", MAX_DATA);
}

static bool store(Parser *p) {
  const Token *t = tok(p);
  if (!dtype(p, &p->m->store)) return false;
  if (is_half(p->m->store)) return true;
  p->m->store = DT_REAL;
  return p_fail(p, t, "expected bf16 or f16: other values are stored as they are computed");
}

static bool item(Parser *p) {
  if (accept_word(p, "module")) return p_name(p, "the model's name", &p->m->name);
  if (accept_word(p, "compute")) return dtype(p, &p->m->compute);
  if (accept_word(p, "store")) return store(p);
  if (accept_word(p, "file")) return file(p);
  if (accept_word(p, "train")) return train(p);
  if (accept_word(p, "data")) return data(p);
  if (accept_word(p, "range")) return range(p);
  if (accept_word(p, "metric")) return metric(p);
  if (accept_word(p, "axis")) return axis(p);
  if (accept_word(p, "spmd")) return p->m->spmd = true;
  if (accept_word(p, "recompute")) return recompute(p);
  if (accept_word(p, "pipeline")) return pipeline(p);
  if (accept_word(p, "chunk")) return chunk(p);
  if (accept_word(p, "param")) return param(p);
  if (accept_word(p, "entry")) return entry(p);
  if (accept_word(p, "func")) return function_text(p), true;
  bool mine = false;
  bool ok = !p->more || p->more(p, p->ctx, &mine);
  if (mine) return ok;
  return p_fail(p, tok(p), "expected a table's entry or a function, found %s",
                token_text(p->a, tok(p)));
}

static void resolve(Parser *p) {
  for (uint32_t i = 0; i < p->pending.n; i++) {
    const Pending *q = &p->pending.at[i];
    const Token *t = &p->tok.at[q->token];
    Id fn = fn_find(p->m, t->text);
    if (fn == NONE) p_fail(p, t, "there is no function `%s`", t->text);
    else if (q->fn == NONE && q->stmt < NENTRY) p->m->entry[q->stmt] = fn;
    else if (q->fn == NONE)
      p->m->chunk.at[(q->stmt - NENTRY) / NCHUNK_PART].fn[(q->stmt - NENTRY) % NCHUNK_PART] = fn;
    else p->m->fn.at[q->fn].stmt.at[q->stmt].call->fn = fn;
  }
}

Module *ir_parse(Arena *a, Sources *s, Str name, const char *text, size_t n) {
  return ir_parse_more(a, s, name, text, n, NULL, NULL);
}

Module *ir_parse_more(Arena *a, Sources *s, Str name, const char *text, size_t n, MoreItems *more, void *ctx) {
  char *copy = arena_alloc(a, n + 1);
  memcpy(copy, text, n);
  Parser p = {.a = a, .src = s, .m = module_new(a, s), .more = more, .ctx = ctx};
  p.file = sources_add(s, name, copy, n);
  if (n > INT32_MAX) p.failed = true, diag_error(s, 0, "%s is too large", name);
  else if (!tokenize(a, s, p.file, copy, n, &p.tok)) return NULL;
  while (p.tok.n && !is(&p, TOK_END) && s->nerror < s->max_errors) {
    if (!item(&p) || !p_expect(&p, TOK_LINE, "the end of the line")) skip_line(&p);
  }
  if (!p.failed) resolve(&p);
  return p.failed ? NULL : p.m;
}
