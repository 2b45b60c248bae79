// Checkpoints and exports of every layout hold the same tensors, and every layout goes on from any
// other's: tensors split over tp and cp, in blocks, with remainders, in pieces of ZeRO and of zero
// groups.
#include "runtime/control.h"
#include "runtime/files/checkpoint.h"
#include "runtime/files/saver.h"
#include "runtime/model/layout.h"
#include "runtime/files/pieces.h"
#include "support/check.h"
#include "support/worlds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Checkpoints go by a snapshot.
static bool by_snapshot;

// In a rank, where check_done would remove the folder that all work in.
static int failed;
static void wrong(const char *what, int line) {
  if (failed++ < 5) fprintf(stderr, "rank %d: line %d: failed: %s\n", dt_world.rank, line, what);
}
#define HOLDS(condition) ((condition) ? (void)0 : wrong(#condition, __LINE__))

typedef struct {
  int ranks, tp, cp, zero, group;
} Case;

static const Case cases[] = {
    {1, 1, 1, 0, 0}, {2, 1, 1, 0, 0}, {2, 2, 1, 0, 0}, {3, 1, 1, 1, 0}, {4, 2, 2, 2, 0},
    {4, 1, 1, 3, 2}, {4, 4, 1, 0, 0}, {6, 3, 2, 3, 0}, {6, 1, 2, 1, 3}, {8, 2, 1, 3, 2},
};
enum { CASES = sizeof cases / sizeof *cases, TENSORS = 6, LAYERS = 3 };

// Shapes with remainders; blocks are chosen for the degrees of a case.
typedef struct {
  DtProgram p;
  DtParam param[TENSORS];
  DtStack stack[1];
  DtRun r;
} World;

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Which dimension tp splits, and in which block: the plain split's, or an inner factor.
static const struct {
  const char *name;
  int rank, nstack;
  int64_t extent[3];
  int tp;       // 1 + dimension, or 0
  int64_t factor; // > 0: blocks of factor / tp
  bool cp;      // cp splits dimension 0
} shape[TENSORS] = {
    {"embed", 2, 0, {13, 5}, 1, 0, false},      {"gain", 1, 0, {7}, 0, 0, false},
    {"positions", 2, 0, {24, 3}, 2, 0, false},  {"blocks.*.qkv", 3, 1, {LAYERS, 5, 24}, 2, 12, false},
    {"blocks.*.norm", 2, 1, {LAYERS, 9}, 0, 0, false},
    {"blocks.*.out", 3, 1, {LAYERS, 24, 2}, 1, 0, false},
};

static void fill_param(World *w, const Case *c, int i, int64_t *offset) {
  DtParam *a = &w->param[i];
  *a = (DtParam){.name = shape[i].name, .rank = shape[i].rank, .nstack = shape[i].nstack};
  memcpy(a->extent, shape[i].extent, sizeof shape[i].extent);
  if (shape[i].tp && c->tp > 1) {
    int64_t extent = a->extent[a->nstack + shape[i].tp - 1];
    a->shard[0] = (DtShard){shape[i].tp - 1, shape[i].factor ? shape[i].factor / c->tp
                                                             : ceil_div(extent, c->tp)};
  }
  DtLayout l;
  int degree[DT_STATIC_AXES] = {c->tp, 1, c->cp}, at[DT_STATIC_AXES] = {0};
  dt_layout_make(&l, a->rank - a->nstack, a->extent + a->nstack, a->shard, degree, at);
  a->init = DT_NORMAL;
  a->init_b = 1;
  a->count = l.count * (a->nstack ? LAYERS : 1);
  a->local = l.local * (a->nstack ? LAYERS : 1);
  a->stack = a->nstack;
  a->offset = *offset;
  *offset += (l.local + 15) / 16 * 16;
}

static void make(World *w, const Case *c) {
  int64_t offset = 0, outside = 0;
  memset(w, 0, sizeof *w);
  for (int i = 0; i < TENSORS; i++) {
    if (shape[i].nstack && !outside) outside = offset;
    fill_param(w, c, i, &offset);
  }
  w->stack[0] = (DtStack){.name = "blocks", .count = LAYERS, .offset = outside, .stride = offset - outside};
  w->p = (DtProgram){.model = "Cut", .build = "00", .type = DT_TYPE_F64,
                     .param_type = DT_TYPE_F64, .reduce_type = DT_TYPE_F64, .nparam = TENSORS,
                     .nmoment = 2, .param = w->param, .nstack = 1, .stack = w->stack,
                     .param_count = outside + LAYERS * (offset - outside),
                     .tp = c->tp, .cp = c->cp, .zero = c->zero, .zero_group = c->group,
                     .train = {.precision = "fp64"}};
  w->r.p = &w->p;
}

static char *region(int64_t count) {
  size_t bytes = (size_t)count * sizeof(double);
  char *at = malloc(bytes);
  for (int64_t i = 0; at && i < count; i++) ((double *)(void *)at)[i] = -99;
  return at;
}

static int begin(World *w, const Case *c) {
  DtError e = {0};
  make(w, c);
  DtZero *z = &w->r.zero;
  HOLDS(dt_zero_open(z, &w->p, &e) == 0);
  DtSizes n = dt_sizes(&z->units, &w->p, &z->cut);
  z->param = region(n.params);
  for (int i = 0; i < 2; i++) z->moment[i] = region(n.moment);
  w->r.collected = malloc((size_t)dt_save_collected(&w->p));
  w->r.received = malloc((size_t)dt_save_received(&w->p, &z->cut) + 1);
  if (!by_snapshot) return z->param && z->moment[0] && z->moment[1] && w->r.collected && w->r.received ? 0 : 1;
  HOLDS(dt_save_snapshot_bytes(&w->p, &z->stages, 0, &z->cut, c->ranks, &w->r.snapshot_bytes, &e) == 0);
  w->r.snapshot = malloc((size_t)w->r.snapshot_bytes);
  return z->param && z->moment[0] && z->moment[1] && w->r.collected && w->r.received && w->r.snapshot ? 0 : 1;
}

static int end(World *w) {
  DtZero *z = &w->r.zero;
  free(z->param);
  free(w->r.collected);
  free(w->r.received);
  free(w->r.snapshot);
  for (int i = 0; i < 2; i++) free(z->moment[i]);
  dt_zero_close(z);
  return failed > 0;
}

static double value(int kind, int64_t instance, int64_t element) {
  return 1000000 * kind + 10000 * (double)instance + (double)element + 0.25;
}

// Calls `visit` with every element that this rank holds, and its value or 0 for padding.
static void each_element(World *w, void (*visit)(double *at, double value)) {
  DtZero *z = &w->r.zero;
  static const DtRegion kind[] = {DT_MASTER, DT_MOMENT, DT_MOMENT + 1};
  for (int k = 0; k < 3; k++)
    for (int64_t i = 0; i < z->units.ninstance; i++) {
      DtPart part = dt_instance_part(z, kind[k], i);
      DtLayout l;
      dt_piece_layout(z, i, dt_world.rank, &l);
      for (int64_t at = part.lo; at < part.hi; at++) {
        int64_t element;
        dt_layout_run(&l, at, 1, &element);
        visit((double *)(void *)part.at + (at - part.lo), element < 0 ? 0 : value(k, i, element));
      }
    }
}

static void put(double *at, double v) { *at = v; }
static void expect(double *at, double v) { HOLDS(*at == v); }
static void clear(double *at, double v) { (void)v, *at = -1; }

// What was planned for snapshots is what the rank takes that writes most.
static void check_snapshot(const DtSaver *s) {
  double most = (double)s->save.nsnapshot * sizeof(double);
  dt_control_reduce(dt_group(DT_ALL_AXES), DT_TYPE_F64, DT_MAX, &most, 1, (DtNote){"snapshots", -1, NULL});
  HOLDS(!by_snapshot || most == (double)s->save.r->snapshot_bytes);
}

static int save(void *argument) {
  const Case *c = argument;
  World *w = malloc(sizeof *w);
  DtSaver s;
  DtError e = {0};
  char name[64];
  if (!w || begin(w, c)) return 1;
  each_element(w, put);
  w->r.step = 5;
  w->r.samples = 40;
  w->r.seed = 3;
  snprintf(name, sizeof name, "ck%d", (int)(c - cases));
  HOLDS(dt_saver_open(&s, &w->r, name, &e) == 0);
  check_snapshot(&s);
  if (c->ranks < 4) HOLDS(dt_checkpoint_save(&s, 0, &e) == 0);
  snprintf(name, sizeof name, "w%d.safetensors", (int)(c - cases));
  HOLDS(dt_export(&s, name, DT_MASTER, &e) == 0);
  w->r.step = 6;
  HOLDS(dt_checkpoint_save(&s, 1, &e) == 0);
  dt_saver_close(&s);
  int status = end(w);
  free(w);
  return status;
}

// Goes on from what every case has saved.
static int resume(void *argument) {
  World *w = malloc(sizeof *w);
  if (!w || begin(w, argument)) return 1;
  for (int i = 0; i < CASES; i++) {
    char name[64];
    DtCheckpoint c;
    DtError e = {0};
    snprintf(name, sizeof name, "ck%d", i);
    each_element(w, clear);
    HOLDS(dt_checkpoint_find(&c, name, &e) == 0);
    HOLDS(strstr(c.path, "/step-00000006"));
    HOLDS(dt_checkpoint_load(&c, &w->r, &e) == 0);
    HOLDS(w->r.step == 6 && w->r.samples == 40 && w->r.seed == 3);
    each_element(w, expect);
  }
  // From the file of weights, and the checkpoint as one.
  char name[] = "w3.safetensors", folder[] = "ck4";
  for (int i = 0; i < 2; i++) {
    DtCheckpoint c;
    DtError e = {0};
    each_element(w, put);
    memset(w->r.zero.param, 255, sizeof(double));
    const char *from = i ? folder : name;
    HOLDS(dt_checkpoint_find_weights(&c, from, &e) == 0 && !c.path[0] == !i);
    HOLDS(dt_checkpoint_init(&c, from, &w->r, &e) == 0);
    each_element(w, expect);
  }
  int status = end(w);
  free(w);
  return status;
}

// Initial values of a rank are those that one rank has there.
static int init(void *argument) {
  World *w = malloc(sizeof *w);
  if (!w || begin(w, argument)) return 1;
  w->r.seed = 9;
  DtSaver s;
  DtError e = {0};
  HOLDS(dt_weights_init(&w->r, &e) == 0);
  char name[64];
  snprintf(name, sizeof name, "i%d.safetensors", (int)((const Case *)argument - cases));
  HOLDS(dt_saver_open(&s, &w->r, NULL, &e) == 0);
  HOLDS(dt_export(&s, name, DT_MASTER, &e) == 0);
  dt_saver_close(&s);
  int status = end(w);
  free(w);
  return status;
}

static size_t read_size(const char *path) {
  size_t n = 0;
  free(read_whole(path, &n));
  return n;
}

static void in_all(Body *body) {
  for (int i = 0; i < CASES; i++) {
    const Case *c = &cases[i];
    CHECK(in_world(c->ranks, c->tp, c->cp, 1, 60, body, (void *)(uintptr_t)c, NULL) == 0);
  }
}

int main(void) {
  check_folder();
  static const int64_t chunk[] = {1 << 19, 7, 7};
  for (int k = 0; k < 3; k++) {
    dt_save_chunk = chunk[k];
    by_snapshot = k == 2;
    in_all(save);
    in_all(init);
    for (int i = 1; i < CASES; i++) {
      char name[64];
      snprintf(name, sizeof name, "w%d.safetensors", i);
      CHECK(same_files(name, "w0.safetensors") && read_size(name) > 100);
      snprintf(name, sizeof name, "i%d.safetensors", i);
      CHECK(same_files(name, "i0.safetensors"));
    }
    CHECK(!same_files("w0.safetensors", "i0.safetensors"));
    if (k) in_all(resume);
  }
  return check_done();
}
