// Random statements with guarded subscripts: what the prover accepts is run at every point, and no
// read that is reached may be out of range. Counts how many harmless ones it refuses, as a note.
#include <stdlib.h>

#include "ir/range.h"
#include "ir/text/text.h"
#include "ir/verify.h"

enum { PROGRAMS = 30000, NDATA = 6 };

static uint64_t state = 88172645463325252u;
static uint32_t rnd(uint32_t n) { // xorshift64
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (uint32_t)(state >> 33) % n;
}

// ---- making a statement: y[i, j] = body over x: real[E], p: int[NDATA]

typedef struct Gen {
  Module *m;
  Fn *f;
  Id x, p, q;
} Gen;

static Id gen_int(Gen *g, uint32_t depth) {
  Module *m = g->m;
  static const Op op[] = {OP_ADD, OP_SUB, OP_ADD, OP_SUB, OP_MUL, OP_MIN, OP_MAX};
  Id a, b, c;
  uint32_t kind = depth ? rnd(16) : rnd(4);
  if (kind < 3) return ex_index(m, rnd(2));
  if (kind == 3) return ex_int(m, (int64_t)rnd(12) - 3);
  if (kind == 4) return ex_read(m, g->f, rnd(2) ? g->p : g->q, (Id[]){ex_index(m, 0)});
  a = gen_int(g, depth - 1);
  if (kind == 5) return ex1(m, rnd(2) ? OP_ABS : OP_NEG, a);
  if (kind < 8) return ex2(m, rnd(2) ? OP_IDIV : OP_MOD, a, ex_int(m, 1 + rnd(4)));
  if (kind == 8) {
    b = ex2(m, OP_LT + rnd(6), a, gen_int(g, depth - 1));
    c = gen_int(g, depth - 1);
    return ex3(m, OP_WHERE, b, c, gen_int(g, depth - 1));
  }
  if (kind == 9) return ex_group(m, (Id[]){a, ex_index(m, 1)}, 2);
  b = gen_int(g, depth - 1);
  if (kind < 12) return ex2(m, OP_MUL, a, ex_int(m, (int64_t)rnd(5) - 1));
  return ex2(m, op[rnd(7)], a, b);
}

static Id gen_cond(Gen *g, Id sub, int64_t extent, uint32_t depth) {
  Module *m = g->m;
  uint32_t kind = rnd(depth ? 10 : 5);
  if (kind < 2) return ex2(m, OP_GE, sub, ex_int(m, 0));
  if (kind < 4) return ex2(m, OP_LT, sub, ex_int(m, extent));
  if (kind == 4) return ex2(m, OP_LT + rnd(6), gen_int(g, 1), gen_int(g, 1));
  Id a = gen_cond(g, sub, extent, depth - 1);
  if (kind == 5) return ex1(m, OP_NOT, a);
  return ex2(m, kind < 9 ? OP_AND : OP_OR, a, gen_cond(g, sub, extent, depth - 1));
}

static Id gen_body(Gen *g, int64_t extent, uint32_t depth) {
  Module *m = g->m;
  Id sub = gen_int(g, 2);
  if (rnd(3) == 0) sub = ex2(m, OP_MOD, sub, ex_int(m, extent));
  Id read = ex_read(m, g->f, g->x, &sub), zero = ex_real(m, 0), c = gen_cond(g, sub, extent, 2);
  if (depth && rnd(3) == 0) zero = gen_body(g, extent, depth - 1);
  return rnd(4) ? ex3(m, OP_WHERE, c, read, zero) : ex3(m, OP_WHERE, ex1(m, OP_NOT, c), zero, read);
}

// ---- running it

typedef struct Run {
  const Module *m;
  const Stmt *s;
  int64_t index[MAX_INDEX], data[NDATA];
  int64_t extent; // of x
  Id p, q;
  bool bad;
} Run;

static int64_t wrap(int64_t v, bool wide) { return wide ? v : (int32_t)(uint32_t)v; }
static int64_t div_floor(int64_t a, int64_t b) { return a / b - (a % b && (a < 0) != (b < 0)); }

static int64_t run(Run *r, Id e, bool wide) {
  const Expr *x = ex(r->m, e);
  int64_t v[3] = {0}, at;
#define ARG(i) run(r, ex_arg(r->m, e, i), wide)
  switch (x->op) {
  case OP_REAL: return 0;
  case OP_INT: return x->integer;
  case OP_INDEX: return r->index[x->integer];
  case OP_AND: return ARG(0) && ARG(1);
  case OP_OR: return ARG(0) || ARG(1);
  case OP_NOT: return !ARG(0);
  case OP_WHERE: return ARG(0) ? ARG(1) : ARG(2);
  case OP_GROUP:
    return run(r, ex_arg(r->m, e, 0), true) *
               r->s->index[ex(r->m, ex_arg(r->m, e, 1))->integer].extent +
           ARG(1);
  case OP_READ:
    at = run(r, ex_arg(r->m, e, 0), true);
    if (x->integer == r->p) return r->data[at];
    if (x->integer == r->q) return at / 2 + 1; // what q's statement says
    r->bad |= at < 0 || at >= r->extent;
    return 0;
  default: break;
  }
  for (uint32_t i = 0; i < x->narg; i++) v[i] = ARG(i);
  switch (x->op) {
  case OP_NEG: return wrap(-v[0], wide);
  case OP_ABS: return wrap(v[0] < 0 ? -v[0] : v[0], wide);
  case OP_ADD: return wrap(v[0] + v[1], wide);
  case OP_SUB: return wrap(v[0] - v[1], wide);
  case OP_MUL: return wrap(v[0] * v[1], wide);
  case OP_IDIV: return div_floor(v[0], v[1]);
  case OP_MOD: return v[0] - v[1] * div_floor(v[0], v[1]);
  case OP_MIN: return v[0] < v[1] ? v[0] : v[1];
  case OP_MAX: return v[0] > v[1] ? v[0] : v[1];
  case OP_LT: return v[0] < v[1];
  case OP_LE: return v[0] <= v[1];
  case OP_GT: return v[0] > v[1];
  case OP_GE: return v[0] >= v[1];
  case OP_EQ: return v[0] == v[1];
  case OP_NE: return v[0] != v[1];
  default: abort();
  }
}

// Whether a read is out of range at some point, for data within lo .. hi.
static bool breaks(Run *r, int64_t lo, int64_t hi) {
  for (int trial = 0; trial < 6 && !r->bad; trial++) {
    for (int k = 0; k < NDATA; k++) {
      int64_t span = hi - lo,
              v = trial == 0 ? lo
                  : trial == 1
                      ? hi
                      : lo + (int64_t)(((uint64_t)rnd(1u << 31) << 2) % (uint64_t)(span + 1));
      if (trial > 3 && lo < -8 && hi > 24) v = (int64_t)rnd(32) - 8;
      r->data[k] = v;
    }
    for (r->index[0] = 0; r->index[0] < r->s->index[0].extent; r->index[0]++)
      for (r->index[1] = 0; r->index[1] < r->s->index[1].extent; r->index[1]++)
        run(r, r->s->body, false);
  }
  return r->bad;
}

static const int64_t limits[][2] = {{0, 5}, {-3, 9}, {INT32_MIN, INT32_MAX}, {0, INT32_MAX}};

// One program: 0 refused and wrong, 1 refused though harmless (on the data tried), 2 accepted; -1
// unsound.
static int one(void) {
  Arena *a = arena_new();
  Module *m = module_new(a, sources_new(a));
  Id fn = fn_new(m, str_intern("f"), 0);
  Fn *f = &m->fn.at[fn];
  int64_t extent = 1 + rnd(9), n = NDATA, i = 1 + rnd(NDATA), j = 1 + rnd(7);
  Gen g = {.m = m, .f = f};
  g.p = fn_value(m, f, str_intern("p"), DT_I32, &n, 1, ROLE_IN, 0);
  g.x = fn_value(m, f, str_intern("x"), DT_REAL, &extent, 1, ROLE_IN, 0);
  g.q = fn_value(m, f, str_intern("q"), DT_I32, &n, 1, ROLE_LOCAL, 0);
  Id y = fn_value(m, f, str_intern("y"), DT_REAL, (int64_t[]){i, j}, 2, ROLE_LOCAL, 0);
  PUSH(a, f->result, y);
  Index index[2] = {{.name = str_intern("i"), .extent = i}, {.name = str_intern("j"), .extent = j}},
        k = {.name = str_intern("k"), .extent = n};
  Id zero = ex_index(m, 0), sub[2] = {zero, ex_index(m, 1)};
  fn_comp(m, f, g.q, &zero, false, RED_NONE, &k, 1, 1,
          ex2(m, OP_ADD, ex2(m, OP_IDIV, zero, ex_int(m, 2)), ex_int(m, 1)), 0);
  fn_comp(m, f, y, sub, false, RED_NONE, index, 2, 2, gen_body(&g, extent, 1), 0);
  const int64_t *limit = limits[rnd(4)];
  m->ndata = 1;
  m->entry[ENTRY_COUNT] = fn; // p is data
  if (limit[0] != INT32_MIN) PUSH(a, m->range, (DataRange){0, limit[0], limit[1] + 1, 0});
  RangeResult result;
  range_check(m, false, &result);
  Run r = {.m = m, .s = &f->stmt.at[1], .extent = extent, .p = g.p, .q = g.q};
  bool broken = breaks(&r, limit[0], limit[1]), accepted = result.issue.n == 0;
  if (broken && accepted) {
    Buf b = {0};
    ir_print(m, &b);
    printf("accepted, but a read is out of range:\n%s", b.text);
    buf_free(&b);
  }
  arena_free(a);
  return accepted ? (broken ? -1 : 2) : !broken;
}

int main(void) {
  int count[3] = {0}, unsound = 0;
  for (int k = 0; k < PROGRAMS; k++) {
    int r = one();
    if (r < 0) unsound++;
    else count[r]++;
    if (unsound > 3) break;
  }
  printf(
      "%d accepted, %d refused rightly, %d refused though harmless on the data tried, %d unsound\n",
      count[2], count[0], count[1], unsound);
  return unsound > 0;
}
