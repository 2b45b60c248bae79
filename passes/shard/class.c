// Which indices run over the same thing. A node for each dimension of each value and each index of
// each statement; a bare subscript joins its dimension and its index, a group its dimension and its
// first index that counts, a call what it passes. The classes of the data's leading dimension are
// the batch, those of a token's position and of attention's queries and keys the sequence. Within
// an intrinsic, only the classes of the intrinsic's statements distinguish queries from keys.
#include "ir/intrinsic.h"
#include "passes/shard/shard.h"

static Id find(Id *parent, Id x) {
  while (parent[x] != x) x = parent[x] = parent[parent[x]];
  return x;
}

static void join_in(Id *parent, Id a, Id b) {
  a = find(parent, a);
  b = find(parent, b);
  if (a != b) parent[a > b ? a : b] = a < b ? a : b;
}

static void join(Classes *c, Id a, Id b) { join_in(c->parent, a, b); }

static Id dim_node(const Classes *c, Id fn, Id value, uint32_t dim) {
  return c->value_base[fn] + value * MAX_RANK + dim;
}
static Id index_node(const Classes *c, Id fn, uint32_t stmt, uint32_t index) {
  return c->stmt_base[fn] + stmt * MAX_INDEX + index;
}
Id class_of_dim(const Classes *c, Id fn, Id value, uint32_t dim) {
  return find(c->parent, dim_node(c, fn, value, dim));
}
Id class_of_index(const Classes *c, Id fn, uint32_t stmt, uint32_t index) {
  return find(c->parent, index_node(c, fn, stmt, index));
}

Id local_class_of_dim(const Classes *c, Id fn, Id value, uint32_t dim) {
  return find(c->local, dim_node(c, fn, value, dim));
}
Id local_class_of_index(const Classes *c, Id fn, uint32_t stmt, uint32_t index) {
  return find(c->local, index_node(c, fn, stmt, index));
}

typedef struct Join {
  Classes *c;
  Id fn;
  uint32_t stmt;
} Join;

// The index that a subscript stands for: bare, or first of a group.
static int main_index(const Module *m, const Stmt *s, Id sub) {
  const Expr *x = ex(m, sub);
  if (x->op == OP_INDEX) return (int)x->integer;
  if (x->op != OP_GROUP) return -1;
  for (uint32_t i = 0; i < x->narg; i++) {
    const Expr *a = ex(m, ex_arg(m, sub, i));
    if (a->op != OP_INDEX) return -1;
    if (s->index[a->integer].extent > 1) return (int)a->integer;
  }
  return -1;
}

static void join_sub(Join *j, Id value, uint32_t dim, Id sub) {
  const Module *m = j->c->m;
  int i = main_index(m, &m->fn.at[j->fn].stmt.at[j->stmt], sub);
  if (i < 0) return;
  Id a = dim_node(j->c, j->fn, value, dim), b = index_node(j->c, j->fn, j->stmt, (uint32_t)i);
  join(j->c, a, b);
  join_in(j->c->local, a, b);
}

static void join_read(const Module *m, Id read, void *ctx) {
  for (uint32_t d = 0; d < ex(m, read)->narg; d++)
    join_sub(ctx, (Id)ex(m, read)->integer, d, ex_arg(m, read, d));
}

static void join_comp(Join *j, const Fn *f, const Stmt *s) {
  const Module *m = j->c->m;
  comp_reads(m, f, s, join_read, j);
  for (uint32_t d = 0; d < f->value.at[s->lhs].rank; d++) join_sub(j, s->lhs, d, s->sub[d]);
}

static void join_dims(Join *j, Id value, Id callee, Id formal, bool slice) {
  const Value *v = &j->c->m->fn.at[callee].value.at[formal];
  for (uint32_t d = 0; d < v->rank; d++)
    join(j->c, dim_node(j->c, j->fn, value, d + slice), dim_node(j->c, callee, formal, d));
}

static void join_call(Join *j, const Call *c) {
  const Fn *g = &j->c->m->fn.at[c->fn];
  uint32_t k = 0;
  for (uint32_t i = 0; i < c->narg; i++) {
    if (c->arg[i].mode == ACT_ITER) continue;
    join_dims(j, c->arg[i].value, c->fn, g->arg.at[i], c->arg[i].mode == ACT_SLICE);
    if (c->arg[i].mode != ACT_CARRY) continue;
    while (c->result[k].mode != RES_CARRY) k++;
    join_dims(j, c->arg[i].value, c->fn, g->result.at[k++], false);
  }
  for (uint32_t i = 0; i < c->nresult; i++)
    if (c->result[i].mode != RES_DROP)
      join_dims(j, c->result[i].value, c->fn, g->result.at[i], c->result[i].mode == RES_SLICE);
}

// A derivative runs over what it is the derivative of, also where that is not read.
static void join_derivatives(Classes *c, Id fn) {
  const Fn *f = &c->m->fn.at[fn];
  for (uint32_t i = 0; i < f->arg.n; i++) {
    const Value *v = &f->value.at[f->arg.at[i]];
    for (uint32_t d = 0; v->means == MEANS_ADJOINT && d < v->rank; d++) {
      join(c, dim_node(c, fn, v->of, d), dim_node(c, fn, f->arg.at[i], d));
      join_in(c->local, dim_node(c, fn, v->of, d), dim_node(c, fn, f->arg.at[i], d));
    }
  }
}

static void join_fn(Classes *c, Id fn) {
  const Fn *f = &c->m->fn.at[fn];
  for (uint32_t i = 0; i < f->stmt.n; i++) {
    Join j = {c, fn, i};
    if (f->stmt.at[i].kind == ST_COMP) join_comp(&j, f, &f->stmt.at[i]);
    else if (f->stmt.at[i].call) join_call(&j, f->stmt.at[i].call);
  }
  if (f->intrinsic) join_derivatives(c, fn);
}

static void mark_data(Classes *c, Id fn, uint32_t ndata) {
  const Fn *f = &c->m->fn.at[fn];
  for (uint32_t i = 0; i < ndata && i < f->arg.n; i++) {
    const Value *v = &f->value.at[f->arg.at[i]];
    if (v->rank) c->batch[class_of_dim(c, fn, f->arg.at[i], 0)] = true;
    if (v->rank > 1 && v->type == DT_I32) c->sequence[class_of_dim(c, fn, f->arg.at[i], 1)] = true;
  }
}

static void mark_intrinsic(Classes *c, Id fn) {
  const Fn *f = &c->m->fn.at[fn];
  for (uint32_t i = 0; i < f->arg.n; i++)
    for (uint32_t d = 0; d < f->value.at[f->arg.at[i]].rank; d++)
      if (intrinsic_is_sequence(f, i, d)) c->sequence[class_of_dim(c, fn, f->arg.at[i], d)] = true;
}

void classes_make(Classes *c, const Module *m) {
  uint32_t n = 0;
  *c = (Classes){.m = m};
  c->value_base = NEWN(m->arena, uint32_t, m->fn.n + 1);
  c->stmt_base = NEWN(m->arena, uint32_t, m->fn.n + 1);
  for (Id f = 0; f < m->fn.n; f++) {
    c->value_base[f] = n;
    n += m->fn.at[f].value.n * MAX_RANK;
    c->stmt_base[f] = n;
    n += m->fn.at[f].stmt.n * MAX_INDEX;
  }
  c->parent = NEWN(m->arena, Id, n + 1);
  c->local = NEWN(m->arena, Id, n + 1);
  for (Id i = 0; i < n; i++) c->parent[i] = c->local[i] = i;
  c->batch = NEWN(m->arena, bool, n + 1);
  c->sequence = NEWN(m->arena, bool, n + 1);
  for (Id f = 0; f < m->fn.n; f++) join_fn(c, f);
  for (int e = 0; e < NENTRY; e++)
    if (m->entry[e] != NONE && e != ENTRY_UPDATE)
      mark_data(c, m->entry[e], e == ENTRY_SAMPLE ? 1 : m->ndata);
  for (Id f = 0; f < m->fn.n; f++) mark_intrinsic(c, f);
}

bool shard_allowed(const Sharder *z, Id class, int64_t extent) {
  if (extent < 2 || z->class.batch[class]) return false;
  return z->class.sequence[class] ? z->context || z->sequence : !z->context;
}
