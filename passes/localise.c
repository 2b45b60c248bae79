// localise: the program of the whole becomes the program that each rank runs.
//
// Does: gives every value the extents of a rank's share; makes an index's position, where it is
//       used as a value, the position in the whole; reads and writes along a split dimension, by
//       what is no index, only where this rank has the element; counts whole terms of partial sums
//       on rank 0 only; makes conversions of packing and collectives (localise/move.c).
// Requires: the global form (axes, layouts, assignments), as ir_verify checks it.
// Guarantees: the local form: on the ranks of a mesh the program computes shares of what it
//       computed before. Places past the end of an uneven split hold 0. Functions that ask for
//       their rank take `rank.AXIS` as last arguments. Subscripts stay provable.
// Invalidates: positions of statements; layouts of values, but for gradients that stay partial.
//
// A place past the end holds 0 because each statement that writes it has a condition around its
// body, unless the body is a product with a factor that is 0 there: products stay products.
#include "passes/localise/localise.h"

#include <stdlib.h>

#include "ir/intrinsic.h"
#include "ir/layout.h"
#include "ir/shard.h"
#include "passes/bounds.h"
#include "passes/passes.h"
#include "passes/util.h"

// ---- ranks and places

Id local_rank(Local *x, uint32_t axis) {
  x->rank_used[axis] = true;
  return ex_read(x->m, x->f, x->nold + axis, NULL);
}

static Id fold_idiv(Module *m, Id a, int64_t by) {
  if (by == 1) return a;
  if (ex_is(m, a, OP_INT)) return ex_int(m, ex(m, a)->integer / by);
  return ex2(m, OP_IDIV, a, ex_int(m, by));
}

static Id fold_mod(Module *m, Id a, int64_t by) {
  if (by == 1) return ex_int(m, 0);
  if (ex_is(m, a, OP_INT)) return ex_int(m, ex(m, a)->integer % by);
  return ex2(m, OP_MOD, a, ex_int(m, by));
}

static int64_t opposite(const Module *m, uint32_t axis) { return m->axis.at[axis].size - 1; }

Id local_turn(Module *m, uint32_t axis, Id turn, Id at) {
  if (!m->axis.at[axis].folded || ex_is(m, turn, OP_INT)) {
    bool back = m->axis.at[axis].folded && ex(m, turn)->integer % 2;
    return back ? fold_sub(m, ex_int(m, opposite(m, axis)), at) : at;
  }
  Id forth = ex2(m, OP_EQ, fold_mod(m, turn, 2), ex_int(m, 0));
  return ex3(m, OP_WHERE, forth, at, fold_sub(m, ex_int(m, opposite(m, axis)), at));
}

// One axis, whose ranks have blocks of a dimension of which `extent` places are left by now.
static Id place_on_axis(Local *x, uint32_t axis, int64_t block, int64_t *extent, Id *place) {
  Module *m = x->m;
  int64_t n = m->axis.at[axis].size;
  Id at = *place, rank = local_rank(x, axis), size = ex_int(m, block), owned = NONE;
  bool once = block * n >= *extent, constant = ex_is(m, at, OP_INT); // once: one block a rank
  *extent = once ? block : *extent / n;
  if (once && !constant) {
    *place = fold_sub(m, at, fold_mul(m, rank, size));
  } else {
    *place = fold_add(m, fold_mul(m, fold_idiv(m, at, block * n), size), fold_mod(m, at, block));
    Id owner = fold_idiv(m, at, block);
    if (!once) owner = local_turn(m, axis, fold_idiv(m, owner, n), fold_mod(m, owner, n));
    owned = ex2(m, OP_EQ, owner, rank);
  }
  if (constant) return owned;
  // Of blocks in turn this says nothing new, but is easier to prove from.
  Id low = ex2(m, OP_GE, *place, ex_int(m, 0)), high = ex2(m, OP_LT, *place, ex_int(m, *extent));
  return fold_and(m, owned, ex2(m, OP_AND, low, high));
}

Id local_place(Local *x, const Shard *shard, uint32_t dim, int64_t extent, uint32_t axes, Id at,
               Id *place) {
  uint32_t axis[MAX_AXIS], n = layout_axes(x->m, shard, dim, axis);
  Id cond = NONE;
  *place = at;
  for (uint32_t i = 0; i < n; i++) {
    if (!(axes >> axis[i] & 1)) continue;
    cond = fold_and(x->m, cond, place_on_axis(x, axis[i], shard[axis[i]].block, &extent, place));
  }
  return cond;
}

// ---- indices

// One comprehension on its way.
typedef struct Rewrite {
  Local *x;
  Module *m;
  const Stmt *s; // of the global form
  Shard split[MAX_INDEX][MAX_AXIS]; // each index as a dimension
  int64_t extent[MAX_INDEX]; // local
  uint32_t uneven; // indices with places past the end
  uint32_t spread; // indices of which a position in more than the rank's share was asked
  Id *memo; // for each expression of the global form, as a value
} Rewrite;

static uint32_t axes_of(const Rewrite *r, uint32_t index) {
  uint32_t set = 0;
  for (uint32_t a = 0; a < r->m->axis.n; a++)
    if (r->split[index][a].kind == SHARD_SPLIT) set |= 1u << a;
  return set;
}

static void start_indices(Rewrite *r) {
  const Stmt *s = r->s;
  for (uint32_t i = 0; i < s->nindex; i++) {
    for (uint32_t a = 0; a < r->m->axis.n; a++)
      if (s->assign[a].kind == ASSIGN_INDEX && s->assign[a].index == i)
        r->split[i][a] = shard_split(0, s->assign[a].block);
    const char *fault = layout_fault(r->m, r->split[i], 1, &s->index[i].extent);
    if (fault) BUG("index %s has %s", s->index[i].name, fault);
    int64_t all = r->extent[i] = layout_extent(r->m, r->split[i], 0, s->index[i].extent);
    for (uint32_t a = 0; a < r->m->axis.n; a++)
      if (axes_of(r, i) >> a & 1) all *= r->m->axis.at[a].size;
    if (all > s->index[i].extent) r->uneven |= 1u << i;
  }
}

// Places of an index in an array that is split over the axes of the set only.
static int64_t extent_within(const Rewrite *r, uint32_t index, uint32_t keep) {
  Shard kept[MAX_AXIS] = {0};
  for (uint32_t a = 0; a < r->m->axis.n; a++)
    if (keep >> a & 1) kept[a] = r->split[index][a];
  return layout_extent(r->m, kept, 0, r->s->index[index].extent);
}

// Two turns, forth and back: blocks r and 2 n - 1 - r, the second at places from `block` on.
static Id forth_and_back(Module *m, Id rank, Id at, int64_t n, int64_t block) {
  Id by = ex_int(m, block), back = fold_sub(m, ex_int(m, 2 * n - 2), rank);
  return ex3(m, OP_WHERE, ex2(m, OP_LT, at, by), fold_add(m, fold_mul(m, rank, by), at),
             fold_add(m, fold_mul(m, back, by), at));
}

Id local_position(Module *m, uint32_t axis, Id rank, Id at, int64_t extent, int64_t block) {
  Id by = ex_int(m, block);
  if (extent <= block) return fold_add(m, fold_mul(m, rank, by), at);
  if (m->axis.at[axis].folded && extent == 2 * block)
    return forth_and_back(m, rank, at, m->axis.at[axis].size, block);
  Id turn = fold_idiv(m, at, block), first = fold_mul(m, turn, ex_int(m, m->axis.at[axis].size));
  return fold_add(m, fold_mul(m, ex2(m, OP_ADD, first, local_turn(m, axis, turn, rank)), by),
                  fold_mod(m, at, block));
}

bool local_positions(const Module *m, uint32_t axis, int64_t extent, int64_t block, Positions *to) {
  int64_t n = m->axis.at[axis].size;
  *to = (Positions){.by = {block, block}};
  if (extent <= block) return true;
  if (!m->axis.at[axis].folded || extent != 2 * block) return false;
  *to = (Positions){.by = {block, -block}, .from = {0, (2 * n - 2) * block}, .turn = block};
  return true;
}

// The position of an index in an array that is split over the axes of the set only, all of which
// split the index; the empty set: its position in the whole. From the least block to the greatest,
// as layout_global does it.
static Id position(Rewrite *r, uint32_t index, uint32_t keep) {
  Module *m = r->m;
  uint32_t axis[MAX_AXIS], n = layout_axes(m, r->split[index], 0, axis);
  int64_t extent = r->extent[index], kept = 1;
  Id at = ex_index(m, index);
  for (uint32_t i = n; i-- > 0;) {
    int64_t size = m->axis.at[axis[i]].size, block = r->split[index][axis[i]].block / kept;
    if (keep >> axis[i] & 1) {
      kept *= size;
      continue;
    }
    r->spread |= 1u << index;
    at = local_position(m, axis[i], local_rank(r->x, axis[i]), at, extent, block);
    extent *= size;
  }
  return at;
}

// ---- expressions

static Id value(Rewrite *r, Id e);

// A group whose members became arg[], with these extents: written out where a later member is no
// longer its index.
static Id regroup(Module *m, Id group, const Id *arg, const int64_t *extent) {
  uint32_t n = ex(m, group)->narg;
  bool flat = false;
  for (uint32_t k = 1; k < n; k++) flat |= arg[k] != ex_arg(m, group, k);
  if (!flat) return ex_group(m, arg, n);
  Id at = arg[0];
  for (uint32_t k = 1; k < n; k++) at = fold_add(m, fold_mul(m, at, ex_int(m, extent[k])), arg[k]);
  return at;
}

// A group or an index in an array of which the rank has the places that the set of axes leaves: of
// each index, those that it is on.
static Id grouped(Rewrite *r, Id e, uint32_t keep) {
  Module *m = r->m;
  Expr x = *ex(m, e);
  if (x.op == OP_INDEX)
    return position(r, (uint32_t)x.integer, keep & axes_of(r, (uint32_t)x.integer));
  Id arg[MAX_INDEX];
  int64_t extent[MAX_INDEX] = {0};
  for (uint32_t k = 0; k < x.narg; k++) {
    Id a = ex_arg(m, e, k);
    if (!ex_is(m, a, OP_INDEX)) {
      arg[k] = value(r, a);
      continue;
    }
    uint32_t i = (uint32_t)ex(m, a)->integer, mine = keep & axes_of(r, i);
    arg[k] = position(r, i, mine);
    extent[k] = extent_within(r, i, mine);
  }
  return regroup(m, e, arg, extent);
}

// Whether some index of the set of axes stands in the subscript, bare or in a group.
static uint32_t standing(const Rewrite *r, Id sub) {
  const Expr *x = ex(r->m, sub);
  uint32_t set = 0;
  if (x->op == OP_INDEX) return axes_of(r, (uint32_t)x->integer);
  if (x->op != OP_GROUP) return 0;
  for (uint32_t k = 0; k < x->narg; k++)
    if (ex_is(r->m, ex_arg(r->m, sub, k), OP_INDEX))
      set |= axes_of(r, (uint32_t)ex(r->m, ex_arg(r->m, sub, k))->integer);
  return set;
}

// The places that a subscript counts, of an index or of a group of indices; 0: of what is more.
static int64_t places(const Rewrite *r, Id sub, uint32_t keep) {
  const Expr *x = ex(r->m, sub);
  int64_t n = 1;
  if (x->op == OP_INDEX) {
    uint32_t i = (uint32_t)x->integer;
    return extent_within(r, i, keep & axes_of(r, i));
  }
  for (uint32_t k = 0; k < x->narg; k++)
    n *= ex_is(r->m, ex_arg(r->m, sub, k), OP_INDEX) ? places(r, ex_arg(r->m, sub, k), keep) : 0;
  return n;
}

// Subscript `dim` of a value: its place among those that the rank has. Where an axis splits the
// dimension and none of its indices stands there, *cond is added the condition that the rank has
// it. An index may also count more than the dimension has, under a condition on its position: of
// places that is hard to prove from, so it is said of them too.
static Id subscript(Rewrite *r, const Value *v, uint32_t dim, Id sub, Id *cond) {
  uint32_t axis[MAX_AXIS], n = layout_axes(r->m, v->shard, dim, axis), split = 0;
  for (uint32_t i = 0; i < n; i++) split |= 1u << axis[i];
  uint32_t here = standing(r, sub) & split, guarded = split & ~here;
  Op op = (Op)ex(r->m, sub)->op;
  if (guarded) here = 0, guarded = split; // of a group, one axis may have an index and one none
  Id at = op == OP_INDEX || op == OP_GROUP ? grouped(r, sub, here) : value(r, sub);
  int64_t mine = layout_extent(r->m, v->shard, dim, v->extent[dim]);
  if (!guarded && here && places(r, sub, here) > mine)
    *cond = fold_and(r->m, *cond, ex2(r->m, OP_LT, at, ex_int(r->m, mine)));
  if (!guarded) return at;
  r->x->guarded = true;
  Id place, has = local_place(r->x, v->shard, dim, v->extent[dim], guarded, at, &place);
  *cond = fold_and(r->m, *cond, has);
  return place;
}

static Id read(Rewrite *r, Id e) {
  Expr x = *ex(r->m, e);
  Id v = (Id)x.integer, sub[MAX_RANK] = {0}, cond = NONE;
  if (v >= r->x->nold) return e; // the rank's number
  for (uint32_t d = 0; d < x.narg; d++)
    sub[d] = subscript(r, &r->x->old[v], d, ex_arg(r->m, e, d), &cond);
  Id at = ex_read(r->m, r->x->f, v, sub);
  return cond == NONE ? at : ex3(r->m, OP_WHERE, cond, at, ex_zero(r->m, (Scalar)x.type));
}

// An expression of the global form, where indices are positions in the whole.
static Id value(Rewrite *r, Id e) {
  if (r->memo[e] != NONE) return r->memo[e];
  Expr x = *ex(r->m, e);
  Id arg[64] = {0}, to;
  CHECK(x.narg <= 64);
  if (x.op == OP_READ) {
    to = read(r, e);
  } else if (x.op == OP_INDEX || x.op == OP_GROUP) {
    to = grouped(r, e, 0);
  } else {
    for (uint32_t k = 0; k < x.narg; k++) arg[k] = value(r, ex_arg(r->m, e, k));
    to = ex_like(r->m, e, x.integer, arg);
  }
  return r->memo[e] = to;
}

// ---- comprehensions

// The body with whole terms of partial sums counted on rank 0 only, on every axis in turn.
static Id masked(Local *x, const Stmt *s) {
  Module *m = x->m;
  Stmt t = *s;
  Shard *type = NEWN(m->arena, Shard, x->f->value.n + 1);
  for (uint32_t a = 0; a < m->axis.n; a++) {
    if (s->assign[a].kind != ASSIGN_NONE) continue;
    for (Id v = 0; v < x->nold; v++) type[v] = x->old[v].shard[a];
    ShardAsk q = {m, x->f, &t, a, type};
    Shard to = type[s->lhs];
    bool whole = s->acc && to.kind == SHARD_PARTIAL && to.op == RED_SUM;
    uint32_t masks = 0;
    shard_mask(m, &q, whole, NONE, &masks);
    if (!masks) continue;
    x->guarded = true;
    Id rank0 = ex2(m, OP_EQ, local_rank(x, a), ex_int(m, 0));
    t.body = shard_mask(m, &q, whole, rank0, NULL);
  }
  return t.body;
}

// Whether a body is 0 where index i is past the end: a product with a factor that is read there.
static bool vanishes(const Rewrite *r, Id e, uint32_t i) {
  const Expr *x = ex(r->m, e);
  switch (x->op) {
  case OP_READ:
    for (uint32_t d = 0; d < x->narg; d++) {
      Id sub = ex_arg(r->m, e, d);
      if (ex_is(r->m, sub, OP_GROUP)) sub = ex_arg(r->m, sub, 0);
      if (ex_is(r->m, sub, OP_INDEX) && ex(r->m, sub)->integer == i) return true;
    }
    return false;
  case OP_NEG: return vanishes(r, ex_arg(r->m, e, 0), i);
  case OP_MUL: return vanishes(r, ex_arg(r->m, e, 0), i) || vanishes(r, ex_arg(r->m, e, 1), i);
  default: return false;
  }
}

static void note_read(const Module *m, Id read, void *found) {
  (void)m;
  (void)read;
  *(bool *)found = true;
}

// A product of reads, none of them at a place that was read: past the end that is 0.
static bool plain_product(const Module *m, Id e) {
  const Expr *x = ex(m, e);
  bool gather = false;
  if (x->op == OP_READ)
    for (uint32_t d = 0; d < x->narg; d++) ex_reads(m, ex_arg(m, e, d), note_read, &gather);
  if (x->op == OP_READ || x->op == OP_REAL) return !gather;
  if (x->op == OP_NEG) return plain_product(m, ex_arg(m, e, 0));
  return x->op == OP_MUL && plain_product(m, ex_arg(m, e, 0)) && plain_product(m, ex_arg(m, e, 1));
}

// The condition that the indices of the set are not past the end.
static Id inside(Rewrite *r, uint32_t set) {
  Id cond = NONE;
  for (uint32_t i = 0; i < r->s->nindex; i++) {
    if (!(set & r->uneven & 1u << i)) continue;
    Id end = ex_int(r->m, r->s->index[i].extent);
    cond = fold_and(r->m, cond, ex2(r->m, OP_LT, position(r, i, 0), end));
    r->x->guarded = true;
  }
  return cond;
}

// The indices past whose ends the body is 0 by itself.
static uint32_t vanishing(const Rewrite *r, Id body) {
  uint32_t set = 0;
  if (r->s->red > RED_MEAN || !plain_product(r->m, body)) return 0;
  for (uint32_t i = 0; i < r->s->nindex; i++)
    if (!(r->spread >> i & 1) && vanishes(r, body, i)) set |= 1u << i;
  return set;
}

static Id guard_body(Rewrite *r, Id body, Id write) {
  Module *m = r->m;
  const Stmt *s = r->s;
  Scalar type = (Scalar)ex(m, body)->type;
  uint32_t ask = ~vanishing(r, body), frees = (1u << s->nfree) - 1;
  Id bound = inside(r, ask & ~frees), free = inside(r, ask & frees);
  if (bound != NONE)
    body = ex3(m, OP_WHERE, bound, body, reduction_identity(m, s, s->body));
  free = fold_and(m, free, write);
  return free == NONE ? body : ex3(m, OP_WHERE, free, body, ex_zero(m, type));
}

// The indices past whose ends a subscript of the left side may be anywhere: those that it uses in
// other ways than as places of the rank's share.
static uint32_t stray(Rewrite *r, Id sub, uint32_t spread) {
  const Expr *x = ex(r->m, sub);
  if (x->op == OP_INDEX) return spread;
  if (x->op != OP_GROUP) return ex_indices(r->m, sub);
  Id first = ex_arg(r->m, sub, 0);
  return spread | (ex_is(r->m, first, OP_INDEX) ? 0 : ex_indices(r->m, first));
}

// The left side's subscripts, and the condition under which this rank has the place. Where nothing
// is added, the place is 0.
static Id left_side(Rewrite *r, Id *sub) {
  Module *m = r->m;
  const Stmt *s = r->s;
  const Value *v = &r->x->old[s->lhs];
  Id write = NONE;
  for (uint32_t d = 0; d < v->rank; d++) {
    Id cond = NONE;
    uint32_t before = r->spread;
    r->spread = 0;
    sub[d] = subscript(r, v, d, s->sub[d], &cond);
    write = fold_and(m, write, cond);
    cond = fold_and(m, inside(r, stray(r, s->sub[d], r->spread)), cond);
    if (cond != NONE) sub[d] = ex3(m, OP_WHERE, cond, sub[d], ex_int(m, 0));
    r->spread |= before;
  }
  return write;
}

// A mean over indices that the ranks share is a sum over the ranks, divided by the number of all.
static Id mean_as_sum(Rewrite *r, Stmt *t, Id body) {
  double points = 1;
  bool shared = false;
  for (uint32_t i = r->s->nfree; i < r->s->nindex; i++) {
    points *= (double)r->s->index[i].extent;
    shared |= axes_of(r, i) != 0;
  }
  if (t->red != RED_MEAN || !shared) return body;
  t->red = RED_SUM;
  return fold_div(r->m, body, ex_real(r->m, points));
}

static void comprehension(Local *x, const Stmt *s) {
  Module *m = x->m;
  Stmt from = *s, t = stmt_copy(m, x->f, s);
  from.body = masked(x, s);
  Rewrite r = {.x = x, .m = m, .s = &from, .memo = malloc((m->expr.n + 1) * sizeof(Id))};
  ALLOCATED(r.memo);
  memset(r.memo, 0xff, (m->expr.n + 1) * sizeof(Id));
  if (s->red == RED_ARGMAX)
    for (uint32_t a = 0; a < m->axis.n; a++)
      CHECK(s->assign[a].kind != ASSIGN_INDEX || s->assign[a].index < s->nfree);
  start_indices(&r);
  for (uint32_t i = 0; i < s->nindex; i++) t.index[i].extent = r.extent[i];
  memset(t.assign, 0, sizeof t.assign);
  t.read_loc = NULL;
  t.sub = NEWN(m->arena, Id, MAX_RANK);
  Id body = value(&r, from.body);
  Id write = left_side(&r, t.sub);
  t.body = mean_as_sum(&r, &t, guard_body(&r, body, write));
  free(r.memo);
  PUSH(m->arena, x->f->stmt, t);
}

// ---- before: sums of which one rank counts the whole

static Shard result_on(Module *m, const Fn *f, const Stmt *s, uint32_t axis) {
  Shard *type = NEWN(m->arena, Shard, f->value.n + 1), to;
  shard_types(f, axis, type);
  ShardAsk q = {m, f, s, axis, type};
  if (!shard_result(&q, s->assign[axis], &to, NULL)) BUG("a statement breaks the rule of sharding");
  return to;
}

// The layout on one axis of what is summed up, by the free indices in their order.
static Shard term_on(Module *m, const Fn *f, const Stmt *s, uint32_t axis) {
  Assign a = s->assign[axis];
  if (a.kind == ASSIGN_INDEX && a.index < s->nfree) return shard_split(a.index, a.block);
  return result_on(m, f, s, axis);
}

// Whether a whole sum is added to a partial accumulator: on rank 0 only.
static bool counts_once(Module *m, const Fn *f, const Stmt *s) {
  bool once = false;
  if (s->kind != ST_COMP || !s->acc || s->red != RED_SUM || s->nfree > MAX_RANK) return false;
  for (uint32_t a = 0; a < m->axis.n; a++) {
    if (s->assign[a].kind == ASSIGN_WRITE) return false;
    once |= s->assign[a].kind == ASSIGN_NONE &&
            f->value.at[s->lhs].shard[a].kind == SHARD_PARTIAL &&
            result_on(m, f, s, a).kind == SHARD_WHOLE;
  }
  return once;
}

// acc += sum(x) becomes t = sum(x), acc += t: the condition stays out of the sum, which may be a
// matrix product.
static void lift_sum(Module *m, Fn *f, const Stmt *s) {
  Value like = f->value.at[s->lhs];
  int64_t extent[MAX_RANK] = {0};
  Id index[MAX_RANK] = {0};
  for (uint32_t i = 0; i < s->nfree; i++) {
    extent[i] = s->index[i].extent;
    index[i] = ex_index(m, i);
  }
  Id t = fn_value(m, f, str_printf("%s.term", like.name), like.type, extent, s->nfree, ROLE_LOCAL,
                  s->loc);
  for (uint32_t a = 0; a < m->axis.n; a++) f->value.at[t].shard[a] = term_on(m, f, s, a);
  Stmt sum = stmt_copy(m, f, s), add = stmt_copy(m, f, s);
  sum.lhs = t;
  sum.acc = false;
  sum.sub = arena_copy(m->arena, index, sizeof index);
  add.red = RED_NONE;
  add.nindex = s->nfree;
  add.body = ex_read(m, f, t, index);
  for (uint32_t a = 0; a < m->axis.n; a++)
    if (add.assign[a].kind == ASSIGN_INDEX && add.assign[a].index >= s->nfree)
      add.assign[a] = (Assign){0};
  PUSH(m->arena, f->stmt, sum);
  PUSH(m->arena, f->stmt, add);
}

static void lift_sums(Module *m, Fn *f) {
  uint32_t n = f->stmt.n;
  const Stmt *stmt = f->stmt.at;
  f->stmt.at = NULL;
  f->stmt.n = f->stmt.cap = 0;
  for (uint32_t i = 0; i < n; i++)
    if (counts_once(m, f, &stmt[i])) lift_sum(m, f, &stmt[i]);
    else PUSH(m->arena, f->stmt, stmt[i]);
}

// ---- functions

// The callee is done: it gets the numbers that it asks for.
static void call(Local *x, const Stmt *s) {
  Module *m = x->m;
  Stmt t = stmt_copy(m, x->f, s);
  const Fn *callee = &m->fn.at[t.call->fn];
  while (t.call->narg < callee->arg.n) {
    const Value *formal = &callee->value.at[callee->arg.at[t.call->narg]];
    uint32_t axis = formal->of;
    CHECK(formal->means == MEANS_RANK);
    x->rank_used[axis] = true;
    call_add_arg(m, t.call, ACT_WHOLE, x->nold + axis);
  }
  PUSH(m->arena, x->f->stmt, t);
}

// Values get their local extents; the ranks' numbers stand behind them.
static void start_values(Local *x) {
  Module *m = x->m;
  Fn *f = x->f;
  x->nold = f->value.n;
  Value *old = NEWN(m->arena, Value, f->value.n + 1);
  if (f->value.n) memcpy(old, f->value.at, f->value.n * sizeof *old);
  x->old = old;
  for (Id v = 0; v < f->value.n; v++) {
    Value *t = &f->value.at[v];
    for (uint32_t d = 0; d < t->rank; d++)
      t->extent[d] = layout_extent(m, old[v].shard, d, old[v].extent[d]);
    for (uint32_t a = 0; a < MAX_AXIS; a++) // a gradient may be handed out as each rank's part
      if (t->role != ROLE_INOUT || t->shard[a].kind != SHARD_PARTIAL) t->shard[a] = shard_whole();
  }
  for (uint32_t a = 0; a < m->axis.n; a++)
    fn_rank_arg(m, f, a, ROLE_LOCAL);
}

static void finish_values(Local *x) {
  Fn *f = x->f;
  for (uint32_t a = 0; a < x->m->axis.n; a++) {
    if (!x->rank_used[a]) continue;
    f->value.at[x->nold + a].role = ROLE_IN;
    PUSH(x->m->arena, f->arg, x->nold + a);
  }
  fn_compact(x->m, f);
}

static bool exchanges(const Fn *f) {
  for (uint32_t i = 0; i < f->stmt.n; i++)
    if (f->stmt.at[i].kind == ST_COLL) return true;
  return false;
}

// Where a rank's queries or keys stand in the whole, by its number on an axis; NONE: all are there.
typedef struct Stands {
  Positions at;
  uint32_t axis;
} Stands;

// False where no Positions says it.
static bool find_positions(Local *x, Operand of, Stands *to) {
  const Value *v = &x->old[x->f->arg.at[of]];
  uint32_t axis[MAX_AXIS], n = layout_axes(x->m, v->shard, 1, axis);
  *to = (Stands){.axis = NONE};
  if (n == 0) return true;
  to->axis = axis[0];
  x->rank_used[to->axis] = true;
  return n == 1 && local_positions(x->m, to->axis, x->f->value.at[x->f->arg.at[of]].extent[1],
                                   v->shard[to->axis].block, &to->at);
}

static void set_positions(Local *x, Operand of, Stands *s) {
  uint32_t i = x->f->arg.n;
  if (s->axis == NONE) return;
  for (const Value *v = NULL; !v || v->means != MEANS_RANK || v->of != s->axis;)
    v = &x->f->value.at[x->f->arg.at[--i]];
  s->at.arg = (uint8_t)i;
  intrinsic_place(x->f, of, s->at);
}

// Whether an intrinsic is one still, on this rank's share: it is not where ranks exchange values or
// parts of it are guarded. Then it becomes part of its callers. Says where queries and keys stand.
static bool place_intrinsic(Local *x, Stands *q, Stands *k) {
  if (exchanges(x->f) || x->guarded) return false;
  return !intrinsic_uses_places(x->f) ||
         (find_positions(x, OPD_Q, q) && find_positions(x, OPD_K, k));
}

// part: for each function, that of a step of its ring, or NONE.
static void function(Module *m, Id fn, bool *done, const Id *part) {
  if (done[fn]) return;
  done[fn] = true;
  Fn *f = &m->fn.at[fn];
  for (uint32_t i = 0; i < f->stmt.n; i++)
    if (f->stmt.at[i].call) function(m, f->stmt.at[i].call->fn, done, part);
  lift_sums(m, f);
  local_merge(m, f, f->stmt.at, &f->stmt.n);
  uint32_t n = f->stmt.n;
  const Stmt *stmt = f->stmt.at;
  Local x = {.m = m, .f = f};
  start_values(&x);
  f->stmt.at = NULL;
  f->stmt.n = f->stmt.cap = 0;
  if (part[fn] != NONE) local_ring(&x, part[fn]);
  for (uint32_t i = 0; i < n && part[fn] == NONE; i++) {
    if (stmt[i].kind == ST_COMP)
      comprehension(&x, &stmt[i]);
    else if (stmt[i].call)
      call(&x, &stmt[i]);
    else
      local_convert(&x, &stmt[i]);
  }
  Stands q = {.axis = NONE}, k = q;
  if (f->intrinsic && !place_intrinsic(&x, &q, &k)) f->intrinsic = INTR_NONE;
  finish_values(&x);
  if (!f->intrinsic) return;
  set_positions(&x, OPD_Q, &q);
  set_positions(&x, OPD_K, &k);
}

bool pass_localise(Module *m) {
  if (!m->axis.n || m->spmd) return true;
  uint32_t n = m->fn.n;
  bool *done = NEWN(m->arena, bool, n + 1);
  const Id *part = local_ring_parts(m);
  for (Id f = 0; f < n; f++) function(m, f, done, part);
  m->spmd = true;
  return m->fn.n == n || pass_inline(m);
}
