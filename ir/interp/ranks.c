// All ranks of a mesh in one process. Each rank is a thread, but only the one that holds the
// world's lock runs: it hands the lock on where it waits in a collective. So runs repeat, and what
// a rank sees does not depend on the machine.
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "ir/interp/interp.h"
#include "ir/layout.h"
#include "ir/text/text.h"

// ---- shares

int64_t mesh_size(const Module *m) {
  int64_t n = 1;
  for (uint32_t a = 0; a < m->axis.n; a++) n *= m->axis.at[a].size;
  return n;
}

void mesh_coord(const Module *m, int64_t rank, int64_t coord[MAX_AXIS]) {
  for (uint32_t a = 0; a < m->axis.n; a++) {
    coord[a] = rank % m->axis.at[a].size;
    rank /= m->axis.at[a].size;
  }
}

// The element of the whole that stands at a rank's element `at`; -1: past the end.
static int64_t whole_element(const Module *m, const Shard *shard, const Tensor *share,
                             const int64_t *extent, const int64_t *coord, int64_t at) {
  int64_t place[MAX_RANK], r = 0;
  for (uint32_t d = share->rank; d-- > 0;) {
    place[d] = at % share->extent[d];
    at /= share->extent[d];
  }
  for (uint32_t d = 0; d < share->rank; d++) {
    int64_t p = layout_global(m, shard, d, extent[d], coord, place[d]);
    if (p < 0) return -1;
    r = r * extent[d] + p;
  }
  return r;
}

// Whether the rank's array is a part of the whole, rather than nothing, in a partial one.
static bool holds(const Module *m, const Shard *shard, const int64_t *coord) {
  for (uint32_t a = 0; a < m->axis.n; a++)
    if (shard[a].kind == SHARD_PARTIAL && shard[a].op == RED_SUM && coord[a]) return false;
  return true;
}

Tensor *tensor_share(const Module *m, const Shard *shard, const Tensor *whole, int64_t rank) {
  int64_t extent[MAX_RANK], coord[MAX_AXIS];
  mesh_coord(m, rank, coord);
  for (uint32_t d = 0; d < whole->rank; d++)
    extent[d] = layout_extent(m, shard, d, whole->extent[d]);
  Tensor *t = tensor_new(whole->type, extent, whole->rank);
  for (int64_t i = 0, n = tensor_count(t); i < n && holds(m, shard, coord); i++) {
    int64_t at = whole_element(m, shard, t, whole->extent, coord, i);
    if (at < 0) continue;
    if (t->real)
      t->real[i] = whole->real[at];
    else
      t->integer[i] = whole->integer[at];
  }
  return t;
}

static double reduce2(Red op, double a, double b) {
  if (op == RED_SUM) return a + b;
  if (isnan(a) || isnan(b)) return NAN;
  return op == RED_MAX ? (a > b ? a : b) : (a < b ? a : b);
}

static int32_t reduce2_int(Red op, int32_t a, int32_t b) {
  if (op == RED_SUM) return (int32_t)((uint32_t)a + (uint32_t)b);
  return op == RED_MAX ? (a > b ? a : b) : (a < b ? a : b);
}

static double element(const Tensor *t, int64_t i) { return t->real ? t->real[i] : t->integer[i]; }

static bool same_bits(double a, double b) {
  return a == b || (isnan(a) && isnan(b)); // zeros of both signs are alike
}

// Of an element that several ranks hold: the reduction where it is partial, else they agree.
typedef struct Gather {
  const Module *m;
  const Shard *shard;
  Red op; // RED_NONE: not partial
  Tensor *whole;
  int64_t *from; // for each element, 1 + the first rank that gave it
  Buf *error;
} Gather;

static bool gather_rank(Gather *g, const Tensor *share, int64_t rank) {
  int64_t coord[MAX_AXIS];
  mesh_coord(g->m, rank, coord);
  for (int64_t i = 0, n = tensor_count(share); i < n; i++) {
    int64_t at = whole_element(g->m, g->shard, share, g->whole->extent, coord, i);
    double v = element(share, i);
    if (at < 0 && v == 0) continue;
    if (at < 0) {
      buf_printf(g->error, "place %lld of rank %lld is past the end and holds %g", (long long)i,
                 (long long)rank, v);
      return false;
    }
    double old = g->from[at] ? element(g->whole, at) : 0;
    if (g->from[at] && g->op == RED_NONE && !same_bits(old, v)) {
      buf_printf(g->error, "element %lld is %.17g on rank %lld and %.17g on rank %lld",
                 (long long)at, old, (long long)g->from[at] - 1, v, (long long)rank);
      return false;
    }
    if (g->from[at])
      v = reduce2(g->op == RED_NONE ? RED_MAX : g->op, old, v);
    else
      g->from[at] = rank + 1;
    if (g->whole->real)
      g->whole->real[at] = v;
    else
      g->whole->integer[at] = (int32_t)v;
  }
  return true;
}

// A rank's number with place 0 on the axes of the set.
static int64_t first_of(const Module *m, int64_t rank, uint32_t axes) {
  int64_t coord[MAX_AXIS], first = 0, step = 1;
  mesh_coord(m, rank, coord);
  for (uint32_t a = 0; a < m->axis.n; a++) {
    if (!(axes >> a & 1)) first += coord[a] * step;
    step *= m->axis.at[a].size;
  }
  return first;
}

// Whether two ranks that are to hold the same part do.
static bool copies_agree(Tensor *const *share, int64_t first, int64_t rank, Buf *error) {
  for (int64_t i = 0, n = tensor_count(share[rank]); i < n; i++) {
    double a = element(share[first], i), b = element(share[rank], i);
    if (same_bits(a, b)) continue;
    buf_printf(error, "place %lld is %.17g on rank %lld and %.17g on rank %lld", (long long)i, a,
               (long long)first, b, (long long)rank);
    return false;
  }
  return true;
}

Tensor *tensor_gather(const Module *m, const Shard *shard, Tensor *const *share,
                      const int64_t *extent, Buf *error) {
  Gather g = {m, shard, RED_NONE, tensor_new(share[0]->type, extent, share[0]->rank), NULL, error};
  uint32_t partial = 0;
  for (uint32_t a = 0; a < m->axis.n; a++)
    if (shard[a].kind == SHARD_PARTIAL) g.op = (Red)shard[a].op, partial |= 1u << a;
  g.from = calloc((size_t)tensor_count(g.whole), sizeof *g.from);
  ALLOCATED(g.from);
  bool ok = true;
  for (int64_t r = 0, n = mesh_size(m); ok && r < n; r++) {
    int64_t coord[MAX_AXIS];
    mesh_coord(m, r, coord);
    uint32_t copy = 0; // replicated along an axis besides those that it is partial on
    for (uint32_t a = 0; a < m->axis.n && partial; a++)
      if (!(partial >> a & 1) && shard[a].kind == SHARD_WHOLE && coord[a]) copy |= 1u << a;
    ok = copy ? copies_agree(share, first_of(m, r, copy), r, error) : gather_rank(&g, share[r], r);
  }
  free(g.from);
  if (ok) return g.whole;
  tensor_free(g.whole);
  return NULL;
}

// ---- the world

typedef enum State { RUNS, WAITS, SERVED, ENDED } State;

typedef struct World World;
typedef struct Rank {
  World *w;
  int64_t number;
  const Module *m;
  Tensor *const *arg;
  Tensor **result;
  pthread_t thread;
  State state;
  bool ok;
  Buf error;
  // Where it waits.
  const Fn *f;
  const Stmt *s;
  Tensor *to;
  const Tensor *from;
} Rank;

struct World {
  Id fn;
  const InterpOptions *o;
  int64_t nrank;
  Rank *rank;
  pthread_mutex_t lock; // held by the rank that runs
  pthread_cond_t turn;
  bool failed;
  Buf *error;
};

static void describe(const Rank *r, Buf *b) {
  if (r->state == ENDED) {
    buf_printf(b, "rank %lld has ended", (long long)r->number);
    return;
  }
  buf_printf(b, "rank %lld waits in `", (long long)r->number);
  ir_print_stmt(r->m, r->f, r->s, b);
  buf_printf(b, "` of `%s`", r->f->name);
}

// Ends the world: the first failure counts.
static void fail(World *w, const Rank *a, const Rank *b, const char *what) {
  if (!w->failed && w->error) {
    buf_printf(w->error, "%s: ", what);
    describe(a, w->error);
    buf_printf(w->error, ", and ");
    describe(b, w->error);
  }
  w->failed = true;
  pthread_cond_broadcast(&w->turn);
}

// The members of a rank's group in a collective, in order; to be freed.
static Rank **members(const Rank *r, const Stmt *s) {
  int64_t n = coll_size(r->m, s), coord[MAX_AXIS];
  Rank **group = malloc((size_t)n * sizeof *group);
  ALLOCATED(group);
  for (int64_t k = 0; k < n; k++) {
    int64_t rank = 0, step = 1, left = k;
    mesh_coord(r->m, r->number, coord);
    for (uint32_t a = 0; a < r->m->axis.n; a++) {
      int64_t size = r->m->axis.at[a].size;
      if (a == s->axis || (s->both && a == axis_other(r->m, s->axis))) {
        coord[a] = left % size;
        left /= size;
      }
      rank += coord[a] * step;
      step *= size;
    }
    group[k] = &r->w->rank[rank];
  }
  return group;
}

static bool same_group(const Stmt *s, const Stmt *t) {
  return s->axis == t->axis && s->both == t->both;
}

// Somebody waits and nobody can go on.
static void check_stuck(World *w) {
  const Rank *waits = NULL, *other = NULL;
  for (int64_t r = 0; r < w->nrank; r++) {
    const Rank *k = &w->rank[r];
    if (k->state == RUNS || k->state == SERVED) return;
    if (k->state == WAITS && !waits) waits = k;
  }
  if (!waits) return;
  Rank **group = members(waits, waits->s);
  for (int64_t k = 0, n = coll_size(waits->m, waits->s); k < n; k++)
    if (group[k]->state == ENDED || !same_group(group[k]->s, waits->s)) other = group[k];
  free(group);
  fail(w, waits, other ? other : waits, "no rank can continue");
}

static bool alike(const Rank *a, const Rank *b) {
  const Stmt *s = a->s, *t = b->s;
  return s->coll == t->coll && s->red == t->red && a->from->type == b->from->type &&
         tensor_count(a->from) == tensor_count(b->from);
}

// ---- carrying out

static void copy_part(Tensor *to, int64_t at, const Tensor *from, int64_t begin, int64_t n) {
  size_t bytes = (size_t)n;
  if (to->real)
    memcpy(to->real + at, from->real + begin, bytes * sizeof *to->real);
  else
    memcpy(to->integer + at, from->integer + begin, bytes * sizeof *to->integer);
  if (to->scale && from->scale)
    memcpy(to->scale + at, from->scale + begin, bytes * sizeof *to->scale);
}

// to = the reduction of `n` elements from `begin` on of all members, in their order.
static void reduce_part(Tensor *to, Rank *const *group, int64_t members, int64_t begin, int64_t n,
                        Red op) {
  copy_part(to, 0, group[0]->from, begin, n);
  for (int64_t k = 1; k < members; k++) {
    const Tensor *x = group[k]->from;
    for (int64_t i = 0; i < n; i++) {
      if (to->real)
        to->real[i] = reduce2(op, to->real[i], x->real[begin + i]);
      else
        to->integer[i] = reduce2_int(op, to->integer[i], x->integer[begin + i]);
      if (to->scale && x->scale) to->scale[i] += x->scale[begin + i];
      if (to->scale && to->real && op == RED_SUM) to->scale[i] += fabs(to->real[i]);
    }
  }
}

static void carry_out(Rank *const *group, int64_t n) {
  for (int64_t k = 0; k < n; k++) {
    Rank *r = group[k];
    int64_t count = tensor_count(r->from), part = count / n;
    switch (r->s->coll) {
    case COLL_ALL_REDUCE: reduce_part(r->to, group, n, 0, count, r->s->red); break;
    case COLL_REDUCE_SCATTER: reduce_part(r->to, group, n, k * part, part, r->s->red); break;
    case COLL_ALL_GATHER:
      for (int64_t j = 0; j < n; j++) copy_part(r->to, j * count, group[j]->from, 0, count);
      break;
    case COLL_ALL_TO_ALL:
      for (int64_t j = 0; j < n; j++) copy_part(r->to, j * part, group[j]->from, k * part, part);
      break;
    case COLL_SHIFT: copy_part(r->to, 0, group[(k + n - 1) % n]->from, 0, count); break;
    case NCOLL: BUG("no such collective");
    }
  }
  for (int64_t k = 0; k < n; k++) group[k]->state = SERVED;
}

// Serves the group where all are there.
static void try_group(World *w, Rank *r) {
  int64_t n = coll_size(r->m, r->s);
  Rank **group = members(r, r->s);
  bool all = true;
  for (int64_t k = 0; k < n; k++)
    all &= group[k]->state == WAITS && same_group(group[k]->s, r->s);
  for (int64_t k = 1; all && k < n; k++)
    if (!alike(group[0], group[k])) {
      fail(w, group[0], group[k], "different collectives meet");
      all = false;
    }
  if (all) {
    carry_out(group, n);
    pthread_cond_broadcast(&w->turn);
  }
  free(group);
}

static bool exchange(void *world, const Fn *f, const Stmt *s, Tensor *to, const Tensor *from,
                     Buf *error) {
  Rank *r = world;
  World *w = r->w;
  (void)error;
  r->f = f;
  r->s = s;
  r->to = to;
  r->from = from;
  r->state = WAITS;
  try_group(w, r);
  while (r->state == WAITS && !w->failed) {
    check_stuck(w);
    if (!w->failed) pthread_cond_wait(&w->turn, &w->lock);
  }
  if (w->failed) return false;
  r->state = RUNS;
  return true;
}

// ---- running

static void *run_rank(void *arg) {
  Rank *r = arg;
  World *w = r->w;
  pthread_mutex_lock(&w->lock);
  if (!w->failed) {
    Interp *x = interp_new(r->m);
    interp_join(x, exchange, r);
    r->ok = interp_call(x, w->fn, r->arg, r->result, w->o, &r->error);
    interp_free(x);
  }
  r->state = ENDED;
  if (!r->ok && !w->failed) {
    w->failed = true;
    if (w->error && r->error.n)
      buf_printf(w->error, "rank %lld: %s", (long long)r->number, r->error.text);
    pthread_cond_broadcast(&w->turn);
  }
  if (!w->failed) check_stuck(w);
  pthread_mutex_unlock(&w->lock);
  return NULL;
}

// The rank's arguments, with its place on the mesh made; `made` marks those.
static Tensor **rank_args(const Module *m, Id fn, Tensor *const *arg, int64_t rank, bool *made) {
  const Fn *f = &m->fn.at[fn];
  int64_t coord[MAX_AXIS];
  mesh_coord(m, rank, coord);
  Tensor **all = calloc(f->arg.n + 1, sizeof *all);
  ALLOCATED(all);
  for (uint32_t i = 0; i < f->arg.n; i++) {
    const Value *v = &f->value.at[f->arg.at[i]];
    made[i] = v->means == MEANS_RANK;
    all[i] = made[i] ? tensor_new(DT_I32, NULL, 0) : arg[i];
    if (made[i]) all[i]->integer[0] = (int32_t)coord[v->of];
  }
  return all;
}

static void free_results(Rank *r, Id fn) {
  for (uint32_t i = 0; r->ok && i < r->m->fn.at[fn].result.n; i++) {
    tensor_free(r->result[i]);
    r->result[i] = NULL;
  }
}

bool interp_ranks(const Module *const *m, Id fn, Tensor *const *const *arg, Tensor **const *result,
                  const InterpOptions *o, Buf *error) {
  World w = {.fn = fn, .o = o, .nrank = mesh_size(m[0]), .error = error};
  w.rank = calloc((size_t)w.nrank, sizeof *w.rank);
  ALLOCATED(w.rank);
  CHECK(!o->ways && m[0]->spmd);
  pthread_mutex_init(&w.lock, NULL);
  pthread_cond_init(&w.turn, NULL);
  bool **made = calloc((size_t)w.nrank, sizeof *made);
  ALLOCATED(made);
  pthread_mutex_lock(&w.lock); // nobody runs before all are there
  for (int64_t r = 0; r < w.nrank; r++) {
    made[r] = calloc(m[r]->fn.at[fn].arg.n + 1, sizeof **made);
    ALLOCATED(made[r]);
    w.rank[r] = (Rank){.w = &w, .number = r, .m = m[r], .result = result[r]};
    w.rank[r].arg = rank_args(m[r], fn, arg[r], r, made[r]);
    if (pthread_create(&w.rank[r].thread, NULL, run_rank, &w.rank[r])) BUG("no thread for a rank");
  }
  pthread_mutex_unlock(&w.lock);
  for (int64_t r = 0; r < w.nrank; r++) pthread_join(w.rank[r].thread, NULL);
  for (int64_t r = 0; r < w.nrank; r++) {
    Rank *k = &w.rank[r];
    if (w.failed) free_results(k, fn);
    for (uint32_t i = 0; i < k->m->fn.at[fn].arg.n; i++)
      if (made[r][i]) tensor_free(k->arg[i]);
    free((void *)k->arg);
    free(made[r]);
    buf_free(&k->error);
  }
  free(made);
  free(w.rank);
  pthread_mutex_destroy(&w.lock);
  pthread_cond_destroy(&w.turn);
  return !w.failed;
}
