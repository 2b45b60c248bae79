// Runs the interpreter's code on a block of points.
#include <math.h>
#include <stdlib.h>

#include "ir/interp/code.h"
#include "ir/text/text.h"
#include "runtime/base/philox.h"

void block_open(Block *b, const Code *c, uint32_t nindex) {
  b->nindex = nindex;
  b->moving = -1;
  for (uint32_t i = 0; i < nindex; i++)
    if (b->s->index[i].extent > 1) b->moving = (int)i;
  b->nreg = c->nreg;
  b->reg = malloc((c->nreg + 1u) * sizeof(Reg));
  ALLOCATED(b->reg);
  for (uint32_t i = 0; i < c->constant.n; i++) {
    const Constant *k = &c->constant.at[i];
    Reg *r = &b->reg[k->reg];
    // A real that float does not hold is rounded by a program that computes in float.
    double err = k->is_real && (double)(float)k->real != k->real ? fabs(k->real) : 0;
    for (int l = 0; l < LANES; l++) {
      if (k->is_real) r->real[l] = k->real;
      else r->integer[l] = k->integer;
      r->err[l] = err;
      r->tangent[l] = 0;
    }
  }
}

void block_close(Block *b) { free(b->reg); }

void block_place(Block *b, int64_t first, int n) {
  const Index *index = b->s->index;
  int64_t at[MAX_INDEX];
  for (uint32_t i = b->nindex; i-- > 0; first /= index[i].extent) at[i] = first % index[i].extent;
  b->n = n;
  b->nrun = 0;
  for (int lane = 0; lane < n;) {
    Run *r = &b->run[b->nrun++];
    int64_t room = b->moving < 0 ? 1 : index[b->moving].extent - at[b->moving];
    r->lane = lane;
    r->n = n - lane < room ? n - lane : (int)room;
    memcpy(r->index, at, b->nindex * sizeof *at);
    lane += r->n;
    if (b->moving < 0) continue;
    at[b->moving] += r->n;
    for (uint32_t i = (uint32_t)b->moving; i > 0 && at[i] == index[i].extent; i--)
      at[i] = 0, at[i - 1]++;
  }
}

// Where `function`, statement and lane are, for an error.
static void say_place(const Block *b, int lane) {
  if (!b->error) return;
  buf_printf(b->error, "function `%s`: statement `", b->f->name);
  ir_print_stmt(b->m, b->f, b->s, b->error);
  buf_printf(b->error, "`");
  const Run *r = &b->run[0];
  while (lane >= r->lane + r->n) r++;
  for (uint32_t i = 0; i < b->nindex; i++) {
    int64_t at = r->index[i] + ((int)i == b->moving ? lane - r->lane : 0);
    buf_printf(b->error, "%s%s = %lld", i ? ", " : " at ", b->s->index[i].name, (long long)at);
  }
  buf_printf(b->error, ": ");
}

static bool out_of_range(const Block *b, const Access *a, int check, int lane) {
  say_place(b, lane);
  if (b->error)
    buf_printf(b->error, "subscript %u of `%s` is %lld, its extent %lld",
               (unsigned)a->check[check].dim,
               b->f->value.at[a->value].name, (long long)b->reg[a->check[check].reg].integer[lane],
               (long long)a->check[check].extent);
  return false;
}

static void run_affine(const Block *b, const Affine *a, int64_t *out) {
  for (int i = 0; i < b->nrun; i++) {
    const Run *r = &b->run[i];
    uint64_t base = (uint64_t)a->constant, step = 0;
    for (int k = 0; k < a->n; k++) {
      base += (uint64_t)a->coef[k] * (uint64_t)r->index[a->index[k]];
      if (a->index[k] == b->moving) step = (uint64_t)a->coef[k];
    }
    for (int l = 0; l < r->n; l++) out[r->lane + l] = (int64_t)(base + (uint64_t)l * step);
  }
}

bool block_access(Block *b, const Access *a, uint16_t mask, bool *uncertain) {
  int64_t *offset = b->offset;
  run_affine(b, &a->offset, offset);
  for (int k = 0; k < a->ncheck; k++) {
    const Reg *r = &b->reg[a->check[k].reg];
    for (int l = 0; l < b->n; l++) {
      if ((uint64_t)r->integer[l] >= (uint64_t)a->check[k].extent) {
        if (mask == NO_REG || b->reg[mask].integer[l]) return out_of_range(b, a, k, l);
        offset[l] = INT64_MIN / 2; // stays below 0 whatever is added
      } else {
        offset[l] += r->integer[l] * a->check[k].stride;
      }
      if (uncertain && r->err[l] > 0) uncertain[l] = true;
    }
  }
  return true;
}

static void load_errors(Block *b, const Ins *in, const Tensor *t, const bool *uncertain) {
  double *err = b->reg[in->dst].err;
  for (int l = 0; l < b->n; l++) {
    err[l] = t->scale && b->offset[l] >= 0 ? t->scale[b->offset[l]] : 0;
    if (uncertain[l]) err[l] = INFINITY;
  }
}

static void load_tangents(Block *b, const Ins *in, const Tensor *t) {
  double *tangent = b->reg[in->dst].tangent;
  for (int l = 0; l < b->n; l++)
    tangent[l] = t->tangent && b->offset[l] >= 0 ? t->tangent[b->offset[l]] : 0;
}

static bool run_read(Block *b, const Code *c, const Ins *in) {
  const Access *a = &c->access.at[in->at];
  const Tensor *t = b->value[a->value];
  Reg *dst = &b->reg[in->dst];
  bool uncertain[LANES] = {false};
  if (!t) BUG("`%s` is read before it is defined", b->f->value.at[a->value].name);
  if (!block_access(b, a, in->mask, b->o->scale ? uncertain : NULL)) return false;
  const int64_t *offset = b->offset;
  if (!a->ncheck && in->real)
    for (int l = 0; l < b->n; l++) dst->real[l] = t->real[offset[l]];
  else if (in->real)
    for (int l = 0; l < b->n; l++) dst->real[l] = offset[l] >= 0 ? t->real[offset[l]] : 0;
  else
    for (int l = 0; l < b->n; l++) dst->integer[l] = offset[l] >= 0 ? t->integer[offset[l]] : 0;
  if (b->o->scale) load_errors(b, in, t, uncertain);
  if (b->o->tangent && in->real) load_tangents(b, in, t);
  return true;
}

// Quotients round towards minus infinity; INT64_MIN // -1 wraps; by 0 both give 0.
static int64_t floor_div(int64_t a, int64_t d) {
  if (!d) return 0;
  if (d == -1) return (int64_t)-(uint64_t)a;
  return a / d - (a % d != 0 && (a % d < 0) != (d < 0));
}
static int64_t floor_mod(int64_t a, int64_t d) {
  if (!d || d == -1) return 0;
  int64_t r = a % d;
  return r && (r < 0) != (d < 0) ? r + d : r;
}

static void run_divide(const Block *b, const Ins *in) {
  const int64_t *x = b->reg[in->arg[0]].integer, *d = b->reg[in->arg[1]].integer;
  int64_t *out = b->reg[in->dst].integer;
  for (int l = 0; l < b->n; l++)
    out[l] = in->op == OP_IDIV ? floor_div(x[l], d[l]) : floor_mod(x[l], d[l]);
}

static double max_real(double a, double b) { return b > a || isnan(b) ? b : a; }
static double min_real(double a, double b) { return b < a || isnan(b) ? b : a; }

// Towards zero; out of range it is the nearest int, NaN gives 0.
static int64_t to_int(double x) {
  if (isnan(x)) return 0;
  return x <= INT32_MIN ? INT32_MIN : x >= INT32_MAX ? INT32_MAX : (int64_t)x;
}

#define EACH(e)                                                                                    \
  for (int l = 0; l < n; l++) e;                                                                   \
  break
#define COMPARE(op, sign)                                                                          \
  case op:                                                                                         \
    if (in->real) {                                                                                \
      EACH(oi[l] = x[l] sign y[l]);                                                                \
    }                                                                                              \
    EACH(oi[l] = xi[l] sign yi[l])

static void run_real(const Block *b, const Ins *in) {
  const double *x = b->reg[in->arg[0]].real, *y = b->reg[in->arg[1]].real,
               *z = b->reg[in->arg[2]].real;
  double *o = b->reg[in->dst].real;
  int n = b->n;
  switch (in->op) {
  case OP_NEG: EACH(o[l] = -x[l]);
  case OP_ADD: EACH(o[l] = x[l] + y[l]);
  case OP_SUB: EACH(o[l] = x[l] - y[l]);
  case OP_MUL: EACH(o[l] = x[l] * y[l]);
  case OP_DIV: EACH(o[l] = x[l] / y[l]);
  case OP_POW: EACH(o[l] = pow(x[l], y[l]));
  case OP_MIN: EACH(o[l] = min_real(x[l], y[l]));
  case OP_MAX: EACH(o[l] = max_real(x[l], y[l]));
  case OP_FMA: EACH(o[l] = fma(x[l], y[l], z[l]));
  case OP_ABS: EACH(o[l] = fabs(x[l]));
  case OP_EXP: EACH(o[l] = exp(x[l]));
  case OP_LOG: EACH(o[l] = log(x[l]));
  case OP_SQRT: EACH(o[l] = sqrt(x[l]));
  case OP_SIN: EACH(o[l] = sin(x[l]));
  case OP_COS: EACH(o[l] = cos(x[l]));
  case OP_TANH: EACH(o[l] = tanh(x[l]));
  case OP_ERF: EACH(o[l] = erf(x[l]));
  case OP_FLOOR: EACH(o[l] = floor(x[l]));
  case OP_STOP: EACH(o[l] = x[l]);
  default: BUG("operator %s of reals", op_info[in->op].name);
  }
}

static void run_integer(const Block *b, const Ins *in) {
  const int64_t *x = b->reg[in->arg[0]].integer, *y = b->reg[in->arg[1]].integer;
  int64_t *o = b->reg[in->dst].integer;
  int n = b->n;
  switch (in->op) {
  case OP_NEG: EACH(o[l] = (int64_t)-(uint64_t)x[l]);
  case OP_ADD: EACH(o[l] = (int64_t)((uint64_t)x[l] + (uint64_t)y[l]));
  case OP_SUB: EACH(o[l] = (int64_t)((uint64_t)x[l] - (uint64_t)y[l]));
  case OP_MUL: EACH(o[l] = (int64_t)((uint64_t)x[l] * (uint64_t)y[l]));
  case OP_MIN: EACH(o[l] = y[l] < x[l] ? y[l] : x[l]);
  case OP_MAX: EACH(o[l] = y[l] > x[l] ? y[l] : x[l]);
  case OP_ABS: EACH(o[l] = x[l] < 0 ? -x[l] : x[l]);
  case OP_STOP: EACH(o[l] = x[l]);
  case OP_AND: EACH(o[l] = x[l] & y[l]);
  case OP_OR: EACH(o[l] = x[l] | y[l]);
  case OP_NOT: EACH(o[l] = !x[l]);
  default: BUG("operator %s of ints", op_info[in->op].name);
  }
}

static void run_compare(const Block *b, const Ins *in) {
  const double *x = b->reg[in->arg[0]].real, *y = b->reg[in->arg[1]].real;
  const int64_t *xi = b->reg[in->arg[0]].integer, *yi = b->reg[in->arg[1]].integer;
  int64_t *oi = b->reg[in->dst].integer;
  int n = b->n;
  switch (in->op) {
    COMPARE(OP_LT, <);
    COMPARE(OP_LE, <=);
    COMPARE(OP_GT, >);
    COMPARE(OP_GE, >=);
    COMPARE(OP_EQ, ==);
    COMPARE(OP_NE, !=);
  default: BUG("operator %s is no comparison", op_info[in->op].name);
  }
}

static void run_where(const Block *b, const Ins *in) {
  const int64_t *c = b->reg[in->arg[0]].integer;
  const Reg *x = &b->reg[in->arg[1]], *y = &b->reg[in->arg[2]];
  Reg *o = &b->reg[in->dst];
  for (int l = 0; l < b->n; l++)
    o->integer[l] = c[l] ? x->integer[l] : y->integer[l]; // reals too, bit by bit
}

static void run_convert(const Block *b, const Ins *in) {
  const Reg *x = &b->reg[in->arg[0]];
  Reg *o = &b->reg[in->dst];
  for (int l = 0; l < b->n; l++)
    if (in->op == OP_TO_REAL) o->real[l] = (double)x->integer[l];
    else o->integer[l] = in->real ? to_int(x->real[l]) : x->integer[l];
}

static void run_random(const Block *b, const Ins *in) {
  const int64_t *site = b->reg[in->arg[0]].integer, *iter = b->reg[in->arg[1]].integer;
  const int64_t *element = b->reg[in->arg[2]].integer;
  for (int l = 0; l < b->n; l++)
    b->reg[in->dst].real[l] = dt_uniform(b->o->seed, b->o->step, (uint32_t)site[l],
                                         (uint32_t)iter[l], (uint64_t)element[l]);
}

// What of an instruction is not smooth goes into the hash of ways.
static void note_ways(const Block *b, const Ins *in) {
  const Reg *x = &b->reg[in->arg[0]], *y = &b->reg[in->arg[1]], *o = &b->reg[in->dst];
  for (int l = 0; l < b->n; l++) {
    if (in->mask != NO_REG && !b->reg[in->mask].integer[l]) continue;
    if (in->op == OP_ABS) note_way(b->o, x->real[l] < 0);
    else if (in->op == OP_MAX || in->op == OP_MIN) note_way(b->o, x->real[l] < y->real[l]);
    else if (in->op == OP_FLOOR) note_way(b->o, (uint64_t)to_int(o->real[l]));
    else note_way(b->o, (uint64_t)o->integer[l]);
  }
}

static bool has_ways(const Ins *in) {
  return in->real &&
         (in->op == OP_ABS || in->op == OP_MAX || in->op == OP_MIN || in->op == OP_FLOOR ||
          in->op == OP_TO_INT || op_info[in->op].rule == RULE_CMP);
}

static bool run_one(Block *b, const Code *c, const Ins *in) {
  int64_t *out = b->reg[in->dst].integer;
  bool narrow = !in->wide;
  if (in->op == OP_READ) return run_read(b, c, in);
  if (in->op == OP_INDEX) {
    run_affine(b, &c->affine.at[in->at], out);
  } else if (in->op == OP_IDIV || in->op == OP_MOD) {
    run_divide(b, in);
  } else if (in->op == OP_WHERE) {
    run_where(b, in);
    narrow = false;
  } else if (in->op == OP_TO_REAL || in->op == OP_TO_INT) {
    run_convert(b, in);
    narrow = false;
  } else if (in->op == OP_RANDOM) {
    run_random(b, in);
    narrow = false;
  } else if (op_info[in->op].rule == RULE_CMP) {
    run_compare(b, in);
    narrow = false;
  } else if (in->real) {
    run_real(b, in);
    narrow = false;
  } else {
    run_integer(b, in);
  }
  if (narrow)
    for (int l = 0; l < b->n; l++) out[l] = (int32_t)(uint64_t)out[l];
  return true;
}

bool block_run(Block *b, const Code *c) {
  for (uint32_t i = 0; i < c->ins.n; i++) {
    const Ins *in = &c->ins.at[i];
    if (!run_one(b, c, in)) return false;
    if (b->o->scale && in->op != OP_READ) block_errors(b, in);
    if (b->o->tangent && in->op != OP_READ) block_tangents(b, in);
    if (b->o->ways && has_ways(in)) note_ways(b, in);
  }
  return true;
}
