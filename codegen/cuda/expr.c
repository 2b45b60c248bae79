// Scalar expressions as C++. Ints wrap at 32 bits, and subscripts are evaluated in 64: bounds of an expression say
// where plain int arithmetic is the same.
#include "codegen/cuda/cuda.h"

#include <math.h>
#include <stdlib.h>

// Precedences of C++, loosest first.
enum { P_ANY, P_WHERE, P_OR, P_AND, P_EQUAL, P_LESS, P_ADD, P_MUL, P_UNARY, P_PRIMARY };

const char *cuda_type(const Cuda *c, Dtype t) {
  (void)c;
  switch (t) {
  case DT_F64: return "double";
  case DT_F32: return "float";
  case DT_BF16: return "bf16";
  case DT_F16: return "fp16";
  case DT_I32: return "int";
  case DT_BOOL: return "uint8_t";
  default: BUG("no type of CUDA for %s", dtype_name[t]);
  }
}

const char *cuda_scalar(const Cuda *c, Scalar s) { return s == SC_REAL ? c->real : s == SC_INT ? "int" : "bool"; }

static bool is_double(const Cuda *c) { return c->m->compute == DT_F64; }

bool cuda_is_narrow(const Cuda *c, Dtype t) {
  return scalar_of(t) == SC_REAL && dtype_size(t) < (is_double(c) ? 8 : 4);
}

// The shortest digits that give the same bits back.
Str cuda_real(const Cuda *c, double v) {
  char text[64];
  if (isnan(v)) return is_double(c) ? "(double)NAN" : "NAN";
  if (isinf(v) || (!is_double(c) && isinf((float)v)))
    return str_printf("%s%sINFINITY", is_double(c) ? "(double)" : "", v < 0 ? "-" : "");
  bool whole = fabs(v) < 1e6 && v == floor(v);
  if (whole) snprintf(text, sizeof text, "%.1f", v);
  for (int digits = 1; !whole && digits <= 17; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, v);
    if (is_double(c) ? strtod(text, NULL) == v : strtof(text, NULL) == (float)v) break;
  }
  return str_printf("%s%s%s", text, strpbrk(text, ".e") ? "" : ".0", is_double(c) ? "" : "f");
}

static Str paren(Str s, int has, int needs) { return has < needs ? str_printf("(%s)", s) : s; }

// ---- bounds

typedef struct Bounds {
  int64_t lo, hi;
} Bounds;
static const Bounds any_int = {INT32_MIN, INT32_MAX}, anything = {INT64_MIN, INT64_MAX};

static Bounds hull(int64_t a, int64_t b, int64_t x, int64_t y) {
  Bounds r = {a, a};
  int64_t all[] = {b, x, y};
  for (int i = 0; i < 3; i++) {
    if (all[i] < r.lo) r.lo = all[i];
    if (all[i] > r.hi) r.hi = all[i];
  }
  return r;
}

static bool is_32(Bounds b) { return b.lo >= INT32_MIN && b.hi <= INT32_MAX; }

static Bounds bounds_of(const Cuda *c, Id e, bool wide);

static Bounds bounds_of_two(Op op, Bounds a, Bounds b) {
  Bounds r;
  int64_t p, q, x, y;
  switch (op) {
  case OP_ADD: return add_ok(a.lo, b.lo, &r.lo) && add_ok(a.hi, b.hi, &r.hi) ? r : anything;
  case OP_SUB:
    return !__builtin_sub_overflow(a.lo, b.hi, &r.lo) && !__builtin_sub_overflow(a.hi, b.lo, &r.hi) ? r : anything;
  case OP_MUL:
    if (!mul_ok(a.lo, b.lo, &p) || !mul_ok(a.lo, b.hi, &q) || !mul_ok(a.hi, b.lo, &x) || !mul_ok(a.hi, b.hi, &y))
      return anything;
    return hull(p, q, x, y);
  case OP_MIN: return (Bounds){a.lo < b.lo ? a.lo : b.lo, a.hi < b.hi ? a.hi : b.hi};
  case OP_MAX: return (Bounds){a.lo > b.lo ? a.lo : b.lo, a.hi > b.hi ? a.hi : b.hi};
  case OP_MOD: return b.lo > 0 ? (Bounds){0, b.hi - 1} : anything;
  case OP_IDIV: return b.lo > 0 && a.lo >= 0 ? (Bounds){a.lo / b.hi, a.hi / b.lo} : anything;
  default: BUG("%s of two ints", op_info[op].name);
  }
}

static Bounds bounds_of_group(const Cuda *c, Id e) {
  Bounds r = bounds_of(c, ex_arg(c->m, e, 0), true);
  for (uint32_t i = 1; i < ex(c->m, e)->narg; i++) {
    int64_t n = c->st->index[ex(c->m, ex_arg(c->m, e, i))->integer].extent;
    r = bounds_of_two(OP_ADD, bounds_of_two(OP_MUL, r, (Bounds){n, n}), (Bounds){0, n - 1});
  }
  return r;
}

// Of an int expression that is evaluated in 64 bits (wide), or in 32, where what does not fit may be anything.
static Bounds bounds_of(const Cuda *c, Id id, bool wide) {
  const Expr *e = ex(c->m, id);
  Bounds r = any_int;
  if (e->op == OP_INT) r = (Bounds){e->integer, e->integer};
  else if (e->op == OP_INDEX) r = (Bounds){0, c->st->index[e->integer].extent - 1};
  else if (e->op == OP_GROUP) r = bounds_of_group(c, id);
  else if (e->op == OP_WHERE) {
    Bounds a = bounds_of(c, ex_arg(c->m, id, 1), false), b = bounds_of(c, ex_arg(c->m, id, 2), false);
    r = hull(a.lo, a.hi, b.lo, b.hi);
  } else if (e->op == OP_NEG) {
    r = bounds_of_two(OP_SUB, (Bounds){0, 0}, bounds_of(c, ex_arg(c->m, id, 0), wide));
  } else if (e->op != OP_READ && e->narg == 2 && e->type == SC_INT) {
    bool arithmetic = e->op == OP_ADD || e->op == OP_SUB || e->op == OP_MUL || e->op == OP_IDIV || e->op == OP_MOD;
    bool inner = wide && arithmetic;
    r = bounds_of_two(e->op, bounds_of(c, ex_arg(c->m, id, 0), inner), bounds_of(c, ex_arg(c->m, id, 1), inner));
  }
  return wide || is_32(r) ? r : any_int;
}

// Whether every step of the expression, evaluated in 64 bits, fits 32.
static bool fits(const Cuda *c, Id id) {
  const Expr *e = ex(c->m, id);
  if (!is_32(bounds_of(c, id, true))) return false;
  bool steps = e->op == OP_ADD || e->op == OP_SUB || e->op == OP_MUL || e->op == OP_IDIV || e->op == OP_MOD ||
               e->op == OP_NEG || e->op == OP_GROUP;
  for (uint32_t i = 0; steps && i < e->narg; i++)
    if (!fits(c, ex_arg(c->m, id, i))) return false;
  return true;
}

// ---- elements

static Str index_name(const Cuda *c, uint32_t index) {
  uint8_t v = c->ns->var[index];
  CHECK(v != NO_VAR && c->var[v]);
  return c->var[v];
}

static Str wide(Cuda *c, Id id, int need);

Str cuda_times(Str v, int64_t by) { return by == 1 ? v : str_printf("%s * %lld", v, (long long)by); }

static Str term(Str name, int64_t coef, bool cast) {
  return cuda_times(cast ? str_printf("(int64_t)%s", name) : name, coef);
}

static void add_term(Buf *b, Str t) { buf_printf(b, "%s%s", b->n ? " + " : "", t); }

// A term of a negative stride follows something to be subtracted from.
static void add_var(Buf *b, const Form *f, Str name, int64_t coef, bool cast, bool *base_done) {
  if (coef < 0 && !b->n && f->base > 0) {
    add_term(b, str_printf("%lld", (long long)f->base));
    *base_done = true;
  }
  if (coef < 0 && b->n) buf_printf(b, " - %s", term(name, -coef, cast));
  else add_term(b, term(name, coef, cast));
}

// Terms from the largest stride to the smallest: the sum is of 64 bits from its first term on, where it needs to be.
static Str offset(Cuda *c, const Form *f, bool big, bool local) {
  Buf b = {0};
  bool done[MAX_VAR] = {false}, base_done = false;
  for (;;) {
    int64_t most = 0;
    uint32_t v = 0;
    for (uint32_t i = local ? c->l->ngrid : 0; i < c->l->var.n; i++)
      if (!done[i] && llabs(f->coef[i]) > most) most = llabs(f->coef[i]), v = i;
    if (!most) break;
    done[v] = true;
    bool cast = big && (c->l->var.at[v].extent - 1) * most > INT32_MAX;
    add_var(&b, f, c->var[v], f->coef[v], cast || (big && !b.n), &base_done);
  }
  for (uint32_t r = 0; r < f->rest.nrest; r++) {
    Id e = f->rest.rest[r].expr;
    int64_t coef = f->rest.rest[r].coef;
    Bounds x = bounds_of_two(OP_MUL, bounds_of(c, e, true), (Bounds){coef, coef});
    bool plain = fits(c, e) && is_32(x) && !(big && !b.n);
    Str s = plain ? cuda_expr(c, e, coef == 1 ? P_ADD + 1 : P_MUL)
            : fits(c, e) ? str_printf("(int64_t)%s", cuda_expr(c, e, P_UNARY)) : wide(c, e, P_MUL);
    add_term(&b, cuda_times(s, coef));
  }
  if (f->base < 0 && b.n) buf_printf(&b, " - %lld", -(long long)f->base);
  else if (!base_done && (f->base || !b.n)) add_term(&b, str_printf("%lld", (long long)f->base));
  Str s = str_internn(b.text, b.n);
  buf_free(&b);
  return s;
}

static bool is_big(const Cuda *c, const Form *f) {
  int64_t lo = f->base, hi = f->base;
  for (uint32_t v = 0; v < c->l->var.n; v++) {
    int64_t span = f->coef[v] * (c->l->var.at[v].extent - 1);
    if (span > 0) hi += span;
    else lo += span;
  }
  return lo < INT32_MIN || hi > INT32_MAX;
}

Str cuda_element(Cuda *c, Id value, const Form *f) {
  Id buffer = c->fp->layout[value].buffer;
  Str p = c->pointer[buffer];
  CHECK(p);
  if (!c->row[value] && c->fp->layout[value].internal) BUG("%s has no row", c->f->value.at[value].name);
  if (c->row[buffer] && c->s.team == TEAM_WARP && c->s.teams > 1) p = str_printf("%s[threadIdx.y]", p);
  bool big = is_big(c, f) || value_count(&c->f->value.at[buffer]) > INT32_MAX;
  return str_printf("%s[%s]", p, offset(c, f, big, c->rebased[buffer]));
}

Str cuda_local_offset(Cuda *c, const Form *f) { return offset(c, f, is_big(c, f), true); }

Str cuda_load(Cuda *c, Id value, Str element) {
  Dtype t = c->f->value.at[value].type;
  if (t == DT_BOOL) return str_printf("(%s != 0)", element);
  if (is_half(t)) return str_printf(is_double(c) ? "(double)(float)%s" : "(float)%s", element);
  if (t == DT_F32 && is_double(c)) return str_printf("(double)%s", element);
  if (t == DT_F64 && !is_double(c)) return str_printf("(float)%s", element);
  return element;
}

Str cuda_stored(Cuda *c, Str v, Dtype t) {
  if (is_half(t)) return str_printf(is_double(c) ? "(%s)(float)(%s)" : "(%s)(%s)", cuda_type(c, t), v);
  if (t == DT_F32 && is_double(c)) return str_printf("(float)(%s)", v);
  return v;
}

Str cuda_round(Cuda *c, Str v, Dtype t) {
  if (!cuda_is_narrow(c, t)) return v;
  return str_printf("%s%s", is_double(c) && is_half(t) ? "(double)(float)" : is_double(c) ? "(double)" : "(float)",
                    cuda_stored(c, v, t));
}

static Str read(Cuda *c, Id id) {
  Id v = (Id)ex(c->m, id)->integer;
  if (c->now[v]) return c->now[v];
  if (cuda_is_kept(c, c->nest, c->ns, id))
    return c->keep[v] == KEEP_SCALAR ? c->kept[v] : str_printf("%s[%s]", c->kept[v], c->own);
  const Packed *packed = cuda_find_packed(c, id);
  if (packed) return cuda_load(c, v, str_printf("%s[%s]", packed->name, c->part));
  const Cached *had = c->own ? cuda_find_cached(c, c->nest, c->ns, id) : NULL;
  if (had) return str_printf("%s[%s]", had->name, c->own);
  Form f = cuda_form_read(c, c->ns, id);
  return cuda_load(c, v, cuda_element(c, v, &f));
}

// ---- operators

static Str call(Cuda *c, const char *name, Id id) {
  Buf b = {0};
  for (uint32_t i = 0; i < ex(c->m, id)->narg; i++)
    buf_printf(&b, "%s%s", i ? ", " : "", cuda_expr(c, ex_arg(c->m, id, i), P_ANY));
  Str s = str_printf("%s(%.*s)", name, (int)b.n, b.text);
  buf_free(&b);
  return s;
}

static Str two(Cuda *c, Id id, const char *op, int has, int left, int right, int need) {
  Str a = cuda_expr(c, ex_arg(c->m, id, 0), left), b = cuda_expr(c, ex_arg(c->m, id, 1), right);
  return paren(str_printf("%s %s %s", a, op, b), has, need);
}

static const char *plain_operator(Op op) {
  return op == OP_ADD ? "+" : op == OP_SUB ? "-" : op == OP_DIV || op == OP_IDIV ? "/" : op == OP_MOD ? "%" : "*";
}

static Str arithmetic(Cuda *c, Id id, int need) {
  Op op = ex(c->m, id)->op;
  int has = op == OP_ADD || op == OP_SUB ? P_ADD : P_MUL;
  return two(c, id, plain_operator(op), has, has, has + 1, need);
}

static Str int_operator(Cuda *c, Id id, int need) {
  Op op = ex(c->m, id)->op;
  Bounds a = bounds_of(c, ex_arg(c->m, id, 0), false), b = {0, 0};
  if (ex(c->m, id)->narg > 1) b = bounds_of(c, ex_arg(c->m, id, 1), false);
  if (op == OP_IDIV || op == OP_MOD) {
    if (a.lo >= 0 && b.lo > 0) return arithmetic(c, id, need);
    return call(c, op == OP_MOD ? "dt_floor_mod" : "dt_floor_div", id);
  }
  if (op == OP_NEG) {
    Str x = cuda_expr(c, ex_arg(c->m, id, 0), P_PRIMARY);
    return a.lo > INT32_MIN ? paren(str_printf("-%s", x), P_UNARY, need) : str_printf("dt_sub(0, %s)", x);
  }
  if (is_32(bounds_of_two(op, a, b))) return arithmetic(c, id, need);
  return call(c, op == OP_ADD ? "dt_add" : op == OP_SUB ? "dt_sub" : "dt_mul", id);
}

static Str compare(Cuda *c, Id id, int need) {
  static const char *const text[] = {"<", "<=", ">", ">=", "==", "!="};
  Op op = ex(c->m, id)->op;
  return two(c, id, text[op - OP_LT], op >= OP_EQ ? P_EQUAL : P_LESS, P_ADD, P_ADD, need);
}

static Str where(Cuda *c, Id id, int need) {
  Str cond = cuda_expr(c, ex_arg(c->m, id, 0), P_OR), a = cuda_expr(c, ex_arg(c->m, id, 1), P_OR),
      b = cuda_expr(c, ex_arg(c->m, id, 2), P_WHERE);
  return paren(str_printf("%s ? %s : %s", cond, a, b), P_WHERE, need);
}

static Str convert(Cuda *c, Id id, int need) {
  Id arg = ex_arg(c->m, id, 0);
  bool from_real = ex(c->m, arg)->type == SC_REAL;
  if (from_real) return call(c, "dt_to_int", id);
  const char *type = ex(c->m, id)->op == OP_TO_INT ? "int" : c->real;
  return paren(str_printf("(%s)%s", type, cuda_expr(c, arg, P_UNARY)), P_UNARY, need);
}

// A function of reals, as CUDA names it: expf, exp.
static Str function(Cuda *c, Id id) {
  const Expr *e = ex(c->m, id);
  const char *name = e->op == OP_ABS ? "fabs" : op_info[e->op].text;
  return call(c, str_printf("%s%s", name, is_double(c) ? "" : "f"), id);
}

// A float, whose arithmetic would be a float's.
static Str random_number(Cuda *c, Id id, int need) {
  Str site = cuda_expr(c, ex_arg(c->m, id, 0), P_ANY), iteration = cuda_expr(c, ex_arg(c->m, id, 1), P_ANY);
  Str s = str_printf("dt_random(key, %s, %s, %s)", site, iteration, wide(c, ex_arg(c->m, id, 2), P_ANY));
  return is_double(c) ? paren(str_printf("(double)%s", s), P_UNARY, need) : s;
}

static Str constant(Cuda *c, const Expr *e, int need) {
  if (e->op == OP_REAL) {
    Str s = cuda_real(c, e->real);
    return *s == '-' || *s == '(' ? paren(s, P_UNARY, need) : s;
  }
  if (e->op == OP_BOOL) return e->integer ? "true" : "false";
  if (e->integer == INT32_MIN) return "(-2147483647 - 1)";
  return paren(str_printf("%lld", (long long)e->integer), e->integer < 0 ? P_UNARY : P_PRIMARY, need);
}

static Str group(Cuda *c, Id id, int need) {
  if (ex(c->m, id)->narg == 1) return cuda_expr(c, ex_arg(c->m, id, 0), need);
  if (!fits(c, id)) return paren(str_printf("(int)%s", wide(c, id, P_UNARY)), P_UNARY, need);
  Buf b = {0};
  int64_t stride = 1;
  uint32_t n = ex(c->m, id)->narg;
  for (uint32_t i = 1; i < n; i++) stride *= c->st->index[ex(c->m, ex_arg(c->m, id, i))->integer].extent;
  for (uint32_t i = 0; i < n; i++) {
    add_term(&b, cuda_times(cuda_expr(c, ex_arg(c->m, id, i), stride == 1 ? P_ADD : P_MUL), stride));
    if (i + 1 < n) stride /= c->st->index[ex(c->m, ex_arg(c->m, id, i + 1))->integer].extent;
  }
  Str s = paren(str_internn(b.text, b.n), P_ADD, need);
  buf_free(&b);
  return s;
}

static Str shared_name(const Cuda *c, Id e) {
  for (uint32_t i = 0; i < c->shared.n; i++)
    if (c->shared.at[i].expr == e) return c->shared.at[i].name;
  return NULL;
}

Str cuda_expr(Cuda *c, Id id, int need) {
  const Expr *e = ex(c->m, id);
  Str named = shared_name(c, id);
  if (named) return named;
  switch (e->op) {
  case OP_REAL:
  case OP_INT:
  case OP_BOOL: return constant(c, e, need);
  case OP_INDEX: return index_name(c, (uint32_t)e->integer);
  case OP_READ: {
    Str s = read(c, id);
    return *s == '(' && s[strlen(s) - 1] != ')' ? paren(s, P_UNARY, need) : s;
  }
  case OP_GROUP: return group(c, id, need);
  case OP_RANDOM: return random_number(c, id, need);
  case OP_ADD:
  case OP_SUB:
  case OP_MUL:
  case OP_DIV:
  case OP_IDIV:
  case OP_MOD: return e->type == SC_INT ? int_operator(c, id, need) : arithmetic(c, id, need);
  case OP_NEG:
    if (e->type == SC_INT) return int_operator(c, id, need);
    return paren(str_printf("-%s", cuda_expr(c, ex_arg(c->m, id, 0), P_PRIMARY)), P_UNARY, need);
  case OP_MIN: return call(c, "dt_min", id);
  case OP_MAX: return call(c, "dt_max", id);
  case OP_ABS: return e->type == SC_INT ? call(c, "dt_abs", id) : function(c, id);
  case OP_AND: return two(c, id, "&&", P_AND, P_EQUAL, P_EQUAL, need);
  case OP_OR: return two(c, id, "||", P_OR, P_EQUAL, P_EQUAL, need);
  case OP_NOT: return paren(str_printf("!%s", cuda_expr(c, ex_arg(c->m, id, 0), P_PRIMARY)), P_UNARY, need);
  case OP_WHERE: return where(c, id, need);
  case OP_TO_REAL:
  case OP_TO_INT: return convert(c, id, need);
  default:
    if (e->op >= OP_LT && e->op <= OP_NE) return compare(c, id, need);
    return function(c, id);
  }
}

// An int expression in 64 bits.
static Str wide(Cuda *c, Id id, int need) {
  const Expr *e = ex(c->m, id);
  if (fits(c, id)) return cuda_expr(c, id, need);
  if (e->op == OP_GROUP) {
    Str s = wide(c, ex_arg(c->m, id, 0), P_MUL);
    for (uint32_t i = 1; i < e->narg; i++) {
      Id arg = ex_arg(c->m, id, i);
      int64_t n = c->st->index[ex(c->m, arg)->integer].extent;
      s = str_printf("%s%s * %lld + %s", i == 1 ? "(int64_t)" : "", i == 1 ? paren(s, P_MUL, P_MUL) : str_printf("(%s)", s),
                     (long long)n, cuda_expr(c, arg, P_MUL));
    }
    return paren(s, P_ADD, need);
  }
  bool steps = e->op == OP_ADD || e->op == OP_SUB || e->op == OP_MUL || e->op == OP_IDIV || e->op == OP_MOD;
  if (steps) {
    Str a = str_printf("(int64_t)%s", wide(c, ex_arg(c->m, id, 0), P_UNARY)), b = wide(c, ex_arg(c->m, id, 1), P_UNARY);
    if (e->op == OP_IDIV || e->op == OP_MOD)
      return str_printf("dt_floor_%s<int64_t>(%s, %s)", e->op == OP_MOD ? "mod" : "div", a, b);
    int has = e->op == OP_MUL ? P_MUL : P_ADD;
    return paren(str_printf("%s %s %s", a, plain_operator(e->op), b), has, need);
  }
  if (e->op == OP_NEG)
    return paren(str_printf("-(int64_t)%s", wide(c, ex_arg(c->m, id, 0), P_UNARY)), P_UNARY, need);
  if (e->op == OP_INT) return str_printf("INT64_C(%lld)", (long long)e->integer);
  return cuda_expr(c, id, need);
}

Str cuda_sum_of(Cuda *c, Scalar type, Str a, Str b) {
  (void)c;
  return str_printf(type == SC_REAL ? "%s + %s" : "dt_add(%s, %s)", a, b);
}

// ---- what a statement needs twice

typedef struct Uses {
  Id at[512];
  uint32_t count[512], n;
} Uses;

static uint32_t *uses_of(Uses *u, Id e) {
  for (uint32_t i = 0; i < u->n; i++)
    if (u->at[i] == e) return &u->count[i];
  if (u->n == 512) return NULL;
  u->at[u->n] = e;
  u->count[u->n] = 0;
  return &u->count[u->n++];
}

static void count_uses(const Cuda *c, Id e, Uses *u) {
  uint32_t *n = uses_of(u, e);
  if (!n || (*n)++) return;
  for (uint32_t i = 0; i < ex(c->m, e)->narg; i++) count_uses(c, ex_arg(c->m, e, i), u);
}

static bool in_register(const Cuda *c, Id read) {
  if (c->now[ex(c->m, read)->integer] || cuda_is_kept(c, c->nest, c->ns, read)) return true;
  return c->own && cuda_find_cached(c, c->nest, c->ns, read);
}

static bool worth_name(const Cuda *c, Id id) {
  const Expr *e = ex(c->m, id);
  if (e->op == OP_READ) return !in_register(c, id);
  return e->narg && e->op != OP_GROUP && e->op != OP_NEG && !(e->type == SC_INT && e->op != OP_RANDOM);
}

static Str name_for(Cuda *c, Id id) {
  const Expr *e = ex(c->m, id);
  static const char *const word[NOP] = {
      [OP_ADD] = "sum", [OP_SUB] = "difference", [OP_MUL] = "product", [OP_DIV] = "quotient", [OP_WHERE] = "chosen"};
  if (e->op == OP_READ) return cuda_name(c, str_printf("%s_v", c->f->value.at[e->integer].name));
  if (word[e->op]) return cuda_name(c, word[e->op]);
  return cuda_name(c, e->type == SC_BOOL ? "holds" : str_printf("%s_v", op_info[e->op].text));
}

// Operands first. A value that only one branch needs has no name: it may read out of range where the branch is not taken.
static void name_uses(Cuda *c, Id id, Uses *u) {
  const Expr *e = ex(c->m, id);
  if (shared_name(c, id)) return;
  bool lazy = e->op == OP_WHERE || e->op == OP_AND || e->op == OP_OR;
  if (e->op == OP_READ && in_register(c, id)) return;
  if (e->op != OP_READ && e->op != OP_GROUP)
    for (uint32_t i = 0; i < (lazy ? 1 : e->narg); i++) name_uses(c, ex_arg(c->m, id, i), u);
  uint32_t *n = uses_of(u, id);
  if (!n || *n < 2 || !worth_name(c, id)) return;
  Str text = cuda_expr(c, id, P_ANY), name = name_for(c, id);
  cuda_line(c, "const %s %s = %s;\n", cuda_scalar(c, (Scalar)e->type), name, text);
  PUSH(c->a, c->shared, (Shared){id, name});
}

void cuda_name_shared(Cuda *c) {
  Uses u = {.n = 0};
  c->shared.n = 0;
  count_uses(c, c->st->body, &u);
  name_uses(c, c->st->body, &u);
}
