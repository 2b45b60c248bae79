// Expressions of the IR's text form, and the small rules below them. Above each function its rule.
#include "ir/text/parser.h"
#include "ir/text/text.h"

bool p_fail(Parser *p, const Token *t, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  const char *message = arena_vprintf(p->a, fmt, ap);
  va_end(ap);
  p->failed = true;
  diag_error(p->src, loc_new(p->src, p->file, t->line, t->col, t->len, 0), "%s", message);
  return false;
}

bool p_expect(Parser *p, int kind, const char *what) {
  if (accept(p, kind)) return true;
  return p_fail(p, tok(p), "expected %s, found %s", what, token_text(p->a, tok(p)));
}

bool p_name_here(const Parser *p) {
  return is(p, TOK_STRING) || (is(p, TOK_NAME) && !ir_reserved(tok(p)->text));
}

bool p_name(Parser *p, const char *what, Str *out) {
  if (!p_name_here(p))
    return p_fail(p, tok(p), "expected %s, found %s", what, token_text(p->a, tok(p)));
  *out = tok(p)->text;
  next(p);
  return true;
}

// integer = ['-'] INT
bool p_integer(Parser *p, int64_t *out) {
  const Token *t = tok(p);
  bool minus = accept(p, '-');
  uint64_t v = tok(p)->integer;
  if (!p_expect(p, TOK_INT, "an integer")) return false;
  if (v > (uint64_t)INT64_MAX + minus) return p_fail(p, t, "this number is too large");
  *out = minus ? (int64_t)(0 - v) : (int64_t)v;
  return true;
}

bool p_extent(Parser *p, int64_t *out) {
  const Token *t = tok(p);
  if (!p_integer(p, out)) return false;
  return *out >= 1 || p_fail(p, t, "an extent is at least 1, this is %lld", (long long)*out);
}

bool p_small(Parser *p, uint32_t *out) {
  int64_t v;
  const Token *t = tok(p);
  if (!p_integer(p, &v)) return false;
  if (v < 0 || v > INT32_MAX) return p_fail(p, t, "expected a small number");
  *out = (uint32_t)v;
  return true;
}

// real = ['-'] (REAL | INT | 'inf') | 'nan' ['(' bits ')']
static bool real_here(const Parser *p) {
  const Token *t = is(p, '-') ? ahead(p, 1) : tok(p);
  return t->kind == TOK_REAL || is_word(t, "inf") || (t == tok(p) && is_word(t, "nan"));
}

bool p_real(Parser *p, double *out) {
  if (accept_word(p, "nan")) {
    uint64_t bits = 0x7ff8000000000000u;
    if (accept(p, '(')) {
      const Token *t = tok(p);
      if (!p_expect(p, TOK_INT, "the bits of a NaN") || !p_expect(p, ')', "`)`")) return false;
      bits = t->integer;
    }
    memcpy(out, &bits, 8);
    return *out != *out || p_fail(p, tok(p), "these are not the bits of a NaN");
  }
  bool minus = accept(p, '-');
  if (accept_word(p, "inf")) *out = __builtin_inf();
  else if (is(p, TOK_INT)) *out = (double)tok(p)->integer, next(p);
  else if (is(p, TOK_REAL)) *out = tok(p)->real, next(p);
  else return p_fail(p, tok(p), "expected a number, found %s", token_text(p->a, tok(p)));
  if (minus) *out = -*out;
  return true;
}

// loc = ['@' (place {'<' place} | '?')]     place = file ':' line ':' column ['+' length]
// Absent, or `@?`: 0.
bool p_loc(Parser *p, Id *out) {
  *out = 0;
  if (!accept(p, '@') || accept(p, '?')) return true;
  Loc chain[MAX_CHAIN];
  uint32_t n = 0;
  do {
    Loc l = {.len = 1};
    const Token *t = tok(p);
    if (n == MAX_CHAIN) return p_fail(p, t, "too many places");
    if (!p_small(p, &l.file) || !p_expect(p, ':', "`:`") || !p_small(p, &l.line) ||
        !p_expect(p, ':', "`:`") || !p_small(p, &l.col) || (accept(p, '+') && !p_small(p, &l.len)))
      return false;
    if (l.file >= p->files.n) return p_fail(p, t, "there is no `file %u`", l.file);
    chain[n++] = l;
  } while (accept(p, '<'));
  while (n--) {
    Loc *l = &chain[n];
    *out = loc_new(p->src, p->files.at[l->file], l->line, l->col, l->len, *out);
  }
  return true;
}

// ---- expressions

static Id too_deep(Parser *p, const Token *t) {
  p_fail(p, t, "this expression is nested too deeply");
  return NONE;
}

// Every new expression passes here, so that no later recursion is deeper than MAX_HEIGHT.
static Id made(Parser *p, const Token *t, Id e) {
  uint32_t h = 0;
  for (uint32_t i = 0; i < ex(p->m, e)->narg; i++) {
    uint32_t k = p->height.at[ex_arg(p->m, e, i)] + 1u;
    if (k > h) h = k;
  }
  if (e >= p->height.n) PUSH(p->a, p->height, (uint16_t)h);
  return h > MAX_HEIGHT ? too_deep(p, t) : e;
}

static const char *const scalar_text[] = {"real", "int", "bool"};

static const char *types_text(Parser *p, const Id *arg, uint32_t n) {
  const char *s = n ? scalar_text[ex(p->m, arg[0])->type] : "nothing";
  for (uint32_t i = 1; i < n; i++)
    s = arena_printf(p->a, "%s, %s", s, scalar_text[ex(p->m, arg[i])->type]);
  return s;
}

// Whether an operator's type rule takes these arguments.
static bool types_fit(Parser *p, Op op, const Id *arg, uint32_t n) {
  Scalar t[3] = {SC_REAL};
  for (uint32_t i = 0; i < n; i++) t[i] = ex(p->m, arg[i])->type;
  bool same = true;
  for (uint32_t i = 1; i < n; i++) same &= t[i] == t[0];
  switch (op_info[op].rule) {
  case RULE_NUM:
  case RULE_CMP: return same && t[0] != SC_BOOL;
  case RULE_REAL: return same && t[0] == SC_REAL;
  case RULE_INT: return same && t[0] == SC_INT;
  case RULE_BOOL: return same && t[0] == SC_BOOL;
  case RULE_SEL: return t[0] == SC_BOOL && t[1] == t[2];
  case RULE_CONV: return op == OP_TO_REAL ? t[0] != SC_REAL : t[0] != SC_INT;
  case RULE_LEAF: return op == OP_RANDOM && same && t[0] == SC_INT;
  }
  return false;
}

static Id make_op(Parser *p, const Token *t, Op op, const Id *arg, uint32_t n) {
  if ((int)n != op_info[op].arity) {
    p_fail(p, t, "`%s` takes %d arguments, not %u", op_info[op].text, op_info[op].arity, n);
    return NONE;
  }
  if (types_fit(p, op, arg, n)) return made(p, t, ex_op(p->m, op, arg, n));
  p_fail(p, t, "`%s` does not take %s", op_info[op].text, types_text(p, arg, n));
  return NONE;
}

static uint32_t find_index(const Parser *p, Str name) {
  for (uint32_t i = 0; i < p->nindex; i++)
    if (p->index[i].name == name) return i;
  return NONE;
}

// ---- mesh axes

bool p_axis_here(const Parser *p) {
  int kind = ahead(p, 1)->kind;
  return is(p, '@') && (kind == TOK_NAME || kind == TOK_STRING);
}

bool p_axis(Parser *p, uint32_t *axis) {
  const Token *t = tok(p);
  Str text;
  if (!p_name(p, "an axis", &text)) return false;
  for (*axis = 0; *axis < p->m->axis.n; ++*axis)
    if (p->m->axis.at[*axis].name == text) return true;
  return p_fail(p, t, "there is no `axis %s`", text);
}

// block = ['/' BLOCK]; absent: that of the plain split
bool p_block(Parser *p, int64_t extent, uint32_t axis, int64_t *block) {
  *block = (extent - 1) / p->m->axis.at[axis].size + 1;
  return !accept(p, '/') || p_extent(p, block);
}

bool p_assign(Parser *p, const Token *t, uint32_t axis, Assign a) {
  if (p->assign[axis].kind != ASSIGN_NONE)
    return p_fail(p, t, "axis `%s` has an index of this statement already",
                  p->m->axis.at[axis].name);
  p->assign[axis] = a;
  return true;
}

// asked = {('on' | 'off') AXIS}
static bool asked(Parser *p, Index *x) {
  for (;;) {
    bool on = accept_word(p, "on");
    if (!on && !accept_word(p, "off")) return true;
    const Token *t = tok(p);
    Str name;
    if (!p_name(p, "an axis", &name)) return false;
    AxisId axis = named_axis(name);
    if (axis == AXIS_OTHER) return p_fail(p, t, "expected `tp` or `cp`");
    for (uint32_t i = 0; on && i < p->nindex; i++)
      if (p->index[i].on >> axis & 1)
        return p_fail(p, t, "axis `%s` has an index of this statement already", name);
    if ((x->on | x->off) >> axis & 1) return p_fail(p, t, "axis `%s` is here already", name);
    *(on ? &x->on : &x->off) |= (uint8_t)(1u << axis);
  }
}

// index = NAME '<' extent ['local'] asked {'@' AXIS block}
bool p_new_index(Parser *p) {
  const Token *t = tok(p);
  Index x = {0};
  if (!p_name(p, "the name of an index", &x.name) ||
      !p_expect(p, '<', "`<` and the index's extent") || !p_extent(p, &x.extent))
    return false;
  if (find_index(p, x.name) != NONE)
    return p_fail(p, t, "index `%s` has an extent already", x.name);
  if (p->nindex == MAX_INDEX) return p_fail(p, t, "more than %d indices", MAX_INDEX);
  x.local = accept_word(p, "local");
  if (!asked(p, &x)) return false;
  p->index[p->nindex++] = x;
  while (p_axis_here(p)) {
    uint32_t axis;
    Assign a = {.kind = ASSIGN_INDEX, .index = (uint8_t)(p->nindex - 1)};
    t = tok(p);
    next(p);
    if (!p_axis(p, &axis) || !p_block(p, x.extent, axis, &a.block) || !p_assign(p, t, axis, a))
      return false;
  }
  return true;
}

// {expr ','} up to `close`, which is taken too.
bool p_list(Parser *p, int close, Id *arg, uint32_t max, uint32_t *n) {
  *n = 0;
  if (accept(p, close)) return true;
  do {
    if (*n == max) return p_fail(p, tok(p), "more than %u in a list", max);
    if ((arg[*n] = p_expr(p, 0)) == NONE) return false;
    ++*n;
  } while (accept(p, ','));
  return p_expect(p, close, close == ']' ? "`]`" : "`)`");
}

bool p_all_ints(Parser *p, const Token *t, const Id *sub, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (ex(p->m, sub[i])->type != SC_INT)
      return p_fail(p, t, "subscript %u is %s, not int", i,
                    scalar_text[ex(p->m, sub[i])->type]);
  return true;
}

Id p_find_value(Parser *p, const Token *t) {
  Id v = value_find(p->f, t->text);
  if (v != NONE) return v;
  Str *known = NEWN(p->a, Str, p->f->value.n + MAX_INDEX);
  uint32_t n = 0;
  for (Id i = 0; i < p->f->value.n; i++) known[n++] = p->f->value.at[i].name;
  for (uint32_t i = 0; i < p->nindex; i++) known[n++] = p->index[i].name;
  Str near = did_you_mean(t->text, known, n);
  if (near) p_fail(p, t, "unknown name `%s`; did you mean `%s`?", t->text, near);
  else p_fail(p, t, "unknown name `%s`", t->text);
  return NONE;
}

// read = NAME ['[' {expr ','} ']']
static Id read(Parser *p, const Token *t) {
  Id sub[MAX_RANK], v = p_find_value(p, t);
  uint32_t n = 0;
  if (v == NONE) return NONE;
  if (accept(p, '[') && !p_list(p, ']', sub, MAX_RANK, &n)) return NONE;
  if (n != p->f->value.at[v].rank) {
    p_fail(p, t, "`%s` has %u dimensions, not %u", t->text, p->f->value.at[v].rank, n);
    return NONE;
  }
  if (!p_all_ints(p, t, sub, n)) return NONE;
  return made(p, t, ex_read(p->m, p->f, v, sub));
}

static Op function_op(Str name) {
  for (int op = OP_RANDOM; op < NOP; op++)
    if (!strcmp(op_info[op].text, name) && !ir_reserved(name)) return (Op)op;
  return NOP;
}

// function = NAME '(' {expr ','} ')'
static Id function(Parser *p, const Token *t) {
  Id arg[MAX_ARGS];
  uint32_t n;
  Op op = function_op(t->text);
  if (op == NOP) {
    p_fail(p, t, "unknown function `%s`", t->text);
    return NONE;
  }
  if (!p_list(p, ')', arg, MAX_ARGS, &n)) return NONE;
  return make_op(p, t, op, arg, n);
}

static Id named(Parser *p) {
  const Token *t = tok(p);
  next(p);
  if (t->kind == TOK_NAME && accept(p, '(')) return function(p, t);
  uint32_t i = is(p, '[') ? NONE : find_index(p, t->text);
  if (i == NONE && p->lhs && is(p, '<')) {
    p->at--;
    if (!p_new_index(p)) return NONE;
    i = p->nindex - 1;
  }
  if (i != NONE) return made(p, t, ex_index(p->m, i));
  return read(p, t);
}

// The rest of a group after its first member: {index} ')'
static Id group(Parser *p, const Token *t, Id first) {
  Id arg[MAX_INDEX] = {first};
  uint32_t n = 1;
  while (p_name_here(p)) {
    const Token *at = tok(p);
    if (n == MAX_INDEX) {
      p_fail(p, at, "more than %d indices in a group", MAX_INDEX);
      return NONE;
    }
    if ((arg[n] = named(p)) == NONE) return NONE;
    if (!ex_is(p->m, arg[n], OP_INDEX)) {
      p_fail(p, at, "only the first member of a group may be other than an index");
      return NONE;
    }
    n++;
  }
  if (!p_expect(p, ')', "`)`") || !p_all_ints(p, t, &first, 1)) return NONE;
  return made(p, t, ex_group(p->m, arg, n));
}

// bracketed = '(' expr ')' | '(' expr index {index} ')' | 'group' '(' expr ')'
static Id bracketed(Parser *p) {
  const Token *t = tok(p);
  bool one = accept_word(p, "group");
  if (!p_expect(p, '(', "`(`")) return NONE;
  Id e = p_expr(p, 0);
  if (e == NONE) return NONE;
  if (one || p_name_here(p)) return group(p, t, e);
  return p_expect(p, ')', "`)`") ? e : NONE;
}

// primary = number | 'true' | 'false' | name | bracketed | '-' primary
static Id primary(Parser *p) {
  const Token *t = tok(p);
  double v;
  int64_t n;
  if (real_here(p)) return p_real(p, &v) ? made(p, t, ex_real(p->m, v)) : NONE;
  if (is(p, TOK_INT) || (is(p, '-') && ahead(p, 1)->kind == TOK_INT))
    return p_integer(p, &n) ? made(p, t, ex_int(p->m, n)) : NONE;
  if (accept(p, '-')) {
    if (p->nesting >= MAX_NESTING) return too_deep(p, t);
    p->nesting++;
    Id e = primary(p);
    p->nesting--;
    return e == NONE ? NONE : make_op(p, t, OP_NEG, &e, 1);
  }
  if (accept_word(p, "true")) return made(p, t, ex_bool(p->m, true));
  if (accept_word(p, "false")) return made(p, t, ex_bool(p->m, false));
  if (is(p, '(') || is_word(t, "group")) return bracketed(p);
  if (p_name_here(p)) return named(p);
  p_fail(p, t, "expected an expression, found %s", token_text(p->a, t));
  return NONE;
}

enum { L_OR = 1, L_AND, L_NOT, L_CMP, L_ADD, L_MUL };

static int binary(const Token *t, Op *op) {
  switch (t->kind) {
  case '<': return *op = OP_LT, L_CMP;
  case '>': return *op = OP_GT, L_CMP;
  case TOK_LE: return *op = OP_LE, L_CMP;
  case TOK_GE: return *op = OP_GE, L_CMP;
  case TOK_EQ: return *op = OP_EQ, L_CMP;
  case TOK_NE: return *op = OP_NE, L_CMP;
  case '+': return *op = OP_ADD, L_ADD;
  case '-': return *op = OP_SUB, L_ADD;
  case '*': return *op = OP_MUL, L_MUL;
  case '/': return *op = OP_DIV, L_MUL;
  case '%': return *op = OP_MOD, L_MUL;
  case TOK_IDIV: return *op = OP_IDIV, L_MUL;
  default: break;
  }
  if (is_word(t, "or")) return *op = OP_OR, L_OR;
  if (is_word(t, "and")) return *op = OP_AND, L_AND;
  return 0;
}

// By precedence: or; and; not; comparisons, which don't chain; + -; * / // %; unary -.
static Id operators(Parser *p, int least) {
  const Token *t = tok(p);
  Id e;
  if (least <= L_NOT && accept_word(p, "not")) {
    e = p_expr(p, L_NOT);
    if (e != NONE) e = make_op(p, t, OP_NOT, &e, 1);
  } else {
    e = primary(p);
  }
  for (int below = L_MUL; e != NONE;) {
    t = tok(p);
    Op op;
    int level = binary(t, &op);
    if (!level || level < least || level > below) return e;
    next(p);
    Id arg[2] = {e, p_expr(p, level + 1)};
    e = arg[1] == NONE ? NONE : make_op(p, t, op, arg, 2);
    below = level == L_CMP ? L_CMP - 1 : level;
  }
  return e;
}

Id p_expr(Parser *p, int least) {
  if (p->nesting >= MAX_NESTING) return too_deep(p, tok(p));
  p->nesting++;
  Id e = operators(p, least);
  p->nesting--;
  return e;
}
