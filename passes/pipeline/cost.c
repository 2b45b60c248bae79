// The costs of statements, roughly: enough to give each stage about as much work. The unit is an operation of a matrix
// product; limits of the target say how many of them a function such as exp, a byte moved and a byte sent cost.
// Statements are fused later, and then move about a third of the bytes that they read and write.
#include "passes/pipeline/pipeline.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

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

// best[p][i]: of the first i units in p parts, the least that the dearest costs (over: then the
// least sum of squares among those that cost no more than `most`).
typedef struct Balance {
  const double *sum, *cross; // sum[i]: of the units before i
  uint32_t n, parts;
  double most;
} Balance;

static double part_cost(const Balance *b, uint32_t from, uint32_t to) {
  return b->sum[to] - b->sum[from] + (from ? b->cross[from] : 0) + (to < b->n ? b->cross[to] : 0);
}

static double solve(const Balance *b, bool squares, double *best, uint32_t *last) {
  uint32_t w = b->n + 1;
  for (uint32_t i = 0; i < w * (b->parts + 1); i++) best[i] = DBL_MAX;
  best[0] = 0;
  for (uint32_t p = 1; p <= b->parts; p++)
    for (uint32_t i = p; i <= b->n; i++)
      for (uint32_t j = i; j-- > p - 1;) {
        double before = best[(p - 1) * w + j], here = part_cost(b, j, i);
        if (before == DBL_MAX || (squares && here > b->most)) continue;
        double all = squares ? before + here * here : fmax(before, here);
        if (all >= best[p * w + i]) continue;
        best[p * w + i] = all;
        last[p * w + i] = j;
      }
  return best[b->parts * w + b->n];
}

void cost_balance(const double *cost, const double *cross, uint32_t n, uint32_t parts,
                  uint32_t *part) {
  CHECK(n >= parts && parts);
  size_t room = (size_t)(n + 1) * (parts + 1);
  double *sum = calloc(n + 1, sizeof *sum), *best = malloc(room * sizeof *best);
  uint32_t *last = calloc(room, sizeof *last);
  ALLOCATED(sum && best && last);
  for (uint32_t i = 0; i < n; i++) sum[i + 1] = sum[i] + cost[i];
  Balance b = {.sum = sum, .cross = cross, .n = n, .parts = parts};
  b.most = solve(&b, false, best, last) * (1 + 1e-9);
  solve(&b, true, best, last);
  for (uint32_t p = parts, i = n; p > 0; p--) {
    uint32_t from = last[p * (n + 1) + i];
    for (uint32_t k = from; k < i; k++) part[k] = p - 1;
    i = from;
  }
  free(sum);
  free(best);
  free(last);
}
