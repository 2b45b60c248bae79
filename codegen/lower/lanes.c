// Which index runs across vector lanes, and what an access costs there.
#include "codegen/lower/fuse.h"

typedef struct Accesses {
  const Fuse *u;
  const Stmt *s;
  AccessVisit *visit;
  void *ctx;
} Accesses;

static void visit_read(const Module *m, Id read, void *ctx) {
  Accesses *x = ctx;
  Affine a = affine_read(m, x->u->fp->layout, x->s, read);
  x->visit(x->u, x->s, read, &a, x->ctx);
}

void fuse_accesses(const Fuse *u, const Stmt *s, AccessVisit *visit, void *ctx) {
  Accesses x = {u, s, visit, ctx};
  comp_reads(u->m, u->f, s, visit_read, &x);
  Affine a = affine_lhs(u->m, u->f, u->fp->layout, s);
  visit(u, s, NONE, &a, ctx);
}

// INDEX and GROUP nodes that are not subscripts.
static uint32_t bare_values(const Module *m, Id id) {
  const Expr *e = ex(m, id);
  if (e->op == OP_READ) return 0; // its subscripts: see rest_of
  if (e->op == OP_INDEX || e->op == OP_GROUP) return ex_indices(m, id);
  uint32_t set = 0;
  for (uint32_t i = 0; i < e->narg; i++) set |= bare_values(m, ex_arg(m, id, i));
  return set;
}

static void rest_of(const Fuse *u, const Stmt *s, Id read, const Affine *a, void *ctx) {
  (void)s, (void)read;
  *(uint32_t *)ctx |= affine_rest_indices(u->m, a);
}

uint32_t fuse_value_indices(const Fuse *u, const Stmt *s) {
  uint32_t set = bare_values(u->m, s->body);
  fuse_accesses(u, s, rest_of, &set);
  return set;
}

// Of one vector of points along an index, in units of a contiguous load: a gather of 16 lanes is
// some ten of them, a load for all lanes a quarter.
typedef struct LaneCost {
  uint32_t index;
  double cost;
  bool impossible;
} LaneCost;

static void lane_access(const Fuse *u, const Stmt *s, Id read, const Affine *a, void *ctx) {
  LaneCost *c = ctx;
  bool rest = affine_rest_indices(u->m, a) >> c->index & 1, lhs = read == NONE;
  int64_t coef = a->coef[c->index];
  if (lhs && (rest || (!coef && c->index < s->nfree))) c->impossible = true;
  else if (rest) c->cost += 10;
  else if (coef == 1) c->cost += 1;
  else if (!coef) c->cost += lhs ? 0 : 0.25;
  else c->cost += lhs ? 16 : 10;
}

double fuse_lane_cost(const Fuse *u, const Stmt *s, uint32_t index, int64_t extent) {
  LaneCost c = {.index = index};
  if (index < s->nfree && s->acc && !fuse_owned(u->m, u->f, s, index)) return -1;
  fuse_accesses(u, s, lane_access, &c);
  if (c.impossible) return -1;
  double n = (double)extent, lanes = 16, blocks = (double)((extent + 15) / 16);
  double cost = (c.cost + 1) * blocks * lanes / n;
  return index < s->nfree ? cost : cost + 24 / n; // a bound one ends in a fold of the lanes
}

static void count_access(const Fuse *u, const Stmt *s, Id read, const Affine *a, void *ctx) {
  (void)u, (void)s, (void)read, (void)a;
  *(double *)ctx += 1;
}

double fuse_scalar_cost(const Fuse *u, const Stmt *s) {
  double n = 1;
  fuse_accesses(u, s, count_access, &n);
  return n * 16;
}

uint8_t fuse_vec(const Fuse *u, const Stmt *s) {
  uint8_t best = NO_VAR;
  double least = fuse_scalar_cost(u, s);
  for (uint32_t i = 0; i < s->nindex; i++) {
    if (s->index[i].extent < 2) continue;
    double cost = fuse_lane_cost(u, s, i, s->index[i].extent);
    if (cost >= 0 && cost <= least) best = (uint8_t)i, least = cost;
  }
  return best;
}

double fuse_flops(const Module *m, Id id) {
  const Expr *e = ex(m, id);
  double n = 0;
  for (uint32_t i = 0; i < e->narg; i++) n += fuse_flops(m, ex_arg(m, id, i));
  if (e->op == OP_READ || e->op == OP_GROUP) return 0;
  return e->type == SC_REAL && op_info[e->op].rule != RULE_LEAF ? n + (e->op == OP_FMA ? 2 : 1) : n;
}

bool fuse_has_random(const Module *m, Id id) {
  const Expr *e = ex(m, id);
  if (e->op == OP_RANDOM) return true;
  for (uint32_t i = 0; i < e->narg; i++)
    if (fuse_has_random(m, ex_arg(m, id, i))) return true;
  return false;
}
