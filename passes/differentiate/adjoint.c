// The derivative of one scalar expression, by reverse mode over its graph.
#include "passes/differentiate/adjoint.h"
#include "passes/util.h"

#include <math.h>
#include <stdlib.h>

// The nodes of an expression on differentiable paths, arguments before what uses them.
typedef struct Node {
  Id e;
  bool carries; // an active read is below
  Terms term; // its adjoint so far
} Node;
typedef struct Graph {
  Module *m;
  const bool *active; // NULL: all values
  Id *slot; // expression -> position in node, or NONE
  VEC(Node) node;
} Graph;

static bool collect(Graph *g, Id e) {
  if (g->slot[e] != NONE) return g->node.at[g->slot[e]].carries;
  Expr x = *ex(g->m, e);
  bool carries = false;
  if (x.type == SC_REAL) {
    if (x.op == OP_READ) carries = !g->active || g->active[x.integer];
    uint32_t args = op_info[x.op].slopes;
    for (uint32_t i = 0; i < x.narg; i++)
      if (args >> i & 1) carries |= collect(g, ex_arg(g->m, e, i));
  }
  g->slot[e] = g->node.n;
  PUSH(g->m->arena, g->node, (Node){.e = e, .carries = carries});
  return carries;
}

static Graph graph_of(Module *m, Id e, const bool *active) {
  Graph g = {.m = m, .active = active, .slot = malloc((e + 1) * sizeof(Id))};
  ALLOCATED(g.slot);
  memset(g.slot, 0xff, (e + 1) * sizeof(Id));
  collect(&g, e);
  return g;
}

void ex_differentiable_reads(const Module *m, Id e, void (*visit)(Id read, void *ctx), void *ctx) {
  Graph g = graph_of((Module *)m, e, NULL); // only allocates from the module's arena
  for (uint32_t i = 0; i < g.node.n; i++)
    if (g.node.at[i].carries && ex_is(m, g.node.at[i].e, OP_READ)) visit(g.node.at[i].e, ctx);
  free(g.slot);
}

static void add_term(Module *m, Terms *t, Id guard, Id value) {
  for (uint32_t i = 0; i < t->n; i++) {
    if (t->at[i].guard != guard) continue;
    t->at[i].value = fold_add(m, t->at[i].value, value);
    return;
  }
  PUSH(m->arena, *t, (Term){guard, value});
}

static Id num(Module *m, double v) { return ex_real(m, v); }
static Id square(Module *m, Id a) { return ex2(m, OP_MUL, a, a); }
static bool constant(const Module *m, Id e) { return ex_is(m, e, OP_REAL); }

static Id pow_factor(Module *m, Id e, uint32_t i, Id self) {
  Id a = ex_arg(m, e, 0), b = ex_arg(m, e, 1);
  if (i == 1) {
    Id grown = ex2(m, OP_MUL, self, ex1(m, OP_LOG, a));
    return ex3(m, OP_WHERE, ex2(m, OP_GT, a, num(m, 0)), grown, num(m, 0));
  }
  if (!constant(m, b)) return fold_mul(m, b, ex2(m, OP_POW, a, fold_sub(m, b, num(m, 1))));
  double p = ex(m, b)->real;
  Id less = p == 2   ? a
            : p == 1 ? num(m, 1)
            : p == 3 ? square(m, a)
                     : ex2(m, OP_POW, a, num(m, p - 1));
  return fold_mul(m, num(m, p), less);
}

static Id abs_factor(Module *m, Id a) {
  Id below = ex3(m, OP_WHERE, ex2(m, OP_LT, a, num(m, 0)), num(m, -1), num(m, 0));
  return ex3(m, OP_WHERE, ex2(m, OP_GT, a, num(m, 0)), num(m, 1), below);
}

// g times the derivative of node e by its i-th argument; `self` is e or where its value is stored.
static Id times_partial(Module *m, Id g, Id e, uint32_t i, Id self) {
  Id a = ex_arg(m, e, 0), b = ex(m, e)->narg > 1 ? ex_arg(m, e, 1) : NONE;
  switch (ex(m, e)->op) {
  case OP_NEG: return fold_neg(m, g);
  case OP_ADD: return g;
  case OP_SUB: return i ? fold_neg(m, g) : g;
  case OP_MUL: return fold_mul(m, g, i ? a : b);
  case OP_DIV:
    return i ? fold_neg(m, fold_div(m, fold_mul(m, g, self), b)) : fold_div(m, g, b);
  case OP_POW: return fold_mul(m, g, pow_factor(m, e, i, self));
  case OP_FMA: return i == 2 ? g : fold_mul(m, g, i ? a : b);
  case OP_ABS: return fold_mul(m, g, abs_factor(m, a));
  case OP_EXP: return fold_mul(m, g, self);
  case OP_LOG: return fold_div(m, g, a);
  case OP_SQRT: return fold_div(m, fold_mul(m, g, num(m, 0.5)), self);
  case OP_SIN: return fold_mul(m, g, ex1(m, OP_COS, a));
  case OP_COS: return fold_neg(m, fold_mul(m, g, ex1(m, OP_SIN, a)));
  case OP_TANH: return fold_mul(m, g, fold_sub(m, num(m, 1), square(m, self)));
  case OP_ERF: {
    Id bell = ex1(m, OP_EXP, fold_neg(m, square(m, a)));
    return fold_mul(m, g, fold_mul(m, num(m, 2.0 / sqrt(acos(-1.0))), bell));
  }
  default: BUG("derivative of %s", op_info[ex(m, e)->op].name);
  }
}

// Where argument i of max or min is the one taken. A tie goes to the first, but never to an
// argument that is not constant from one that is: the derivative of max(x, 0) at 0 is 0.
static Id taken(Module *m, Id e, uint32_t i) {
  Id a = ex_arg(m, e, 0), b = ex_arg(m, e, 1);
  bool max = ex_is(m, e, OP_MAX), strict = constant(m, b);
  Op first = max ? (strict ? OP_GT : OP_GE) : (strict ? OP_LT : OP_LE);
  Id c = ex2(m, first, a, b);
  return i ? ex1(m, OP_NOT, c) : c;
}

// For b = k + exp(u), or exp(u) + k: u. NONE for any other b.
static Id logistic_exponent(const Module *m, Id b) {
  if (!ex_is(m, b, OP_ADD)) return NONE;
  Id x = ex_arg(m, b, 0), y = ex_arg(m, b, 1);
  if (constant(m, x) && ex_is(m, y, OP_EXP)) return ex_arg(m, y, 0);
  if (constant(m, y) && ex_is(m, x, OP_EXP)) return ex_arg(m, x, 0);
  return NONE;
}

// q = a / b with b = k + exp(u), as in a sigmoid: dq/du = -q * exp(u) / b, which is inf / inf for a
// large u. As -q * (1 - k / b) it is 0 there. Step by step, by way of b and exp(u), it would be 0 *
// inf.
static void push_logistic(Graph *g, Id u, Id b, Id self, const Terms *term) {
  Module *m = g->m;
  Node *to = &g->node.at[g->slot[u]];
  if (!to->carries) return;
  Id k = ex_arg(m, b, constant(m, ex_arg(m, b, 0)) ? 0 : 1);
  Id part = fold_sub(m, num(m, 1), fold_div(m, k, b));
  for (uint32_t t = 0; t < term->n; t++) {
    Id value = fold_neg(m, fold_mul(m, fold_mul(m, term->at[t].value, self), part));
    add_term(m, &to->term, term->at[t].guard, value);
  }
}

static void push(Graph *g, uint32_t k, Id self) {
  Module *m = g->m;
  Id e = g->node.at[k].e;
  Op op = (Op)ex(m, e)->op;
  Terms term = g->node.at[k].term;
  for (uint32_t i = 0; i < ex(m, e)->narg; i++) {
    if (!(op_info[op].slopes >> i & 1)) continue;
    Node *arg = &g->node.at[g->slot[ex_arg(m, e, i)]];
    if (!arg->carries) continue;
    Id exponent = op == OP_DIV && i == 1 ? logistic_exponent(m, arg->e) : NONE;
    if (exponent != NONE) {
      push_logistic(g, exponent, arg->e, self, &term);
      continue;
    }
    for (uint32_t t = 0; t < term.n; t++) {
      Id guard = NONE, value = term.at[t].value;
      if (op == OP_WHERE)
        guard = i == 1 ? ex_arg(m, e, 0) : ex1(m, OP_NOT, ex_arg(m, e, 0));
      else if (op == OP_MIN || op == OP_MAX)
        guard = taken(m, e, i);
      else
        value = times_partial(m, value, e, i, self);
      add_term(m, &arg->term, fold_and(m, term.at[t].guard, guard), value);
    }
  }
}

ReadAdjoints expr_adjoint(Module *m, Id body, Term seed, Id self, const bool *active) {
  Graph g = graph_of(m, body, active);
  ReadAdjoints out = {0};
  uint32_t root = g.node.n - 1;
  PUSH(m->arena, g.node.at[root].term, seed);
  for (uint32_t k = g.node.n; k-- > 0;) {
    Node *n = &g.node.at[k];
    if (!n->carries || !n->term.n) continue;
    if (ex_is(m, n->e, OP_READ))
      PUSH(m->arena, out, (ReadAdjoint){n->e, n->term});
    else
      push(&g, k, k == root && self != NONE ? self : n->e);
  }
  free(g.slot);
  return out;
}

static bool complement(const Module *m, Id a, Id b) {
  if (a == NONE || b == NONE) return false;
  return (ex_is(m, a, OP_NOT) && ex_arg(m, a, 0) == b) ||
         (ex_is(m, b, OP_NOT) && ex_arg(m, b, 0) == a);
}

Id terms_sum(Module *m, const Terms *t) {
  Id zero = num(m, 0), sum = zero;
  if (t->n == 2 && complement(m, t->at[0].guard, t->at[1].guard))
    return fold_where(m, t->at[0].guard, t->at[0].value, t->at[1].value);
  for (uint32_t i = 0; i < t->n; i++)
    sum = fold_add(m, sum, fold_where(m, t->at[i].guard, t->at[i].value, zero));
  return sum;
}
