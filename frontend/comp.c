// Scalar expressions to IR. A comprehension of the IR has at most one reduction, at its top: any
// other one becomes a statement before it, over those of the indices around it that it uses.
#include "frontend/front.h"

const char *scalar_text(Scalar s) { return s == SC_REAL ? "real" : s == SC_INT ? "int" : "bool"; }
Dtype dtype_of(Scalar s) { return s == SC_REAL ? DT_REAL : s == SC_INT ? DT_I32 : DT_BOOL; }

static R r_error(void) { return (R){.kind = R_ERROR}; }
static R r_ct(Ct c) { return c.kind == CT_ERROR ? r_error() : (R){.kind = R_CT, .ct = c}; }
static R r_ir(Module *m, Id e) {
  return e == NONE ? r_error() : (R){.kind = R_IR, .e = e, .type = (Scalar)ex(m, e)->type};
}

Scalar r_type(const R *r) {
  if (r->kind == R_IR) return r->type;
  if (r->kind == R_CT && r->ct.kind == CT_INT) return SC_INT;
  if (r->kind == R_CT && r->ct.kind == CT_BOOL) return SC_BOOL;
  return SC_REAL;
}

Id to_ir(St *st, R r, Id loc) {
  Front *fr = st->fb->fr;
  if (r.kind == R_ERROR) return NONE;
  if (r.kind == R_IR) return r.e;
  if (r.kind == R_ABSENT) return ex_real(fr->m, 0);
  number_of_samples(fr, loc, r.ct.per_sample);
  if (r.ct.kind == CT_REAL) return ex_real(fr->m, r.ct.r);
  if (r.ct.kind == CT_BOOL) return ex_bool(fr->m, r.ct.i);
  if (r.ct.kind != CT_INT) {
    err(fr, loc, "%s has no place in a tensor expression", ct_kind_text(&r.ct));
    return NONE;
  }
  if (!st->subscript && (r.ct.i > INT32_MAX || r.ct.i < INT32_MIN)) {
    err(fr, loc, "%lld does not fit in a tensor's 32-bit int", (long long)r.ct.i);
    return NONE;
  }
  return ex_int(fr->m, r.ct.i);
}

// Constants convert from int to real; nothing else does by itself.
Id to_scalar(St *st, R r, Scalar want, Id loc, const char *what) {
  Module *m = st->fb->fr->m;
  if (r.kind == R_CT && r.ct.kind == CT_INT && want == SC_REAL) r.ct = ct_to_real(r.ct);
  Id e = to_ir(st, r, loc);
  if (e == NONE || (Scalar)ex(m, e)->type == want) return e;
  Scalar have = (Scalar)ex(m, e)->type;
  const char *hint = want == SC_REAL && have == SC_INT   ? "; real(...) converts"
                     : want == SC_INT && have == SC_REAL ? "; int(...) converts"
                     : want == SC_REAL                   ? "; where(..., 1.0, 0.0) converts"
                                                         : "";
  err(st->fb->fr, loc, "%s is %s, and this is %s%s", what, scalar_text(want), scalar_text(have),
      hint);
  return NONE;
}

static int position(const Frame *f, const IndexVar *v) {
  for (uint32_t i = 0; i < f->n; i++)
    if (f->var[i] == v) return (int)i;
  return -1;
}

// Reading an accumulator ends it: a later += starts a new one.
static void mark_read(Fb *fb, Id value) { fb->read.at[value] = true; }

static R read_value(St *st, Id value, const Id *sub, Id loc) {
  Id read = ex_read(st->fb->fr->m, &st->fb->fn, value, sub);
  mark_read(st->fb, value);
  PUSH(st->fb->fr->arena, st->read, ((ReadLoc){read, loc}));
  return r_ir(st->fb->fr->m, read);
}

typedef struct ReadPlaces {
  St *st;
  VEC(Id) loc;
} ReadPlaces;

static void place_read(const Module *m, Id read, void *ctx) {
  ReadPlaces *p = ctx;
  uint32_t k = 0;
  while (k < p->st->read.n && p->st->read.at[k].read != read) k++;
  PUSH(m->arena, p->loc, k < p->st->read.n ? p->st->read.at[k].loc : 0);
}

// Notes where the body's reads are, while they are as they were made.
static void note_places(St *st, Id body) {
  ReadPlaces p = {.st = st};
  if (st->read.n) ex_reads(st->fb->fr->m, body, place_read, &p);
  st->read_loc = p.loc.at;
  st->nread_loc = p.loc.n;
}

static R build_iter(St *st, Ct c, Id loc) {
  Front *fr = st->fb->fr;
  Module *m = fr->m;
  number_of_samples(fr, loc, c.per_sample);
  Id v = fb_iter(st->fb, c.level);
  if (v == NONE) return r_error();
  Id e = ex_read(m, &st->fb->fn, v, NULL);
  if (c.mul != 1) e = ex2(m, OP_MUL, e, ex_int(m, c.mul));
  if (c.i) e = ex2(m, OP_ADD, e, ex_int(m, c.i));
  return r_ir(m, e);
}

static R build_name(St *st, const Ast *e, Frame *f) {
  Front *fr = st->fb->fr;
  IndexVar *v = e->kind == A_NAME ? frame_find(f, e->name) : NULL;
  if (v) return r_ir(fr->m, ex_index(fr->m, (uint32_t)position(f, v)));
  Entity x = resolve(&st->env, e);
  Shape s;
  Id sub[MAX_RANK];
  Buf b = {0};
  ast_print_expr(e, &b);
  R r = r_error();
  switch (x.kind) {
  case ENT_CT: r = x.ct.kind == CT_ITER ? build_iter(st, x.ct, e->loc) : r_ct(x.ct); break;
  case ENT_ABSENT: r.kind = R_ABSENT; break;
  case ENT_ERROR: break;
  case ENT_VALUE:
    s = value_shape(st->fb, x.value);
    if (s.rank && !f->whole) break; // reported by prepare
    for (uint32_t i = 0; i < s.rank; i++)
      sub[i] = ex_index(fr->m, (uint32_t)position(f, st->whole_var.at[i]));
    r = read_value(st, x.value, sub, e->loc);
    break;
  case ENT_NONE:
    if (st->subscript && e->kind == A_NAME)
      err(fr, e->loc, "index '%s' is not bound: it is neither on the left nor in a reduction",
          e->name);
    else unknown_name(&st->env, e, "name");
    break;
  default:
    err(fr, e->loc, "'%s' is not a value; call a function or a layer: %s(...)", b.text, b.text);
    break;
  }
  buf_free(&b);
  return r;
}

static Id build_group(St *st, const Ast *e, Frame *f) {
  Module *m = st->fb->fr->m;
  Id arg[MAX_INDEX];
  for (uint32_t i = 0; i < e->arg.n; i++) {
    const Arg *a = &e->arg.at[i];
    if (a->name) arg[i] = ex_index(m, (uint32_t)position(f, frame_find(f, a->name)));
    else arg[i] = to_scalar(st, build(st, a->value, f), SC_INT, a->value->loc, "a subscript");
    if (arg[i] == NONE) return NONE;
  }
  return e->arg.n == 1 ? arg[0] : ex_group(m, arg, e->arg.n);
}

Id build_subscript(St *st, const Ast *e, Frame *f) {
  Frame g = *f;
  g.whole = false;
  bool outer = st->subscript;
  st->subscript = true;
  Id r = e->kind == A_GROUP ? build_group(st, e, &g)
                            : to_scalar(st, build(st, e, &g), SC_INT, e->loc, "a subscript");
  st->subscript = outer;
  return r;
}

static R build_read(St *st, const Ast *e, Frame *f) {
  Module *m = st->fb->fr->m;
  NodeInfo *info = node_info(st, e);
  if (info->absent) return (R){.kind = R_ABSENT};
  Id value = info->value, sub[MAX_RANK];
  if (info->failed || value == NONE) return r_error();
  uint32_t n = 0;
  for (uint32_t i = 0; i < e->arg.n; i++) {
    const Ast *s = e->arg.at[i].value;
    if (s->kind == A_DOTS)
      for (uint32_t k = 0; k < st->dots.n; k++) {
        int at = position(f, st->dots.at[k]);
        if (at < 0) {
          err(st->fb->fr, s->loc,
              "'...' is not bound here: it is neither on the left nor in a reduction around this");
          return r_error();
        }
        sub[n++] = ex_index(m, (uint32_t)at);
      }
    else if ((sub[n++] = build_subscript(st, s, f)) == NONE) return r_error();
  }
  return read_value(st, value, sub, e->loc);
}

static Id identity_of(Module *m, Red red, Scalar type) {
  if (type == SC_INT) return ex_int(m, red == RED_MAX ? INT32_MIN : red == RED_MIN ? INT32_MAX : 0);
  return ex_real(m, red == RED_MAX ? -__builtin_inf() : red == RED_MIN ? __builtin_inf() : 0);
}

static Red red_of(const Ast *e) {
  for (int r = RED_SUM; r < NRED; r++)
    if (!strcmp(e->a->name, red_name[r])) return (Red)r;
  return RED_NONE;
}

// The body of a reduction, in a frame that has its indices after those of f. NONE after an error.
static Id build_terms(St *st, const Ast *e, const Frame *f, Frame *g, Red *red) {
  Front *fr = st->fb->fr;
  *red = red_of(e);
  *g = *f;
  g->whole = false;
  VarList list = node_info(st, e)->var;
  if (!frame_add(st, g, &list, e->loc) || !check_extents(st, g)) return NONE;
  bool outer = st->subscript;
  st->subscript = false;
  const Ast *term = e->arg.at[e->arg.n - 1].note;
  R r = build(st, term, g);
  st->subscript = outer;
  if (r.kind == R_ERROR) return NONE;
  Scalar type = r_type(&r);
  if (r.kind == R_CT && type == SC_INT && *red == RED_MEAN) type = SC_REAL;
  if (type == SC_BOOL || (type == SC_INT && *red == RED_MEAN)) {
    err(fr, term->loc, "%s of %s; %s", e->a->name, type == SC_BOOL ? "a bool" : "an int",
        type == SC_BOOL ? "where(..., 1, 0) makes a number of it" : "real(...) converts");
    return NONE;
  }
  Id body = to_scalar(st, r, type, term->loc, "this");
  if (g->n == f->n) { // `...` that stands for nothing: one term
    if (*red == RED_ARGMAX) body = ex_int(fr->m, 0);
    *red = RED_NONE;
  }
  return body;
}

// Names of the statement's indices, made unique: `...` may bring the name of one that the user
// wrote.
static void name_indices(Index *index, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t j = 0, k = 2; j < i; j++)
      if (index[j].name == index[i].name) {
        index[i].name = str_printf("%s_%u", index[i].name, k++);
        j = UINT32_MAX; // from the start
      }
}

// Elements of a value of this shape must be countable in bytes.
static bool shape_ok(St *st, const Shape *s, Id loc) {
  int64_t n = 8;
  if (s->rank > MAX_RANK) {
    err(st->fb->fr, loc, "a tensor has at most %d dimensions", MAX_RANK);
    return false;
  }
  for (uint32_t d = 0; d < s->rank; d++)
    if (!mul_ok(n, s->extent[d], &n)) {
      err(st->fb->fr, loc, "a tensor of shape %s is too large",
          extents_text(st->fb->fr, s->extent, s->rank));
      return false;
    }
  return true;
}

bool emit_body(St *st, Target *t, Red red, Id body, const Frame *f, uint32_t nfree) {
  Fb *fb = st->fb;
  Module *m = fb->fr->m;
  if (!check_extents(st, f)) return false;
  if (t->value == NONE) {
    t->shape.type = red == RED_ARGMAX ? DT_I32 : dtype_of((Scalar)ex(m, body)->type);
    if (!shape_ok(st, &t->shape, t->name_loc)) return false;
    t->value = fb_value(fb, t->name, &t->shape, ROLE_LOCAL, t->name_loc);
  }
  Index index[MAX_INDEX];
  for (uint32_t i = 0; i < f->n; i++) {
    const IndexVar *v = f->var[i];
    index[i] = (Index){.name = v->name, .extent = v->extent, .local = v->local, .batch = v->per_sample,
                       .on = v->on, .off = st->off};
    fb->fr->local |= v->local;
  }
  name_indices(index, f->n);
  fn_comp(m, &fb->fn, t->value, t->sub, t->acc, red, index, nfree, f->n, body, st->loc);
  if (!st->read_loc) note_places(st, body);
  Stmt *s = &fb->fn.stmt.at[fb->fn.stmt.n - 1];
  s->read_loc = st->read_loc;
  s->nread_loc = st->nread_loc;
  st->read_loc = NULL;
  return true;
}

Id lift(St *st, Red red, Id body, Frame *f, uint32_t nfree, uint32_t keep, Id loc, Id *value) {
  Module *m = st->fb->fr->m;
  keep |= ex_indices(m, body) & ((1u << nfree) - 1);
  Frame g = {.guard = NONE};
  Target t = {.value = NONE,
              .name = str_printf("%s.%s", st->name, red == RED_NONE ? "part" : red_name[red]),
              .name_loc = loc};
  Id to[MAX_INDEX], read_at[MAX_RANK];
  for (uint32_t i = 0; i < f->n; i++) {
    if (i < nfree && !(keep >> i & 1)) {
      to[i] = NONE;
      continue;
    }
    if (i < nfree) {
      if (g.n == MAX_RANK) {
        err(st->fb->fr, loc,
            "this is computed into a temporary with a dimension for each index that it depends on, "
            "and a tensor has at most %d",
            MAX_RANK);
        return NONE;
      }
      read_at[g.n] = ex_index(m, i);
      t.sub[g.n] = ex_index(m, g.n);
      t.shape.extent[g.n] = f->var[i]->extent;
      t.shape.per_sample[g.n] = f->var[i]->per_sample;
      t.shape.dim[g.n] = f->var[i]->name;
      t.shape.rank = g.n + 1;
    }
    to[i] = ex_index(m, g.n);
    g.var[g.n++] = f->var[i];
  }
  Id outer = st->loc;
  st->loc = loc;
  note_places(st, body);
  bool ok = emit_body(st, &t, red, ex_rename(m, body, to, NULL), &g, t.shape.rank);
  st->loc = outer;
  if (value) *value = t.value;
  if (!ok) return NONE;
  Id read = ex_read(m, &st->fb->fn, t.value, read_at);
  PUSH(st->fb->fr->arena, st->read, ((ReadLoc){read, loc}));
  return read;
}

static R build_reduce(St *st, const Ast *e, Frame *f) {
  Module *m = st->fb->fr->m;
  Frame g;
  Red red;
  Id body = build_terms(st, e, f, &g, &red);
  if (body == NONE) return r_error();
  if (red == RED_NONE) return r_ir(m, body);
  if (f->guard != NONE)
    body = ex3(m, OP_WHERE, f->guard, body, identity_of(m, red, (Scalar)ex(m, body)->type));
  return r_ir(m, lift(st, red, body, &g, f->n, 0, e->loc, NULL));
}

// Two operands of one type; constants follow the other one.
static bool same_type(St *st, R a, R b, const Ast *ea, const Ast *eb, Id loc, const char *what,
                      Id *x, Id *y) {
  Scalar ta = r_type(&a), tb = r_type(&b);
  if (a.kind == R_ERROR || b.kind == R_ERROR) return false;
  if (ta != tb && a.kind == R_CT && ta == SC_INT && tb == SC_REAL) ta = SC_REAL;
  if (ta != tb && b.kind == R_CT && tb == SC_INT && ta == SC_REAL) tb = SC_REAL;
  if (ta != tb) {
    bool numbers = ta != SC_BOOL && tb != SC_BOOL;
    err(st->fb->fr, loc, "'%s' of %s and %s%s", what, scalar_text(ta), scalar_text(tb),
        numbers ? "; real(...) or int(...) converts" : "");
    return false;
  }
  *x = to_scalar(st, a, ta, ea->loc, "this");
  *y = to_scalar(st, b, tb, eb->loc, "this");
  return *x != NONE && *y != NONE;
}

static R build_power(St *st, R a, R b, const Ast *e) {
  Front *fr = st->fb->fr;
  if (b.kind == R_CT && b.ct.kind == CT_INT && b.ct.i == 2 && !b.ct.per_sample) {
    Id x = to_ir(st, a, e->a->loc);
    if (x == NONE) return r_error();
    if (ex(fr->m, x)->type != SC_BOOL) return r_ir(fr->m, ex2(fr->m, OP_MUL, x, x));
  }
  Id x = to_scalar(st, a, SC_REAL, e->a->loc, "the base of a power");
  Id y = to_scalar(st, b, SC_REAL, e->b->loc, "the exponent of a power");
  return x == NONE || y == NONE ? r_error() : r_ir(fr->m, ex2(fr->m, OP_POW, x, y));
}

// Terms of parameters that are not there: x + 0 is x, 0 * x is not there.
static R build_absent(St *st, BinOp op, R a, R b, const Ast *e) {
  Module *m = st->fb->fr->m;
  bool left = a.kind == R_ABSENT;
  R other = left ? b : a;
  if (op == B_ADD || (op == B_SUB && !left)) return other;
  if (op == B_MUL || (op == B_DIV && left)) return (R){.kind = R_ABSENT};
  Id x = to_scalar(st, other, SC_REAL, left ? e->b->loc : e->a->loc, "this");
  if (op == B_SUB && x != NONE && other.kind != R_ABSENT) return r_ir(m, ex1(m, OP_NEG, x));
  err(st->fb->fr, e->loc, "'%s' of a parameter that is absent", binop_text[op]);
  return r_error();
}

static R binary(St *st, BinOp op, R a, R b, const Ast *e) {
  static const Op of[] = {OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_IDIV, OP_MOD, OP_POW, OP_LT,
                          OP_LE,  OP_GT,  OP_GE,  OP_EQ,  OP_NE,   OP_AND, OP_OR};
  Front *fr = st->fb->fr;
  Id x, y;
  if (a.kind == R_ERROR || b.kind == R_ERROR) return r_error();
  if (a.kind == R_CT && b.kind == R_CT) return r_ct(ct_binary(fr, op, a.ct, b.ct, e->loc));
  if ((a.kind == R_ABSENT || b.kind == R_ABSENT) && op <= B_DIV)
    return build_absent(st, op, a, b, e);
  if (op == B_POW) return build_power(st, a, b, e);
  if (!same_type(st, a, b, e->a, e->b, e->loc, binop_text[op], &x, &y)) return r_error();
  Scalar t = (Scalar)ex(fr->m, x)->type;
  if (op == B_DIV && t == SC_INT)
    err(fr, e->loc, "'/' of ints: `//` divides ints, real(...) converts");
  else if ((op == B_IDIV || op == B_MOD) && t != SC_INT)
    err(fr, e->loc, "'%s' is for ints, and these are %s", binop_text[op], scalar_text(t));
  else if (op < B_AND && t == SC_BOOL)
    err(fr, e->loc, "'%s' of bools; where(..., 1, 0) makes numbers of them", binop_text[op]);
  else return r_ir(fr->m, ex2(fr->m, of[op], x, y));
  return r_error();
}

static Id both(Module *m, Id a, Id b) { return a == NONE ? b : ex2(m, OP_AND, a, b); }

static R build_binary(St *st, const Ast *e, Frame *f) {
  Module *m = st->fb->fr->m;
  R a = build(st, e->a, f);
  if (a.kind == R_ERROR) {
    build(st, e->b, f); // for its errors
    return a;
  }
  if (e->op != B_AND && e->op != B_OR) return binary(st, e->op, a, build(st, e->b, f), e);
  bool is_and = e->op == B_AND;
  const char *what = is_and ? "an operand of 'and'" : "an operand of 'or'";
  if (a.kind == R_CT && a.ct.kind == CT_BOOL) {
    if (decided_by_samples(st->fb->fr, e->a->loc, a.ct.per_sample)) return r_error();
    if ((a.ct.i != 0) != is_and) return a;
    R b = build(st, e->b, f);
    return to_scalar(st, b, SC_BOOL, e->b->loc, what) == NONE ? r_error() : b;
  }
  Id x = to_scalar(st, a, SC_BOOL, e->a->loc, what);
  if (x == NONE) return r_error();
  Frame g = *f;
  g.guard = both(m, f->guard, is_and ? x : ex1(m, OP_NOT, x));
  R b = build(st, e->b, &g);
  if (b.kind == R_CT && b.ct.kind == CT_BOOL) {
    if (decided_by_samples(st->fb->fr, e->b->loc, b.ct.per_sample)) return r_error();
    return (b.ct.i != 0) == is_and ? a : b;
  }
  return binary(st, e->op, a, b, e);
}

static R build_unary(St *st, const Ast *e, Frame *f) {
  Front *fr = st->fb->fr;
  R a = build(st, e->a, f);
  if (a.kind == R_ERROR || (a.kind == R_ABSENT && e->kind == A_NEG)) return a;
  if (e->kind == A_NOT) {
    if (a.kind == R_CT && a.ct.kind == CT_BOOL) return r_ct(ct_not(a.ct));
    Id x = to_scalar(st, a, SC_BOOL, e->a->loc, "the operand of 'not'");
    return x == NONE ? r_error() : r_ir(fr->m, ex1(fr->m, OP_NOT, x));
  }
  if (a.kind == R_CT && a.ct.kind == CT_REAL) {
    a.ct.r = -a.ct.r;
    return a;
  }
  if (a.kind == R_CT && a.ct.kind == CT_INT)
    return r_ct(ct_binary(fr, B_MUL, ct_int(-1), a.ct, e->loc));
  if (r_type(&a) == SC_BOOL) {
    err(fr, e->loc, "'-' of a bool; where(..., 1, 0) makes a number of it");
    return r_error();
  }
  return r_ir(fr->m, ex1(fr->m, OP_NEG, to_ir(st, a, e->loc)));
}

static R build_where(St *st, const Ast *e, Frame *f) {
  Module *m = st->fb->fr->m;
  const Ast *ec = e->arg.at[0].value, *ea = e->arg.at[1].value, *eb = e->arg.at[2].value;
  R c = build(st, ec, f);
  if (c.kind == R_CT && c.ct.kind == CT_BOOL && decided_by_samples(st->fb->fr, ec->loc, c.ct.per_sample)) return r_error();
  if (c.kind == R_CT && c.ct.kind == CT_BOOL) return build(st, c.ct.i ? ea : eb, f);
  Id x = to_scalar(st, c, SC_BOOL, ec->loc, "the condition of 'where'"), y, z;
  if (x == NONE) return r_error();
  Frame g = *f;
  g.guard = both(m, f->guard, x);
  R a = build(st, ea, &g);
  g.guard = both(m, f->guard, ex1(m, OP_NOT, x));
  R b = build(st, eb, &g);
  if (!same_type(st, a, b, ea, eb, e->loc, "where", &y, &z)) return r_error();
  return r_ir(m, ex3(m, OP_WHERE, x, y, z));
}

// A number drawn for each point of the statement: keyed by this place, the iteration of the stacks
// around it, and the element.
static R build_random(St *st, const Frame *f) {
  Fb *fb = st->fb;
  Module *m = fb->fr->m;
  Id arg[MAX_INDEX], iter = ex_int(m, 0);
  for (uint32_t level = 0; level < fb->fr->depth; level++) {
    Id v = fb_iter(fb, level);
    if (v == NONE) return r_error();
    Id i = ex_read(m, &fb->fn, v, NULL);
    iter =
        level ? ex2(m, OP_ADD, ex2(m, OP_MUL, iter, ex_int(m, fb->fr->stack_count[level])), i) : i;
  }
  for (uint32_t i = 0; i < f->n; i++) arg[i] = ex_index(m, i);
  Id element = f->n ? ex_group(m, arg, f->n) : ex_int(m, 0);
  fb->random = true;
  return r_ir(m, ex3(m, OP_RANDOM, ex_int(m, fb->fr->nsite++), iter, element));
}

// Functions of scalars: name, number of arguments, operator. Others are composed of operators.
typedef enum FnKind {
  K_OP, K_NUM, K_WHERE, K_REAL, K_INT, K_STOP, K_RANDOM, K_RELU, K_SIGMOID, K_RSQRT, K_SQUARE,
  K_CEIL
} FnKind;
static const struct {
  const char *name;
  uint32_t n;
  FnKind kind;
  Op op;
} scalars[] = {
    {"where", 3, K_WHERE, 0},     {"real", 1, K_REAL, 0},
    {"int", 1, K_INT, 0},         {"stop_gradient", 1, K_STOP, OP_STOP},
    {"random", 0, K_RANDOM, 0},   {"min", 2, K_NUM, OP_MIN},
    {"max", 2, K_NUM, OP_MAX},    {"abs", 1, K_NUM, OP_ABS},
    {"exp", 1, K_OP, OP_EXP},     {"log", 1, K_OP, OP_LOG},
    {"sqrt", 1, K_OP, OP_SQRT},   {"sin", 1, K_OP, OP_SIN},
    {"cos", 1, K_OP, OP_COS},     {"tanh", 1, K_OP, OP_TANH},
    {"erf", 1, K_OP, OP_ERF},     {"floor", 1, K_OP, OP_FLOOR},
    {"pow", 2, K_OP, OP_POW},     {"relu", 1, K_RELU, 0},
    {"sigmoid", 1, K_SIGMOID, 0}, {"rsqrt", 1, K_RSQRT, 0},
    {"square", 1, K_SQUARE, 0},   {"ceil", 1, K_CEIL, 0},
};
enum { NSCALAR = sizeof scalars / sizeof scalars[0] };

static R build_convert(St *st, FnKind kind, R a, Id loc) {
  Module *m = st->fb->fr->m;
  if (a.kind == R_CT && a.ct.kind == CT_INT)
    return kind == K_REAL ? r_ct(ct_to_real(a.ct)) : a;
  if (a.kind == R_ABSENT) return kind == K_REAL ? a : r_ct(ct_int(0));
  Id x = to_ir(st, a, loc);
  if (x == NONE) return r_error();
  Scalar want = kind == K_REAL ? SC_REAL : SC_INT;
  return (Scalar)ex(m, x)->type == want
             ? r_ir(m, x)
             : r_ir(m, ex1(m, kind == K_REAL ? OP_TO_REAL : OP_TO_INT, x));
}

static R build_sugar(Module *m, FnKind kind, Id x) {
  Id one = ex_real(m, 1);
  switch (kind) {
  case K_RELU:
    return r_ir(m, ex2(m, OP_MAX, x, ex(m, x)->type == SC_INT ? ex_int(m, 0) : ex_real(m, 0)));
  case K_SIGMOID:
    return r_ir(m, ex2(m, OP_DIV, one, ex2(m, OP_ADD, one, ex1(m, OP_EXP, ex1(m, OP_NEG, x)))));
  case K_RSQRT: return r_ir(m, ex2(m, OP_DIV, one, ex1(m, OP_SQRT, x)));
  case K_SQUARE: return r_ir(m, ex2(m, OP_MUL, x, x));
  default: return r_ir(m, ex1(m, OP_NEG, ex1(m, OP_FLOOR, ex1(m, OP_NEG, x)))); // ceil
  }
}

static R build_function(St *st, int k, const Ast *e, Frame *f) {
  Front *fr = st->fb->fr;
  R arg[3];
  Id x[3];
  FnKind kind = scalars[k].kind;
  bool known, all_ct = true;
  Ct ct[3];
  Str none[3] = {NULL, NULL, NULL};
  const char *what = arena_printf(fr->arena, "the argument of '%s'", scalars[k].name);
  for (uint32_t i = 0; i < e->arg.n; i++) {
    arg[i] = build(st, e->arg.at[i].value, f);
    all_ct = all_ct && arg[i].kind == R_CT && ct_number(&arg[i].ct);
    ct[i] = arg[i].ct;
  }
  for (uint32_t i = 0; i < e->arg.n; i++)
    if (arg[i].kind == R_ERROR) return arg[i];
  if (all_ct && ct_function(str_intern(scalars[k].name)))
    return r_ct(ct_call(fr, str_intern(scalars[k].name), ct, none, e->arg.n, e->loc, &known));
  if (kind == K_REAL || kind == K_INT) return build_convert(st, kind, arg[0], e->loc);
  if (kind == K_STOP && arg[0].kind != R_IR) return arg[0];
  if (kind == K_NUM && e->arg.n == 2) {
    if (!same_type(st, arg[0], arg[1], e->arg.at[0].value, e->arg.at[1].value, e->loc,
                   scalars[k].name, &x[0], &x[1]))
      return r_error();
    if (ex(fr->m, x[0])->type == SC_BOOL) {
      err(fr, e->loc, "'%s' of bools; where(..., 1, 0) makes numbers of them", scalars[k].name);
      return r_error();
    }
    return r_ir(fr->m, ex2(fr->m, scalars[k].op, x[0], x[1]));
  }
  bool any = kind == K_NUM || kind == K_STOP || kind == K_RELU || kind == K_SQUARE;
  for (uint32_t i = 0; i < e->arg.n; i++) {
    Scalar want = any && r_type(&arg[i]) == SC_INT ? SC_INT : SC_REAL;
    x[i] = to_scalar(st, arg[i], want, e->arg.at[i].value->loc, what);
    if (x[i] == NONE) return r_error();
  }
  if (kind == K_OP || kind == K_NUM || kind == K_STOP)
    return r_ir(fr->m, ex_op(fr->m, scalars[k].op, x, e->arg.n));
  return build_sugar(fr->m, kind, x[0]);
}

static R build_call(St *st, const Ast *e, Frame *f) {
  Front *fr = st->fb->fr;
  Entity x = resolve_object(&st->env, e->a);
  int k = 0;
  if (x.kind == ENT_ERROR) return r_error();
  if (x.kind == ENT_BUILTIN)
    while (k < NSCALAR && strcmp(scalars[k].name, x.name)) k++;
  if (x.kind != ENT_BUILTIN || k == NSCALAR) {
    if (x.kind == ENT_NONE) unknown_name(&st->env, e->a, "function");
    else if (x.kind == ENT_BUILTIN && red_of(e) != RED_NONE)
      err(fr, e->loc, "'%s' needs its indices: %s(i: ...)", x.name, x.name);
    else if (x.kind == ENT_TEMPLATE)
      err(fr, e->a->loc, "'%s' is a template; a layer's body makes one: name = %s(...)",
          x.decl->name, x.decl->name);
    else if (x.kind == ENT_ABSENT)
      err(fr, e->a->loc, "this layer is absent: its condition is false");
    else
      err(fr, e->a->loc,
          x.kind == ENT_CT ? "this is a compile-time value and cannot be called"
                           : "this cannot be called");
    return r_error();
  }
  for (uint32_t i = 0; i < e->arg.n; i++)
    if (e->arg.at[i].name || e->arg.at[i].note) {
      Id loc = e->arg.at[i].name ? e->arg.at[i].name_loc : e->arg.at[i].note->loc;
      err(fr, loc, "'%s' is not a reduction and takes no named arguments", x.name);
      return r_error();
    }
  if (e->arg.n != scalars[k].n) {
    bool red = e->arg.n == 1 && (!strcmp(x.name, "max") || !strcmp(x.name, "min"));
    if (red)
      err(fr, e->loc, "'%s' of one argument: a maximum or minimum over indices is %s(i: ...)",
          x.name, x.name);
    else
      err(fr, e->loc, "'%s' takes %u argument%s, not %u", x.name, scalars[k].n,
          scalars[k].n == 1 ? "" : "s", e->arg.n);
    return r_error();
  }
  if (scalars[k].kind == K_WHERE) return build_where(st, e, f);
  if (scalars[k].kind == K_RANDOM) return build_random(st, f);
  return build_function(st, k, e, f);
}

// The result of a call of whole tensors.
static R build_result(St *st, const Ast *e, const Frame *f) {
  Front *fr = st->fb->fr;
  NodeInfo *info = node_info(st, e);
  if (info->failed || info->value == NONE) return r_error();
  Shape s = value_shape(st->fb, info->value);
  Id sub[MAX_RANK];
  if (s.rank && !f->whole) return r_error(); // reported by prepare
  for (uint32_t i = 0; i < s.rank; i++)
    sub[i] = ex_index(fr->m, (uint32_t)position(f, st->whole_var.at[i]));
  return read_value(st, info->value, sub, e->loc);
}

R build(St *st, const Ast *e, Frame *f) {
  Front *fr = st->fb->fr;
  bool yes;
  switch (e->kind) {
  case A_ERROR: return r_error();
  case A_INT: return r_ct(ct_int(e->integer));
  case A_REAL: return r_ct(ct_real(e->real));
  case A_BOOL: return r_ct(ct_bool(e->integer));
  case A_NAME:
  case A_FIELD: return build_name(st, e, f);
  case A_INDEX: return build_read(st, e, f);
  case A_NEG:
  case A_NOT: return build_unary(st, e, f);
  case A_BINARY: return build_binary(st, e, f);
  case A_COND:
    if (!ct_cond(&st->env, e->b, &yes)) return r_error();
    if (yes) return build(st, e->a, f);
    return e->c ? build(st, e->c, f) : r_error();
  case A_CALL:
    if (ast_is_local(e)) return build(st, ast_without_local(e), f);
    if (ast_is_reduce(e)) return build_reduce(st, e, f);
    if (!is_tensor_call(&st->env, e)) return build_call(st, e, f);
    return node_info(st, e)->mapped ? build_mapped(st, e, f) : build_result(st, e, f);
  case A_DOTS: err(fr, e->loc, "'...' has no place outside subscripts and bound indices"); break;
  case A_GROUP: err(fr, e->loc, "a group has no place outside subscripts and bound indices"); break;
  case A_STR: err(fr, e->loc, "a string has no place in a tensor expression"); break;
  case A_TUPLE: err(fr, e->loc, "a tuple has no place in a tensor expression"); break;
  case A_STACK: break;
  }
  return r_error();
}

bool emit_comp(St *st, Target *t, const Ast *e, Frame *f) {
  Fb *fb = st->fb;
  Red red = RED_NONE;
  Frame g = *f;
  Id body;
  R r = r_error();
  e = ast_without_local(e);
  if (ast_is_reduce(e)) {
    body = build_terms(st, e, f, &g, &red);
    if (body != NONE) r = r_ir(fb->fr->m, body);
  } else {
    r = build(st, e, f);
  }
  if (r.kind == R_ERROR) return false;
  if (t->acc && r_type(&r) == SC_BOOL) {
    err(fb->fr, e->loc, "'+=' of a bool; where(..., 1, 0) makes a number of it");
    return false;
  }
  if (t->value == NONE) {
    body = to_ir(st, r, e->loc);
  } else {
    Scalar want = scalar_of(fb->fn.value.at[t->value].type);
    const char *what = arena_printf(fb->fr->arena, "'%s'", t->name);
    if (red == RED_ARGMAX && want != SC_INT) {
      err(fb->fr, e->loc, "%s is real, and this is int; real(...) converts", what);
      return false;
    }
    body = red == RED_ARGMAX ? r.e : to_scalar(st, r, want, e->loc, what);
  }
  return body != NONE && emit_body(st, t, red, body, &g, f->n);
}
