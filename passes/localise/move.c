// A conversion as packing and collectives. It changes the layout on one axis. Along the dimension
// that an axis splits in blocks, places of the array that is not split over it are (q r c): turn q,
// rank r, place c in the block; a rank's are (q c). On a folded axis r counts down where q is odd.
//
//   partial -> whole    y = all_reduce x
//   partial -> split    t[r, .., (q c), ..] = x[.., (q r c), ..];      y = reduce_scatter t
//   split -> whole      g = all_gather x;      y[.., (q r c), ..] = g[r, .., (q c), ..]
//   split -> split      t[r, .., (q' c'), ..] = x[.., (q' r c'), ..];  u = all_to_all t;
//                       y[.., (q r c), ..] = u[r, .., (q c), ..]
//   whole -> split      y[.., (q c), ..] = x[.., ((q * n + rank) * C + c), ..]
//   whole -> partial    y[..] = where(rank == 0, x[..], 0)
//
// Two conversions in a row over the factors of an axis are one over the axis, where the factors lay
// out both ends as it would.
#include "ir/layout.h"
#include "ir/shard.h"
#include "passes/localise/localise.h"
#include "passes/util.h"

// A conversion: `at` holds the elements, laid out by shard.
typedef struct Move {
  Local *x;
  Module *m;
  const Value *to; // of the global form: extents, type, name
  Shard shard[MAX_AXIS];
  Id at, loc;
  Id out; // what the conversion defines
  bool both; // it changes the layout on both factors of an axis, of which `axis` is the inner one
} Move;

// How an axis cuts its dimension: ceil(places / (block * n)) turns of n blocks. `places` are those
// of an array that is not split over the axis.
typedef struct Cut {
  uint32_t axis, dim;
  int64_t turns, n, block, places;
  bool uneven;
} Cut;

static Cut cut_of(const Move *v, const Shard *shard, uint32_t axis) {
  Shard rest[MAX_AXIS];
  memcpy(rest, shard, sizeof rest);
  rest[axis] = (Shard){0};
  if (v->both) rest[axis_other(v->m, axis)] = (Shard){0};
  Cut c = {.axis = axis, .dim = shard[axis].dim, .n = v->m->axis.at[axis].size};
  if (v->both) c.n *= v->m->axis.at[axis_other(v->m, axis)].size;
  c.block = layout_block(v->m, shard, axis);
  c.places = layout_extent(v->m, rest, c.dim, v->to->extent[c.dim]);
  c.turns = (c.places - 1) / (c.block * c.n) + 1;
  c.uneven = c.turns * c.block * c.n > c.places;
  return c;
}

// ---- a statement that moves elements

// y[r?, i, .., ] = x[r?, i, ..]: one index for each dimension, but where a cut says q, r and c.
typedef struct Copy {
  Module *m;
  Index index[MAX_INDEX];
  Id to[MAX_RANK + 1], from[MAX_RANK + 1]; // subscripts
  uint32_t nindex, nto, nfrom;
  Id cond;
} Copy;

static Id new_index(Copy *c, const char *name, int64_t extent) {
  if (c->nindex == MAX_INDEX) BUG("a conversion has too many indices");
  c->index[c->nindex] = (Index){.name = str_intern(name), .extent = extent};
  return ex_index(c->m, c->nindex++);
}

static Id group_of(Copy *c, const Id *member, uint32_t n) {
  Id some[3];
  uint32_t k = 0;
  for (uint32_t i = 0; i < n; i++)
    if (member[i] != NONE) some[k++] = member[i];
  return k == 1 ? some[0] : ex_group(c->m, some, k);
}

static const char *const dim_name[] = {"i", "j", "k", "l", "m", "n", "o", "p"};

// The indices of a cut, made in the order in which they stand on the left; NONE: of extent 1, left
// out.
typedef struct CutIndex {
  Id q, r, c;
} CutIndex;

static Id turn_index(Copy *c, const Cut *k) {
  return k->turns > 1 ? new_index(c, "q", k->turns) : NONE;
}

static Id block_index(Copy *c, const Cut *k) {
  return k->block > 1 || k->turns == 1 ? new_index(c, "c", k->block) : NONE;
}

// The number of rank r in turn q, or of the place r in that turn: one is the other.
static Id turned(Copy *c, const Cut *k, Id q, Id r) {
  return q == NONE ? r : local_turn(c->m, k->axis, q, r);
}

// Dimension d of an array that is split by the cut: (q c).
static Id share_sub(Copy *c, const CutIndex *i) { return group_of(c, (Id[]){i->q, i->c}, 2); }

// The same of an array that is not, on the left: (q r c).
static Id whole_sub(Copy *c, const CutIndex *i) { return group_of(c, (Id[]){i->q, i->r, i->c}, 3); }

// And of what is read, for rank r.
static Id rank_sub(Copy *c, const Cut *k, const CutIndex *i) {
  Id at = turned(c, k, i->q, i->r);
  if (at == i->r) return whole_sub(c, i);
  at = fold_add(c->m, fold_mul(c->m, i->q, ex_int(c->m, k->n)), at);
  return i->c == NONE ? at : ex_group(c->m, (Id[]){at, i->c}, 2);
}

static void emit(Move *v, Copy *c, Id to, Id from) {
  Id body = ex_read(v->m, v->x->f, from, c->from);
  Dtype t = v->x->f->value.at[to].type;
  Scalar was = (Scalar)ex(v->m, body)->type;
  if (t != DT_BOOL && was == SC_BOOL) body = ex1(v->m, OP_TO_INT, body);
  if (t == DT_BOOL && was == SC_INT) body = ex2(v->m, OP_NE, body, ex_int(v->m, 0));
  if (c->cond != NONE) {
    Id zero = t == DT_BOOL ? ex_bool(v->m, false) : ex_zero(v->m, scalar_of(t));
    body = ex3(v->m, OP_WHERE, c->cond, body, zero);
  }
  fn_comp(v->m, v->x->f, to, c->to, false, RED_NONE, c->index, c->nindex, c->nindex, body, v->loc);
}

// t[r, .., (q c), ..] = x[.., (q r c), ..]
static void pack(Move *v, const Cut *k, Id to) {
  Copy c = {.m = v->m, .cond = NONE};
  CutIndex i = {.r = new_index(&c, "r", k->n)};
  const Value *x = &v->x->f->value.at[v->at];
  c.to[c.nto++] = i.r;
  for (uint32_t d = 0; d < x->rank; d++) {
    if (d != k->dim) {
      c.to[c.nto++] = c.from[d] = new_index(&c, dim_name[d], x->extent[d]);
      continue;
    }
    i.q = turn_index(&c, k);
    i.c = block_index(&c, k);
    c.to[c.nto++] = share_sub(&c, &i);
    c.from[d] = rank_sub(&c, k, &i);
    if (k->uneven) c.cond = ex2(v->m, OP_LT, c.from[d], ex_int(v->m, k->places));
  }
  emit(v, &c, to, v->at);
}

// y[.., (q r c), ..] = g[r, .., (q c), ..]
static void unpack(Move *v, const Cut *k, Id to, Id from) {
  Copy c = {.m = v->m, .cond = NONE};
  CutIndex i = {0};
  const Value *y = &v->x->f->value.at[to];
  for (uint32_t d = 0; d < y->rank; d++) {
    if (d != k->dim) {
      c.to[d] = c.from[1 + d] = new_index(&c, dim_name[d], y->extent[d]);
    } else if (k->uneven) { // one turn
      Id at = c.to[d] = new_index(&c, dim_name[d], y->extent[d]), by = ex_int(v->m, k->block);
      c.from[0] = k->block == 1 ? at : ex2(v->m, OP_IDIV, at, by);
      c.from[1 + d] = k->block == 1 ? ex_int(v->m, 0) : ex2(v->m, OP_MOD, at, by);
    } else {
      i.q = turn_index(&c, k);
      i.r = new_index(&c, "r", k->n);
      i.c = block_index(&c, k);
      c.from[0] = turned(&c, k, i.q, i.r);
      c.to[d] = whole_sub(&c, &i);
      c.from[1 + d] = share_sub(&c, &i);
    }
  }
  emit(v, &c, to, from);
}

// y[.., (q c), ..] = x[.., ((q * n + rank) * C + c), ..]
static void slice(Move *v, const Cut *k, Id to) {
  Module *m = v->m;
  Copy c = {.m = m, .cond = NONE};
  const Value *y = &v->x->f->value.at[to];
  for (uint32_t d = 0; d < y->rank; d++) {
    if (d != k->dim) {
      c.to[d] = c.from[d] = new_index(&c, dim_name[d], y->extent[d]);
      continue;
    }
    CutIndex i = {.q = turn_index(&c, k)};
    i.c = block_index(&c, k);
    Id turn = turned(&c, k, i.q, local_rank(v->x, k->axis));
    if (k->turns > 1) turn = fold_add(m, fold_mul(m, i.q, ex_int(m, k->n)), turn);
    c.to[d] = share_sub(&c, &i);
    c.from[d] = fold_mul(m, turn, ex_int(m, k->block));
    if (i.c != NONE) c.from[d] = fold_add(m, c.from[d], i.c);
    if (k->uneven) c.cond = ex2(m, OP_LT, c.from[d], ex_int(m, k->places));
  }
  emit(v, &c, to, v->at);
}

// y[..] = x[..], where rank: on that rank of the axis only.
static void copy(Move *v, Id to, Id from, Id cond) {
  Copy c = {.m = v->m, .cond = cond};
  const Value *y = &v->x->f->value.at[to];
  for (uint32_t d = 0; d < y->rank; d++)
    c.to[d] = c.from[d] = new_index(&c, dim_name[d], y->extent[d]);
  emit(v, &c, to, from);
}

// ---- collectives

static Id temporary(Move *v, const char *what, Dtype t, const int64_t *extent, uint32_t rank) {
  Str name = str_printf("%s.%s", v->to->name, what);
  return fn_value(v->m, v->x->f, name, t, extent, rank, ROLE_LOCAL, v->to->loc);
}

// Ranks exchange no bools.
static Dtype wire_type(const Move *v) { return v->to->type == DT_BOOL ? DT_I32 : v->to->type; }

static void collective(Move *v, CollKind kind, Red red, uint32_t axis, Id to, Id from) {
  Stmt *s = fn_stmt(v->m, v->x->f, ST_COLL, v->loc);
  s->coll = kind;
  s->red = red;
  s->axis = (uint8_t)axis;
  s->both = v->both;
  s->lhs = to;
  s->from = from;
}

// Extents of what `shard` leaves of the value, with one more leading extent where that is not 0.
static uint32_t extents(const Move *v, const Shard *shard, int64_t lead, int64_t *extent) {
  uint32_t n = 0;
  if (lead) extent[n++] = lead;
  if (v->to->rank + n > MAX_RANK) BUG("`%s` has too many dimensions to be exchanged", v->to->name);
  for (uint32_t d = 0; d < v->to->rank; d++)
    extent[n++] = layout_extent(v->m, shard, d, v->to->extent[d]);
  return n;
}

static void gather(Move *v, const Cut *k, Id to) {
  int64_t extent[MAX_RANK];
  Id from = v->at;
  if (v->to->type == DT_BOOL) {
    from = temporary(v, "bits", DT_I32, extent, extents(v, v->shard, 0, extent));
    copy(v, from, v->at, NONE);
  }
  Id all = temporary(v, "all", wire_type(v), extent, extents(v, v->shard, k->n, extent));
  collective(v, COLL_ALL_GATHER, RED_NONE, k->axis, all, from);
  unpack(v, k, to, all);
}

static void reduce_scatter(Move *v, const Cut *k, const Shard *next, Red red, Id to) {
  int64_t extent[MAX_RANK];
  Id parts = temporary(v, "parts", v->to->type, extent, extents(v, next, k->n, extent));
  pack(v, k, parts);
  collective(v, COLL_REDUCE_SCATTER, red, k->axis, to, parts);
}

// Split along another dimension: pieces by the new cut, put together by the old one.
static void exchange(Move *v, const Cut *old, const Cut *new, Id to) {
  int64_t extent[MAX_RANK];
  Shard both[MAX_AXIS];
  memcpy(both, v->shard, sizeof both);
  uint32_t rank = extents(v, both, new->n, extent);
  extent[1 + new->dim] = new->turns *new->block;
  Id parts = temporary(v, "parts", wire_type(v), extent, rank);
  Id pieces = temporary(v, "pieces", wire_type(v), extent, rank);
  pack(v, new, parts);
  collective(v, COLL_ALL_TO_ALL, RED_NONE, new->axis, pieces, parts);
  unpack(v, old, to, pieces);
}

// ---- which

static void whole_to(Move *v, uint32_t axis, const Shard *want) {
  if (want[axis].kind == SHARD_PARTIAL) {
    copy(v, v->out, v->at, ex2(v->m, OP_EQ, local_rank(v->x, axis), ex_int(v->m, 0)));
    return;
  }
  Cut k = cut_of(v, want, axis);
  slice(v, &k, v->out);
}

static void partial_to(Move *v, uint32_t axis, const Shard *want) {
  Red red = (Red)v->shard[axis].op;
  if (want[axis].kind == SHARD_WHOLE) {
    collective(v, COLL_ALL_REDUCE, red, axis, v->out, v->at);
    return;
  }
  Cut k = cut_of(v, want, axis);
  reduce_scatter(v, &k, want, red, v->out);
}

static void split_to(Move *v, uint32_t axis, const Shard *want) {
  Cut old = cut_of(v, v->shard, axis);
  if (want[axis].kind == SHARD_WHOLE) {
    gather(v, &old, v->out);
    return;
  }
  Cut new = cut_of(v, want, axis);
  if (old.dim != new.dim) {
    exchange(v, &old, &new, v->out);
    return;
  }
  Shard whole[MAX_AXIS]; // other blocks of the same dimension: by way of the whole
  int64_t extent[MAX_RANK];
  memcpy(whole, want, sizeof whole);
  whole[axis] = (Shard){0};
  Id all = temporary(v, "whole", v->to->type, extent, extents(v, whole, 0, extent));
  gather(v, &old, all);
  v->at = all;
  slice(v, &new, v->out);
}

static uint32_t changed_axis(const Module *m, const Shard *from, const Shard *to) {
  for (uint32_t a = 0; a < m->axis.n; a++)
    if (!shard_same(from[a], to[a])) return a;
  BUG("a conversion changes nothing");
}

// Whether the factors of an axis, `inner` and the other, lay a value out as the axis would: alike,
// the inner one's blocks following one another within the outer one's.
static bool as_one(const Module *m, const Shard *shard, uint32_t inner) {
  Shard x = shard[inner], y = shard[axis_other(m, inner)];
  if (x.kind != SHARD_SPLIT) return shard_same(x, y);
  return y.kind == SHARD_SPLIT && x.dim == y.dim && y.block == x.block * m->axis.at[inner].size;
}

// Whether the first conversion and the second together are one over both factors of an axis.
static bool is_one(const Module *m, const Shard *from, const Shard *middle, const Shard *to) {
  uint32_t a = changed_axis(m, from, middle), b = changed_axis(m, middle, to);
  if (axis_other(m, a) != b) return false;
  uint32_t inner = a < b ? a : b;
  if (from[a].kind == SHARD_WHOLE || !as_one(m, from, inner) || !as_one(m, to, inner)) return false;
  return from[a].kind != SHARD_SPLIT || to[a].kind != SHARD_SPLIT || from[a].dim != to[a].dim;
}

typedef struct Reader {
  Id value;
  uint32_t n;
} Reader;

static void count_read(Id value, void *ctx) {
  Reader *r = ctx;
  r->n += value == r->value;
}

static bool read_once(const Module *m, const Fn *f, const Stmt *s, uint32_t n, Id value) {
  Reader r = {value, 0};
  for (uint32_t i = 0; i < n; i++) stmt_reads(m, f, &s[i], count_read, &r);
  for (uint32_t i = 0; i < f->result.n; i++) r.n += f->result.at[i] == value;
  return r.n == 1;
}

void local_merge(const Module *m, const Fn *f, Stmt *s, uint32_t *n) {
  uint32_t kept = 0;
  bool *drop = NEWN(m->arena, bool, *n + 1);
  for (uint32_t i = 0; i + 1 < *n; i++) {
    Stmt *a = &s[i], *b = &s[i + 1];
    if (a->kind != ST_CONVERT || b->kind != ST_CONVERT || b->from != a->lhs) continue;
    const Value *v = f->value.at;
    if (!is_one(m, v[a->from].shard, v[a->lhs].shard, v[b->lhs].shard)) continue;
    if (!read_once(m, f, s, *n, a->lhs)) continue;
    b->from = a->from;
    drop[i++] = true;
  }
  for (uint32_t i = 0; i < *n; i++)
    if (!drop[i]) s[kept++] = s[i];
  *n = kept;
}

void local_convert(Local *x, const Stmt *s) {
  Move v = {.x = x, .m = x->m, .to = &x->old[s->lhs], .at = s->from, .loc = s->loc, .out = s->lhs};
  memcpy(v.shard, x->old[s->from].shard, sizeof v.shard);
  const Shard *want = v.to->shard;
  uint32_t axis = changed_axis(x->m, v.shard, want), other = axis_other(x->m, axis);
  v.both = other != NONE && !shard_same(v.shard[other], want[other]);
  switch (v.shard[axis].kind) {
  case SHARD_WHOLE: whole_to(&v, axis, want); break;
  case SHARD_PARTIAL: partial_to(&v, axis, want); break;
  default: split_to(&v, axis, want);
  }
}
