// normalise: the normal form for lowering.
//
// Does: small values that follow from arguments and indices alone (masks, weights of samples) are
//       computed where they are read;
//       a costly function of far fewer points than its statement becomes its own statement, where
//       loops alone would not keep it outside;
//       factors free of bound indices move out of sums, and long products become two-operand
//       contractions, ordered by the size of what is between (normalise/sum.c);
//       a sum that is (or holds) a matrix product stands alone, its operands plain reads: what
//       surrounds it, guards and operand expressions become pointwise statements; where a guard
//       cannot stand on every factor, sums that come out as NaN are added up again under it;
//       a residual is added to a product before its bias (normalise/residual.c), where the target
//       wants that;
//       a reduction of very many points to few becomes two, over fixed blocks, so that threads
//       share it.
// Requires: storage types (precision).
// Guarantees: every contraction that codegen/lower/product.c may take is `sum(k..: a[..] * b[..])`. The
//       float rewrites it makes: sums and products of the same terms in another order, a factor
//       applied after a sum and not before it. Nothing later changes a bit.
// Invalidates: positions of statements and values.
#include "passes/bounds.h"
#include "passes/normalise/normalise.h"
#include "passes/passes.h"
#include "passes/util.h"

double normal_points(const Stmt *s, uint32_t set) {
  double n = 1;
  for (uint32_t i = 0; i < s->nindex; i++)
    if (set >> i & 1) n *= (double)s->index[i].extent;
  return n;
}

static Dtype storage_of(const Norm *n, Id body, Dtype real) {
  Scalar t = ex(n->m, body)->type;
  return t == SC_BOOL ? DT_BOOL : t == SC_INT ? DT_I32 : real;
}

static bool same_value(const Norm *n, const Stmt *a, const Stmt *b, const Value *type) {
  const Value *v = &n->f->value.at[a->lhs];
  if (a->kind != ST_COMP || a->acc || a->red != b->red || a->nfree != b->nfree ||
      a->nindex != b->nindex)
    return false;
  if (a->body != b->body || v->type != type->type || v->rank != b->nfree || v->role != ROLE_LOCAL)
    return false;
  for (uint32_t i = 0; i < a->nindex; i++)
    if (a->index[i].extent != b->index[i].extent) return false;
  for (uint32_t d = 0; d < v->rank; d++)
    if (!ex_is(n->m, a->sub[d], OP_INDEX) || ex(n->m, a->sub[d])->integer != d) return false;
  return true;
}

// As normal_value, with the dimensions of the indices in `first` before the others.
static Id ordered_value(Norm *n, Str name, Dtype real, uint32_t first, uint32_t free, Red red,
                        uint32_t bound, Id body) {
  Stmt t = {.kind = ST_COMP, .red = red, .loc = n->s.loc};
  Id to[MAX_INDEX], sub[MAX_RANK], at[MAX_RANK];
  int64_t extent[MAX_RANK];
  memset(to, 0xff, sizeof to);
  t.index = NEWN(n->m->arena, Index, MAX_INDEX);
  for (int pass = 0; pass < 3; pass++)
    for (uint32_t i = 0; i < n->s.nindex; i++) {
      if (!((pass == 0 ? first : pass == 1 ? free & ~first : bound) >> i & 1)) continue;
      if (pass < 2) {
        CHECK(t.nfree < MAX_RANK);
        at[t.nfree] = ex_index(n->m, i);
        extent[t.nfree] = n->s.index[i].extent;
        sub[t.nfree] = ex_index(n->m, t.nfree);
        t.nfree++;
      }
      to[i] = ex_index(n->m, t.nindex);
      t.index[t.nindex++] = n->s.index[i];
    }
  t.body = ex_rename(n->m, body, to, NULL);
  Value type = {.type = storage_of(n, body, real)};
  for (uint32_t i = 0; i < n->out.n; i++)
    if (same_value(n, &n->out.at[i], &t, &type)) return ex_read(n->m, n->f, n->out.at[i].lhs, at);
  t.sub = arena_copy(n->m->arena, sub, t.nfree * sizeof(Id));
  t.lhs = fn_value(n->m, n->f, name, type.type, extent, t.nfree, ROLE_LOCAL, n->s.loc);
  PUSH(n->m->arena, n->out, t);
  return ex_read(n->m, n->f, t.lhs, at);
}

Id normal_value(Norm *n, Str name, uint32_t free, Red red, uint32_t bound, Id body) {
  return ordered_value(n, name, n->m->compute, 0, free, red, bound, body);
}

Id normal_operand(Norm *n, Str name, Dtype real, uint32_t free, Red red, uint32_t bound, Id body) {
  return ordered_value(n, name, real, 0, free, red, bound, body);
}

void normal_finish(Norm *n, Red red, Id body) {
  Stmt t = n->s;
  t.red = red;
  t.body = body;
  if (red == RED_NONE) t.nindex = t.nfree;
  PUSH(n->m->arena, n->out, t);
}

void normal_keep(Norm *n, uint32_t bound, Id body) {
  Stmt t = n->s;
  Id to[MAX_INDEX];
  memset(to, 0xff, sizeof to);
  t.index = NEWN(n->m->arena, Index, MAX_INDEX);
  t.nindex = 0;
  for (uint32_t i = 0; i < n->s.nindex; i++) {
    if (!((free_set(&n->s) | bound) >> i & 1)) continue;
    to[i] = ex_index(n->m, t.nindex);
    t.index[t.nindex++] = n->s.index[i];
  }
  t.body = ex_rename(n->m, body, to, NULL);
  PUSH(n->m->arena, n->out, t);
}

// ---- small values of arguments and indices

// Ints and bools of any shape; of reals, scalars.
static void note_local(const Module *m, Id read, void *ctx) {
  const Norm *n = ((Norm **)ctx)[0];
  const Value *v = &n->f->value.at[ex(m, read)->integer];
  if (v->role != ROLE_IN || (scalar_of(v->type) == SC_REAL && v->rank)) ((Norm **)ctx)[1] = NULL;
}

static bool of_arguments(const Norm *n, Id e) {
  const void *ctx[2] = {n, n};
  ex_reads(n->m, e, note_local, ctx);
  return ctx[1] != NULL;
}

// Operators in the expression, or more than fit if it holds a costly function.
static uint32_t operators(const Module *m, Id id) {
  const Expr *e = ex(m, id);
  uint32_t most = (uint32_t)m->limits.inline_operators;
  uint32_t n = op_info[e->op].work >= WORK_SLOW ? most + 1 : op_info[e->op].rule != RULE_LEAF;
  for (uint32_t i = 0; i < e->narg && n <= most; i++) n += operators(m, ex_arg(m, id, i));
  return n;
}

static bool keeps_bits(const Norm *n, const Value *v) {
  return scalar_of(v->type) != SC_REAL || v->type == n->m->compute;
}

static bool small(const Norm *n, const Stmt *s) {
  if (s->kind != ST_COMP || s->acc || s->red != RED_NONE ||
      normal_points(s, all_set(s)) > (double)n->m->limits.inline_points)
    return false;
  const Value *v = &n->f->value.at[s->lhs];
  uint32_t seen = 0;
  for (uint32_t d = 0; d < v->rank; d++) {
    if (!ex_is(n->m, s->sub[d], OP_INDEX) || (seen >> ex(n->m, s->sub[d])->integer & 1))
      return false;
    seen |= 1u << ex(n->m, s->sub[d])->integer;
  }
  return keeps_bits(n, v) && of_arguments(n, s->body) &&
         operators(n->m, s->body) <= n->m->limits.inline_operators;
}

typedef struct Inline {
  Norm *n;
  const Stmt **def; // for each value: the small statement that defines it, or NULL
  const Stmt *s; // the reader
} Inline;

static Id inline_leaf(Module *m, Id id, void *ctx) {
  const Inline *x = ctx;
  if (!ex_is(m, id, OP_READ) || !x->def[ex(m, id)->integer]) return id;
  const Stmt *def = x->def[ex(m, id)->integer];
  Id to[MAX_INDEX];
  uint32_t ungroup = 0;
  memset(to, 0xff, sizeof to);
  for (uint32_t d = 0; d < ex(m, id)->narg; d++) {
    uint32_t index = (uint32_t)ex(m, def->sub[d])->integer;
    to[index] = ex_arg(m, id, d);
    const Expr *e = ex(m, to[index]);
    if (e->op != OP_INDEX || x->s->index[e->integer].extent != def->index[index].extent)
      ungroup |= 1u << index;
  }
  return ex_substitute(m, def->body, def->index, to, ungroup);
}

static void inline_small(Norm *n) {
  Fn *f = n->f;
  Inline x = {n, NEWN(n->m->arena, const Stmt *, f->value.n), NULL};
  for (uint32_t i = 0; i < f->stmt.n; i++) {
    Stmt *s = &f->stmt.at[i];
    if (s->kind != ST_COMP) continue;
    x.s = s;
    s->body = ex_map(n->m, s->body, inline_leaf, &x);
    for (uint32_t d = 0; d < f->value.at[s->lhs].rank; d++) {
      Id sub = ex_map(n->m, s->sub[d], inline_leaf, &x);
      // An index must not go from the left of a `+=`.
      if (ex_indices(n->m, sub) == ex_indices(n->m, s->sub[d])) s->sub[d] = sub;
    }
    if (small(n, s)) x.def[s->lhs] = s;
  }
}

// ---- costly subexpressions

static bool costly(const Module *m, Id id) {
  const Expr *e = ex(m, id);
  if (op_info[e->op].work == WORK_LIBM) return true;
  if (e->op == OP_READ) return false;
  for (uint32_t i = 0; i < e->narg; i++)
    if (costly(m, ex_arg(m, id, i))) return true;
  return false;
}

// The first indices and no others: the kernel's loops keep such an expression outside by
// themselves.
static bool is_prefix(const Stmt *s, uint32_t set) {
  return !(set & (set + 1)) && !(set & ~free_set(s));
}

static Id lift(Norm *n, Id id, bool root) {
  const Module *m = n->m;
  Expr e = *ex(m, id);
  if (!costly(m, id)) return id;
  uint32_t set = ex_indices(m, id);
  bool fewer = !is_prefix(&n->s, set) &&
               normal_points(&n->s, set) * (double)m->limits.lift_ratio <=
                   normal_points(&n->s, all_set(&n->s));
  if (!root && fewer && e.type == SC_REAL && __builtin_popcount(set) <= MAX_RANK &&
      expr_safe(m, n->f, &n->s, id))
    return normal_value(n, str_printf("%s.part", n->f->value.at[n->s.lhs].name), set, RED_NONE, 0,
                        id);
  Id arg[64];
  CHECK(e.narg <= 64);
  for (uint32_t i = 0; i < e.narg; i++) arg[i] = lift(n, ex_arg(m, id, i), false);
  return ex_like(n->m, id, e.integer, arg);
}

static Id drop_stop(Module *m, Id id) {
  Expr e = *ex(m, id);
  if (e.op == OP_STOP) return drop_stop(m, ex_arg(m, id, 0));
  if (!e.narg) return id;
  Id arg[64];
  bool changed = false;
  CHECK(e.narg <= 64);
  for (uint32_t i = 0; i < e.narg; i++) {
    Id old = ex_arg(m, id, i);
    arg[i] = drop_stop(m, old);
    changed |= arg[i] != old;
  }
  return changed ? ex_like(m, id, e.integer, arg) : id;
}

// ---- reductions of many points to few results

// The bound indices to make free: a prefix, outermost first, that leaves blocks of a good size and
// enough of them. 0: none does.
static uint32_t prefix_of_blocks(const Limits *l, const Stmt *s, double least) {
  uint32_t set = 0, best = 0;
  double block = normal_points(s, all_set(s) & ~free_set(s)), count = 1,
         results = normal_points(s, free_set(s));
  for (uint32_t i = s->nfree; i + 1 < s->nindex; i++) {
    set |= 1u << i;
    count *= (double)s->index[i].extent;
    block /= (double)s->index[i].extent;
    if (block < least || count * results > (double)l->cut_partials) break;
    if (count >= 4) best = set;
    if (block * results <= 4 * (double)l->cut_block_most && count >= 8) break;
  }
  return best;
}

// The largest block within bounds that divides the extent; else the one at the upper bound, and a
// guard.
static int64_t block_of(const Limits *l, int64_t extent) {
  for (int64_t b = l->cut_block_most; b >= l->cut_block; b--)
    if (extent % b == 0) return b;
  return l->cut_block_most / 2;
}

// Index i as block * size + position: i itself becomes the position, a new index behind it the
// block.
static void cut_index(Norm *n, uint32_t i) {
  Stmt *s = &n->s;
  int64_t extent = s->index[i].extent, size = block_of(&n->m->limits, extent),
          count = (extent + size - 1) / size;
  Index *index = NEWN(n->m->arena, Index, s->nindex + 1u);
  memcpy(index, s->index, s->nindex * sizeof *index);
  uint32_t block = s->nindex;
  index[i].extent = size;
  Str name = index_name(str_intern("block"), s->index, s->nindex);
  index[block] = (Index){.name = name, .extent = count};
  Id at = ex2(n->m, OP_ADD, ex2(n->m, OP_MUL, ex_index(n->m, block), ex_int(n->m, size)),
              ex_index(n->m, i));
  Id to[MAX_INDEX];
  memset(to, 0xff, sizeof to);
  to[i] = at;
  Id identity = reduction_identity(n->m, s, s->body);
  s->body = ex_substitute(n->m, s->body, s->index, to, 1u << i);
  s->index = index;
  s->nindex++;
  if (extent % size)
    s->body = ex3(n->m, OP_WHERE, ex2(n->m, OP_LT, at, ex_int(n->m, extent)), s->body,
                  identity);
}

// A reduction is cut where it has many points for few results; and one to some results, which lanes
// share but few threads, where it has more points still.
static bool cut_reduction(Norm *n) {
  Stmt *s = &n->s;
  const Limits *l = &n->m->limits;
  uint32_t bound = all_set(s) & ~free_set(s);
  double results = normal_points(s, free_set(s)), count = normal_points(s, bound);
  bool few = results <= (double)l->cut_results && count >= (double)l->cut_points;
  bool some = results <= (double)l->rows_results && results * count >= (double)l->rows_points &&
              count >= 4 * (double)l->rows_block;
  if (s->red == RED_NONE || s->red == RED_ARGMAX || s->nindex >= MAX_INDEX || !(few || some))
    return false;
  uint32_t blocks = prefix_of_blocks(l, s, (double)(few ? l->cut_block : l->rows_block));
  if (!blocks && !few) return false;
  if (!blocks) {
    uint32_t longest = s->nfree;
    for (uint32_t i = s->nfree; i < s->nindex; i++)
      if (s->index[i].extent > s->index[longest].extent) longest = i;
    if (s->index[longest].extent < 2 * l->cut_block ||
        s->index[longest].extent > INT32_MAX - l->cut_block_most)
      return false;
    cut_index(n, longest);
    bound = all_set(s) & ~free_set(s);
    blocks = 1u << (s->nindex - 1);
  }
  Red red = s->red == RED_MEAN ? RED_SUM : s->red;
  if (__builtin_popcount(free_set(s) | blocks) > MAX_RANK) return false;
  Str name = n->f->value.at[s->lhs].name;
  // Blocks come first, so that the lanes of a row stay together.
  Id part = ordered_value(n, str_printf("%s.blocks", name), n->m->compute, blocks, free_set(s), red,
                          bound & ~blocks, s->body);
  if (s->red == RED_MEAN) {
    Id sum = normal_value(n, str_printf("%s.sum", name), free_set(s), RED_SUM, blocks, part);
    normal_finish(n, RED_NONE, ex2(n->m, OP_DIV, sum, ex_real(n->m, count)));
    return true;
  }
  normal_keep(n, blocks, part); // the remaining bound indices: the blocks
  return true;
}

// ----

static void normalise_stmt(Norm *n) {
  if (n->s.kind != ST_COMP) {
    PUSH(n->m->arena, n->out, n->s);
    return;
  }
  n->s.body = drop_stop(n->m, n->s.body);
  for (uint32_t d = 0; d < n->f->value.at[n->s.lhs].rank; d++)
    n->s.sub[d] = drop_stop(n->m, n->s.sub[d]);
  n->s.body = lift(n, n->s.body, true);
  if (!normal_sum(n)) PUSH(n->m->arena, n->out, n->s);
}

// A second walk, since sums may have come from longer ones.
static void cut_reductions(Norm *n) {
  Norm cut = {.m = n->m, .f = n->f};
  for (uint32_t i = 0; i < n->out.n; i++) {
    cut.s = n->out.at[i];
    if (cut.s.kind != ST_COMP || !cut_reduction(&cut)) PUSH(n->m->arena, cut.out, n->out.at[i]);
  }
  *n = cut;
}

static void normalise_fn(Module *m, Id id) {
  const Limits limits = m->limits;
  if (id == m->entry[ENTRY_UPDATE]) m->limits = *m->usual_limits; // it must become one kernel
  Norm n = {.m = m, .f = &m->fn.at[id]};
  inline_small(&n);
  for (uint32_t i = 0; i < n.f->stmt.n; i++) {
    n.s = n.f->stmt.at[i];
    normalise_stmt(&n);
  }
  cut_reductions(&n);
  normal_residuals(&n);
  n.f->stmt.n = 0;
  for (uint32_t i = 0; i < n.out.n; i++) PUSH(m->arena, n.f->stmt, n.out.at[i]);
  fn_remove_dead(m, n.f, NULL);
  fn_compact(m, n.f);
  m->limits = limits;
}

bool pass_normalise(Module *m) {
  CHECK(m->target); // which has the limits
  for (Id f = 0; f < m->fn.n; f++) normalise_fn(m, f);
  return true;
}
