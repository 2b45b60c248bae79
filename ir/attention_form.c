// What others ask of attention whose parameters are known (ir/intrinsic.h).
#include <math.h>

#include "ir/attention.h"
#include "ir/text/text.h"

static bool is_known(const Fn *f) { return f->intrinsic == INTR_ATTENTION && f->form.known; }

// ---- operands

// Arguments without the ints that say where a rank stands; these are last.
static uint32_t operand_count(const Fn *f) {
  uint32_t n = f->arg.n;
  while (n && !f->value.at[f->arg.at[n - 1]].rank && f->value.at[f->arg.at[n - 1]].type == DT_I32)
    n--;
  return n;
}

bool intrinsic_operands(const Fn *f, uint32_t at[NOPERAND]) {
  const Attention *a = &f->form;
  for (int i = 0; i < NOPERAND; i++) at[i] = NONE;
  if (!is_known(f)) return false;
  uint32_t n = operand_count(f), inputs = 3 + (a->slopes != 0) + (a->sinks != 0);
  at[OPD_Q] = 0, at[OPD_K] = 1, at[OPD_V] = 2;
  if (a->slopes) at[OPD_SLOPES] = a->slopes;
  if (a->sinks) at[OPD_SINKS] = a->sinks;
  if (!f->backward) {
    at[OPD_O] = 0, at[OPD_LSE] = 1;
    return n == inputs && f->result.n == 2;
  }
  at[OPD_O] = inputs, at[OPD_LSE] = inputs + 1, at[OPD_DO] = inputs + 2;
  uint32_t first = inputs + 3;
  at[OPD_DQ] = first, at[OPD_DK] = first + 1, at[OPD_DV] = first + 2;
  if (n == first + 3) return true; // a part of a ring asks for no more
  if (a->slopes) at[OPD_DSLOPES] = first + a->slopes;
  if (a->sinks) at[OPD_DSINKS] = first + a->sinks;
  return n == first + inputs;
}

bool intrinsic_is_sequence(const Fn *f, uint32_t arg, uint32_t d) {
  return is_known(f) && arg < 2 && d == 1;
}

bool intrinsic_is_heads(const Fn *f, uint32_t d) { return is_known(f) && (d == 2 || d == 3); }

const Value *intrinsic_queries(const Fn *f) {
  return is_known(f) ? &f->value.at[f->arg.at[0]] : NULL;
}

bool intrinsic_uses_places(const Fn *f) {
  const Attention *a = &f->form;
  return is_known(f) && (a->causal || a->window || a->bias != 0);
}

void intrinsic_place(Fn *f, Operand of, Positions at) {
  *(of == OPD_Q ? &f->form.query : &f->form.key) = at;
}

void intrinsic_make_part(Fn *part, const Fn *f) {
  part->intrinsic = f->intrinsic;
  part->backward = f->backward;
  part->form = f->form;
  part->form.has_sink = false;
  part->form.sinks = 0;
  if (part->form.slopes) part->form.slopes = 3;
}

bool intrinsic_has_sink(const Fn *f) { return is_known(f) && f->form.has_sink; }

bool intrinsic_grows(const Fn *f) {
  return is_known(f) && f->form.causal && !f->form.window;
}

// Of pairs in a square of the keys' side.
double intrinsic_density(const Fn *f) {
  const Attention *a = &f->form;
  double n = (double)f->value.at[f->arg.at[1]].extent[1], width = n;
  if (a->causal) width = n / 2 + (double)a->ahead;
  if (a->window) width = fmin(width, (double)a->window + (a->causal ? (double)a->ahead : n / 2));
  return fmin(width, n) / n;
}

// ---- scores

static Id real(Module *m, double v) { return ex_real(m, v); }

static Id conjunction(Module *m, Id a, Id b) {
  return a == NONE ? b : b == NONE ? a : ex2(m, OP_AND, a, b);
}

// Whether the query at t sees the key at s; NONE: always.
static Id visible(Module *m, const Attention *a, Id t, Id s) {
  Id sees = NONE;
  if (a->causal)
    sees = ex2(m, OP_LE, s, a->ahead ? ex2(m, OP_ADD, t, ex_int(m, a->ahead)) : t);
  if (a->window)
    sees = conjunction(m, sees, ex2(m, OP_LT, ex2(m, OP_SUB, t, s), ex_int(m, a->window)));
  return sees;
}

static Id bias(Module *m, const Attention *a, Id t, Id s, Id slope) {
  Id distance = ex1(m, OP_TO_REAL, ex2(m, OP_SUB, s, t));
  if (a->apart) distance = ex1(m, OP_ABS, distance);
  Id by = real(m, a->bias);
  if (slope != NONE) by = ex2(m, OP_MUL, by, slope);
  return ex2(m, OP_MUL, by, distance);
}

// tanh(scale * product / cap)
static Id bent(Module *m, const Attention *a, Id product) {
  return ex1(m, OP_TANH, ex2(m, OP_MUL, product, real(m, a->scale / a->cap)));
}

Id intrinsic_score(Module *m, const Fn *f, Id product, Id t, Id s, Id slope) {
  const Attention *a = &f->form;
  Id z = a->cap != 0 ? ex2(m, OP_MUL, real(m, a->cap), bent(m, a, product))
                     : ex2(m, OP_MUL, product, real(m, a->scale));
  if (a->bias != 0) z = ex2(m, OP_ADD, z, bias(m, a, t, s, slope));
  Id sees = visible(m, a, t, s);
  return sees == NONE ? z : ex3(m, OP_WHERE, sees, z, real(m, -INFINITY));
}

Id intrinsic_score_adjoint(Module *m, const Fn *f, Id product, Id t, Id s) {
  const Attention *a = &f->form;
  Id by = real(m, a->scale), sees = visible(m, a, t, s);
  if (a->cap != 0) {
    Id u = bent(m, a, product);
    by = ex2(m, OP_MUL, by, ex2(m, OP_SUB, real(m, 1), ex2(m, OP_MUL, u, u)));
  }
  return sees == NONE ? by : ex3(m, OP_WHERE, sees, by, real(m, 0));
}

Id intrinsic_sink(Module *m, const Fn *f, Id sinks) {
  const Attention *a = &f->form;
  if (!a->has_sink) return NONE;
  return a->sinks ? sinks : real(m, a->sink);
}

// ---- text

enum {
  F_SCALE, F_CAP, F_CAUSAL, F_WINDOW, F_BIAS, F_APART, F_SLOPES, F_SINK, F_SINKS, F_QUERY, F_KEY, NFIELD
};
static const IntrinsicField field[NFIELD] = {
    {"scale", 1, true}, {"cap", 1, true},    {"causal", 1, false}, {"window", 1, false},
    {"bias", 1, true},  {"apart", 0, false}, {"slopes", 1, false}, {"sink", 1, true},
    {"sinks", 1, false}, {"query", 6, false}, {"key", 6, false}};

static void print_real(Buf *b, int i, double v) {
  buf_printf(b, ", %s ", field[i].name);
  ir_print_real(v, b);
}

static void print_integer(Buf *b, int i, int64_t v) {
  buf_printf(b, ", %s %lld", field[i].name, (long long)v);
}

static void print_place(Buf *b, int i, const Positions *p) {
  if (!is_moved(p)) return;
  buf_printf(b, ", %s %d %lld %lld %lld %lld %lld", field[i].name, p->arg, (long long)p->by[0],
             (long long)p->from[0], (long long)p->turn, (long long)p->by[1],
             (long long)p->from[1]);
}

void intrinsic_print(const Fn *f, Buf *b) {
  const Attention *a = &f->form;
  if (!is_known(f)) return;
  buf_printf(b, "(scale ");
  ir_print_real(a->scale, b);
  if (a->cap != 0) print_real(b, F_CAP, a->cap);
  if (a->causal) print_integer(b, F_CAUSAL, a->ahead);
  if (a->window) print_integer(b, F_WINDOW, a->window);
  if (a->bias != 0) print_real(b, F_BIAS, a->bias);
  if (a->apart) buf_printf(b, ", %s", field[F_APART].name);
  if (a->slopes) print_integer(b, F_SLOPES, a->slopes);
  if (a->has_sink && !a->sinks) print_real(b, F_SINK, a->sink);
  if (a->sinks) print_integer(b, F_SINKS, a->sinks);
  print_place(b, F_QUERY, &a->query);
  print_place(b, F_KEY, &a->key);
  buf_printf(b, ")");
}

const IntrinsicField *intrinsic_parameter(const char *name) {
  for (int i = 0; i < NFIELD; i++)
    if (!strcmp(field[i].name, name)) return &field[i];
  return NULL;
}

static Positions place(const int64_t *v) {
  return (Positions){(uint8_t)v[0], {v[1], v[4]}, {v[2], v[5]}, v[3]};
}

void intrinsic_set(Fn *f, const IntrinsicField *p, const int64_t *integer, double real) {
  Attention *a = &f->form;
  a->known = true;
  switch (p - field) {
  case F_SCALE: a->scale = real; break;
  case F_CAP: a->cap = real; break;
  case F_CAUSAL: a->causal = true, a->ahead = integer[0]; break;
  case F_WINDOW: a->window = integer[0]; break;
  case F_BIAS: a->bias = real; break;
  case F_APART: a->apart = true; break;
  case F_SLOPES: a->slopes = (uint8_t)integer[0]; break;
  case F_SINK: a->has_sink = true, a->sink = real; break;
  case F_SINKS: a->has_sink = true, a->sinks = (uint8_t)integer[0]; break;
  case F_QUERY: a->query = place(integer); break;
  default: a->key = place(integer);
  }
}

static bool is_by_int(const Fn *f, const Positions *p) {
  if (!is_moved(p)) return true;
  const Value *v = p->arg < f->arg.n ? &f->value.at[f->arg.at[p->arg]] : NULL;
  return v && !v->rank && v->type == DT_I32;
}

bool attention_is_finite(const Attention *a) {
  return isfinite(a->scale) && isfinite(a->cap) && isfinite(a->bias) && isfinite(a->sink);
}

const char *intrinsic_fault(const Fn *f) {
  static const char *const dims[NOPERAND] = {"btgre", "bsge", "bsge", "gr", "gr", "btgre", "bgrt",
                                             "btgre", "btgre", "bsge", "bsge", "gr", "gr"};
  const Attention *a = &f->form;
  uint32_t at[NOPERAND];
  if (!is_known(f)) return NULL;
  if (f->arg.n < 3) return "attention takes q, k and v at least";
  if (a->slopes == 1 || a->slopes == 2 || a->sinks == 1 || a->sinks == 2 ||
      (a->slopes && a->slopes == a->sinks))
    return "slopes or sinks of attention are an argument that is something else";
  if (a->ahead < 0 || a->window < 0 || !(a->cap >= 0)) return "a bound of attention is negative";
  if (!attention_is_finite(a)) return "a number of attention is not finite";
  if (!is_by_int(f, &a->query) || !is_by_int(f, &a->key))
    return "positions of attention are by an argument that is no int";
  (void)intrinsic_operands(f, at);
  for (int i = 0; i <= OPD_SINKS; i++)
    if (at[i] != NONE &&
        (at[i] >= f->arg.n || f->value.at[f->arg.at[at[i]]].rank != strlen(dims[i])))
      return "an operand of attention has another rank";
  return NULL;
}
