// Recognises the running sum in a comprehension:
//
//     y[.. i ..] (= | +=) sum(j<n: where(j <= i, x[.. j ..], 0))
//
// or with <, >= or >: what cumsum writes, and its derivative. Written out it takes n * n additions;
// one pass along j does.
#include "codegen/lower/fuse.h"
#include "codegen/target.h"

enum { MOST_LOOPS = 6 };

static bool is_zero(const Module *m, Id e) {
  return (ex_is(m, e, OP_REAL) && ex(m, e)->real == 0 && !__builtin_signbit(ex(m, e)->real)) ||
         (ex_is(m, e, OP_INT) && ex(m, e)->integer == 0);
}

// The condition `j (<= | < | >= | >) i` or its mirror image, with j the bound index.
static bool condition(const Module *m, const Stmt *s, Id e, uint32_t *i, ScanPlan *p) {
  Op op = (Op)ex(m, e)->op;
  if (op != OP_LE && op != OP_LT && op != OP_GE && op != OP_GT) return false;
  Id a = ex_arg(m, e, 0), b = ex_arg(m, e, 1);
  if (!ex_is(m, a, OP_INDEX) || !ex_is(m, b, OP_INDEX)) return false;
  bool mirror = ex(m, a)->integer != s->nfree;
  if (ex(m, mirror ? b : a)->integer != s->nfree) return false;
  *i = (uint32_t)ex(m, mirror ? a : b)->integer;
  p->reverse = (op == OP_GE || op == OP_GT) != mirror;
  p->exclusive = op == OP_LT || op == OP_GT;
  return *i != s->nfree;
}

static bool type_fits(const Module *m, const Fn *f, const Stmt *s, Id read) {
  Dtype t = f->value.at[ex(m, read)->integer].type;
  if (t != f->value.at[s->lhs].type) return false;
  return m->target->takes_scan(m, t);
}

// The dimensions beside the one summed along: neighbours that nest in both arrays are one; the
// tightest in y goes last, as the columns.
static bool other_dims(const Stmt *s, uint32_t i, const Affine *x, const Affine *y, ScanPlan *p) {
  for (uint32_t k = 0; k < s->nfree; k++) {
    int64_t n = s->index[k].extent;
    if (k == i || n == 1) continue;
    ScanDim d = {n, x->coef[k], y->coef[k]};
    uint32_t at = 0;
    while (at < p->nloop && p->loop[at].y >= d.y) at++;
    if (at > 0 && p->loop[at - 1].y == n * d.y && p->loop[at - 1].x == n * d.x) {
      p->loop[at - 1] = (ScanDim){p->loop[at - 1].count * n, d.x, d.y};
      continue;
    }
    if (p->nloop > MOST_LOOPS) return false;
    memmove(p->loop + at + 1, p->loop + at, (p->nloop - at) * sizeof d);
    p->loop[at] = d;
    p->nloop++;
  }
  p->column = p->nloop ? p->loop[--p->nloop] : (ScanDim){1, 0, 0};
  return true;
}

bool match_scan(const Fuse *u, const Stmt *s, ScanPlan *p) {
  const Module *m = u->m;
  const Layout *layout = u->fp->layout;
  uint32_t i;
  *p = (ScanPlan){.add = s->acc};
  if (s->kind != ST_COMP || s->red != RED_SUM || s->nindex != s->nfree + 1u) return false;
  if (!ex_is(m, s->body, OP_WHERE) || !is_zero(m, ex_arg(m, s->body, 2))) return false;
  Id read = ex_arg(m, s->body, 1);
  if (!ex_is(m, read, OP_READ) || !condition(m, s, ex_arg(m, s->body, 0), &i, p)) return false;
  if (!type_fits(m, u->f, s, read) || !fuse_injective(m, u->f, s)) return false;
  // Shorter ones stay loops, which fuse with what is around them.
  if (s->index[i].extent != s->index[s->nfree].extent ||
      s->index[i].extent < m->limits.scan_extent)
    return false;
  Affine x = affine_read(m, layout, s, read), y = affine_lhs(m, u->f, layout, s);
  if (x.nrest || y.nrest || !x.coef[s->nfree] || x.coef[i] || y.coef[s->nfree]) return false;
  p->from = layout[ex(m, read)->integer].buffer;
  p->to = layout[s->lhs].buffer;
  if (p->from == p->to) return false;
  p->from_offset = x.base;
  p->to_offset = y.base;
  p->along = (ScanDim){s->index[i].extent, x.coef[s->nfree], y.coef[i]};
  return other_dims(s, i, &x, &y, p);
}

bool scan_type_fits(const Module *m, Dtype t) {
  return t == DT_I32 || ((t == DT_F32 || t == DT_F64) && t == m->compute);
}
