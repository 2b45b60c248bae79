// Forward-mode derivatives; what holds where there is none is in ir/interp/interp.h. The rules are written
// from the operators' meaning, not after passes/differentiate/adjoint.c, which they check.
#include <math.h>

#include "ir/interp/code.h"

// A zero tangent adds nothing, by however much it is multiplied.
static double times(double by, double t) { return t == 0 ? 0 : by * t; }

// The derivative of x to the power n by x.
static double by_base(double x, double n) { return n == 0 ? 0 : n * pow(x, n - 1); }

// Whether max or min takes its first operand.
static bool takes_first(const Ins *in, double a, double b) {
  if (in->op == OP_MAX) return in->strict ? a > b : a >= b;
  return in->strict ? a < b : a <= b;
}

// Of one operator of reals whose result is r; t: its operands' tangents.
double op_tangent(const Ins *in, double r, const double *x, const double *t) {
  switch (in->op) {
  case OP_NEG: return -t[0];
  case OP_ADD: return t[0] + t[1];
  case OP_SUB: return t[0] - t[1];
  case OP_MUL: return times(x[1], t[0]) + times(x[0], t[1]);
  case OP_DIV: return (t[0] == 0 ? 0 : t[0] / x[1]) - (r == 0 || t[1] == 0 ? 0 : r * (t[1] / x[1]));
  case OP_FMA: return times(x[1], t[0]) + times(x[0], t[1]) + t[2];
  case OP_POW:
    return times(by_base(x[0], x[1]), t[0]) + (x[0] > 0 ? times(r * log(x[0]), t[1]) : 0);
  case OP_MIN:
  case OP_MAX: return takes_first(in, x[0], x[1]) ? t[0] : t[1];
  case OP_ABS: return x[0] > 0 ? t[0] : x[0] < 0 ? -t[0] : 0;
  case OP_EXP: return times(r, t[0]);
  case OP_LOG: return t[0] == 0 ? 0 : t[0] / x[0];
  case OP_SQRT: return t[0] == 0 ? 0 : t[0] / (2 * r);
  case OP_SIN: return times(cos(x[0]), t[0]);
  case OP_COS: return times(-sin(x[0]), t[0]);
  case OP_TANH: return times(1 - r * r, t[0]);
  case OP_ERF: return times(M_2_SQRTPI * exp(-x[0] * x[0]), t[0]);
  case OP_FLOOR:
  case OP_STOP: return 0;
  default: BUG("operator %s has no tangent", op_info[in->op].name);
  }
}

void block_tangents(Block *b, const Ins *in) {
  double *tangent = b->reg[in->dst].tangent;
  int n = op_info[in->op].arity;
  const Reg *r[3] = {0};
  for (int i = 0; i < n && in->op != OP_INDEX; i++) r[i] = &b->reg[in->arg[i]];
  bool real = in->real && in->op != OP_TO_INT && op_info[in->op].rule != RULE_CMP;
  for (int l = 0; l < b->n; l++) {
    if (in->op == OP_WHERE) {
      tangent[l] = r[0]->integer[l] ? r[1]->tangent[l] : r[2]->tangent[l];
    } else if (!real || in->op == OP_RANDOM) {
      tangent[l] = 0;
    } else {
      double x[3] = {0}, t[3] = {0};
      for (int i = 0; i < n; i++) x[i] = r[i]->real[l], t[i] = r[i]->tangent[l];
      tangent[l] = op_tangent(in, b->reg[in->dst].real[l], x, t);
    }
  }
}
