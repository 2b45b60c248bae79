#include "runtime/files/writers.h"

#include <stdlib.h>
#include <string.h>

// The ranks of a stage, by their numbers in it, and the elements that each has to write so far.
typedef struct {
  const DtStages *s;
  const DtCut *cut;
  DtMesh mesh; // of the rank that is looked at
  int64_t *load;
  int ranks;
  int64_t found; // ranks that hold a piece of the tensor
  int best;      // of them, the one with the least to write; -1: none yet
} Ranks;

// A tensor; how many ranks hold a piece of it.
typedef struct {
  int64_t count, item, holders;
} Weight;

// Those that have the least choice first, of those the longest.
static int sooner(const void *a, const void *b) {
  const Weight *x = a, *y = b;
  if (x->holders != y->holders) return x->holders < y->holders ? -1 : 1;
  if (x->count != y->count) return x->count > y->count ? -1 : 1;
  return x->item < y->item ? -1 : x->item > y->item;
}

static const DtInstance *instance_of(const DtStages *s, int64_t number) {
  const DtHome *h = &s->home[number];
  return &s->units[h->stage].instance[h->instance];
}

static const DtParam *param_of(const DtStages *s, int64_t number) {
  return &s->view[s->home[number].stage].param[instance_of(s, number)->param];
}

static void look_at(Ranks *x, int rank) {
  x->found++;
  if (x->best < 0 || x->load[rank] < x->load[x->best] || (x->load[rank] == x->load[x->best] && rank < x->best))
    x->best = rank;
}

// Of the ranks that differ in dp alone, and so have one local array of the tensor, those that hold a piece of it.
static void look_along_dp(Ranks *x, int64_t number) {
  const int *n = x->mesh.degree;
  int *at = x->mesh.coord;
  const DtInstance *i = instance_of(x->s, number);
  const DtUnit *u = &x->s->units[x->s->home[number].stage].unit[i->unit];
  int64_t piece = (u->count + x->cut->owners - 1) / x->cut->owners;
  int64_t first = i->begin / piece, last = (i->begin + i->count - 1) / piece; // owners, by number in the data group
  DtLayout l;
  dt_mesh_layout(&x->mesh, param_of(x->s, number), &l);
  for (int64_t dp = first / n[DT_AXIS_CP]; dp <= last / n[DT_AXIS_CP] && dp < n[DT_AXIS_DP]; dp++) {
    at[DT_AXIS_DP] = (int)dp;
    DtRange r = dt_mesh_piece(&x->mesh, x->s, x->cut, number, &l);
    if (r.lo >= dt_layout_trim(&l, r.hi)) continue;
    int rank = 0;
    for (int a = DT_AXIS_DP; a >= 0; a--) rank = rank * n[a] + at[a];
    look_at(x, rank);
  }
}

static void look_at_all(Ranks *x, int64_t number) {
  const int *n = x->mesh.degree;
  int *at = x->mesh.coord;
  x->found = 0;
  x->best = -1;
  if (!instance_of(x->s, number)->count) return;
  for (at[DT_AXIS_CP] = 0; at[DT_AXIS_CP] < n[DT_AXIS_CP]; at[DT_AXIS_CP]++)
    for (at[DT_AXIS_TP_OUTER] = 0; at[DT_AXIS_TP_OUTER] < n[DT_AXIS_TP_OUTER]; at[DT_AXIS_TP_OUTER]++)
      for (at[DT_AXIS_TP] = 0; at[DT_AXIS_TP] < n[DT_AXIS_TP]; at[DT_AXIS_TP]++) look_along_dp(x, number);
}

static int64_t count_of(const DtParam *p) {
  int64_t n = 1;
  for (int d = p->nstack; d < p->rank; d++) n *= p->extent[d];
  return n;
}

// The tensors that a stage answers for; returns how many.
static int64_t list(Ranks *x, int stage, int moments, Weight *w) {
  int64_t n = 0;
  for (int64_t i = 0; i < x->s->ninstance; i++) {
    if (x->s->home[i].stage != stage) continue;
    look_at_all(x, i);
    for (int k = 0; k <= moments; k++)
      w[n++] = (Weight){count_of(param_of(x->s, i)), k * x->s->ninstance + i, x->found};
  }
  return n;
}

// Each to the rank with the least so far of those that have a piece of it. Longest first is within 4/3 of the best possible
// where all may write all (Graham 1969).
static int64_t divide(Ranks *x, int stage, const Weight *w, int64_t n, int *writer) {
  int64_t most = 0;
  for (int64_t i = 0; i < n; i++) {
    look_at_all(x, w[i].item % x->s->ninstance);
    int r = x->best < 0 ? 0 : x->best;
    x->load[r] += w[i].count;
    if (x->load[r] > most) most = x->load[r];
    if (writer) writer[w[i].item] = stage * x->ranks + r;
  }
  return most;
}

int dt_writers(const DtStages *s, int stage, const DtCut *cut, const int degree[DT_AXES], int moments, int *writer,
               int64_t *most, DtError *e) {
  Ranks x = {.s = s, .cut = cut, .ranks = 1};
  memcpy(x.mesh.degree, degree, sizeof x.mesh.degree);
  for (int a = 0; a < DT_AXIS_PP; a++) x.ranks *= degree[a];
  x.mesh.coord[DT_AXIS_PP] = stage;
  x.load = calloc((size_t)x.ranks, sizeof *x.load);
  Weight *w = calloc((size_t)(1 + moments) * (size_t)s->ninstance + 1, sizeof *w);
  if (!x.load || !w) {
    dt_fail(e, DT_EXIT_OS, "no memory to divide the writing");
  } else {
    int64_t n = list(&x, stage, moments, w);
    qsort(w, (size_t)n, sizeof *w, sooner);
    *most = divide(&x, stage, w, n, writer);
  }
  free(x.load);
  free(w);
  return e->status;
}
