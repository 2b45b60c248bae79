// Prints a Module as text (doc/ir.md). Canonical: locations, files and values are numbered or
// declared by their first mention in the text, so that what a parser makes of the text prints the
// same again.
#include "ir/text/text.h"

#include "ir/intrinsic.h"

#define ENUM_WORDS(...)                                                                            \
  (const char *const[]) { __VA_ARGS__, NULL }
#define DATA_WORDS ENUM_WORDS("none", "tokens", "bytes", "arrays")
#define FIELD(kind, name, ...)                                                                     \
  { #name, FIELD_##kind, offsetof(Train, name), __VA_ARGS__ }
const TrainField train_field[] = {
    FIELD(ENUM, data, DATA_WORDS),
    FIELD(STR, data_path, NULL),
    FIELD(ENUM, val, DATA_WORDS),
    FIELD(STR, val_path, NULL),
    FIELD(INT, length, NULL),
    FIELD(STRS, array_name, NULL),
    FIELD(STRS, array_path, NULL),
    FIELD(STRS, val_array_path, NULL),
    FIELD(INT, batch, NULL),
    FIELD(INT, microbatch, NULL),
    FIELD(INT, steps, NULL),
    FIELD(INT, eval_every, NULL),
    FIELD(INT, seed, NULL),
    FIELD(ENUM, opt, ENUM_WORDS("sgd", "adam", "adamw")),
    FIELD(REAL, lr, NULL),
    FIELD(REAL, beta1, NULL),
    FIELD(REAL, beta2, NULL),
    FIELD(REAL, eps, NULL),
    FIELD(REAL, weight_decay, NULL),
    FIELD(REAL, momentum, NULL),
    FIELD(BOOL, nesterov, NULL),
    FIELD(ENUM, schedule, ENUM_WORDS("constant", "linear", "cosine", "invsqrt")),
    FIELD(INT, warmup, NULL),
    FIELD(REAL, final, NULL),
    FIELD(REAL, clip, NULL),
    FIELD(STR, precision, NULL),
    FIELD(STR, residual, NULL),
};
const uint32_t ntrain_field = sizeof train_field / sizeof *train_field;

typedef VEC(Str) StrVec;

typedef struct Printer {
  const Module *m;
  Buf *b;
  bool places; // print locations
  const Fn *f;
  const Stmt *s; // NULL: an expression by itself
  bool lhs; // in the subscripts of the left side
  uint32_t seen; // indices whose extent is printed
  uint8_t *declared; // for each value of f, whether its type is printed
  uint32_t *file; // for each file of the module's Sources: 1 + its number in the text, 0: not yet
  VEC(uint32_t) order; // files in the order of their numbers
} Printer;

static void put(Printer *p, const char *text) { buf_write(p->b, text, strlen(text)); }
static void put_int(Printer *p, int64_t v) { buf_printf(p->b, "%lld", (long long)v); }

// ---- names, places

static void put_name(Printer *p, Str name) { ir_print_name(name, p->b); }

// A loc as ` @file:line:col+length`, then `<` before each place it was inlined from.
static void put_loc(Printer *p, Id loc) {
  if (!p->places || loc == 0) return;
  const Sources *src = p->m->src;
  for (const char *lead = " @"; loc != 0; lead = "<") {
    const Loc *l = &src->loc.at[loc];
    if (!p->file[l->file]) {
      PUSH(p->m->arena, p->order, l->file);
      p->file[l->file] = p->order.n;
    }
    buf_printf(p->b, "%s%u:%u:%u", lead, p->file[l->file] - 1, l->line, l->col);
    if (l->len != 1) buf_printf(p->b, "+%u", l->len);
    loc = l->parent;
  }
}

// ---- expressions

// How tightly a node's text holds together; an operand is bracketed where it holds less tightly.
enum { P_ANY, P_OR, P_AND, P_NOT, P_CMP, P_ADD, P_MUL, P_NEG, P_ATOM };

static int op_prec(Op op) {
  switch (op) {
  case OP_OR: return P_OR;
  case OP_AND: return P_AND;
  case OP_NOT: return P_NOT;
  case OP_LT:
  case OP_LE:
  case OP_GT:
  case OP_GE:
  case OP_EQ:
  case OP_NE: return P_CMP;
  case OP_ADD:
  case OP_SUB: return P_ADD;
  case OP_MUL:
  case OP_DIV:
  case OP_IDIV:
  case OP_MOD: return P_MUL;
  case OP_NEG: return P_NEG;
  default: return P_ATOM;
  }
}

static void put_expr(Printer *p, Id e, int least);

// A block is printed where it is not that of the plain split.
static void put_block(Printer *p, int64_t extent, int64_t block, uint32_t axis) {
  int64_t n = p->m->axis.at[axis].size;
  if (block != (extent - 1) / n + 1) buf_printf(p->b, "/%lld", (long long)block);
}

static void put_axis(Printer *p, uint32_t axis) {
  put(p, "@");
  put_name(p, p->m->axis.at[axis].name);
}

// ` @tp split 1/64 @cp sum`
static void put_shards(Printer *p, const Shard *shard, const int64_t *extent) {
  for (uint32_t a = 0; a < p->m->axis.n; a++) {
    if (shard[a].kind == SHARD_WHOLE) continue;
    put(p, " ");
    put_axis(p, a);
    if (shard[a].kind == SHARD_PARTIAL) {
      buf_printf(p->b, " %s", red_name[shard[a].op]);
      continue;
    }
    buf_printf(p->b, " split %u", shard[a].dim);
    if (shard[a].dim < MAX_RANK) put_block(p, extent[shard[a].dim], shard[a].block, a);
  }
}

static void put_index(Printer *p, int64_t i) {
  if (!p->s || i >= p->s->nindex) {
    buf_printf(p->b, "#%lld", (long long)i);
    return;
  }
  put_name(p, p->s->index[i].name);
  if (p->seen >> i & 1) return;
  p->seen |= 1u << i;
  buf_printf(p->b, "<%lld", (long long)p->s->index[i].extent);
  if (p->s->index[i].local) put(p, " local");
  for (uint32_t a = 0; a < NAMED_AXES; a++) {
    if (p->s->index[i].on >> a & 1) buf_printf(p->b, " on %s", axis_word[a]);
    if (p->s->index[i].off >> a & 1) buf_printf(p->b, " off %s", axis_word[a]);
  }
  for (uint32_t a = 0; a < p->m->axis.n; a++) {
    const Assign *g = &p->s->assign[a];
    if (g->kind != ASSIGN_INDEX || g->index != i) continue;
    put_axis(p, a);
    put_block(p, p->s->index[i].extent, g->block, a);
  }
}

// A scalar's name stands alone unless that would read as an index.
static bool scalar_bare(const Printer *p, Str name) {
  if (p->lhs) return false;
  for (int i = 0; p->s && i < p->s->nindex; i++)
    if (p->s->index[i].name == name) return false;
  return true;
}

static void put_list(Printer *p, Id e, const char *open, const char *close) {
  const Expr *x = ex(p->m, e);
  put(p, open);
  for (uint32_t i = 0; i < x->narg; i++) {
    if (i) put(p, ", ");
    put_expr(p, p->m->arg.at[x->arg + i], P_ANY);
  }
  put(p, close);
}

static void put_read(Printer *p, Id e) {
  const Expr *x = ex(p->m, e);
  Str name = p->f && x->integer < p->f->value.n ? p->f->value.at[x->integer].name : str_intern("?");
  put_name(p, name);
  if (x->narg || !scalar_bare(p, name)) put_list(p, e, "[", "]");
}

static void put_group(Printer *p, Id e) {
  const Expr *x = ex(p->m, e);
  put(p, x->narg == 1 ? "group(" : "(");
  for (uint32_t i = 0; i < x->narg; i++) {
    if (i) put(p, " ");
    put_expr(p, p->m->arg.at[x->arg + i], x->narg == 1 ? P_ANY : P_ATOM);
  }
  put(p, ")");
}

static bool is_number(const Module *m, Id e) { return ex_is(m, e, OP_REAL) || ex_is(m, e, OP_INT); }

static void put_op(Printer *p, Id e) {
  Op op = ex(p->m, e)->op;
  const char *text = op_info[op].text;
  int prec = op_prec(op);
  Id a = ex_arg(p->m, e, 0);
  if (prec == P_ATOM) { // a function
    put(p, text);
    put_list(p, e, "(", ")");
  } else if (op == OP_NOT) {
    put(p, "not ");
    put_expr(p, a, P_NOT);
  } else if (op == OP_NEG) { // -1 is a constant, -(1) and -(-x) negations
    put(p, "-");
    put_expr(p, a, is_number(p->m, a) ? P_ATOM + 1 : P_ATOM);
  } else { // left-associative, but for comparisons, which don't associate
    put_expr(p, a, prec == P_CMP ? prec + 1 : prec);
    buf_printf(p->b, " %s ", text);
    put_expr(p, ex_arg(p->m, e, 1), prec + 1);
  }
}

static void put_expr(Printer *p, Id e, int least) {
  const Expr *x = ex(p->m, e);
  bool bracket = op_prec(x->op) < least;
  if (bracket) put(p, "(");
  switch (x->op) {
  case OP_REAL: ir_print_real(x->real, p->b); break;
  case OP_INT: put_int(p, x->integer); break;
  case OP_BOOL: put(p, x->integer ? "true" : "false"); break;
  case OP_INDEX: put_index(p, x->integer); break;
  case OP_READ: put_read(p, e); break;
  case OP_GROUP: put_group(p, e); break;
  default: put_op(p, e);
  }
  if (bracket) put(p, ")");
}

void ir_print_expr(const Module *m, const Fn *f, const Stmt *s, Id e, Buf *b) {
  Printer p = {.m = m, .b = b, .f = f, .s = s, .seen = UINT32_MAX};
  put_expr(&p, e, P_ANY);
}

// ---- types and declarations

static void put_extents(Printer *p, const int64_t *extent, uint32_t rank) {
  if (!rank) return;
  for (uint32_t d = 0; d < rank; d++)
    buf_printf(p->b, "%s%lld", d ? ", " : "[", (long long)extent[d]);
  put(p, "]");
}

static void put_type(Printer *p, const Value *v) {
  put(p, dtype_name[v->type]);
  put_extents(p, v->extent, v->rank);
  if (v->means != MEANS_NONE) {
    put(p, " ");
    ir_print_meaning(p->m, p->f, v->means, v->of, p->b);
  }
  put_shards(p, v->shard, v->extent);
}

static void declare(Printer *p, Id value) {
  const Value *v = &p->f->value.at[value];
  p->declared[value] = 1;
  put_name(p, v->name);
  put(p, ": ");
  put_type(p, v);
}

// A separate line for a local whose type does not follow from its statement.
static void declare_line(Printer *p, Id value) {
  if (!p->declared || value >= p->f->value.n || p->declared[value]) return;
  put(p, "  ");
  declare(p, value);
  put_loc(p, p->f->value.at[value].loc);
  put(p, "\n");
}

static void declare_read(const Module *m, Id read, void *ctx) {
  declare_line(ctx, (Id)ex(m, read)->integer);
}

// The extent of a subscript that is an index or a group of indices; 0 for any other.
static int64_t whole_extent(const Printer *p, Id e) {
  const Expr *x = ex(p->m, e);
  if (x->op == OP_INDEX) return x->integer < p->s->nindex ? p->s->index[x->integer].extent : 0;
  if (x->op != OP_GROUP) return 0;
  int64_t n = 1;
  for (uint32_t i = 0; i < x->narg; i++) {
    Id a = ex_arg(p->m, e, i);
    if (!ex_is(p->m, a, OP_INDEX) || !mul_ok(n, whole_extent(p, a), &n)) return 0;
  }
  return n;
}

// Whether the left side's indices give its shape, so that `name[...]: type =` declares it.
static bool declares_itself(const Printer *p) {
  const Value *v = &p->f->value.at[p->s->lhs];
  for (uint32_t d = 0; d < v->rank; d++)
    if (whole_extent(p, p->s->sub[d]) != v->extent[d]) return false;
  return true;
}

// ---- statements

// Notes in `order` the indices in the order of their first mention.
static void mention(const Module *m, Id e, uint8_t *order, uint32_t *n, uint32_t *seen) {
  const Expr *x = ex(m, e);
  if (x->op == OP_INDEX && x->integer < MAX_INDEX && !(*seen >> x->integer & 1)) {
    *seen |= 1u << x->integer;
    order[(*n)++] = (uint8_t)x->integer;
  }
  for (uint32_t i = 0; i < x->narg; i++) mention(m, ex_arg(m, e, i), order, n, seen);
}

// Whether the left side mentions the free indices in their order: if not, `for` lists them.
static bool lhs_lists_indices(const Printer *p) {
  const Stmt *s = p->s;
  uint8_t order[MAX_INDEX];
  uint32_t n = 0, seen = 0;
  for (uint32_t d = 0; d < p->f->value.at[s->lhs].rank; d++)
    mention(p->m, s->sub[d], order, &n, &seen);
  for (uint32_t i = 0; i < n; i++)
    if (order[i] != i) return false;
  return n == s->nfree;
}

static void put_indices(Printer *p, uint32_t from, uint32_t to) {
  for (uint32_t i = from; i < to; i++) {
    if (i > from) put(p, ", ");
    put_index(p, i);
  }
}

// ` @tp write 0/16`: guarded writes.
static void put_writes(Printer *p) {
  const Value *v = &p->f->value.at[p->s->lhs];
  for (uint32_t a = 0; a < p->m->axis.n; a++) {
    const Assign *g = &p->s->assign[a];
    if (g->kind != ASSIGN_WRITE) continue;
    put(p, " ");
    put_axis(p, a);
    buf_printf(p->b, " write %u", g->index);
    if (g->index < MAX_RANK) put_block(p, v->extent[g->index], g->block, a);
  }
}

static void put_comp(Printer *p) {
  const Stmt *s = p->s;
  const Value *v = &p->f->value.at[s->lhs];
  p->seen = 0;
  if (!lhs_lists_indices(p)) {
    put(p, "for ");
    put_indices(p, 0, s->nfree);
    put(p, ": ");
  }
  put_name(p, v->name);
  p->lhs = true;
  for (uint32_t d = 0; d < v->rank; d++) {
    put(p, d ? ", " : "[");
    put_expr(p, s->sub[d], P_ANY);
  }
  if (v->rank) put(p, "]");
  p->lhs = false;
  if (p->declared && !p->declared[s->lhs]) {
    p->declared[s->lhs] = 1;
    buf_printf(p->b, ": %s", dtype_name[v->type]);
    put_shards(p, v->shard, v->extent);
  }
  put_writes(p);
  put(p, s->acc ? " += " : " = ");
  if (s->red != RED_NONE) {
    buf_printf(p->b, "%s(", red_name[s->red]);
    put_indices(p, s->nfree, s->nindex);
    put(p, ": ");
  }
  put_expr(p, s->body, P_ANY);
  if (s->red != RED_NONE) put(p, ")");
}

static void put_actual(Printer *p, const Call *c, const Actual *a) {
  if (a->mode == ACT_ITER) {
    put_name(p, c->iter);
    return;
  }
  Str name = p->f->value.at[a->value].name;
  if (a->mode == ACT_CARRY) put(p, "carry ");
  put_name(p, name);
  if (a->mode == ACT_SLICE) {
    put(p, "[");
    put_name(p, c->iter);
    put(p, "]");
  } else if (a->mode == ACT_WHOLE && name == c->iter) {
    put(p, "[]");
  }
}

static void put_result(Printer *p, const Call *c, const Result *r) {
  if (r->mode == RES_DROP) {
    put(p, "_");
    return;
  }
  if (r->mode == RES_CARRY) put(p, "carry ");
  put_name(p, p->f->value.at[r->value].name);
  if (r->mode != RES_SLICE) return;
  put(p, "[");
  put_name(p, c->iter);
  put(p, "]");
}

static void put_call(Printer *p) {
  const Call *c = p->s->call;
  for (uint32_t i = 0; i < c->nresult; i++) {
    if (i) put(p, ", ");
    put_result(p, c, &c->result[i]);
  }
  if (c->nresult) put(p, " = ");
  if (p->s->kind == ST_CALL) {
    put(p, "call ");
  } else {
    put(p, c->reverse ? "repeat reverse " : "repeat ");
    put_name(p, c->iter);
    buf_printf(p->b, "<%lld: ", (long long)c->count);
  }
  put_name(p, c->fn < p->m->fn.n ? p->m->fn.at[c->fn].name : str_intern("?"));
  put(p, "(");
  for (uint32_t i = 0; i < c->narg; i++) {
    if (i) put(p, ", ");
    put_actual(p, c, &c->arg[i]);
  }
  put(p, ")");
}

// y[: type] = convert x, or = all_reduce sum tp x
static void put_move(Printer *p) {
  const Stmt *s = p->s;
  if (p->declared && !p->declared[s->lhs]) declare(p, s->lhs);
  else put_name(p, p->f->value.at[s->lhs].name);
  if (s->kind == ST_CONVERT) {
    put(p, " = convert ");
  } else {
    buf_printf(p->b, " = %s ", coll_name[s->coll]);
    if (coll_reduces(s->coll)) buf_printf(p->b, "%s ", red_name[s->red]);
    put_name(p, coll_axis_name(p->m, s));
    put(p, " ");
  }
  put_name(p, p->f->value.at[s->from].name);
}

static void put_any(Printer *p) {
  switch (p->s->kind) {
  case ST_COMP: put_comp(p); return;
  case ST_CALL:
  case ST_REPEAT: put_call(p); return;
  case ST_CONVERT:
  case ST_COLL: put_move(p); return;
  }
}

void ir_print_stmt(const Module *m, const Fn *f, const Stmt *s, Buf *b) {
  Printer p = {.m = m, .b = b, .f = f, .s = s};
  put_any(&p);
}

// After a statement's place, that of the value it declares, where that is another. `@?` is no
// place.
static void put_second_loc(Printer *p, Id stmt, Id value) {
  if (stmt == value || !p->places) return;
  if (stmt == 0) put(p, " @?");
  if (value == 0) put(p, " @?");
  put_loc(p, value);
}

// What the statement mentions and can't declare.
static void declare_before(Printer *p) {
  const Stmt *s = p->s;
  if (s->kind == ST_COMP) {
    for (uint32_t d = 0; d < p->f->value.at[s->lhs].rank; d++)
      ex_reads(p->m, s->sub[d], declare_read, p);
    ex_reads(p->m, s->body, declare_read, p);
    if (!declares_itself(p)) declare_line(p, s->lhs);
  } else if (!s->call) {
    declare_line(p, s->from);
  } else {
    const Call *c = s->call;
    for (uint32_t i = 0; i < c->narg; i++)
      if (c->arg[i].mode != ACT_ITER) declare_line(p, c->arg[i].value);
    for (uint32_t i = 0; i < c->nresult; i++)
      if (c->result[i].mode != RES_DROP) declare_line(p, c->result[i].value);
  }
}

static void put_stmt(Printer *p, const Stmt *s) {
  p->s = s;
  declare_before(p);
  bool declares = !s->call && !p->declared[s->lhs];
  put(p, "  ");
  put_any(p);
  put_loc(p, s->loc);
  if (declares) put_second_loc(p, s->loc, p->f->value.at[s->lhs].loc);
  put(p, "\n");
  p->s = NULL;
}

// ---- functions

static void put_formal(Printer *p, Id value) {
  if (p->f->value.at[value].role == ROLE_INOUT) put(p, "inout ");
  declare(p, value);
  put_loc(p, p->f->value.at[value].loc);
}

static void put_fn_result(Printer *p, uint32_t i) {
  Id value = p->f->result.at[i];
  bool mine = !p->declared[value];
  if (mine) declare(p, value);
  else put_name(p, p->f->value.at[value].name);
  if (p->f->alias.n && p->f->alias.at[i] != NONE) {
    put(p, " over ");
    put_name(p, p->f->value.at[p->f->alias.at[i]].name);
  }
  if (mine) put_loc(p, p->f->value.at[value].loc);
}

// Whether what was printed since `start` has a last line of at most 100 columns.
static bool line_fits(const Printer *p, size_t start) {
  size_t line = p->b->n;
  while (line > start && p->b->text[line - 1] != '\n') line--;
  return p->b->n - line <= 100;
}

static void put_formals(Printer *p, const char *open, const char *sep, const char *close) {
  put(p, open);
  for (uint32_t i = 0; i < p->f->arg.n; i++) {
    if (i) put(p, sep);
    put_formal(p, p->f->arg.at[i]);
  }
  put(p, close);
}

static void put_results(Printer *p, const char *open, const char *sep, const char *close) {
  put(p, open);
  for (uint32_t i = 0; i < p->f->result.n; i++) {
    if (i) put(p, sep);
    put_fn_result(p, i);
  }
  put(p, close);
  if (p->f->intrinsic) buf_printf(p->b, " intrinsic %s", intrinsic_name[p->f->intrinsic]);
  intrinsic_print(p->f, p->b);
  if (p->f->backward) put(p, " backward");
  put_loc(p, p->f->loc);
  put(p, " {");
}

// On one line where that stays within 100 columns; else one argument a line; then one result a
// line.
static void put_signature(Printer *p) {
  size_t start = p->b->n;
  for (int lines = 0; lines < 3; lines++) {
    p->b->n = start;
    memset(p->declared, 0, p->f->value.n);
    put(p, "func ");
    put_name(p, p->f->name);
    if (lines && p->f->arg.n) put_formals(p, "(\n    ", ",\n    ", "\n  ) -> ");
    else put_formals(p, "(", ", ", ") -> ");
    if (lines == 2 && p->f->result.n) put_results(p, "(\n    ", ",\n    ", "\n  )");
    else put_results(p, "(", ", ", ")");
    if (line_fits(p, start)) break;
  }
  put(p, "\n");
}

static void put_fn(Printer *p, const Fn *f) {
  p->f = f;
  p->declared = arena_alloc(p->m->arena, f->value.n + 1);
  put_signature(p);
  for (uint32_t i = 0; i < f->stmt.n; i++) put_stmt(p, &f->stmt.at[i]);
  put(p, "}\n");
}

void ir_print_fn(const Module *m, const Fn *f, Buf *b) {
  Printer p = {.m = m, .b = b};
  put_fn(&p, f);
}

// ---- the module's tables

static void put_train_field(Printer *p, const TrainField *f) {
  const char *at = (const char *)&p->m->train + f->offset;
  double real;
  const StrVec *v = (const void *)at;
  switch (f->kind) {
  case FIELD_INT: put_int(p, *(const int64_t *)(const void *)at); break;
  case FIELD_REAL:
    memcpy(&real, at, sizeof real);
    ir_print_real(real, p->b);
    break;
  case FIELD_BOOL: put(p, "true"); break;
  case FIELD_STR: ir_print_string(*(const Str *)(const void *)at, p->b); break;
  case FIELD_ENUM: put(p, f->word[*(const unsigned *)(const void *)at]); break;
  case FIELD_STRS:
    put(p, "[");
    for (uint32_t i = 0; i < v->n; i++) {
      if (i) put(p, ", ");
      ir_print_string(v->at[i], p->b);
    }
    put(p, "]");
  }
}

// A setting is printed where it isn't all zero bits, which is what module_new gives.
static bool train_field_set(const Module *m, const TrainField *f) {
  static const size_t size[] = {
      [FIELD_INT] = 8,           [FIELD_REAL] = 8, [FIELD_BOOL] = 1,
      [FIELD_STR] = sizeof(Str), [FIELD_STRS] = 0, [FIELD_ENUM] = sizeof(unsigned)};
  const char *at = (const char *)&m->train + f->offset;
  if (f->kind == FIELD_STRS) return ((const StrVec *)(const void *)at)->n > 0;
  for (size_t i = 0; i < size[f->kind]; i++)
    if (at[i]) return true;
  return false;
}

static void put_train(Printer *p) {
  bool any = false;
  for (uint32_t i = 0; i < ntrain_field; i++) any |= train_field_set(p->m, &train_field[i]);
  if (!any) return;
  put(p, "train {\n");
  for (uint32_t i = 0; i < ntrain_field; i++) {
    if (!train_field_set(p->m, &train_field[i])) continue;
    buf_printf(p->b, "  %s = ", train_field[i].name);
    put_train_field(p, &train_field[i]);
    put(p, "\n");
  }
  put(p, "}\n");
}

// `param blocks.*.qkv.weight[12; 768 | 3, 768] = normal(0.0, 0.02) decay`
static void put_param(Printer *p, const Param *q) {
  put(p, "param ");
  put_name(p, q->name);
  uint32_t bar = q->bar < 0 ? UINT32_MAX : q->nstack + (uint32_t)q->bar;
  if (q->rank || q->bar >= 0) put(p, "[");
  for (uint32_t d = 0; d < q->rank; d++) {
    if (d == bar) put(p, d && d != q->nstack ? " | " : d ? "; | " : "| ");
    else if (d) put(p, d == q->nstack ? "; " : ", ");
    put_int(p, q->extent[d]);
  }
  if (q->nstack && q->nstack == q->rank) put(p, ";");
  if (q->rank == bar) put(p, bar ? " |" : "|");
  if (q->rank || q->bar >= 0) put(p, "]");
  for (uint32_t a = 0; a < NAMED_AXES; a++) {
    if (q->asked[a] > 0) buf_printf(p->b, " on %s %d", axis_word[a], q->asked[a] - 1);
    if (q->asked[a] < 0) buf_printf(p->b, " off %s", axis_word[a]);
  }
  put_shards(p, q->shard, q->extent);
  buf_printf(p->b, " = %s", init_name[q->init]);
  if (q->init == INIT_NORMAL || q->init == INIT_UNIFORM || q->init == INIT_CONST) {
    put(p, "(");
    ir_print_real(q->init_a, p->b);
    if (q->init != INIT_CONST) {
      put(p, ", ");
      ir_print_real(q->init_b, p->b);
    }
    put(p, ")");
  }
  if (q->decay) put(p, " decay");
  put_loc(p, q->loc);
  put(p, "\n");
}

// chunk 0 forward = f, backward = g
// chunk 0 holds blocks.*.w[6, 6]
static void put_chunks(Printer *p) {
  const Module *m = p->m;
  for (uint32_t i = 0; i < m->chunk.n; i++) {
    const Chunk *c = &m->chunk.at[i];
    const char *before = "";
    buf_printf(p->b, "chunk %u ", i);
    for (int k = 0; k < NCHUNK_PART; k++) {
      if (c->fn[k] == NONE) continue;
      buf_printf(p->b, "%s%s = ", before, chunk_part_name[k]);
      put_name(p, m->fn.at[c->fn[k]].name);
      before = ", ";
    }
    put(p, "\n");
    for (uint32_t k = 0; k < c->piece.n; k++) {
      const Piece *q = &c->piece.at[k];
      buf_printf(p->b, "chunk %u holds ", i);
      put_name(p, m->param.at[q->param].name);
      if (m->param.at[q->param].nstack)
        buf_printf(p->b, "[%lld, %lld]", (long long)q->first, (long long)q->count);
      put(p, "\n");
    }
  }
}

static void put_tables(Printer *p) {
  const Module *m = p->m;
  put_train(p);
  if (m->ndata) buf_printf(p->b, "data %u\n", m->ndata);
  for (uint32_t i = 0; i < m->range.n; i++) {
    const DataRange *r = &m->range.at[i];
    buf_printf(p->b, "range %u in [%lld, %lld)", r->arg, (long long)r->lo, (long long)r->hi);
    put_loc(p, r->loc);
    put(p, "\n");
  }
  for (uint32_t i = 0; i < m->metric.n; i++) {
    put(p, "metric ");
    put_name(p, m->metric.at[i]);
    put(p, "\n");
  }
  for (uint32_t i = 0; i < m->param.n; i++) put_param(p, &m->param.at[i]);
  for (int e = 0; e < NENTRY; e++) {
    if (m->entry[e] == NONE) continue;
    buf_printf(p->b, "entry %s = ", entry_name[e]);
    put_name(p, m->fn.at[m->entry[e]].name);
    put(p, "\n");
  }
  put_chunks(p);
}

// First of the tables: what follows names axes.
static void put_axes(const Module *m, Buf *b) {
  for (uint32_t a = 0; a < m->axis.n; a++) {
    buf_printf(b, "axis ");
    ir_print_name(m->axis.at[a].name, b);
    const Axis *x = &m->axis.at[a];
    buf_printf(b, " %lld%s%s%s%s\n", (long long)x->size, x->sequence ? " sequence" : "",
               x->heads ? " heads" : "", x->ring ? " ring" : "", x->folded ? " folded" : "");
  }
  if (m->spmd) buf_printf(b, "spmd\n");
  if (m->recompute == RECOMPUTE_AUTO) buf_printf(b, "recompute auto %lld\n", (long long)m->keep);
  else if (m->recompute) buf_printf(b, "recompute %s\n", recompute_name[m->recompute]);
  if (m->stages < 2) return;
  buf_printf(b, "pipeline %u", m->stages);
  if (m->chunks > 1) buf_printf(b, " chunks %u", m->chunks);
  if (m->split) buf_printf(b, " split");
  buf_printf(b, " ");
  ir_print_string(m->schedule, b);
  buf_printf(b, "\n");
}

static void print_module(const Module *m, bool places, Buf *b) {
  Buf body = {0}; // printed first, because it numbers the files
  Printer p = {.m = m, .b = &body, .places = places};
  p.file = NEWN(m->arena, uint32_t, m->src->file.n + 1);
  put_tables(&p);
  for (uint32_t i = 0; i < m->fn.n; i++) {
    put(&p, "\n");
    put_fn(&p, &m->fn.at[i]);
  }
  buf_printf(b, "module ");
  ir_print_name(m->name, b);
  buf_printf(b, "\ncompute %s\n", dtype_name[m->compute]);
  if (is_half(m->store)) buf_printf(b, "store %s\n", dtype_name[m->store]);
  for (uint32_t i = 0; i < p.order.n; i++) {
    buf_printf(b, "file %u ", i);
    ir_print_string(m->src->file.at[p.order.at[i]].name, b);
    buf_printf(b, "\n");
  }
  put_axes(m, b);
  if (body.n) buf_write(b, body.text, body.n);
  buf_free(&body);
}

void ir_print(const Module *m, Buf *b) { print_module(m, true, b); }
void ir_print_plain(const Module *m, Buf *b) { print_module(m, false, b); }
