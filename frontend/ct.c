// Compile-time values: sizes, flags, rates, initialisers. Integers are 64-bit and checked.
#include <math.h>

#include "frontend/front.h"

const char *ct_kind_text(const Ct *c) {
  static const char *const text[] = {
      "an error", "an int", "a real", "a bool", "a string", "an initialiser", "an iteration number",
      "a tuple"};
  return text[c->kind];
}

const char *ct_text(Front *fr, const Ct *c) {
  const char *text = "(";
  switch (c->kind) {
  case CT_ERROR: return "?";
  case CT_INT: return arena_printf(fr->arena, "%lld", (long long)c->i);
  case CT_REAL: return arena_printf(fr->arena, "%.17g", c->r);
  case CT_BOOL: return c->i ? "true" : "false";
  case CT_STR: return arena_printf(fr->arena, "\"%s\"", c->s);
  case CT_INIT: return arena_printf(fr->arena, "init %d(%.17g, %.17g)", c->init, c->r, c->r2);
  case CT_ITER:
    return arena_printf(fr->arena, "iter%u*%lld+%lld", c->level, (long long)c->mul,
                        (long long)c->i);
  case CT_TUPLE:
    for (uint32_t k = 0; k < c->nitem; k++)
      text = arena_printf(fr->arena, "%s%s%s", text, k ? ", " : "", ct_text(fr, &c->item[k]));
    return arena_printf(fr->arena, "%s)", text);
  }
  return "?";
}

static Ct overflow(Front *fr, Id loc) {
  err(fr, loc, "this size does not fit in 64 bits");
  return ct_error();
}

static int64_t floor_div(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && (a % b < 0) != (b < 0));
}

static Ct int_binary(Front *fr, BinOp op, int64_t a, int64_t b, Id loc) {
  int64_t r = 0;
  bool ok = true;
  switch (op) {
  case B_ADD: ok = add_ok(a, b, &r); break;
  case B_SUB: ok = !__builtin_sub_overflow(a, b, &r); break;
  case B_MUL: ok = mul_ok(a, b, &r); break;
  case B_DIV:
    return b ? ct_real((double)a / (double)b) : (err(fr, loc, "division by zero"), ct_error());
  case B_IDIV:
  case B_MOD:
    if (!b) {
      err(fr, loc, "division by zero");
      return ct_error();
    }
    if (b == -1) {
      ok = op == B_MOD || !__builtin_sub_overflow(0, a, &r);
      break;
    }
    r = op == B_IDIV ? floor_div(a, b) : a - b * floor_div(a, b);
    break;
  case B_POW:
    if (b < 0) return ct_real(pow((double)a, (double)b));
    if (a == 0 || a == 1 || a == -1) return ct_int(b == 0 ? 1 : a == -1 && b % 2 == 0 ? 1 : a);
    for (r = 1; ok && b > 0; b--) ok = mul_ok(r, a, &r); // at most 63 times
    break;
  case B_LT: return ct_bool(a < b);
  case B_LE: return ct_bool(a <= b);
  case B_GT: return ct_bool(a > b);
  case B_GE: return ct_bool(a >= b);
  case B_EQ: return ct_bool(a == b);
  case B_NE: return ct_bool(a != b);
  default: break;
  }
  return ok ? ct_int(r) : overflow(fr, loc);
}

static Ct real_binary(BinOp op, double a, double b) {
  switch (op) {
  case B_ADD: return ct_real(a + b);
  case B_SUB: return ct_real(a - b);
  case B_MUL: return ct_real(a * b);
  case B_DIV: return ct_real(a / b);
  case B_IDIV: return ct_real(floor(a / b));
  case B_MOD: return ct_real(a - b * floor(a / b));
  case B_POW: return ct_real(pow(a, b));
  case B_LT: return ct_bool(a < b);
  case B_LE: return ct_bool(a <= b);
  case B_GT: return ct_bool(a > b);
  case B_GE: return ct_bool(a >= b);
  case B_EQ: return ct_bool(a == b);
  case B_NE: return ct_bool(a != b);
  default: return ct_error();
  }
}

// Iteration numbers stay symbolic: a stack is compiled once. Only linear forms of one of them.
static Ct iter_binary(Front *fr, BinOp op, Ct a, Ct b, Id loc) {
  Ct it = a.kind == CT_ITER ? a : b;
  int64_t k = a.kind == CT_ITER ? b.i : a.i;
  bool ok = true, one = a.kind == CT_INT || b.kind == CT_INT;
  if (one && op == B_ADD) ok = add_ok(it.i, k, &it.i);
  else if (one && op == B_SUB && a.kind == CT_ITER) ok = !__builtin_sub_overflow(it.i, k, &it.i);
  else if (one && op == B_MUL) ok = mul_ok(it.i, k, &it.i) && mul_ok(it.mul, k, &it.mul);
  else {
    err(fr, loc,
        "a stack's iteration number is allowed here in the form c * i + c only: a stack is "
        "compiled once for all of its layers");
    return ct_error();
  }
  return ok ? it : overflow(fr, loc);
}

static Ct binary_value(Front *fr, BinOp op, Ct a, Ct b, Id loc) {
  if (a.kind == CT_ERROR || b.kind == CT_ERROR) return ct_error();
  if (op == B_AND || op == B_OR) {
    if (a.kind == CT_BOOL && b.kind == CT_BOOL)
      return ct_bool(op == B_AND ? a.i && b.i : a.i || b.i);
  } else if (a.kind == CT_INT && b.kind == CT_INT) {
    return int_binary(fr, op, a.i, b.i, loc);
  } else if (ct_number(&a) && ct_number(&b)) {
    return real_binary(op, ct_as_real(&a), ct_as_real(&b));
  } else if (a.kind == CT_ITER || b.kind == CT_ITER) {
    if ((a.kind == CT_ITER || a.kind == CT_INT) && (b.kind == CT_ITER || b.kind == CT_INT))
      return iter_binary(fr, op, a, b, loc);
  } else if (a.kind == b.kind && (op == B_EQ || op == B_NE) &&
             (a.kind == CT_BOOL || a.kind == CT_STR)) {
    bool same = a.kind == CT_BOOL ? a.i == b.i : a.s == b.s;
    return ct_bool(same == (op == B_EQ));
  }
  err(fr, loc, "'%s' of %s and %s", binop_text[op], ct_kind_text(&a), ct_kind_text(&b));
  return ct_error();
}

// Both depend on it: quotients, remainders and comparisons of multiples are those of the factors.
static int64_t per_sample_both(BinOp op, int64_t a, int64_t b) {
  int64_t r = OTHERWISE;
  switch (op) {
  case B_ADD: return add_ok(a, b, &r) ? r : OTHERWISE;
  case B_SUB: return a >= b ? a - b : OTHERWISE;
  case B_MOD: return a % b;
  case B_DIV:
  case B_IDIV:
  case B_LT:
  case B_LE:
  case B_GT:
  case B_GE:
  case B_EQ:
  case B_NE: return 0;
  default: return OTHERWISE;
  }
}

int64_t per_sample(BinOp op, int64_t a, int64_t a_per, int64_t b, int64_t b_per) {
  int64_t r = OTHERWISE;
  if (!a_per && !b_per) return 0;
  if (a_per < 0 || b_per < 0) return OTHERWISE;
  if (a_per && b_per) return per_sample_both(op, a_per, b_per);
  if (op == B_MUL && (a_per ? b : a) > 0) return mul_ok(a_per ? a_per : a, b_per ? b_per : b, &r) ? r : OTHERWISE;
  if (op == B_IDIV && a_per && b > 0 && a_per % b == 0) return a_per / b;
  if (op == B_MOD && a_per && b && a_per % b == 0) return 0;
  return (op == B_ADD || op == B_SUB) && a_per && b == 0 ? a_per : OTHERWISE;
}

Ct ct_binary(Front *fr, BinOp op, Ct a, Ct b, Id loc) {
  Ct r = binary_value(fr, op, a, b, loc);
  r.from = a.from ? a.from : b.from;
  r.per_sample = per_sample(op, a.i, a.per_sample, b.i, b.per_sample);
  bool whole = r.kind != CT_INT || op != B_IDIV || a.i % b.i == 0;
  if (r.from && !whole) PUSH(fr->arena, fr->rounded, ((Rounded){a.i, b.i, loc, r.from}));
  return r;
}

// Compile-time functions: name, names of the arguments with `=` for those that may be left out.
typedef enum CtFn {
  FN_MIN, FN_MAX, FN_ABS, FN_EXP, FN_LOG, FN_SQRT, FN_SIN, FN_COS, FN_TANH, FN_FLOOR, FN_CEIL,
  FN_POW, FN_INT, FN_REAL, FN_NORMAL, FN_UNIFORM, FN_CONSTANT, FN_XAVIER, FN_XAVIER_NORMAL,
  FN_KAIMING, FN_KAIMING_NORMAL, FN_RESIDUAL, NFN
} CtFn;
static const struct {
  const char *name, *arg[2];
  int least, most;
  bool init;
  double preset[2];
} fns[NFN] = {
    {"min", {"a", "b"}, 2, 2, false, {0, 0}},
    {"max", {"a", "b"}, 2, 2, false, {0, 0}},
    {"abs", {"x", NULL}, 1, 1, false, {0, 0}},
    {"exp", {"x", NULL}, 1, 1, false, {0, 0}},
    {"log", {"x", NULL}, 1, 1, false, {0, 0}},
    {"sqrt", {"x", NULL}, 1, 1, false, {0, 0}},
    {"sin", {"x", NULL}, 1, 1, false, {0, 0}},
    {"cos", {"x", NULL}, 1, 1, false, {0, 0}},
    {"tanh", {"x", NULL}, 1, 1, false, {0, 0}},
    {"floor", {"x", NULL}, 1, 1, false, {0, 0}},
    {"ceil", {"x", NULL}, 1, 1, false, {0, 0}},
    {"pow", {"x", "y"}, 2, 2, false, {0, 0}},
    {"int", {"x", NULL}, 1, 1, false, {0, 0}},
    {"real", {"x", NULL}, 1, 1, false, {0, 0}},
    {"normal", {"std", "mean"}, 1, 2, true, {1, 0}},
    {"uniform", {"lo", "hi"}, 2, 2, true, {0, 1}},
    {"constant", {"value", NULL}, 1, 1, true, {0, 0}},
    {"xavier", {"gain", NULL}, 0, 1, true, {1, 0}},
    {"xavier_normal", {"gain", NULL}, 0, 1, true, {1, 0}},
    {"kaiming", {"slope", NULL}, 0, 1, true, {0, 0}},
    {"kaiming_normal", {"slope", NULL}, 0, 1, true, {0, 0}},
    {"residual", {"layers", "std"}, 1, 2, true, {1, 0.02}},
};

static CtFn fn_of(Str name) {
  int f = 0;
  while (f < NFN && strcmp(fns[f].name, name)) f++;
  return (CtFn)f;
}

bool ct_function(Str name) { return fn_of(name) != NFN; }

// Whether these arguments of an initialiser define a distribution.
static bool init_ok(Front *fr, CtFn f, double a, double b, Id loc) {
  if (!isfinite(a) || !isfinite(b)) err(fr, loc, "'%s' takes finite numbers", fns[f].name);
  else if (f == FN_NORMAL && a < 0) err(fr, loc, "'normal' has a std of at least 0, not %g", a);
  else if (f == FN_UNIFORM && a > b)
    err(fr, loc, "'uniform' takes a lower bound and then an upper bound, not %g and %g", a, b);
  else if (f == FN_RESIDUAL && (a < 1 || b < 0))
    err(fr, loc, "'residual' is for 1 layer or more, with a std of at least 0, not %g and %g", a, b);
  else return true;
  return false;
}

static Ct init_value(CtFn f, double a, double b) {
  Ct c = {.kind = CT_INIT, .r = a, .r2 = b};
  switch (f) {
  case FN_NORMAL:
    c.init = IR_NORMAL;
    c.r = b;
    c.r2 = a;
    break;
  case FN_UNIFORM: c.init = IR_UNIFORM; break;
  case FN_CONSTANT: c.init = IR_CONST; break;
  case FN_XAVIER: c.init = IR_XAVIER_UNIFORM; break;
  case FN_XAVIER_NORMAL: c.init = IR_XAVIER_NORMAL; break;
  case FN_KAIMING: c.init = IR_KAIMING_UNIFORM; break;
  case FN_KAIMING_NORMAL: c.init = IR_KAIMING_NORMAL; break;
  default: // each residual branch is one of 2 * layers terms of the sum that the last layer sees
    c.init = IR_NORMAL;
    c.r = 0;
    c.r2 = b / sqrt(2 * a);
  }
  return c;
}

static Ct real_to_int(Front *fr, double v, Id loc) {
  if (v > -9e18 && v < 9e18) return ct_int((int64_t)v);
  return overflow(fr, loc);
}

static Ct scalar_value(Front *fr, CtFn f, Ct a, Ct b, Id loc) {
  double x = ct_as_real(&a), y = ct_as_real(&b);
  bool ints = a.kind == CT_INT && b.kind == CT_INT;
  switch (f) {
  case FN_MIN: return ints ? (a.i < b.i ? a : b) : ct_real(x < y ? x : y);
  case FN_MAX: return ints ? (a.i > b.i ? a : b) : ct_real(x > y ? x : y);
  case FN_ABS:
    return a.kind == CT_REAL  ? ct_real(fabs(x))
           : a.i == INT64_MIN ? overflow(fr, loc)
                              : ct_int(a.i < 0 ? -a.i : a.i);
  case FN_EXP: return ct_real(exp(x));
  case FN_LOG: return ct_real(log(x));
  case FN_SQRT: return ct_real(sqrt(x));
  case FN_SIN: return ct_real(sin(x));
  case FN_COS: return ct_real(cos(x));
  case FN_TANH: return ct_real(tanh(x));
  case FN_FLOOR: return ct_real(floor(x));
  case FN_CEIL: return ct_real(ceil(x));
  case FN_POW: return ct_real(pow(x, y));
  case FN_INT: return a.kind == CT_INT ? a : real_to_int(fr, x, loc);
  default: return ct_real(x); // FN_REAL
  }
}

// Puts the arguments in order; false after an error.
static bool fn_args(Front *fr, CtFn f, const Ct *arg, const Str *arg_name, uint32_t n, Id loc,
                    Ct *out) {
  bool given[2] = {false, false};
  for (uint32_t i = 0; i < n; i++) {
    int at = (int)i;
    if (arg_name[i])
      at = !strcmp(arg_name[i], fns[f].arg[0])                    ? 0
           : fns[f].arg[1] && !strcmp(arg_name[i], fns[f].arg[1]) ? 1
                                                                  : 2;
    if (at >= 2 || at >= fns[f].most || given[at]) {
      err(fr, loc, "'%s' takes %s%s%s", fns[f].name, fns[f].arg[0], fns[f].arg[1] ? ", " : "",
          fns[f].arg[1] ? fns[f].arg[1] : "");
      return false;
    }
    given[at] = true;
    out[at] = arg[i];
    if (arg[i].kind == CT_ERROR) return false;
    if (!ct_number(&arg[i])) {
      err(fr, loc, "'%s' of %s; expected a number", fns[f].name, ct_kind_text(&arg[i]));
      return false;
    }
  }
  for (int i = 0; i < 2; i++)
    if (!given[i] && i < fns[f].least) {
      err(fr, loc, "'%s' needs its argument '%s'", fns[f].name, fns[f].arg[i]);
      return false;
    } else if (!given[i]) {
      out[i] = ct_real(fns[f].preset[i]);
    }
  return true;
}

Ct ct_call(Front *fr, Str name, const Ct *arg, const Str *arg_name, uint32_t n, Id loc,
           bool *known) {
  CtFn f = fn_of(name);
  *known = f != NFN;
  Ct in[2] = {{0}};
  if (!*known || !fn_args(fr, f, arg, arg_name, n, loc, in)) return ct_error();
  if (fns[f].init) {
    double a = ct_as_real(&in[0]), b = ct_as_real(&in[1]);
    return init_ok(fr, f, a, b, loc) ? init_value(f, a, b) : ct_error();
  }
  Ct r = scalar_value(fr, f, in[0], in[1], loc);
  r.from = in[0].from ? in[0].from : in[1].from;
  r.per_sample = in[0].per_sample || in[1].per_sample ? OTHERWISE : 0;
  return r;
}

static Ct eval_call(Env *env, const Ast *e) {
  if (e->arg.n > MAX_ARGS) {
    err(env->fr, e->loc, "there are at most %d arguments", MAX_ARGS);
    return ct_error();
  }
  Entity callee = resolve(env, e->a);
  if (callee.kind == ENT_NONE) {
    unknown_name(env, e->a, env->fb ? "function" : "layer or function");
    return ct_error();
  }
  Ct arg[MAX_ARGS];
  Str name[MAX_ARGS];
  bool bad = false, known;
  for (uint32_t i = 0; i < e->arg.n; i++) {
    name[i] = e->arg.at[i].name;
    arg[i] = ct_eval(env, e->arg.at[i].value);
    bad |= arg[i].kind == CT_ERROR;
  }
  if (bad || callee.kind == ENT_ERROR) return ct_error();
  Ct r = ct_error();
  known = false;
  if (callee.kind == ENT_BUILTIN)
    r = ct_call(env->fr, callee.name, arg, name, e->arg.n, e->loc, &known);
  if (!known)
    err(env->fr, e->loc,
        "this call cannot be evaluated when the model is compiled; a compile-time value is needed "
        "here");
  return r;
}

static Ct eval_name(Env *env, const Ast *e) {
  Entity x = resolve(env, e);
  Buf b = {0};
  ast_print_expr(e, &b);
  switch (x.kind) {
  case ENT_CT: buf_free(&b); return x.ct;
  case ENT_ERROR: break;
  case ENT_NONE: unknown_name(env, e, "name"); break;
  case ENT_VALUE:
  case ENT_ABSENT:
    err(env->fr, e->loc, "'%s' is a tensor; a compile-time value is needed here", b.text);
    break;
  case ENT_BUILTIN:
    err(env->fr, e->loc, "'%s' is a function: write %s(...)", b.text, b.text);
    break;
  default: err(env->fr, e->loc, "'%s' is not a compile-time value", b.text); break;
  }
  buf_free(&b);
  return ct_error();
}

static Ct eval_unary(Env *env, const Ast *e) {
  Ct a = ct_eval(env, e->a);
  if (a.kind == CT_ERROR) return a;
  if (e->kind == A_NOT && a.kind == CT_BOOL) return ct_not(a);
  if (e->kind == A_NEG && a.kind == CT_REAL) return (Ct){.kind = CT_REAL, .r = -a.r, .per_sample = a.per_sample};
  if (e->kind == A_NEG && (a.kind == CT_INT || a.kind == CT_ITER))
    return ct_binary(env->fr, B_MUL, ct_int(-1), a, e->loc);
  err(env->fr, e->loc, "'%s' of %s", e->kind == A_NOT ? "not" : "-", ct_kind_text(&a));
  return ct_error();
}

static Ct eval_tuple(Env *env, const Ast *e) {
  Ct c = {.kind = CT_TUPLE, .nitem = e->arg.n, .item = NEWN(env->fr->arena, Ct, e->arg.n)};
  for (uint32_t i = 0; i < e->arg.n; i++) {
    c.item[i] = ct_eval(env, e->arg.at[i].value);
    if (c.item[i].kind == CT_ERROR) return ct_error();
  }
  return c;
}

bool ct_cond(Env *env, const Ast *e, bool *out) {
  Ct c = ct_eval(env, e);
  *out = c.i != 0;
  if (c.kind == CT_BOOL) {
    decided_by_samples(env->fr, e->loc, c.per_sample); // the branch is looked at nevertheless
    return true;
  }
  if (c.kind != CT_ERROR)
    err(env->fr, e->loc, "a condition is a bool, and this is %s", ct_kind_text(&c));
  return false;
}

Ct ct_eval(Env *env, const Ast *e) {
  bool yes;
  switch (e->kind) {
  case A_ERROR: return ct_error();
  case A_INT: return ct_int(e->integer);
  case A_REAL: return ct_real(e->real);
  case A_BOOL: return ct_bool(e->integer);
  case A_STR: return (Ct){.kind = CT_STR, .s = e->name};
  case A_NAME:
  case A_FIELD: return eval_name(env, e);
  case A_NEG:
  case A_NOT: return eval_unary(env, e);
  case A_TUPLE: return eval_tuple(env, e);
  case A_COND:
    if (!ct_cond(env, e->b, &yes)) return ct_error();
    if (yes) return ct_eval(env, e->a);
    if (e->c) return ct_eval(env, e->c);
    err(env->fr, e->loc, "this needs an 'else': its condition is false");
    return ct_error();
  case A_BINARY: {
    Ct a = ct_eval(env, e->a);
    if (a.kind == CT_BOOL && (e->op == B_AND || e->op == B_OR) && (a.i != 0) == (e->op == B_OR))
      return a;
    return ct_binary(env->fr, e->op, a, ct_eval(env, e->b), e->loc);
  }
  case A_CALL:
    if (!ast_is_reduce(e) && !ast_is_local(e)) return eval_call(env, e);
    // fall through
  case A_INDEX:
  case A_DOTS:
  case A_GROUP:
  case A_STACK: break;
  }
  err(env->fr, e->loc, "a compile-time value is needed here");
  return ct_error();
}

bool ct_is(Env *env, const Ast *e) {
  Entity x;
  switch (e->kind) {
  case A_ERROR:
  case A_INT:
  case A_REAL:
  case A_BOOL:
  case A_STR: return true;
  case A_NAME:
  case A_FIELD: x = resolve(env, e); return x.kind == ENT_CT;
  case A_NEG:
  case A_NOT: return ct_is(env, e->a);
  case A_BINARY: return ct_is(env, e->a) && ct_is(env, e->b);
  case A_COND: return ct_is(env, e->a) && ct_is(env, e->b) && (!e->c || ct_is(env, e->c));
  case A_TUPLE:
  case A_CALL:
    if (e->kind == A_CALL) {
      x = resolve(env, e->a);
      if (x.kind != ENT_BUILTIN || !ct_function(x.name)) return false;
    }
    for (uint32_t i = 0; i < e->arg.n; i++)
      if (e->arg.at[i].note || !ct_is(env, e->arg.at[i].value)) return false;
    return true;
  default: return false;
  }
}

// A size that is too small is the error of the -D that gives it, where one does.
static void below_one(Env *env, const Ast *e, const Ct *c) {
  Front *fr = env->fr;
  Field *f = e->kind == A_NAME && env->layer ? field_find(env->layer, e->name) : NULL;
  err(fr, c->from ? c->from : e->loc, "a size is at least 1, and this %s %lld",
      c->from ? "makes one of" : "is", (long long)c->i);
  if (c->from) note(fr, e->loc, "it is this size");
  if (f && f->from && f->from != c->from) note(fr, f->from, "'%s' gets its value here", e->name);
  fr->bad_size |= f && f->from;
}

bool ct_size(Env *env, const Ast *e, int64_t *out) {
  Ct c;
  bool ok = ct_size_from(env, e, &c);
  *out = c.i;
  return ok;
}

bool ct_size_from(Env *env, const Ast *e, Ct *out) {
  Ct c = ct_eval(env, e);
  *out = c;
  if (c.kind == CT_ERROR) return false;
  if (c.kind == CT_ITER)
    err(env->fr, e->loc,
        "a size cannot depend on a stack's iteration: all layers of a stack are alike");
  else if (c.kind == CT_REAL)
    err(env->fr, e->loc, "a size is an int, and this is a real; `//` divides ints");
  else if (c.kind != CT_INT)
    err(env->fr, e->loc, "a size is an int, and this is %s", ct_kind_text(&c));
  else if (c.i < 1) {
    below_one(env, e, &c);
    return false;
  } else return c.per_sample >= 0 || !decided_by_samples(env->fr, e->loc, c.per_sample);
  Field *f = e->kind == A_NAME && env->layer ? field_find(env->layer, e->name) : NULL;
  if (f && f->from) note(env->fr, f->from, "'%s' gets its value here", e->name);
  return false;
}
