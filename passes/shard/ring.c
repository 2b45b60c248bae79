// Attention as a ring (Liu et al., 2023): with the queries of a rank's share of the sequence, keys
// and values are read in shares too, and go round. In form A that is a function whose arguments are
// shares, and which makes what it needs of them itself:
//
//   func attention(q @cp split 1, k @cp split 1, v @cp split 1) -> (o @cp split 1, ...) {
//     k.whole = convert k                                        ... then as it was
//
// and of its derivative, dk.part of type sum, then `dk += convert dk.part`. So the rule of sharding
// holds as it stands; pass localise makes of such a function the steps of the ring.
#include "ir/intrinsic.h"
#include "passes/shard/shard.h"

static const Value *argument(const Fn *g, uint32_t i) { return &g->value.at[g->arg.at[i]]; }

bool ring_fits(const Module *m, const Fn *g, uint32_t axis) {
  uint32_t at[NOPERAND];
  if (!m->axis.at[axis].ring || !intrinsic_operands(g, at)) return false;
  int64_t n = argument(g, at[OPD_Q])->extent[1];
  return n == argument(g, at[OPD_K])->extent[1] && n % m->axis.at[axis].size == 0;
}

bool ring_refuses(const Module *m) {
  for (uint32_t a = 0; a < m->axis.n; a++) {
    const Axis *x = &m->axis.at[a];
    uint32_t calls = 0;
    for (Id f = 0; x->ring && f < m->fn.n; f++) {
      const Value *q = intrinsic_queries(&m->fn.at[f]);
      if (!q) continue;
      int64_t n = q->extent[1];
      calls++;
      if (n % x->size == 0) continue;
      diag_error(m->src, 0,
                 "--cp-attention ring: a sequence of %lld does not divide over %lld ranks",
                 (long long)n, (long long)x->size);
      return true;
    }
    if (!x->ring || calls) continue;
    diag_error(m->src, 0, "--cp-attention ring: this model has no attention");
    return true;
  }
  return false;
}

// Whether queries are dealt out, and keys are read whole.
static bool is_gathered(const Shard *q, const Shard *k) {
  return q->kind == SHARD_SPLIT && q->dim == 1 && k->kind == SHARD_WHOLE;
}

void ring_types(const Sharder *z, Id fn, Shard *type) {
  const Fn *g = &z->m->fn.at[fn];
  uint32_t at[NOPERAND];
  if (!ring_fits(z->m, g, z->axis)) return;
  CHECK(intrinsic_operands(g, at));
  if (!is_gathered(&type[g->arg.at[at[OPD_Q]]], &type[g->arg.at[at[OPD_K]]])) return;
  Shard share = type[g->arg.at[at[OPD_Q]]];
  type[g->arg.at[at[OPD_K]]] = type[g->arg.at[at[OPD_V]]] = share;
  if (g->backward) type[g->arg.at[at[OPD_DK]]] = type[g->arg.at[at[OPD_DV]]] = share;
}

// Each rank sends shares of keys and values n - 1 times; backward, of their gradients n times more.
int64_t ring_bytes(const Sharder *z, Id fn) {
  const Fn *g = &z->m->fn.at[fn];
  if (!ring_fits(z->m, g, z->axis)) return 0;
  uint32_t at[NOPERAND];
  CHECK(intrinsic_operands(g, at));
  const Value *k = argument(g, at[OPD_K]);
  int64_t bytes = dtype_size(k->type) * (z->n - 1);
  if (g->backward) bytes += dtype_size(argument(g, at[OPD_DK])->type) * z->n;
  return 2 * value_count(k) / z->n * bytes;
}

// ---- the function of shares

typedef struct Renamed {
  const Fn *f;
  Id from, to;
} Renamed;

static Id rename_read(Module *m, Id e, void *ctx) {
  const Renamed *r = ctx;
  if (!ex_is(m, e, OP_READ) || (Id)ex(m, e)->integer != r->from) return e;
  Id sub[MAX_RANK];
  for (uint32_t d = 0; d < ex(m, e)->narg; d++) sub[d] = ex_arg(m, e, d);
  return ex_read(m, r->f, r->to, sub);
}

// A value like v, laid out as that was; v becomes a share along `axis`.
static Id new_whole(Module *m, Fn *f, Id v, const char *what, uint32_t axis, Shard share) {
  const Value old = f->value.at[v];
  Id to = fn_value(m, f, str_printf("%s.%s", old.name, what), old.type, old.extent, old.rank,
                   ROLE_LOCAL, old.loc);
  memcpy(f->value.at[to].shard, old.shard, sizeof old.shard);
  f->value.at[v].shard[axis] = share;
  return to;
}

// The body reads v from the whole, which is gathered first.
static void take_share(Module *m, Fn *f, Id v, uint32_t axis, Shard share) {
  Renamed r = {f, v, new_whole(m, f, v, "whole", axis, share)};
  for (uint32_t i = 0; i < f->stmt.n; i++)
    if (f->stmt.at[i].kind == ST_COMP)
      f->stmt.at[i].body = ex_map(m, f->stmt.at[i].body, rename_read, &r);
  Stmt s = {.kind = ST_CONVERT, .lhs = r.to, .from = v, .loc = f->loc};
  PUSH(m->arena, f->stmt, s);
  for (uint32_t i = f->stmt.n - 1; i > 0; i--) f->stmt.at[i] = f->stmt.at[i - 1];
  f->stmt.at[0] = s;
}

// The body adds to a partial sum in place of v, which is reduced and scattered last.
static void give_share(Module *m, Fn *f, Id v, uint32_t axis, Shard share) {
  Id part = new_whole(m, f, v, "part", axis, share);
  for (uint32_t i = 0; i < f->stmt.n; i++)
    if (f->stmt.at[i].kind == ST_COMP && f->stmt.at[i].lhs == v) f->stmt.at[i].lhs = part;
  const Value like = f->value.at[v];
  Id sum = fn_value(m, f, str_printf("%s.share", like.name), like.type, like.extent, like.rank,
                    ROLE_LOCAL, like.loc);
  memcpy(f->value.at[sum].shard, like.shard, sizeof like.shard);
  Stmt *s = fn_stmt(m, f, ST_CONVERT, f->loc);
  s->lhs = sum;
  s->from = part;
  Index index[MAX_RANK];
  Id sub[MAX_RANK];
  bare_indices(&like, index);
  for (uint32_t d = 0; d < like.rank; d++) sub[d] = ex_index(m, d);
  fn_comp(m, f, v, sub, true, RED_NONE, index, like.rank, like.rank, ex_read(m, f, sum, sub),
          f->loc);
  s = &f->stmt.at[f->stmt.n - 1];
  for (uint32_t a = 0; a < m->axis.n; a++)
    if (like.shard[a].kind == SHARD_SPLIT)
      s->assign[a] = (Assign){ASSIGN_INDEX, like.shard[a].dim, like.shard[a].block};
}

void ring_wrap(Module *m, Id fn) {
  for (uint32_t a = 0; a < m->axis.n; a++) {
    Fn *f = &m->fn.at[fn];
    uint32_t at[NOPERAND];
    if (!ring_fits(m, f, a)) continue;
    CHECK(intrinsic_operands(f, at));
    Id q = f->arg.at[at[OPD_Q]], k = f->arg.at[at[OPD_K]], v = f->arg.at[at[OPD_V]];
    Shard share = f->value.at[q].shard[a];
    if (!is_gathered(&share, &f->value.at[k].shard[a])) continue;
    take_share(m, f, v, a, share);
    take_share(m, f, k, a, share);
    if (!f->backward) continue;
    give_share(m, f, f->arg.at[at[OPD_DK]], a, share);
    give_share(m, f, f->arg.at[at[OPD_DV]], a, share);
  }
}
