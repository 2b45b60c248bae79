// Finds where the samples of the batch are, by following the data arguments' leading dimension
// through statements, bodies of repeats and intrinsics: bare indices and groups carry it, sums over
// it end it.
#include "passes/samples.h"

bool samples_couple(Samples *b, Id loc, const char *what) {
  if (!b->failed) {
    diag_error(b->m->src, loc, "this couples the samples of the batch: %s", what);
    diag_note(b->m->src, loc,
              "the batch is cut into microbatches and over ranks, so that only sums and means "
              "over it are known, at the end");
  }
  b->failed = true;
  return false;
}

// The member of a subscript that runs over samples, where the dimension does with `inner`.
static SampleIndex member(const Samples *b, const Stmt *s, Id sub, int64_t inner) {
  const Module *m = b->m;
  SampleIndex none = {-1, 0};
  int64_t right = 1;
  if (ex_is(m, sub, OP_INDEX)) {
    int64_t i = ex(m, sub)->integer;
    return s->index[i].extent % (inner * b->size) ? none : (SampleIndex){(int)i, inner};
  }
  if (!ex_is(m, sub, OP_GROUP)) return none;
  for (uint32_t k = ex(m, sub)->narg; k-- > 0;) {
    const Expr *a = ex(m, ex_arg(m, sub, k));
    if (a->op != OP_INDEX) return none;
    int64_t extent = s->index[a->integer].extent;
    if (inner % right == 0 && right * extent % (inner * b->size) == 0)
      return (SampleIndex){(int)a->integer, inner / right};
    right *= extent;
  }
  return none;
}

typedef struct Find {
  Samples *b;
  const Fn *f;
  const Stmt *s;
  const SampleType *type;
  SampleIndex found;
  bool part, params, total;
} Find;

static void find_merge(Find *q, Id sub, int64_t inner) {
  SampleIndex i = member(q->b, q->s, sub, inner);
  if (i.index < 0)
    samples_couple(q->b, q->s->loc, "a sample is read by something other than its own index");
  else if (q->found.index < 0)
    q->found = i;
  else if (q->found.index != i.index || q->found.inner != i.inner)
    samples_couple(q->b, q->s->loc, "two indices of one statement run over it");
}

static void find_read(const Module *m, Id read, void *ctx) {
  Find *q = ctx;
  const SampleType *t = &q->type[ex(m, read)->integer];
  if (t->kind == SAMPLE_SPLIT) find_merge(q, ex_arg(m, read, t->dim), t->inner);
  q->part |= t->kind == SAMPLE_PART;
  q->params |= t->params;
  q->total |= t->total || t->kind == SAMPLE_TOTAL;
}

static void find(Find *q) {
  const Module *m = q->b->m;
  const SampleType *t = &q->type[q->s->lhs];
  q->found.index = -1;
  ex_reads(m, q->s->body, find_read, q);
  for (uint32_t d = 0; d < q->f->value.at[q->s->lhs].rank; d++)
    ex_reads(m, q->s->sub[d], find_read, q);
  if (t->kind == SAMPLE_SPLIT) find_merge(q, q->s->sub[t->dim], t->inner);
}

SampleIndex sample_index(Samples *b, const Fn *f, const Stmt *s, const SampleType *type) {
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

// Reads of values that do not run over samples, by the sample index: a local value turns out to run
// over them after all; a parameter can't.
typedef struct Retype {
  Find *q;
  SampleType *type;
  bool changed;
} Retype;

static void retype_read(const Module *m, Id read, void *ctx) {
  Retype *r = ctx;
  Find *q = r->q;
  Id v = (Id)ex(m, read)->integer;
  for (uint32_t d = 0; d < ex(m, read)->narg; d++) {
    Id sub = ex_arg(m, read, d);
    SampleType *t = &r->type[v];
    if ((t->kind == SAMPLE_SPLIT && d == t->dim) || !stands_in(m, sub, q->found.index)) continue;
    int64_t right = 1;
    bool bare = ex_is(m, sub, OP_INDEX), group = ex_is(m, sub, OP_GROUP);
    for (uint32_t k = group ? ex(m, sub)->narg : 0; k-- > 0;) {
      const Expr *a = ex(m, ex_arg(m, sub, k));
      if (a->op != OP_INDEX) bare = group = false;
      else if (a->integer == q->found.index) break;
      else right *= q->s->index[a->integer].extent;
    }
    if (t->params || t->kind != SAMPLE_NONE || !(bare || group)) {
      samples_couple(q->b, q->s->loc, "the number of a sample chooses what is read");
      return;
    }
    *t = (SampleType){.kind = SAMPLE_SPLIT, .dim = (uint8_t)d, .total = t->total,
                      .inner = q->found.inner * right};
    r->changed = true;
    return;
  }
}

static bool set_type(Samples *b, const Stmt *s, SampleType *t, SampleType n, bool *changed) {
  n.params |= t->params;
  n.total |= t->total;
  if (t->kind != SAMPLE_NONE && n.kind == SAMPLE_NONE) {
    n.kind = t->kind;
    n.dim = t->dim;
    n.inner = t->inner;
  }
  if (t->kind != SAMPLE_NONE &&
      (t->kind != n.kind || (n.kind == SAMPLE_SPLIT && (t->dim != n.dim || t->inner != n.inner))))
    return samples_couple(b, s->loc,
                          "a value is made once for each sample and once for all of them");
  *changed |= n.kind != t->kind || n.params != t->params || n.total != t->total;
  *t = n;
  return true;
}

// What a sum over the samples is. Only a scalar of an entry can be a total.
static SampleKind sum_kind(const Find *q, bool entry) {
  bool total = entry && !q->params && !q->total && !q->s->acc && !q->f->value.at[q->s->lhs].rank;
  return total ? SAMPLE_TOTAL : SAMPLE_PART;
}

static bool comp_type(Samples *b, const Fn *f, const Stmt *s, SampleType *type, bool entry,
                      bool *changed) {
  const Module *m = b->m;
  Find q = {.b = b, .f = f, .s = s, .type = type};
  find(&q);
  if (b->failed) return false;
  SampleType n = {.params = q.params, .total = q.total};
  if (q.found.index < 0) {
    n.kind = q.part ? SAMPLE_PART : SAMPLE_NONE;
    return set_type(b, s, &type[s->lhs], n, changed);
  }
  if (q.part) return samples_couple(b, s->loc, "a sum over all of them is used for each one");
  Retype r = {&q, type, false};
  ex_reads(m, s->body, retype_read, &r);
  *changed |= r.changed;
  if (b->failed) return false;
  if (q.found.index >= s->nfree) {
    if (s->red != RED_SUM && s->red != RED_MEAN)
      return samples_couple(b, s->loc, "this takes a maximum, minimum or argmax over them");
    n.kind = sum_kind(&q, entry);
    return set_type(b, s, &type[s->lhs], n, changed);
  }
  n.kind = SAMPLE_SPLIT;
  for (uint32_t d = 0; d < f->value.at[s->lhs].rank; d++) {
    if (!stands_in(m, s->sub[d], q.found.index)) continue;
    int64_t right = 1;
    uint32_t k = ex(m, s->sub[d])->narg;
    bool whole = ex_is(m, s->sub[d], OP_INDEX) || ex_is(m, s->sub[d], OP_GROUP);
    while (whole && k-- > 0) {
      const Expr *a = ex(m, ex_arg(m, s->sub[d], k));
      if (a->op == OP_INDEX && a->integer == q.found.index) break;
      if (a->op != OP_INDEX) whole = false;
      else right *= s->index[a->integer].extent;
    }
    if (!whole) break;
    n.dim = (uint8_t)d;
    n.inner = q.found.inner * right;
    return set_type(b, s, &type[s->lhs], n, changed);
  }
  return samples_couple(b, s->loc, "samples are added up by a subscript of the left side");
}

// A caller's type seen from inside a repeat, where its leading dimension is the iteration.
static bool slice_type(Samples *b, const Stmt *s, SampleType *t) {
  if (t->kind != SAMPLE_SPLIT) return true;
  if (!t->dim) return samples_couple(b, s->loc, "a repeat iterates over them");
  t->dim--;
  return true;
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
    if (c->arg[i].mode == ACT_SLICE && !slice_type(b, s, &formal[i])) return false;
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
        return samples_couple(b, s->loc, "a sum over all of them is carried on");
    }
  }
  return true;
}

static bool call_type(Samples *b, const Fn *f, const Stmt *s, SampleType *type, bool *changed) {
  const Call *c = s->call;
  SampleType *in;
  if (!samples_of_callee(b, f, s, type, &in)) return false;
  const Fn *g = &b->m->fn.at[c->fn];
  for (uint32_t i = 0; i < c->narg; i++) { // arguments that run over samples, as the callee found
    SampleType t = in[g->arg.at[i]];
    if (c->arg[i].value == NONE || t.kind != SAMPLE_SPLIT) continue;
    SampleType *a = &type[c->arg[i].value];
    if (a->kind == SAMPLE_SPLIT) continue;
    if (a->params) return samples_couple(b, s->loc, "the number of a sample chooses what is read");
    if (c->arg[i].mode == ACT_SLICE) t.dim++;
    t.params = a->params;
    if (!set_type(b, s, a, t, changed)) return false;
  }
  for (uint32_t r = 0; r < c->nresult; r++) {
    SampleType t = in[g->result.at[r]];
    if (c->result[r].value == NONE) continue;
    if (c->result[r].mode == RES_SLICE) t.dim++;
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
                                   : call_type(b, f, s, type, &changed);
      if (!ok || b->failed) return false;
    }
  }
  return true;
}

typedef struct PartQuery {
  const SampleType *type;
  bool any;
} PartQuery;

static void part_read(const Module *m, Id read, void *ctx) {
  PartQuery *q = ctx;
  q->any |= q->type[ex(m, read)->integer].kind == SAMPLE_PART;
}

bool reads_part(const Module *m, Id e, const SampleType *type) {
  PartQuery q = {type, false};
  ex_reads(m, e, part_read, &q);
  return q.any;
}
