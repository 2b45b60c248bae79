// The choice of what is kept, as minimum cuts.
//
// A value that is wanted is kept, or made by its step; a step that runs wants all that it reads. With W and R for "is wanted"
// and "runs again", the cost at price p of a byte is the sum of p * bytes * W(v) * (1 - R(def of v)) over values and of
// cost * R(s) over steps, and W(u) holds where R(s) does and s reads u. Each term is of the form a * (1 - b), so that a minimum cut finds
// the least (Picard 1976, "Maximal closure of a graph"): W and R are the nodes on the source's side.
#include "passes/recompute/choose.h"

__extension__ typedef __int128 Wide; // of a cost times bytes

typedef struct Edge {
  uint32_t to, next; // next edge of the same node, or NONE
  Wide left; // capacity
} Edge;

typedef struct Net {
  uint32_t n, *first, *level, *at, *queue; // level: 1 + edges from node 0, 0 where it is not reached
  VEC(Edge) edge; // edge e and its reverse, e ^ 1
  Arena *arena;
} Net;

static const Wide endless = (Wide)1 << 120;

static void add_edge(Net *g, uint32_t from, uint32_t to, Wide capacity) {
  PUSH(g->arena, g->edge, (Edge){to, g->first[from], capacity});
  g->first[from] = g->edge.n - 1;
  PUSH(g->arena, g->edge, (Edge){from, g->first[to], 0});
  g->first[to] = g->edge.n - 1;
}

// Breadth first from node 0. Whether it comes to node 1.
static bool reach(Net *g) {
  uint32_t head = 0, tail = 0;
  memset(g->level, 0, g->n * sizeof *g->level);
  memcpy(g->at, g->first, g->n * sizeof *g->at);
  g->level[0] = 1;
  g->queue[tail++] = 0;
  while (head < tail) {
    uint32_t v = g->queue[head++];
    for (uint32_t e = g->first[v]; e != NONE; e = g->edge.at[e].next) {
      uint32_t to = g->edge.at[e].to;
      if (!g->edge.at[e].left || g->level[to]) continue;
      g->level[to] = g->level[v] + 1;
      g->queue[tail++] = to;
    }
  }
  return g->level[1] != 0;
}

// Of at most `most`, what flows from v to node 1 along edges to the next level.
static Wide push(Net *g, uint32_t v, Wide most) {
  Wide sent = 0;
  if (v == 1) return most;
  for (; g->at[v] != NONE && sent < most; g->at[v] = g->edge.at[g->at[v]].next) {
    uint32_t e = g->at[v], to = g->edge.at[e].to;
    Wide room = g->edge.at[e].left < most - sent ? g->edge.at[e].left : most - sent;
    if (!room || g->level[to] != g->level[v] + 1) continue;
    Wide flow = push(g, to, room);
    g->edge.at[e].left -= flow;
    g->edge.at[e ^ 1].left += flow;
    sent += flow;
    if (sent == most) break;
  }
  return sent;
}

// A maximum flow (Dinic 1970). False where it has no end.
static bool fill(Net *g) {
  Wide all = 0;
  while (reach(g) && all < endless) all += push(g, 0, endless);
  return all < endless;
}

typedef enum Force { FREE, NOT, MUST } Force;

static uint32_t value_node(uint32_t v) { return 2 + v; }
static uint32_t step_node(const Keep *k, uint32_t s) { return 2 + k->nvalue + s; }

static Net network(const Keep *k, const uint8_t *force, int64_t price, int64_t weight, Arena *arena) {
  Net g = {.n = 2 + k->nvalue + k->nstep, .arena = arena};
  g.first = NEWN(arena, uint32_t, g.n);
  g.level = NEWN(arena, uint32_t, g.n);
  g.at = NEWN(arena, uint32_t, g.n);
  g.queue = NEWN(arena, uint32_t, g.n);
  memset(g.first, 0xff, g.n * sizeof *g.first);
  for (uint32_t v = 0; v < k->nvalue; v++) {
    const KeepValue *x = &k->value[v];
    bool made = x->def != NONE && !k->step[x->def].once && force[x->def] != NOT;
    if (x->needed) add_edge(&g, 0, value_node(v), endless);
    add_edge(&g, value_node(v), made ? step_node(k, x->def) : 1, x->passing ? endless : (Wide)x->bytes * price);
  }
  for (uint32_t s = 0; s < k->nstep; s++) {
    const KeepStep *x = &k->step[s];
    add_edge(&g, step_node(k, s), 1, (Wide)x->cost * weight);
    if (force[s] == MUST) add_edge(&g, 0, step_node(k, s), endless);
    for (uint32_t i = 0; i < x->nread; i++) add_edge(&g, step_node(k, s), value_node(x->read[i]), endless);
  }
  return g;
}

// The least of price * bytes + weight * cost; of several, the one with the fewest steps. False where there is none.
static bool cut(const Keep *k, const uint8_t *force, int64_t price, int64_t weight, Choice *c) {
  Arena *arena = arena_new();
  Net g = network(k, force, price, weight, arena);
  bool ok = fill(&g);
  c->bytes = c->cost = 0;
  for (uint32_t s = 0; ok && s < k->nstep; s++) {
    c->again[s] = g.level[step_node(k, s)] != 0;
    if (c->again[s]) c->cost += k->step[s].cost;
  }
  for (uint32_t v = 0; ok && v < k->nvalue; v++) {
    const KeepValue *x = &k->value[v];
    c->kept[v] = g.level[value_node(v)] != 0 && !(x->def != NONE && c->again[x->def]);
    if (c->kept[v]) c->bytes += x->bytes;
  }
  arena_free(arena);
  return ok;
}

static Choice choice_new(const Keep *k) {
  return (Choice){.again = NEWN(k->arena, bool, k->nstep + 1), .kept = NEWN(k->arena, bool, k->nvalue + 1)};
}

static void choice_copy(const Keep *k, Choice *to, const Choice *from) {
  bool *again = to->again, *kept = to->kept;
  memcpy(again, from->again, k->nstep * sizeof *again);
  memcpy(kept, from->kept, k->nvalue * sizeof *kept);
  *to = *from;
  to->again = again;
  to->kept = kept;
}

bool keep_least(const Keep *k, Choice *c) {
  *c = choice_new(k);
  bool ok = cut(k, NEWN(k->arena, uint8_t, k->nstep + 1), 1, 0, c);
  c->bound = c->cost;
  return ok;
}

typedef struct Search {
  const Keep *k;
  int64_t budget;
  uint8_t *force;
  Choice best;
  bool any;
  int64_t bound; // of the nodes that were left out
  int64_t nodes;
} Search;

static void offer(Search *s, const Choice *c) {
  if (s->any && (c->cost > s->best.cost || (c->cost == s->best.cost && c->bytes >= s->best.bytes))) return;
  choice_copy(s->k, &s->best, c);
  s->any = true;
}

// Between `over`, which costs less and keeps too much, and `in`, which keeps little enough: moves both to the neighbours of the
// budget on the convex hull of all choices. Returns the hull's cost there, rounded up.
static int64_t hull(Search *s, Choice *over, Choice *in) {
  Choice mid = choice_new(s->k);
  for (;;) {
    int64_t price = in->cost - over->cost, weight = over->bytes - in->bytes;
    Wide line = (Wide)price * over->bytes + (Wide)weight * over->cost;
    if (price <= 0 || !cut(s->k, s->force, price, weight, &mid)) return over->cost;
    if ((Wide)price * mid.bytes + (Wide)weight * mid.cost >= line) {
      Wide rise = (Wide)price * (over->bytes - s->budget);
      return over->cost + (int64_t)((rise + weight - 1) / weight);
    }
    choice_copy(s->k, mid.bytes <= s->budget ? in : over, &mid);
  }
}

// The dearest step that only one of the two runs again.
static uint32_t differs(const Search *s, const Choice *a, const Choice *b) {
  uint32_t at = NONE;
  for (uint32_t i = 0; i < s->k->nstep; i++)
    if (a->again[i] != b->again[i] && s->force[i] == FREE && (at == NONE || s->k->step[i].cost > s->k->step[at].cost)) at = i;
  return at;
}

static void leave_out(Search *s, int64_t bound) {
  if (bound < s->bound) s->bound = bound;
}

static void branch(Search *s) {
  Choice over = choice_new(s->k), in = choice_new(s->k);
  if (!cut(s->k, s->force, 0, 1, &over)) return;
  if (over.bytes <= s->budget) {
    offer(s, &over);
    return;
  }
  if (!cut(s->k, s->force, 1, 0, &in) || in.bytes > s->budget) return;
  int64_t bound = hull(s, &over, &in);
  offer(s, &in);
  if (bound >= s->best.cost) return;
  uint32_t at = differs(s, &over, &in);
  if (at == NONE || ++s->nodes > s->k->nodes) {
    leave_out(s, bound);
    return;
  }
  for (int i = 0; i < 2; i++) {
    s->force[at] = (i == 0) == in.again[at] ? MUST : NOT;
    branch(s);
  }
  s->force[at] = FREE;
}

bool keep_within(const Keep *k, int64_t budget, Choice *c) {
  Search s = {.k = k, .budget = budget, .force = NEWN(k->arena, uint8_t, k->nstep + 1), .best = choice_new(k), .bound = INT64_MAX};
  branch(&s);
  *c = s.best;
  c->bound = s.bound < s.best.cost ? s.bound : s.best.cost;
  return s.any;
}
