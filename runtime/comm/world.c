// The mesh, and the groups that it is cut into.
#include "runtime/comm/comm_op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const dt_axis_name[DT_AXES] = {"tp", "tp", "cp", "dp", "pp"};
DtWorld dt_world = {.size = 1, .degree = {1, 1, 1, 1, 1}, .local_size = 1};

enum { MASKS = 1 << DT_AXES, AXES_TEXT = 32 };

typedef struct {
  DtGroup g;
  char axes[AXES_TEXT];
} Group;

static const int only_me[1];
static Group group[DT_GROUPS] = {[0] = {.g = {.n = 1, .rank = only_me, .axes = "none"}}};
static _Atomic uint64_t own_registry[DT_GROUPS];
_Atomic uint64_t *dt_group_registry = own_registry;

static int degree(int d) { return d > 1 ? d : 1; }

int dt_world_fits(const DtProgram *p, int size, DtError *e) {
  int64_t fixed = (int64_t)degree(p->tp) * degree(p->cp) * degree(p->pp);
  if (size % fixed == 0) return 0;
  int64_t below = size / fixed * fixed;
  char near[64];
  if (below)
    snprintf(near, sizeof near, "%lld or %lld", (long long)below, (long long)(below + fixed));
  else snprintf(near, sizeof near, "%lld", (long long)fixed);
  return dt_fail(
      e, DT_EXIT_MISFIT,
      "%d rank%s: the program was compiled for tp %d x cp %d x pp %d, so the number of ranks must "
      "be a multiple of %lld, such as %s",
      size, size == 1 ? "" : "s", degree(p->tp), degree(p->cp), degree(p->pp), (long long)fixed,
      near);
}

static void name_mask(char *text, unsigned mask) {
  int n = 0;
  text[0] = 0;
  if ((mask & DT_TP_AXES) == DT_TP_AXES) mask &= ~(1u << DT_AXIS_TP_OUTER); // tp once
  for (int a = 0; a < DT_AXES; a++)
    if (mask >> a & 1)
      n += snprintf(text + n, AXES_TEXT - (size_t)n, "%s%s", n ? "," : "", dt_axis_name[a]);
  if (!n) strcpy(text, "none");
}

static void *allocate(size_t bytes) {
  void *p = malloc(bytes);
  if (!p) {
    fprintf(stderr, "train: error: no memory for a group of ranks\n");
    exit(DT_EXIT_OS);
  }
  return p;
}

static void make_mask(unsigned mask) {
  const DtWorld *w = &dt_world;
  Group *to = &group[mask];
  int n = 1, count = 0;
  for (int a = 0; a < DT_AXES; a++)
    if (mask >> a & 1) n *= w->degree[a];
  int *rank = allocate((size_t)n * sizeof *rank);
  // Ascending ranks are ascending coordinates, the last axis first.
  for (int i = 0; i < n; i++) {
    int left = i, r = 0, stride = 1;
    for (int a = 0; a < DT_AXES; a++) {
      int c = w->coord[a];
      if (mask >> a & 1) {
        c = left % w->degree[a];
        left /= w->degree[a];
      }
      r += c * stride;
      stride *= w->degree[a];
    }
    if (r == w->rank) to->g.me = count;
    rank[count++] = r;
  }
  name_mask(to->axes, mask);
  to->g.n = n;
  to->g.rank = rank;
  to->g.axes = to->axes;
  to->g.id = (int)mask;
}

void dt_mesh_degrees(const DtProgram *p, int size, int to[DT_AXES]) {
  to[DT_AXIS_TP_OUTER] = degree(p->tp_outer);
  to[DT_AXIS_TP] = degree(p->tp) / degree(p->tp_outer);
  to[DT_AXIS_CP] = degree(p->cp);
  to[DT_AXIS_PP] = degree(p->pp);
  to[DT_AXIS_DP] = size / (degree(p->tp) * degree(p->cp) * degree(p->pp));
}

void dt_world_set(const DtProgram *p, int rank, int size, int local_rank, int local_size) {
  DtWorld *w = &dt_world;
  *w = (DtWorld){.rank = rank, .size = size, .local_rank = local_rank, .local_size = local_size};
  dt_mesh_degrees(p, size, w->degree);
  int left = rank;
  for (int a = 0; a < DT_AXES; a++) {
    w->coord[a] = left % w->degree[a];
    left /= w->degree[a];
  }
  for (unsigned mask = 0; mask < MASKS; mask++) make_mask(mask);
}

const DtGroup *dt_group(unsigned mask) { return &group[mask % MASKS].g; }

// Finds the number of the group with this key, or takes the next that is free.
static int number(uint64_t key) {
  for (int i = MASKS; i < DT_GROUPS; i++) {
    uint64_t there = atomic_load(&dt_group_registry[i]);
    if (!there && atomic_compare_exchange_strong(&dt_group_registry[i], &there, key)) return i;
    if (there == key) return i;
  }
  fprintf(stderr, "train: error: more than %d groups of ranks\n", DT_GROUPS);
  exit(DT_EXIT_BUG);
}

static const DtGroup *cut(const DtGroup *g, int part, bool across) {
  if (part < 1 || part > g->n || g->n % part != 0) {
    fprintf(stderr, "train: error: a group of %d ranks is not cut into parts of %d\n", g->n, part);
    exit(DT_EXIT_BUG);
  }
  if (across ? part == 1 : part == g->n) return g;
  if (across ? part == g->n : part == 1) return dt_group(0);
  int id = number(1 + (uint64_t)across + 2 * ((uint64_t)g->id + DT_GROUPS * (uint64_t)part));
  Group *to = &group[id];
  if (to->g.rank) return &to->g;
  int n = across ? g->n / part : part;
  int *rank = allocate((size_t)n * sizeof *rank);
  for (int i = 0; i < n; i++)
    rank[i] = g->rank[across ? i * part + g->me % part : g->me / part * part + i];
  snprintf(to->axes, sizeof to->axes, "%.16s %s %d", g->axes, across ? "by" : "in", part);
  to->g = (DtGroup){n, across ? g->me / part : g->me % part, rank, to->axes, id};
  return &to->g;
}

const DtGroup *dt_group_within(const DtGroup *g, int part) { return cut(g, part, false); }
const DtGroup *dt_group_across(const DtGroup *g, int part) { return cut(g, part, true); }
