// Finds where the samples of the batch are, by following the data arguments' leading dimension
// through statements, bodies of repeats and intrinsics: bare indices and groups carry it, sums over
// it end it.
#include "passes/samples.h"

bool samples_couple(Samples *b, Id loc, const char *what) {
  if (!b->failed) {
    diag_error(b->m->src, loc, "this couples the samples of the batch: %s", what);
    diag_note(b->m->src, loc,
              "the batch is cut into microbatches and over ranks, so that only sums and means "
              "over it are known, at the end; `local(b: ...)` is a statistic of one microbatch");
  }
  b->failed = true;
  return false;
}

typedef struct ReadQuery {
  const SampleType *type;
  Id sum; // a read of a partial sum
  bool part, local;
  bool data_sum, second_sum; // a partial sum of data, and one that depends on a total
} ReadQuery;

static void query_read(const Module *m, Id read, void *ctx) {
  ReadQuery *q = ctx;
  const SampleType *t = &q->type[ex(m, read)->integer];
  if (t->kind == SAMPLE_PART) q->sum = read;
  q->part |= t->kind == SAMPLE_PART;
  q->data_sum |= t->kind == SAMPLE_PART && !t->params;
  q->second_sum |= t->kind == SAMPLE_PART && !t->params && t->total;
  q->local |= t->local;
}

static ReadQuery query(const Module *m, Id e, const SampleType *type) {
  ReadQuery q = {.type = type, .sum = NONE};
  ex_reads(m, e, query_read, &q);
  return q;
}

bool reads_part(const Module *m, Id e, const SampleType *type) { return query(m, e, type).part; }

bool reads_local(const Module *m, Id e, const SampleType *type) { return query(m, e, type).local; }

// The same of a statement that reads partial sums. One of data alone might have been a total.
bool samples_couple_sum(Samples *b, const Stmt *s, const SampleType *type, const char *what) {
  bool first = !b->failed;
  ReadQuery q = query(b->m, s->body, type);
  Id loc = q.sum == NONE ? s->loc : stmt_read_loc(b->m, s, q.sum);
  samples_couple(b, loc, what);
  if (first && q.second_sum)
    diag_note(b->m->src, loc,
              "sums of data alone are made in one pass before the first forward pass, and this one "
              "needs another sum first");
  else if (first && q.data_sum)
    diag_note(b->m->src, loc,
              "a sum of data alone is known before the first forward pass where it stands in the "
              "loss itself, not in a stack, and has at most %d elements",
              MAX_TOTALS);
  return false;
}

// How well a member of a group fits as what runs over samples, where several may: with a microbatch of one
// sample any member of the right stride, the sample's own index best, then what depends on the batch's size.
static int fitness(const Samples *b, const Stmt *s, int index, int own) {
  const Index *i = &s->index[index];
  return index == own ? 3 : i->batch ? 2 : i->extent == b->size;
}

// The member of a subscript that runs over samples, where the dimension does with `inner`; own: the
// sample's own index, or -1.
static SampleIndex member(const Samples *b, const Stmt *s, Id sub, int64_t inner, int own) {
  const Module *m = b->m;
  SampleIndex none = {-1, 0}, best = none;
  int64_t right = 1;
  if (ex_is(m, sub, OP_INDEX)) {
    int64_t i = ex(m, sub)->integer;
    return s->index[i].extent % (inner * b->size) ? none : (SampleIndex){(int)i, inner};
  }
  if (!ex_is(m, sub, OP_GROUP)) return none;
  for (uint32_t k = ex(m, sub)->narg; k-- > 0;) {
    const Expr *a = ex(m, ex_arg(m, sub, k));
    if (a->op != OP_INDEX) break;
    int i = (int)a->integer;
    int64_t extent = s->index[i].extent;
    if (inner % right == 0 && right * extent % (inner * b->size) == 0 &&
        (best.index < 0 || fitness(b, s, i, own) > fitness(b, s, best.index, own)))
      best = (SampleIndex){i, inner / right};
    right *= extent;
  }
  return best;
}

typedef struct Find {
  Samples *b;
  const Fn *f;
  const Stmt *s;
  const SampleType *type;
  SampleIndices found;
  Id read; // being looked at, or NONE: the left side
  bool part, params, total, stack, local;
} Find;

static bool couple_here(Find *q, const char *what) {
  Id loc = q->read == NONE ? q->s->loc : stmt_read_loc(q->b->m, q->s, q->read);
  return samples_couple(q->b, loc, what);
}

static void find_local(Find *q, SampleIndex i) {
  SampleIndices *all = &q->found;
  uint32_t k = 0;
  while (k < all->nlocal && all->local[k].index != i.index) k++;
  if (k == all->nlocal) all->local[all->nlocal++] = i;
  else if (all->local[k].inner != i.inner)
    couple_here(q, "an index runs over it in two ways");
}

// A subscript of a dimension over samples. Where a local index made the dimension, only a local one
// reads it.
static void find_merge(Find *q, Id sub, int64_t inner, bool other) {
  SampleIndex *own = &q->found.own, i = member(q->b, q->s, sub, inner, own->index);
  if (i.index < 0)
    couple_here(q, "a sample is read by a subscript that is not its index");
  else if (q->s->index[i.index].local) find_local(q, i);
  else if (own->index < 0 && !other) *own = i;
  else if (own->index != i.index || own->inner != i.inner || other)
    couple_here(q, "two indices of one statement run over it");
}

static void find_subs(Find *q, const SampleType *t, const Id *sub, uint32_t rank) {
  for (uint32_t d = 0; d < rank; d++) {
    if (t->kind == SAMPLE_SPLIT && t->dim == d) find_merge(q, sub[d], t->inner, false);
    else if (t->other[d]) find_merge(q, sub[d], t->other[d], true);
  }
}

static void find_read(const Module *m, Id read, void *ctx) {
  Find *q = ctx;
  const SampleType *t = &q->type[ex(m, read)->integer];
  q->read = read;
  find_subs(q, t, &m->arg.at[ex(m, read)->arg], ex(m, read)->narg);
  q->local |= t->local;
  q->part |= t->kind == SAMPLE_PART;
  q->params |= t->params;
  q->stack |= t->stack;
  q->total |= t->total || t->kind == SAMPLE_TOTAL;
}

// An index that runs over samples, though no read says so.
static void find_unread(Find *q) {
  const Stmt *s = q->s;
  SampleIndex *own = &q->found.own;
  for (uint32_t k = 0; k < s->nindex; k++) {
    int64_t extent = s->index[k].extent;
    if (!s->index[k].batch || own->index == (int)k || extent % q->b->size) continue;
    if (own->index < 0) *own = (SampleIndex){(int)k, extent / q->b->size};
    else couple_here(q, "two indices of one statement run over it");
  }
}

static void find(Find *q) {
  const Module *m = q->b->m;
  uint32_t rank = q->f->value.at[q->s->lhs].rank;
  q->found.own.index = -1;
  comp_reads(m, q->f, q->s, find_read, q);
  q->read = NONE;
  find_subs(q, &q->type[q->s->lhs], q->s->sub, rank);
  find_unread(q);
}

SampleIndices sample_indices(Samples *b, const Fn *f, const Stmt *s, const SampleType *type) {
  Find q = {.b = b, .f = f, .s = s, .type = type};
  find(&q);
  return q.found;
}

// Whether index i stands in e outside of the subscripts of reads.
static bool stands_in(const Module *m, Id e, int i) {
  const Expr *x = ex(m, e);
  if (x->op == OP_INDEX) return x->integer == i;
  for (uint32_t k = 0; x->op != OP_READ && k < x->narg; k++)
    if (stands_in(m, ex_arg(m, e, k), i)) return true;
  return false;
}

// The place of an index in a subscript, bare or a group's member: what is to its right there. 0 for
// any other subscript.
static int64_t right_of(const Module *m, const Stmt *s, Id sub, int index) {
  int64_t right = 1;
  if (ex_is(m, sub, OP_INDEX)) return 1;
  for (uint32_t k = ex_is(m, sub, OP_GROUP) ? ex(m, sub)->narg : 0; k-- > 0;) {
    const Expr *a = ex(m, ex_arg(m, sub, k));
    if (a->op != OP_INDEX) return 0;
    if (a->integer == index) return right;
    right *= s->index[a->integer].extent;
  }
  return 0;
}

// Reads of values that do not run over samples, by a sample index: a value that statements make turns
// out to run over them after all, and they are looked at again; a parameter can't.
typedef struct Retype {
  Find *q;
  SampleType *type;
  SampleIndex i;
  bool entry, own, changed;
} Retype;

// Whether value v of a function is a parameter. A callee's argument may be one; its caller finds out.
static bool is_parameter(const Fn *f, bool entry, const SampleType *type, Id v) {
  return entry && type[v].params && f->value.at[v].role == ROLE_IN;
}

static void retype_read(const Module *m, Id read, void *ctx) {
  Retype *r = ctx;
  Find *q = r->q;
  Id v = (Id)ex(m, read)->integer;
  SampleType *t = &r->type[v];
  for (uint32_t d = 0; d < ex(m, read)->narg; d++) {
    Id sub = ex_arg(m, read, d);
    if ((t->kind == SAMPLE_SPLIT && d == t->dim) || t->other[d] || !stands_in(m, sub, r->i.index))
      continue;
    int64_t right = right_of(m, q->s, sub, r->i.index);
    bool other = t->kind == SAMPLE_SPLIT && !r->own; // a dimension beside that of the samples
    if (is_parameter(q->f, r->entry, r->type, v) || !right || (t->kind != SAMPLE_NONE && !other)) {
      q->read = read;
      couple_here(q, "a read depends on the number of a sample");
      return;
    }
    r->changed = true;
    if (other) {
      t->other[d] = r->i.inner * right;
      continue;
    }
    t->kind = SAMPLE_SPLIT;
    t->dim = (uint8_t)d;
    t->inner = r->i.inner * right;
    return;
  }
}

static bool retype(Find *q, SampleType *type, SampleIndex i, bool entry, bool *changed) {
  Retype r = {q, type, i, entry, i.index == q->found.own.index, false};
  ex_reads(q->b->m, q->s->body, retype_read, &r);
  *changed |= r.changed;
  return !q->b->failed;
}

static bool set_type(Samples *b, const Stmt *s, SampleType *t, SampleType n, bool *changed) {
  n.params |= t->params;
  n.total |= t->total;
  n.stack |= t->stack;
  n.local |= t->local;
  bool more = n.params != t->params || n.total != t->total || n.stack != t->stack || n.local != t->local;
  for (uint32_t d = 0; d < MAX_RANK; d++) {
    CHECK(!t->other[d] || !n.other[d] || t->other[d] == n.other[d]); // find_merge has looked
    more |= n.other[d] && !t->other[d];
    if (!n.other[d]) n.other[d] = t->other[d];
  }
  if (t->kind != SAMPLE_NONE && n.kind == SAMPLE_NONE) {
    n.kind = t->kind;
    n.dim = t->dim;
    n.inner = t->inner;
  }
  if (t->kind != SAMPLE_NONE &&
      (t->kind != n.kind || (n.kind == SAMPLE_SPLIT && (t->dim != n.dim || t->inner != n.inner))))
    return samples_couple(b, s->loc,
                          "a value has the samples in one dimension at one place, and in another "
                          "dimension, or none, at another");
  *changed |= n.kind != t->kind || more;
  *t = n;
  return true;
}

// What a sum over the samples is. Only an entry has totals, and of few elements: it gets each as a
// scalar argument. No total needs a stack that has parameters to run.
static SampleKind sum_kind(const Find *q, bool entry) {
  const Value *v = &q->f->value.at[q->s->lhs];
  bool total =
      entry && !q->params && !q->total && !q->stack && !q->s->acc && value_count(v) <= MAX_TOTALS;
  return total ? SAMPLE_TOTAL : SAMPLE_PART;
}

// The dimension of the left side that an index which stands there makes one over samples.
static bool left_dim(const Find *q, SampleIndex i, uint8_t *dim, int64_t *inner) {
  const Module *m = q->b->m;
  for (uint32_t d = 0; d < q->f->value.at[q->s->lhs].rank; d++) {
    if (!stands_in(m, q->s->sub[d], i.index)) continue;
    int64_t right = right_of(m, q->s, q->s->sub[d], i.index);
    *dim = (uint8_t)d;
    *inner = i.inner * right;
    if (right) return true;
    break;
  }
  return samples_couple(q->b, q->s->loc,
                        "samples are added up by a subscript of the left side");
}

// What the local indices make of the type of a statement's result.
static bool local_type(Find *q, SampleType *n) {
  const Stmt *s = q->s;
  for (uint32_t k = 0; k < q->found.nlocal; k++) {
    SampleIndex i = q->found.local[k];
    uint8_t dim;
    int64_t inner;
    if (i.index >= s->nfree) {
      n->local = true;
      if (s->red == RED_ARGMAX)
        return samples_couple(q->b, s->loc, "an argmax over them would be the number of a sample");
    } else {
      if (!left_dim(q, i, &dim, &inner)) return false;
      n->other[dim] = inner;
    }
  }
  return true;
}

static bool comp_type(Samples *b, const Fn *f, const Stmt *s, SampleType *type, bool entry,
                      bool *changed) {
  Find q = {.b = b, .f = f, .s = s, .type = type};
  find(&q);
  if (b->failed) return false;
  SampleIndex own = q.found.own;
  SampleType n = {.params = q.params, .total = q.total, .stack = q.stack, .local = q.local};
  if (q.part && (own.index >= 0 || q.found.nlocal))
    return samples_couple_sum(b, s, type, "a sum over all of them is used for each one");
  for (uint32_t k = 0; k < q.found.nlocal; k++)
    if (!retype(&q, type, q.found.local[k], entry, changed)) return false;
  if (!local_type(&q, &n)) return false;
  if (own.index < 0) {
    n.kind = q.part ? SAMPLE_PART : SAMPLE_NONE;
    if (q.part) n.local = false;
    return set_type(b, s, &type[s->lhs], n, changed);
  }
  if (!retype(&q, type, own, entry, changed)) return false;
  if (own.index >= s->nfree) {
    if (s->red != RED_SUM && s->red != RED_MEAN)
      return samples_couple(b, s->loc, "this takes a maximum, minimum or argmax over them");
    for (uint32_t k = 0; k < q.found.nlocal; k++)
      if (q.found.local[k].index >= s->nfree)
        return samples_couple(b, s->loc, "this sums over them and over those of a microbatch");
    n.kind = sum_kind(&q, entry);
    n.local = false; // once added up
    return set_type(b, s, &type[s->lhs], n, changed);
  }
  n.kind = SAMPLE_SPLIT;
  return left_dim(&q, own, &n.dim, &n.inner) && set_type(b, s, &type[s->lhs], n, changed);
}

bool samples_of_callee(Samples *b, const Fn *f, const Stmt *s, SampleType *type, SampleType **out) {
  (void)f;
  const Call *c = s->call;
  const Fn *g = &b->m->fn.at[c->fn];
  SampleType *in = *out = NEWN(b->m->arena, SampleType, g->value.n + 1);
  SampleType *formal = NEWN(b->m->arena, SampleType, c->narg + 1);
  for (uint32_t i = 0; i < c->narg; i++) {
    if (c->arg[i].value == NONE) continue;
    formal[i] = type[c->arg[i].value];
    if (formal[i].kind == SAMPLE_PART)
      return samples_couple(b, s->loc, "a sum over all of them is used for each one");
    formal[i].total |= formal[i].kind == SAMPLE_TOTAL;
    if (formal[i].kind == SAMPLE_TOTAL) formal[i].kind = SAMPLE_NONE;
    for (uint32_t d = 0; d < MAX_RANK; d++)
      if (formal[i].other[d])
        return samples_couple(b, s->loc, "two dimensions of an argument run over them");
    if (c->arg[i].mode == ACT_SLICE && formal[i].kind == SAMPLE_SPLIT) // of parameters alone a stack has slices
      return samples_couple(b, s->loc, "a repeat takes slices of a value that has them");
  }
  for (bool more = true; more;) {
    more = false;
    memset(in, 0, g->value.n * sizeof *in);
    for (uint32_t i = 0; i < c->narg; i++) in[g->arg.at[i]] = formal[i];
    if (!samples_of(b, c->fn, in, false)) return false;
    for (uint32_t i = 0, r = 0; i < c->narg; i++) {
      if (!set_type(b, s, &formal[i], in[g->arg.at[i]], &more)) return false;
      if (c->arg[i].mode != ACT_CARRY) continue;
      while (c->result[r].mode != RES_CARRY) r++;
      if (!set_type(b, s, &formal[i], in[g->result.at[r++]], &more)) return false;
      if (formal[i].kind == SAMPLE_PART)
        return samples_couple(b, s->loc, "a stack passes on a sum over all of them");
    }
  }
  return true;
}

static bool call_type(Samples *b, const Fn *f, const Stmt *s, SampleType *type, bool entry,
                      bool *changed) {
  const Call *c = s->call;
  SampleType *in;
  if (!samples_of_callee(b, f, s, type, &in)) return false;
  const Fn *g = &b->m->fn.at[c->fn];
  bool stack = false;
  for (uint32_t i = 0; i < c->narg; i++) { // arguments that run over samples, as the callee found
    SampleType t = in[g->arg.at[i]];
    stack |= t.params || t.stack;
    if (c->arg[i].value == NONE || t.kind != SAMPLE_SPLIT) continue;
    SampleType *a = &type[c->arg[i].value];
    if (a->kind == SAMPLE_SPLIT) continue;
    if (is_parameter(f, entry, type, c->arg[i].value))
      return samples_couple(b, s->loc, "a read depends on the number of a sample");
    if (c->arg[i].mode == ACT_SLICE) t.dim++;
    t.params = a->params;
    if (!set_type(b, s, a, t, changed)) return false;
  }
  for (uint32_t r = 0; r < c->nresult; r++) {
    SampleType t = in[g->result.at[r]];
    if (c->result[r].value == NONE) continue;
    for (uint32_t d = 0; d < MAX_RANK; d++)
      if (t.other[d])
        return samples_couple(b, s->loc, "two dimensions of a result run over them");
    if (c->result[r].mode == RES_SLICE) t.dim++;
    t.stack |= stack;
    if (!set_type(b, s, &type[c->result[r].value], t, changed)) return false;
  }
  return true;
}

bool samples_of(Samples *b, Id fn, SampleType *type, bool entry) {
  for (bool changed = true; changed;) {
    changed = false;
    const Fn *f = &b->m->fn.at[fn];
    for (uint32_t i = 0; i < f->stmt.n; i++) {
      const Stmt *s = &f->stmt.at[i];
      bool ok = s->kind == ST_COMP ? comp_type(b, f, s, type, entry, &changed)
                                   : call_type(b, f, s, type, entry, &changed);
      if (!ok || b->failed) return false;
    }
  }
  return true;
}
