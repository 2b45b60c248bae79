// A layer's forward function as values and steps, with those that its backward function needs.
//
// A step is a statement, or all statements that add to one accumulator. Arguments that both functions get are at hand: they
// are no values of the graph.
#include "passes/cost.h"
#include "passes/product.h"
#include "passes/recompute/recompute.h"

typedef struct Graph {
  Layer *l;
  Module *m;
  Fn *f;
  uint32_t *def; // by value: its step, or NONE
  uint32_t at; // the step at hand
  VEC(uint32_t) read;
} Graph;

static void note_def(Id v, void *ctx) {
  Graph *g = ctx;
  g->def[v] = g->at;
}

typedef struct FindDef {
  const uint32_t *def;
  uint32_t found;
} FindDef;

static void find_def(Id v, void *ctx) {
  FindDef *d = ctx;
  if (d->def[v] != NONE) d->found = d->def[v];
}

// A statement that adds to what an earlier one has begun is of its step.
static void number_steps(Graph *g) {
  Layer *l = g->l;
  for (uint32_t i = 0; i < g->f->stmt.n; i++) {
    FindDef d = {g->def, NONE};
    stmt_writes(g->m, &g->f->stmt.at[i], find_def, &d);
    bool copy = false;
    for (uint32_t k = 0; k < l->copy.n; k++)
      copy |= !g->f->stmt.at[i].call && g->f->stmt.at[i].lhs == l->copy.at[k].here;
    l->step[i] = copy ? NONE : d.found != NONE ? d.found : l->keep.nstep++;
    g->at = l->step[i];
    stmt_writes(g->m, &g->f->stmt.at[i], note_def, g);
  }
}

static void note_read(Id v, void *ctx) {
  Graph *g = ctx;
  v = layer_saved(g->l, v);
  if (layer_is_passed(g->l, v) || g->def[v] == g->at) return;
  for (uint32_t i = 0; i < g->read.n; i++)
    if (g->read.at[i] == v) return;
  PUSH(g->m->arena, g->read, v);
}

// Statements that a selective choice does not run again: products of matrices, with them the layers inside, and sums over ranks.
static bool is_dear(const Module *m, const Stmt *s) {
  if (s->kind == ST_REPEAT) return true;
  if (s->kind == ST_COLL) return coll_reduces(s->coll);
  return s->kind == ST_COMP && stmt_is_product(m, s);
}

static void fill_steps(Graph *g, Recompute mode) {
  Keep *k = &g->l->keep;
  for (uint32_t s = 0; s < k->nstep; s++) {
    double cost = 0;
    g->at = s;
    g->read.at = NULL;
    g->read.n = g->read.cap = 0;
    for (uint32_t i = 0; i < g->f->stmt.n; i++) {
      const Stmt *x = &g->f->stmt.at[i];
      if (g->l->step[i] != s) continue;
      cost += cost_again(g->m, g->f, x) * (double)g->l->times;
      k->step[s].once |= mode == RECOMPUTE_SELECTIVE && is_dear(g->m, x);
      stmt_reads(g->m, g->f, x, note_read, g);
    }
    k->step[s].cost = cost < 0x1p52 ? (int64_t)cost : INT64_C(1) << 52;
    k->step[s].nread = g->read.n;
    k->step[s].read = g->read.at;
  }
}

static void note_needed(Id v, void *ctx) {
  Graph *g = ctx;
  for (uint32_t i = 0; i < g->l->cross.n; i++) {
    Id made = g->l->cross.at[i].made;
    if (g->l->cross.at[i].here == v && !layer_is_passed(g->l, made)) g->l->keep.value[made].needed = true;
  }
}

void layer_graph(Layer *l, Recompute mode) {
  Module *m = l->m;
  Graph g = {.l = l, .m = m, .f = layer_forward(l)};
  const Fn *b = layer_backward(l);
  g.def = NEWN(m->arena, uint32_t, g.f->value.n + 1);
  memset(g.def, 0xff, (g.f->value.n + 1) * sizeof *g.def);
  l->step = NEWN(m->arena, uint32_t, g.f->stmt.n + 1);
  l->keep = (Keep){.arena = m->arena, .nvalue = g.f->value.n, .nodes = m->limits.keep_nodes};
  l->nstmt = g.f->stmt.n;
  number_steps(&g);
  l->keep.value = NEWN(m->arena, KeepValue, l->keep.nvalue + 1);
  l->keep.step = NEWN(m->arena, KeepStep, l->keep.nstep + 1);
  for (Id v = 0; v < l->keep.nvalue; v++) {
    const Value *x = &g.f->value.at[v];
    bool passing = mode == RECOMPUTE_FULL && g.def[v] != NONE;
    l->keep.value[v] = (KeepValue){value_count(x) * dtype_size(x->type) * l->times, g.def[v], false, passing};
  }
  fill_steps(&g, mode);
  for (uint32_t i = 0; i < b->stmt.n; i++) stmt_reads(m, b, &b->stmt.at[i], note_needed, &g);
}
