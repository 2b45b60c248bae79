// Products in float: by oneDNN or by our own kernel, as the tuned table says.
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/device/cpu/gemm_job.h"
#include "runtime/device/cpu/gemm_tuned.h"
#include "runtime/device/cpu/level.h"

#if DT_HAVE_DNNL
#include <dlfcn.h>
#include <dnnl.h>

typedef void SetThreads(int);

// oneDNN starts OpenMP's threads unless the calling thread's setting is 1. The setter is looked up,
// so that programs name oneDNN alone as a library they need. NULL: not found.
static SetThreads *set_threads(void) {
  static _Atomic(SetThreads *) found;
  SetThreads *f = atomic_load_explicit(&found, memory_order_acquire);
  if (f) return f;
  void *symbol = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
  memcpy(&f, &symbol, sizeof f); // ISO C has no conversion from data to function pointers
  atomic_store_explicit(&found, f, memory_order_release);
  return f;
}

static void dnnl_tile(const DtGemm *g, int64_t m, int64_t n, const float *a, const float *b,
                      float *c, float beta) {
  static _Thread_local bool single;
  if (!single && set_threads()) set_threads()(1);
  single = true;
  bool at = g->a_col != 1, bt = g->b_col != 1;
  // A matrix of one row or column may have any stride there; oneDNN wants one that fits.
  int64_t lda = at ? g->a_col : g->a_row, ldb = bt ? g->b_col : g->b_row, ldc = g->c_row;
  int64_t a_least = at ? m : g->k, b_least = bt ? g->k : n;
  dnnl_status_t status =
      dnnl_sgemm(at ? 'T' : 'N', bt ? 'T' : 'N', m, n, g->k, 1, a, lda < a_least ? a_least : lda, b,
                 ldb < b_least ? b_least : ldb, beta, c, ldc < n ? n : ldc);
  if (status != dnnl_success) abort(); // sizes and strides were checked: memory is out
}

DtGemmTile *dt_gemm_dnnl(void) {
  unsigned runtime = dnnl_version()->cpu_runtime;
  bool alone = runtime == DNNL_RUNTIME_SEQ || (runtime == DNNL_RUNTIME_OMP && set_threads());
  return alone ? dnnl_tile : NULL;
}
#else
DtGemmTile *dt_gemm_dnnl(void) {
  return NULL;
}
#endif

static bool matrix_fits(int64_t rows, int64_t cols, int64_t row, int64_t col) {
  return (col == 1 && (row >= cols || rows == 1)) || (row == 1 && (col >= rows || cols == 1));
}

bool dt_gemm_dnnl_fits(const DtGemm *g) {
  return matrix_fits(g->m, g->k, g->a_row, g->a_col) &&
         matrix_fits(g->k, g->n, g->b_row, g->b_col) && (g->c_row >= g->n || g->m == 1);
}

static atomic_int chosen = -1; // -1: not chosen yet

DtGemmUse dt_gemm_use(DtGemmUse use) {
  if (use == DT_GEMM_DNNL && !dt_gemm_dnnl()) use = DT_GEMM_OWN;
  atomic_store(&chosen, (int)use);
  return use;
}

static DtGemmUse use_now(void) {
  int use = atomic_load_explicit(&chosen, memory_order_relaxed);
  if (use >= 0) return (DtGemmUse)use;
  const char *name = getenv("DT_GEMM");
  return dt_gemm_use(name && !strcmp(name, "dnnl")  ? DT_GEMM_DNNL
                     : name && !strcmp(name, "own") ? DT_GEMM_OWN
                                                    : DT_GEMM_TABLE);
}

// The first line of the table that fits; the last one fits all.
static const GemmRule *rule_for(const DtGemm *g) {
  int kind = (g->a_col == 1 ? 0 : GEMM_TN) | (g->b_col == 1 ? 0 : GEMM_NT);
  const GemmRule *r = dt_cpu_amd() ? gemm_f32_rule_amd : gemm_f32_rule;
  while (!(r->kinds >> kind & 1) || g->m < r->m || g->n < r->n || g->k < r->k) r++;
  return r;
}

// A program for a named processor gives the same bits on every machine that has its level, and only
// our own kernel does that.
static bool take_library(const DtGemm *g, DtGemmUse use, const GemmRule *rule) {
  if (use == DT_GEMM_OWN || g->k <= 0 || !dt_gemm_dnnl_fits(g)) return false;
  if (use == DT_GEMM_DNNL) return true;
  return rule->dnnl && !dt_cpu_level_fixed() && dt_gemm_dnnl();
}

static void run(const DtGemm *g, const float *a, const float *b, float *c, float beta,
                const float *bias) {
  const GemmRule *rule = rule_for(g);
  bool take = take_library(g, use_now(), rule);
  DtGemmLibrary library = {take ? dt_gemm_dnnl() : NULL, rule->tile_m, rule->tile_n};
  dt_gemm_run(g, a, b, c, beta, bias, false, take ? &library : NULL);
}

void dt_gemm_f32(const DtGemm *g, const float *a, const float *b, float *c, float beta) {
  run(g, a, b, c, beta, NULL);
}

void dt_gemm_bias_f32(const DtGemm *g, const float *a, const float *b, const float *bias,
                      float *c) {
  run(g, a, b, c, 0, bias);
}
