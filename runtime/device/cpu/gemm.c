// Matrix products: cuts a batch of products into tasks for the threads; gemm_tile.h computes a
// task.
#include "runtime/device/cpu/gemm_job.h"

#include <stddef.h>
#include <string.h>

#include "runtime/device/cpu/gemm_pairs.h"
#include "runtime/device/cpu/level.h"
#include "runtime/device/cpu/scratch.h"
#include "runtime/base/parallel.h"

// Cache blocks, in elements; multiples of the micro-kernel's tile where the matrix is larger.
typedef struct {
  int64_t kc, mc, nc;
} GemmCut;

// The tile that comes next on this thread, most likely: its operands; m = 0: none.
typedef struct {
  const void *a, *b;
  int64_t m, n;
} GemmNext;

// What is done with the sums of a task's tile: at its first column, at its first element in rows `row` apart. NULL: nothing.
typedef struct {
  const void *bias, *plus;
  void *kept;
  DtKernel *act;
  int64_t row;
  bool plus_first;
} GemmEnd;

#define DT_BODY "runtime/device/cpu/gemm_tile.h"
#define DT_F64 0
#include "runtime/device/cpu/levels.h"
#undef DT_F64
#define DT_F64 1
#include "runtime/device/cpu/levels.h"

typedef void TileF32(const DtGemm *, const GemmCut *, int64_t m, int64_t n, const float *,
                     const float *, float *, float, float *, const GemmEnd *, const GemmNext *);
typedef void TileF64(const DtGemm *, const GemmCut *, int64_t m, int64_t n, const double *,
                     const double *, double *, double, double *, const GemmEnd *,
                     const GemmNext *);
typedef void FinishF32(const GemmEnd *, int64_t i, int64_t j, int64_t m, int64_t n, float *, int64_t row);
typedef void FinishF64(const GemmEnd *, int64_t i, int64_t j, int64_t m, int64_t n, double *, int64_t row);

// What a level offers: micro-kernel tiles (mr x nr), blocks and the function, for each type.
typedef struct {
  int64_t mr, nr[2]; // nr: of float, of double
  GemmCut cut32, cut64;
  TileF32 *tile32;
  TileF64 *tile64;
  FinishF32 *finish32;
  FinishF64 *finish64;
} Variant;

static const Variant baseline = {DT_GEMM_MR_V1, DT_GEMM_NR_V1, DT_GEMM_F32_V1, DT_GEMM_F64_V1,
                                 tile_f32_v1, tile_f64_v1, finish_f32_v1, finish_f64_v1};
#if defined(__x86_64__)
static const Variant avx2 = {DT_GEMM_MR_V3, DT_GEMM_NR_V3, DT_GEMM_F32_V3, DT_GEMM_F64_V3,
                             tile_f32_v3, tile_f64_v3, finish_f32_v3, finish_f64_v3};
static const Variant avx512 = {DT_GEMM_MR_V4, DT_GEMM_NR_V4, DT_GEMM_F32_V4, DT_GEMM_F64_V4,
                               tile_f32_v4, tile_f64_v4, finish_f32_v4, finish_f64_v4};
#endif

static const Variant *variant(void) {
#if defined(__x86_64__)
  int level = dt_cpu_level_now();
  if (level == 4) return &avx512;
  if (level == 3) return &avx2;
#endif
  return &baseline;
}

// One call, cut into tasks: (product of the batch, tile of C's rows, tile of C's columns).
typedef struct {
  const DtGemm *g;
  const void *a, *b;
  void *c;
  const DtEpilogue *then; // or NULL
  double beta;
  bool f64, half;
  const DtGemmLibrary *library; // NULL: our own kernel
  const DtPairsKernel *pairs;   // of 16 bits; NULL: in float
  const Variant *v;
  GemmCut cut;    // the blocks, no larger than a task
  int64_t mt, nt; // extents of a task's tile
  int64_t tiles_m, tiles_n;
} Job;

static int64_t min(int64_t a, int64_t b) {
  return a < b ? a : b;
}
static int64_t round_up(int64_t n, int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

// Products that write different parts of C, and products that add to the same.
static void count_products(const DtGemm *g, int64_t *apart, int64_t *together) {
  *apart = *together = 1;
  for (int i = 0; i < g->nbatch; i++) *(g->batch[i].c == 0 ? together : apart) *= g->batch[i].count;
}

// Offsets of the `index`th of the products that write apart, or (apart false) of those that add up.
static void batch_offset(const DtGemm *g, bool apart, int64_t index, int64_t *a, int64_t *b,
                         int64_t *c) {
  for (int i = g->nbatch - 1; i >= 0; i--) {
    if ((g->batch[i].c != 0) != apart) continue;
    int64_t at = index % g->batch[i].count;
    index /= g->batch[i].count;
    *a += at * g->batch[i].a;
    *b += at * g->batch[i].b;
    *c += at * g->batch[i].c;
  }
}

static void clear_tile(const Job *j, int64_t at, int64_t m, int64_t n) {
  for (int64_t r = 0; r < m; r++)
    for (int64_t i = at + r * j->g->c_row, end = i + n; i < end; i++) {
      if (j->f64) ((double *)j->c)[i] = j->beta == 0 ? 0 : j->beta * ((double *)j->c)[i];
      else ((float *)j->c)[i] = j->beta == 0 ? 0 : (float)j->beta * ((float *)j->c)[i];
    }
}

// Where a task's tile of C and its operands start, for the first of the products that add up.
typedef struct {
  int64_t m, n, a, b, c;
  int64_t col; // of C, and of the bias
} Task;

static Task task_at(const Job *j, int64_t task) {
  const DtGemm *g = j->g;
  int64_t col = task % j->tiles_n * j->nt, row = task / j->tiles_n % j->tiles_m * j->mt;
  Task t = {.m = min(j->mt, g->m - row), .n = min(j->nt, g->n - col), .col = col};
  t.a = row * g->a_row, t.b = col * g->b_col, t.c = row * g->c_row + col;
  batch_offset(g, true, task / j->tiles_n / j->tiles_m, &t.a, &t.b, &t.c);
  return t;
}

static const void *element(const Job *j, const void *p, int64_t at) {
  return (const char *)p + at * (int64_t)(j->f64 ? sizeof(double) : sizeof(float));
}

static int64_t size_of(DtType type) {
  return type == DT_TYPE_F32 ? 4 : 2;
}

static void half_offset(const void *g, int64_t i, int64_t *a, int64_t *b) {
  int64_t c = 0;
  *a = *b = 0;
  batch_offset(g, false, i, a, b, &c);
}

static void run_half(const Job *j, int64_t task, int64_t together) {
  const DtGemm *g = j->g;
  Task t = task_at(j, task);
  GemmHalfEnd end = {.plus_first = g->plus_first, .act = j->then ? j->then->act : NULL};
  if (j->then && j->then->bias) end.bias = (const char *)j->then->bias + t.col * size_of(g->bias);
  if (j->then && j->then->plus) end.plus = (const char *)j->then->plus + t.c * size_of(g->plus);
  if (j->then && j->then->kept) end.kept = (char *)j->then->kept + t.c * size_of(g->kept);
  const uint16_t *a = (const uint16_t *)j->a + t.a, *b = (const uint16_t *)j->b + t.b;
  void *c = (char *)j->c + t.c * size_of(g->result);
  float beta = (float)j->beta;
#if defined(__x86_64__)
  if (j->pairs) {
    dt_gemm_pairs_tile(j->pairs, g, t.m, t.n, a, b, c, beta, &end, together, half_offset, g);
    return;
  }
#endif
  dt_gemm_half_tile(g, t.m, t.n, a, b, c, beta, &end, together, half_offset, g);
}

// A task has one product's place in C: C's order is that of `plus`.
static GemmEnd end_at(const Job *j, const Task *t) {
  const DtEpilogue *e = j->then;
  if (!e) return (GemmEnd){0};
  return (GemmEnd){.bias = e->bias ? element(j, e->bias, t->col) : NULL,
                   .plus = e->plus ? element(j, e->plus, t->c) : NULL,
                   .kept = e->kept ? (void *)(uintptr_t)element(j, e->kept, t->c) : NULL,
                   .act = e->act,
                   .row = j->g->c_row, .plus_first = j->g->plus_first};
}

// What the tile's own product has not added: after a library's, or an empty sum.
static void finish(const Job *j, const Task *t, const GemmEnd *e) {
  int64_t row = j->g->c_row;
  if (j->f64) j->v->finish64(e, 0, 0, t->m, t->n, (double *)j->c + t->c, row);
  else j->v->finish32(e, 0, 0, t->m, t->n, (float *)j->c + t->c, row);
}

static void run_task(const Job *j, int64_t task) {
  const DtGemm *g = j->g;
  int64_t apart, together;
  Task t = task_at(j, task);
  GemmEnd end = end_at(j, &t);
  count_products(g, &apart, &together);
  if (j->half) {
    run_half(j, task, g->k > 0 ? together : 0);
    return;
  }
  if (g->k <= 0 || together <= 0) {
    clear_tile(j, t.c, t.m, t.n);
    finish(j, &t, &end);
    return;
  }
  GemmNext next = {0};
  if (task + 1 < apart * j->tiles_m * j->tiles_n) {
    Task n = task_at(j, task + 1);
    next = (GemmNext){element(j, j->a, n.a), element(j, j->b, n.b), n.m, n.n};
  }
  size_t need = (size_t)(j->cut.kc * (j->cut.mc + j->cut.nc));
  void *buffer = NULL;
  if (!j->library) buffer = dt_scratch(need * (j->f64 ? sizeof(double) : sizeof(float)));
  for (int64_t i = 0; i < together; i++) {
    int64_t a = t.a, b = t.b, c = t.c;
    double beta = i == 0 ? j->beta : 1;
    batch_offset(g, false, i, &a, &b, &c);
    const GemmEnd *last = j->then && i == together - 1 ? &end : NULL;
    if (j->library)
      j->library->tile(g, t.m, t.n, (const float *)j->a + a, (const float *)j->b + b,
                       (float *)j->c + c, (float)beta);
    else if (j->f64)
      j->v->tile64(g, &j->cut, t.m, t.n, (const double *)j->a + a, (const double *)j->b + b,
                   (double *)j->c + c, beta, buffer, last, &next);
    else
      j->v->tile32(g, &j->cut, t.m, t.n, (const float *)j->a + a, (const float *)j->b + b,
                   (float *)j->c + c, (float)beta, buffer, last, &next);
  }
  if (j->library) finish(j, &t, &end);
}

static void run_tasks(void *const *arg, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i++) run_task(arg[0], i);
}

// Cuts C into tiles of at most m x n, and of whole mr x nr: enough of them to keep the threads evenly busy,
// and each large enough (`least` multiplications, about 20 us) to pay for packing its part of A and B, which
// tiles of the same row or column repeat.
static void cut_tiles(Job *j, int64_t products, int64_t m, int64_t n, int64_t mr, int64_t nr, double least) {
  enum { TASKS_PER_THREAD = 2 };
  const DtGemm *g = j->g;
  j->mt = min(m, round_up(g->m, mr));
  j->nt = min(n, round_up(g->n, nr));
  for (;;) {
    j->tiles_m = (g->m + j->mt - 1) / j->mt;
    j->tiles_n = (g->n + j->nt - 1) / j->nt;
    int64_t tasks = products * j->tiles_m * j->tiles_n;
    if (dt_threads() == 1 || tasks >= TASKS_PER_THREAD * dt_threads()) break;
    if ((double)j->mt * (double)j->nt * (double)g->k < 2 * least) break;
    // A row of B's strip costs more to pack than a column of A's is worth: halve the longer side.
    if (j->nt >= j->mt && j->nt > nr) j->nt = round_up(j->nt / 2, nr);
    else if (j->mt > mr) j->mt = round_up(j->mt / 2, mr);
    else break;
  }
}

// Of our own kernel in float or double, at most m x n.
static void cut_own_tiles(Job *j, int64_t products, int64_t m, int64_t n) {
  cut_tiles(j, products, m, n, j->v->mr, j->v->nr[j->f64], 1 << 21);
  const DtGemm *g = j->g;
  j->cut.kc = min(j->cut.kc, g->k);
  j->cut.mc = min(j->cut.mc, j->mt);
  j->cut.nc = min(j->cut.nc, j->nt);
}

static int64_t power_of_two(int64_t n) {
  int64_t p = 1;
  while (p < n) p *= 2;
  return p;
}

// Cuts C into a library's tiles, by size alone: the bits must not follow the number of threads, and
// yet few or many are to be busy evenly. So where tiles are few, their number is a power of two,
// and not below 4 unless they are small.
static void cut_library_tiles(Job *j, int64_t products) {
  enum { FEW = 32, LEAST = 4, UNIT = 48 }; // UNIT: a multiple of what micro-kernels take
  const double least_work = 1 << 24; // multiplications in a tile, about 150 us
  const DtGemm *g = j->g;
  int64_t tm = (g->m + j->library->m - 1) / j->library->m;
  int64_t tn = (g->n + j->library->n - 1) / j->library->n;
  double work = (double)g->m * (double)g->n * (double)g->k;
  if (products * tm * tn < FEW) tm = power_of_two(tm), tn = power_of_two(tn);
  while (products * tm * tn < LEAST && work / (double)(tm * tn) >= 2 * least_work)
    *(g->n / tn >= g->m / tm ? &tn : &tm) *= 2;
  j->mt = round_up((g->m + tm - 1) / tm, UNIT);
  j->nt = round_up((g->n + tn - 1) / tn, UNIT);
  j->tiles_m = (g->m + j->mt - 1) / j->mt;
  j->tiles_n = (g->n + j->nt - 1) / j->nt;
}

void dt_gemm_run(const DtGemm *g, const void *a, const void *b, void *c, double beta,
                 const DtEpilogue *then, bool f64, const DtGemmLibrary *library) {
  Job j = {.g = g, .a = a, .b = b, .c = c, .then = then, .beta = beta, .f64 = f64,
           .library = library};
  int64_t apart, together;
  j.v = variant();
  j.cut = f64 ? j.v->cut64 : j.v->cut32;
  count_products(g, &apart, &together);
  if (g->m <= 0 || g->n <= 0 || apart <= 0) return;
  if (library) cut_library_tiles(&j, apart);
  else cut_own_tiles(&j, apart, INT64_MAX, INT64_MAX);
  void *arg[] = {&j};
  dt_parallel(run_tasks, arg, apart * j.tiles_m * j.tiles_n, 1);
}

int64_t dt_gemm_buffer(int64_t m, int64_t n, int64_t k) {
  const Variant *v = variant();
  return min(v->cut32.kc, k) * (min(v->cut32.mc, round_up(m, v->mr)) +
                                min(v->cut32.nc, round_up(n, v->nr[0])));
}

void dt_gemm_own_tile(const DtGemm *g, int64_t m, int64_t n, const float *a, const float *b, float *c,
                      float beta, float *buffer) {
  const Variant *v = variant();
  GemmCut cut = {min(v->cut32.kc, g->k), min(v->cut32.mc, round_up(m, v->mr)),
                 min(v->cut32.nc, round_up(n, v->nr[0]))};
  v->tile32(g, &cut, m, n, a, b, c, beta, buffer, NULL, &(GemmNext){0});
}

static void run_half_job(const DtGemm *g, const void *a, const void *b, void *c, float beta,
                         const DtEpilogue *then) {
  Job j = {.g = g, .a = a, .b = b, .c = c, .then = then, .beta = beta, .half = true};
  int64_t apart, together;
  j.v = variant();
  j.cut = j.v->cut32;
  count_products(g, &apart, &together);
  if (g->m <= 0 || g->n <= 0 || apart <= 0) return;
  const DtPairsKernel *v = j.pairs = dt_gemm_pairs(g);
  if (v) cut_tiles(&j, apart, v->m, v->n, 16 * v->panels, 16 * v->vectors, 1 << 23);
  else cut_own_tiles(&j, apart, GEMM_HALF_M, GEMM_HALF_N);
  void *arg[] = {&j};
  dt_parallel(run_tasks, arg, apart * j.tiles_m * j.tiles_n, 1);
}

void dt_gemm_half(const DtGemm *g, const void *a, const void *b, void *c, float beta) {
  run_half_job(g, a, b, c, beta, NULL);
}

void dt_gemm_then_half(const DtGemm *g, const void *a, const void *b, void *c, const DtEpilogue *e) {
  run_half_job(g, a, b, c, 0, e);
}

void dt_gemm_f64(const DtGemm *g, const double *a, const double *b, double *c, double beta) {
  dt_gemm_run(g, a, b, c, beta, NULL, true, NULL);
}

void dt_gemm_then_f64(const DtGemm *g, const double *a, const double *b, double *c, const DtEpilogue *e) {
  dt_gemm_run(g, a, b, c, 0, e, true, NULL);
}
