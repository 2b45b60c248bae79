// Puts indices of statements on the axes of the mesh, by the rule of ir/shard.h: which parameters
// and values are cut how, and where ranks must exchange what.
// requires: FACT_FLAT; Module.axis. Without axes it does nothing.
// guarantees: form A: every value and parameter has a Shard for each axis, every comprehension an
//   Assign, and layouts change by ST_CONVERT only. A function is cloned where its types differ.
// invalidates: nothing.
//
// Axis `cp` is for the sequence: parameters are whole on it. On any other, `tp`, all indices may be
// but those of the batch and, unless Axis.sequence asks for it, the sequence. Axes are planned one
// after the other, cp first, so that blocks of one can lie within those of the other. A model axis
// may become two, if that costs less (shard/factor.c).
//
// A plan is chosen for the training step as a whole; the other entries then take the parameters
// where they are. The bodies of a stack's repeats, forward and backward, are solved together, as
// one list of statements, for each type of what the stack carries in and out; then what is around
// them. So equal layers have one plan, and the time does not depend on depth. Least is, in this
// order: points of products that a rank computes; bytes of the matrices that it holds; bytes sent
// in collectives; terms that one rank alone counts; the number of collectives and the bytes that
// statements move. The first two are what the axis is for. The fourth reduces a product before its
// bias and the residual are added, not after. `shard(i: tp)` in the model binds the plan.
#include "ir/intrinsic.h"
#include "passes/passes.h"
#include "passes/shard/shard.h"

// ---- before: argmax as a maximum and a minimum, which can be cut

// y = argmax(i: x) is m = max(i: x), y = min(i: where(x == m, number of i, last)): exact, ties too.
static void split_argmax(Module *m, Fn *f, uint32_t at) {
  Stmt s = f->stmt.at[at];
  const Value y = f->value.at[s.lhs];
  Scalar kind = (Scalar)ex(m, s.body)->type;
  Dtype type = kind == SC_INT ? DT_I32 : m->compute;
  Id max = fn_value(m, f, str_printf("%s.max", y.name), type, y.extent, y.rank, ROLE_LOCAL, s.loc);
  int64_t n = 1;
  Id number = NONE;
  for (uint32_t i = s.nfree; i < s.nindex; i++) {
    Id index = ex_index(m, i);
    number = number == NONE ? index
                            : fold_add(m, fold_mul(m, number, ex_int(m, s.index[i].extent)), index);
    n *= s.index[i].extent;
  }
  Stmt first = stmt_copy(m, f, &s), second = stmt_copy(m, f, &s);
  first.lhs = max;
  first.red = RED_MAX;
  second.red = RED_MIN;
  second.body =
      ex3(m, OP_WHERE, ex2(m, OP_EQ, s.body, ex_read(m, f, max, s.sub)), number, ex_int(m, n - 1));
  PUSH(m->arena, f->stmt, second);
  for (uint32_t i = f->stmt.n - 1; i > at + 1; i--) f->stmt.at[i] = f->stmt.at[i - 1];
  f->stmt.at[at] = first;
  f->stmt.at[at + 1] = second;
}

static void split_argmaxes(Module *m) {
  for (uint32_t k = 0; k < m->fn.n; k++)
    for (uint32_t i = 0; i < m->fn.at[k].stmt.n; i++) {
      const Stmt *s = &m->fn.at[k].stmt.at[i];
      if (s->kind == ST_COMP && s->red == RED_ARGMAX && !s->acc) split_argmax(m, &m->fn.at[k], i);
    }
}

// ---- which parameters count

typedef struct Lookup {
  bool *counted; // by value of the function
  bool product;
} Lookup;

// Read in a product, or looked up: by what is no index, in a tensor of two dimensions or more.
static void mark_read(const Module *m, Id read, void *ctx) {
  Lookup *w = ctx;
  bool lookup = false;
  for (uint32_t d = 0; ex(m, read)->narg > 1 && d < ex(m, read)->narg; d++)
    lookup |= ex_is(m, ex_arg(m, read, d), OP_READ);
  if (w->product || lookup) w->counted[ex(m, read)->integer] = true;
}

// By value of the function: a product or a lookup reads it, here or in a function that it is passed
// to; `callee` has the same of those.
static bool *counted_values(const Module *m, const Fn *f, bool *const *callee) {
  Lookup w = {NEWN(m->arena, bool, f->value.n + 1), false};
  for (uint32_t i = 0; i < f->stmt.n; i++) {
    const Stmt *s = &f->stmt.at[i];
    w.product = stmt_is_product(m, s);
    if (s->kind == ST_COMP) ex_reads(m, s->body, mark_read, &w);
    for (uint32_t k = 0; s->call && k < s->call->narg; k++) {
      Id formal = m->fn.at[s->call->fn].arg.at[k], value = s->call->arg[k].value;
      if (value != NONE && callee[s->call->fn][formal]) w.counted[value] = true;
    }
  }
  return w.counted;
}

static void count_parameters(Sharder *z) {
  const Module *m = z->m;
  Id *order = NEWN(m->arena, Id, m->fn.n + 1);
  bool **counted = NEWN(m->arena, bool *, m->fn.n + 1);
  uint32_t n = module_postorder(m, order);
  z->counted = NEWN(m->arena, bool, m->param.n + 1);
  for (uint32_t i = 0; i < n; i++) counted[order[i]] = counted_values(m, &m->fn.at[order[i]], counted);
  for (int e = 0; e < NENTRY; e++) {
    const Fn *f = m->entry[e] == NONE ? NULL : &m->fn.at[m->entry[e]];
    for (uint32_t i = 0; f && i < f->arg.n; i++) {
      const Value *v = &f->value.at[f->arg.at[i]];
      if (v->means == MEANS_PARAM && counted[m->entry[e]][f->arg.at[i]]) z->counted[v->of] = true;
    }
  }
}

// ---- parameters' homes

static Shard deeper(Shard s, int by) {
  if (s.kind == SHARD_SPLIT) s.dim = (uint8_t)(s.dim + by);
  return s;
}

// Writes the homes that the levels chose to the parameters, or fixes the levels' by them.
static void homes(Sharder *z, Level *l, bool take) {
  for (uint32_t i = 0; i < l->slot.n; i++) {
    Slot *s = &l->slot.at[i];
    if (s->param == NONE || s->grad) continue;
    Param *p = &z->m->param.at[s->param];
    int lead = p->rank - s->of.rank;
    if (take && s->is_fixed[z->axis]) p->shard[z->axis] = deeper(s->fixed[z->axis], lead);
    if (take) continue;
    s->is_fixed[z->axis] = true;
    s->fixed[z->axis] = deeper(p->shard[z->axis], -lead);
  }
  for (uint32_t i = 0; i < l->cluster.n; i++) homes(z, l->cluster.at[i].in, take);
}

// A gradient that nothing is added to lies as its parameter does, whose home a stack's level may
// have chosen.
static void follow_homes(Sharder *z, Level *l) {
  for (uint32_t i = 0; i < l->slot.n; i++) {
    Slot *s = &l->slot.at[i];
    if (s->param == NONE || !s->grad || s->is_fixed[z->axis]) continue;
    const Param *p = &z->m->param.at[s->param];
    s->is_fixed[z->axis] = true;
    s->fixed[z->axis] = deeper(p->shard[z->axis], s->of.rank - p->rank);
  }
}

// ---- entries

static bool splits_something(const Sharder *z, const Level *l) {
  for (uint32_t i = 0; i < l->item.n; i++) {
    const Choice *c = &l->item.at[i].done[z->axis].choice;
    if (l->item.at[i].kind == ITEM_CALL ? c->class != NONE : c->assign.kind != ASSIGN_NONE)
      return true;
  }
  for (uint32_t i = 0; i < l->cluster.n; i++)
    if (splits_something(z, l->cluster.at[i].in)) return true;
  return false;
}

// Calls of attention, and one of them whose heads are not split on the axis.
static void count_calls(const Sharder *z, const Level *l, const Call **whole, uint32_t *n) {
  for (uint32_t i = 0; i < l->item.n; i++) {
    const Item *it = &l->item.at[i];
    if (it->kind != ITEM_CALL) continue;
    const Call *c = z->m->fn.at[l->body.at[it->body].fn].stmt.at[it->stmt].call;
    if (!class_is_heads(z, c->fn, it->done[z->axis].choice.class)) *whole = c;
    ++*n;
  }
  for (uint32_t i = 0; i < l->cluster.n; i++) count_calls(z, l->cluster.at[i].in, whole, n);
}

// Where the sequence is exchanged for heads, there must be enough of them for this axis too.
static bool heads_suffice(const Sharder *z, const Level *l) {
  const Call *whole = NULL;
  uint32_t calls = 0;
  int64_t ranks = 1, heads = 1;
  bool asked = false;
  for (uint32_t a = 0; a < z->m->axis.n; a++) {
    if (!z->solved[a]) continue;
    ranks *= z->m->axis.at[a].size;
    asked |= z->m->axis.at[a].heads;
  }
  if (!asked) return true;
  count_calls(z, l, &whole, &calls);
  if (!calls) diag_error(z->m->src, 0, "--cp-attention alltoall: this model has no attention");
  if (!calls || !whole) return calls;
  const Value *q = intrinsic_queries(&z->m->fn.at[whole->fn]);
  for (uint32_t d = 0; d < q->rank; d++)
    if (intrinsic_is_heads(&z->m->fn.at[whole->fn], d)) heads *= q->extent[d];
  diag_error(z->m->src, 0,
             "--cp-attention alltoall: %lld heads cannot be divided evenly over %lld ranks of %s",
             (long long)heads, (long long)ranks, z->context ? "--cp" : "--tp and --cp");
  if (q->extent[3] > 1)
    diag_note(z->m->src, 0,
              "there are %lld groups of %lld heads, and one of these numbers must divide evenly",
              (long long)q->extent[2], (long long)q->extent[3]);
  return false;
}

static void set_axis(Sharder *z, uint32_t a) {
  const Axis *x = &z->m->axis.at[a];
  z->axis = a;
  z->n = x->size;
  z->context = is_context(x);
  z->named = x->id != AXIS_OTHER && !is_factor(x) ? (uint8_t)(1u << x->id) : 0;
  z->sequence = x->sequence;
  z->heads = z->context && x->heads;
  z->outer = axis_other(z->m, a);
  if (z->outer != NONE && !z->solved[z->outer]) z->outer = NONE;
  z->collectives = z->sequence ? COST_SIXTH : COST_FIFTH;
  z->traffic = z->sequence ? COST_FIFTH : COST_SIXTH;
}

// The longest sequence that does not divide over `ranks`.
static int64_t positions(const Sharder *z, int64_t ranks) {
  int64_t most = 0;
  for (Id fn = 0; fn < z->m->fn.n; fn++)
    for (Id v = 0; v < z->m->fn.at[fn].value.n; v++)
      for (uint32_t d = 0; d < z->m->fn.at[fn].value.at[v].rank; d++) {
        int64_t n = z->m->fn.at[fn].value.at[v].extent[d];
        if (n > most && n % ranks && z->class.sequence[class_of_dim(&z->class, fn, v, d)]) most = n;
      }
  return most;
}

// Carried values of a stack are to be cut along the sequence, within the blocks of context ranks. Without
// these any sequence but one of a single position can be.
static bool refuse_sequence(const Sharder *z) {
  int64_t n = 1;
  for (uint32_t a = 0; a < z->m->axis.n; a++) n *= z->m->axis.at[a].size;
  diag_error(
      z->m->src, 0,
      "--sequence-parallel: a sequence of %lld does not divide over %lld ranks of %s",
      (long long)positions(z, n), (long long)n, z->m->axis.n > 1 ? "--tp and --cp" : "--tp");
  return false;
}

static void refuse(const Sharder *z, const Axis *x) {
  long long n = (long long)x->size;
  diag_error(z->m->src, 0, "--%s %lld: %s can be cut over %lld ranks", x->name, n,
             z->context ? "no sequence of this model" : "nothing of this model", n);
  diag_note(z->m->src, 0, "%s",
            z->context
                ? "a sequence is the second dimension of int data, or the positions of an attention"
                : "matrix products are cut, and this model has none with an extent of 2 or more "
                  "beside samples and positions");
}

// Plans an entry on one axis. Where the searches were too short to find a plan they are made again
// with more states. False where there is none; reported unless the plan need not be.
static bool solve_axis(Sharder *z, Level *l, bool main) {
  uint32_t last = (uint32_t)z->m->limits.search_last;
  z->moves = z->lost = false;
  z->first = (uint32_t)z->m->limits.search_first;
  while (!entry_solve(z, l)) {
    bool again = z->lost && z->first < last;
    z->lost = false;
    if (z->moves && z->quiet) return false;
    if (z->moves && again) z->first = z->first < last / 8 ? 8 * z->first : last;
    else if (z->moves && asked_refused(z, l, main && !z->context)) return false;
    else if (z->moves && z->sequence) return refuse_sequence(z);
    else if (z->moves) BUG("no plan on axis %s", z->m->axis.at[z->axis].name);
    z->moves = true;
  }
  return true;
}

// Plans an entry on all axes, cp first, and of two factors the outer one.
static bool solve(Sharder *z, Level *l, bool main) {
  uint32_t order[MAX_AXIS], n = 0;
  for (uint32_t pass = 0; pass < 2; pass++)
    for (uint32_t a = z->m->axis.n; a-- > 0;)
      if (is_context(&z->m->axis.at[a]) == !pass) order[n++] = a;
  if (main) z->step = l;
  memset(z->solved, 0, sizeof z->solved);
  for (uint32_t k = 0; k < n; k++) {
    set_axis(z, order[k]);
    if (main || !z->cut) z->made = 0;
    if (main && !asked_possible(z)) return false;
    if (!main || z->context) homes(z, l, false);
    else asked_homes(z, l);
    if (!solve_axis(z, l, main)) return false;
    if (main) homes(z, l, true), follow_homes(z, l);
    z->solved[z->axis] = true;
    const Axis *x = &z->m->axis.at[z->axis];
    if (!main) continue;
    if (!splits_something(z, l)) {
      if (!z->quiet) refuse(z, x);
      return false;
    }
    if (!heads_suffice(z, l)) return false;
  }
  return true;
}

// Where only heads are cut, packed queries, keys and values are cut alike, and need no copies.
static bool cuts_sequences(const Module *m) {
  for (uint32_t a = 0; a < m->axis.n; a++)
    if (m->axis.at[a].sequence || is_context(&m->axis.at[a])) return true;
  return false;
}

// ---- a plan

static const Entry entry_order[] = {ENTRY_STEP, ENTRY_LOSS,   ENTRY_EVAL,
                                    ENTRY_EVAL_LOSS, ENTRY_SAMPLE, ENTRY_COUNT};
enum { NORDER = sizeof entry_order / sizeof entry_order[0] };

// Of all entries: their levels, the mesh, and where parameters live.
typedef struct Whole {
  Sharder z;
  Level *level[NORDER]; // NULL: there is no such entry
  Axis axis[MAX_AXIS];
  uint32_t naxis;
  Shard (*home)[MAX_AXIS];
  double cost; // on the axis that may be factored
} Whole;

static bool solve_entries(Whole *w) {
  bool main = true;
  for (uint32_t i = 0; i < NORDER; i++) {
    Id fn = w->z.m->entry[entry_order[i]];
    if (fn == NONE) continue;
    w->level[i] = level_of_entry(&w->z, fn);
    if (!solve(&w->z, w->level[i], main)) return false;
    main = false;
  }
  return true;
}

static void keep(Whole *w) {
  const Module *m = w->z.m;
  w->naxis = m->axis.n;
  w->home = arena_alloc(m->arena, (m->param.n + 1) * sizeof *w->home);
  memcpy(w->axis, m->axis.at, m->axis.n * sizeof *w->axis);
  for (uint32_t i = 0; i < m->param.n; i++)
    memcpy(w->home[i], m->param.at[i].shard, sizeof *w->home);
}

static void restore(const Whole *w) {
  Module *m = w->z.m;
  m->axis.n = 0;
  for (uint32_t a = 0; a < w->naxis; a++) PUSH(m->arena, m->axis, w->axis[a]);
  for (uint32_t i = 0; i < m->param.n; i++)
    memcpy(m->param.at[i].shard, w->home[i], sizeof *w->home);
}

// Plans the program with the axis as two factors, and keeps that where it costs less.
static void try_factors(Whole *best, uint32_t axis) {
  Module *m = best->z.m;
  const Whole whole = *best;
  for (int64_t n = 0; (n = factor_next(m, axis, n));) {
    Whole other = {.z = whole.z};
    other.z.quiet = true;
    other.z.cut = false;
    if (whole.naxis == MAX_AXIS) return;
    factor_axis(m, axis, n);
    for (uint32_t i = 0; i < m->param.n; i++)
      memset(m->param.at[i].shard, 0, sizeof m->param.at[i].shard);
    if (solve_entries(&other)) {
      other.cost = factor_cost(&other.z, other.level[0], axis);
      keep(&other);
      other.z.cut |= best->z.cut;
      best->z.cut = other.z.cut;
      if (other.cost < best->cost) *best = other;
    }
    restore(&whole);
  }
  restore(best);
}

// Before: argmax as a maximum and a minimum, packed values apart, the sequence folded.
static bool prepare(Module *m, Sharder *z) {
  split_argmaxes(m);
  if (ring_refuses(m)) return false;
  if (cuts_sequences(m)) shard_unpack(m);
  shard_fold(m);
  classes_make(&z->class, m);
  count_parameters(z);
  return true;
}

// The degrees, as they were asked for.
static Str degrees(const Module *m) {
  Str s = "";
  for (uint32_t a = 0; a < m->axis.n; a++)
    s = str_printf("%s%s--%s %lld", s, a ? " " : "", m->axis.at[a].name,
                   (long long)m->axis.at[a].size);
  return s;
}

static void warn_unproved(const Module *m, Str degrees) {
  diag(m->src, DIAG_WARNING, 0,
       "%s: the plan for these ranks was not proved to be the least: there are too many plans to "
       "try all",
       degrees);
  diag_note(m->src, 0,
            "results do not depend on it, but ranks may exchange more than needed");
}

bool pass_shard(Module *m) {
  Whole w = {
      .z = {.m = m, .free_fn = NONE, .free_stmt = NONE, .free_param = NONE, .outer = NONE}};
  Str asked = degrees(m);
  if (!m->axis.n) {
    asked_forget(m);
    return true;
  }
  if (!prepare(m, &w.z)) return false;
  if (!solve_entries(&w)) {
    CHECK(m->src->nerror);
    return false;
  }
  for (uint32_t a = 0; a < m->axis.n && w.level[0]; a++) {
    if (is_context(&m->axis.at[a]) || !factor_next(m, a, 0)) continue;
    w.cost = factor_cost(&w.z, w.level[0], a);
    keep(&w);
    try_factors(&w, a);
    break;
  }
  for (uint32_t i = 0; i < NORDER; i++)
    if (w.level[i]) entry_emit(&w.z, w.level[i]);
  module_sweep(m);
  asked_forget(m);
  m->unproved = w.z.cut;
  if (m->unproved) warn_unproved(m, asked);
  return true;
}
