// oneDNN's matrix product, for those who ask for it (DT_GEMM=dnnl). The library is loaded by then, so that a program
// needs none to start. Names and types are those of dnnl.h, versions 2 and 3 (tests/train/library-headers-agree).
#define _GNU_SOURCE
#include "runtime/device/cpu/dnnl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void SetThreads(int);

static struct {
  bool tried;
  char name[64], missing[256];
  DtDnnlSgemm *sgemm; // NULL: not there
  SetThreads *set_threads;
} library;

// oneDNN starts OpenMP's threads unless the calling thread's setting is 1.
static void find(void) {
  static const char *const file[] = {"libdnnl.so.3", "libdnnl.so.2", "libdnnl.so"};
  void *lib = NULL;
  library.tried = true;
  for (int i = 0; i < 3 && !lib; i++) lib = dlopen(file[i], RTLD_NOW | RTLD_LOCAL);
  if (!lib) {
    snprintf(library.missing, sizeof library.missing, "neither libdnnl.so.3 nor libdnnl.so.2 can be loaded");
    return;
  }
  DtDnnlVersion *version_of = NULL;
  void *symbol[] = {dlsym(lib, "dnnl_sgemm"), dlsym(lib, "dnnl_version"), dlsym(lib, "omp_set_num_threads")};
  memcpy(&library.sgemm, &symbol[0], sizeof symbol[0]); // ISO C has no conversion from data to function pointers
  memcpy(&version_of, &symbol[1], sizeof symbol[1]);
  memcpy(&library.set_threads, &symbol[2], sizeof symbol[2]);
  const DtDnnlVersionInfo *v = version_of ? version_of() : NULL;
  bool alone = v && (v->cpu_runtime == DT_DNNL_SEQ || (v->cpu_runtime == DT_DNNL_OMP && library.set_threads));
  if (v) snprintf(library.name, sizeof library.name, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
  if (library.sgemm && alone) return;
  library.sgemm = NULL;
  snprintf(library.missing, sizeof library.missing, "%s has no products that stay on one thread",
           v ? library.name : "libdnnl.so");
}

// A matrix of one row or column may have any stride there; oneDNN wants one that fits.
static void tile(const DtGemm *g, int64_t m, int64_t n, const float *a, const float *b, float *c, float beta) {
  static _Thread_local bool single;
  if (!single && library.set_threads) library.set_threads(1);
  single = true;
  bool at = g->a_col != 1, bt = g->b_col != 1;
  int64_t lda = at ? g->a_col : g->a_row, ldb = bt ? g->b_col : g->b_row, ldc = g->c_row;
  int64_t a_least = at ? m : g->k, b_least = bt ? g->k : n;
  int status = library.sgemm(at ? 'T' : 'N', bt ? 'T' : 'N', m, n, g->k, 1, a, lda < a_least ? a_least : lda, b,
                             ldb < b_least ? b_least : ldb, beta, c, ldc < n ? n : ldc);
  if (status != 0) abort(); // sizes and strides were checked: memory is out
}

DtGemmTile *dt_dnnl_tile(const char **missing) {
  if (!library.tried) find();
  if (missing) *missing = library.missing;
  return library.sgemm ? tile : NULL;
}

const char *dt_dnnl_name(void) { return library.name; }

static bool matrix_fits(int64_t rows, int64_t cols, int64_t row, int64_t col) {
  return (col == 1 && (row >= cols || rows == 1)) || (row == 1 && (col >= rows || cols == 1));
}

bool dt_dnnl_fits(const DtGemm *g) {
  return matrix_fits(g->m, g->k, g->a_row, g->a_col) && matrix_fits(g->k, g->n, g->b_row, g->b_col) &&
         (g->c_row >= g->n || g->m == 1);
}
