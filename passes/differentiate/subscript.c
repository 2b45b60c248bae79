// Which subscripts have no derivative here. Adjoints compare subscripts with indices, and comparisons have ints of 32
// bits: sums and products that wrap are equal there where they are in 64 bits, but quotients and remainders are not.
#include "passes/differentiate/differentiate.h"

#include <math.h>

// Of an int expression in 64 bits. Any other operand than arithmetic on indices and constants counts as 0.
typedef struct Wide {
  double lo, hi;
} Wide;

static Wide hull(double a, double b, double c, double d) {
  return (Wide){fmin(fmin(a, b), fmin(c, d)), fmax(fmax(a, b), fmax(c, d))};
}

static bool is_wide(Wide a) { return a.lo < INT32_MIN || a.hi > INT32_MAX; }

// Sets *bad where a number of more than 32 bits is divided.
static Wide bounds_of(const Module *m, const Stmt *s, Id id, bool *bad) {
  const Expr *e = ex(m, id);
  if (e->op == OP_INT) return (Wide){(double)e->integer, (double)e->integer};
  if (e->op == OP_INDEX) return (Wide){0, (double)s->index[e->integer].extent - 1};
  if (e->op == OP_GROUP) {
    double n = 1;
    for (uint32_t i = 0; i < e->narg; i++) n *= (double)s->index[ex(m, ex_arg(m, id, i))->integer].extent;
    return (Wide){0, n - 1};
  }
  if (e->op == OP_READ || e->type != SC_INT || !e->narg || e->narg > 2) return (Wide){0, 0};
  Wide a = bounds_of(m, s, ex_arg(m, id, 0), bad), b = bounds_of(m, s, ex_arg(m, id, e->narg - 1), bad);
  switch (e->op) {
  case OP_NEG: return (Wide){-a.hi, -a.lo};
  case OP_ADD: return (Wide){a.lo + b.lo, a.hi + b.hi};
  case OP_SUB: return (Wide){a.lo - b.hi, a.hi - b.lo};
  case OP_MUL: return hull(a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi);
  case OP_IDIV:
  case OP_MOD: {
    double most = e->op == OP_IDIV ? fmax(-a.lo, a.hi) : fmax(-b.lo, b.hi);
    *bad |= is_wide(a) || is_wide(b);
    return (Wide){-most, most};
  }
  default: return (Wide){0, 0};
  }
}

typedef struct Reads {
  const Stmt *s;
  Id bad; // such a read, or NONE
} Reads;

static void check_read(const Module *m, Id read, void *ctx) {
  Reads *r = ctx;
  bool bad = false;
  for (uint32_t d = 0; ex(m, read)->type == SC_REAL && d < ex(m, read)->narg; d++) {
    Id sub = ex_arg(m, read, d);
    if (!ex_is(m, sub, OP_GROUP)) bounds_of(m, r->s, sub, &bad);
  }
  if (bad) r->bad = read;
}

bool diff_subscripts_fit(const Module *m) {
  Id *order = NEWN(m->arena, Id, m->fn.n + 1);
  uint32_t n = module_postorder(m, order);
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t k = 0; k < m->fn.at[order[i]].stmt.n; k++) {
      const Stmt *s = &m->fn.at[order[i]].stmt.at[k];
      Reads r = {s, NONE};
      if (s->kind == ST_COMP) ex_reads(m, s->body, check_read, &r);
      if (r.bad == NONE) continue;
      diag_error(m->src, stmt_read_loc(m, s, r.bad),
                 "limit: this subscript divides a number of more than 32 bits, and a derivative needs it");
      return false;
    }
  return true;
}
