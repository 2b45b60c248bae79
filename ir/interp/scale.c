// First-order bounds of rounding errors; the rules are in ir/interp/interp.h.
#include <math.h>

#include "ir/interp/code.h"

// What has no error has none however it is amplified; nor has what is multiplied by nothing, though
// it be uncertain: 0 times infinity would be NaN, which no comparison finds.
static double amplified(double by, double e) { return e == 0 || by == 0 ? 0 : fabs(by) * e; }

// Of a result that the format rounds to 0, or to few places: all of it.
static double underflow(const Ins *in, double r, double unit) {
  double least = unit > 0x1p-40 ? 0x1p-126 : 0x1p-1022;
  return op_info[in->op].roundoffs > 0 && fabs(r) < least ? fabs(r) / unit : 0;
}

// The bound of one operator of reals whose result is r. An infinity is exact.
static double real_bound(const Ins *in, double r, const double *x, const double *e, double unit) {
  double size = isinf(r) ? 0 : fabs(r), rounding = op_info[in->op].roundoffs * size;
  switch (in->op) {
  case OP_NEG:
  case OP_ABS:
  case OP_STOP: return e[0];
  case OP_ADD:
  case OP_SUB: return e[0] + e[1] + (x[0] != 0 && x[1] != 0 ? rounding : 0);
  case OP_MUL:
    return amplified(x[1], e[0]) + amplified(x[0], e[1]) + unit * amplified(e[0], e[1]) + rounding;
  case OP_DIV: return e[0] + e[1] > 0 ? (e[0] + size * e[1]) / fabs(x[1]) + rounding : rounding;
  case OP_FMA: return amplified(x[1], e[0]) + amplified(x[0], e[1]) + e[2] + rounding;
  case OP_MIN:
  case OP_MAX: return fmax(e[0], e[1]);
  case OP_EXP: return size > 0 ? size * e[0] + rounding : 0;
  case OP_FLOOR: return e[0] > 0 && fabs(x[0] - rint(x[0])) <= unit * e[0] ? 1 / unit : 0;
  case OP_POW: {
    double by_base = e[0] > 0 ? fabs(x[1] * pow(x[0], x[1] - 1)) * e[0] : 0;
    return by_base + (e[1] > 0 ? fabs(r * log(x[0])) * e[1] : 0) + rounding;
  }
  default: CHECK(op_info[in->op].arity == 1); return fabs(op_tangent(in, r, x, e)) + rounding;
  }
}

static double where_bound(const Ins *in, const Reg *c, const Reg *a, const Reg *b, int l,
                          double unit) {
  double e = c->integer[l] ? a->err[l] : b->err[l];
  if (c->err[l] == 0) return e;
  if (!in->real) return a->integer[l] == b->integer[l] ? fmax(a->err[l], b->err[l]) : INFINITY;
  return fmax(a->err[l], b->err[l]) + fabs(a->real[l] - b->real[l]) / unit;
}

// Ints and bools are certain or not. A certain false makes `and` certain, a certain true `or`.
static double logic_bound(const Ins *in, const Reg *x, const Reg *y, int l) {
  bool ends = in->op == OP_OR;
  if ((in->op == OP_AND || in->op == OP_OR) && ((x->err[l] == 0 && !!x->integer[l] == ends) ||
                                                (y->err[l] == 0 && !!y->integer[l] == ends)))
    return 0;
  return fmax(x->err[l], op_info[in->op].arity > 1 ? y->err[l] : 0);
}

static double outcome_bound(const Ins *in, const Reg *x, const Reg *y, int l, double unit) {
  if (in->op == OP_TO_INT) {
    bool near = fabs(x->real[l] - rint(x->real[l])) <= unit * x->err[l];
    return x->err[l] > 0 && near && rint(x->real[l]) != 0 ? INFINITY
                                                          : 0; // about 0 both sides give 0
  }
  double e = x == y ? 0 : x->err[l] + y->err[l]; // x != x is certain
  return e > 0 && fabs(x->real[l] - y->real[l]) <= unit * e ? INFINITY : 0;
}

void block_errors(Block *b, const Ins *in) {
  double *err = b->reg[in->dst].err;
  if (in->op == OP_INDEX || in->op == OP_RANDOM) {
    for (int l = 0; l < b->n; l++) err[l] = 0;
    return;
  }
  int n = op_info[in->op].arity;
  const Reg *r[3];
  for (int i = 0; i < n; i++) r[i] = &b->reg[in->arg[i]];
  const Reg *second = n > 1 ? r[1] : r[0];
  bool outcome = in->op == OP_TO_INT || op_info[in->op].rule == RULE_CMP;
  for (int l = 0; l < b->n; l++) {
    if (in->op == OP_WHERE) {
      err[l] = where_bound(in, r[0], r[1], r[2], l, b->unit);
    } else if (in->real && outcome) {
      err[l] = outcome_bound(in, r[0], second, l, b->unit);
    } else if (in->real && in->op != OP_TO_REAL) {
      double x[3], e[3];
      for (int i = 0; i < n; i++) x[i] = r[i]->real[l], e[i] = r[i]->err[l];
      double value = b->reg[in->dst].real[l];
      double bound = real_bound(in, value, x, e, b->unit) + underflow(in, value, b->unit);
      // A slope of 0 at an uncertain place: no bound. A NaN would be lost among a maximum's terms.
      err[l] = isnan(bound) ? INFINITY : bound;
    } else {
      err[l] = logic_bound(in, r[0], second, l);
    }
  }
}
