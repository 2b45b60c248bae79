// The costs of statements, roughly: enough to give each stage about as much work, and to choose what is computed again. The unit is an operation of a matrix
// product; limits of the target say how many of them a function such as exp, a byte moved and a byte sent cost.
// Statements are fused later, and then move about a third of the bytes that they read and write.
#include "passes/cost.h"

#include <math.h>

enum { FUSED = 3 }; // bytes of statements for one of their kernels

typedef struct Moved {
  const Fn *f;
  double points, bytes;
} Moved;

static void moved_read(const Module *m, Id read, void *ctx) {
  Moved *x = ctx;
  const Value *v = &x->f->value.at[ex(m, read)->integer];
  x->bytes += fmin((double)value_count(v), x->points) * dtype_size(v->type);
}

// Operations of one evaluation; a subexpression that occurs twice is computed twice here.
static double operations(const Module *m, Id e) {
  const Expr *x = ex(m, e);
  double n = 0;
  if (x->op == OP_READ) return 0;
  for (uint32_t i = 0; i < x->narg; i++) n += operations(m, ex_arg(m, e, i));
  return x->narg ? n + (op_info[x->op].work >= WORK_SLOW ? (double)m->limits.slow_flops : 1) : n;
}

static double points(const Stmt *s) {
  double n = 1;
  for (uint32_t i = 0; i < s->nindex; i++) n *= (double)s->index[i].extent;
  return n;
}

// Of an intrinsic the products alone: an implementation keeps what lies between them in registers.
double cost_fn(const Module *m, Id fn) {
  const Fn *f = &m->fn.at[fn];
  double n = 0;
  for (uint32_t i = 0; i < f->stmt.n; i++) {
    const Stmt *s = &f->stmt.at[i];
    if (f->intrinsic == INTR_NONE) n += cost_stmt(m, f, s);
    else if (s->kind == ST_COMP && s->red == RED_SUM) n += 2 * points(s);
  }
  return n;
}

static double value_bytes(const Value *v) { return (double)value_count(v) * dtype_size(v->type); }

double cost_stmt(const Module *m, const Fn *f, const Stmt *s) {
  if (s->call) return (double)s->call->count * cost_fn(m, s->call->fn);
  if (s->kind != ST_COMP) return (double)m->limits.sent_flops * value_bytes(&f->value.at[s->lhs]);
  Moved x = {.f = f, .points = points(s)};
  ex_reads(m, s->body, moved_read, &x);
  const Value *v = &f->value.at[s->lhs];
  x.bytes += fmin(value_bytes(v), x.points * dtype_size(v->type));
  double flops = x.points * (operations(m, s->body) + (s->red != RED_NONE));
  return flops + (double)(m->limits.byte_flops / FUSED) * x.bytes;
}

double cost_again(const Module *m, const Fn *f, const Stmt *s) {
  if (s->call) return (double)s->call->count * cost_again_fn(m, s->call->fn);
  if (s->kind != ST_COMP) return (double)m->limits.sent_flops * value_bytes(&f->value.at[s->lhs]);
  return points(s) * (operations(m, s->body) + (s->red != RED_NONE));
}

double cost_again_fn(const Module *m, Id fn) {
  const Fn *f = &m->fn.at[fn];
  double n = 0;
  if (f->intrinsic != INTR_NONE) return cost_fn(m, fn);
  for (uint32_t i = 0; i < f->stmt.n; i++) n += cost_again(m, f, &f->stmt.at[i]);
  return n;
}
