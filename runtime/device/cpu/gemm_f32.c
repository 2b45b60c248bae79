// Products in float: by our own kernel, or by oneDNN where it is asked for and can.
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/device/cpu/dnnl.h"

static atomic_int chosen = -1; // -1: not chosen yet

DtGemmUse dt_gemm_use(DtGemmUse use) {
  if (use == DT_GEMM_DNNL && !dt_dnnl_tile(NULL)) use = DT_GEMM_OWN;
  atomic_store(&chosen, (int)use);
  return use;
}

static DtGemmUse use_now(void) {
  int use = atomic_load_explicit(&chosen, memory_order_relaxed);
  if (use >= 0) return (DtGemmUse)use;
  const char *name = getenv("DT_GEMM");
  return dt_gemm_use(name && !strcmp(name, "dnnl") ? DT_GEMM_DNNL : DT_GEMM_OWN);
}

const char *dt_gemm_name(void) { return use_now() == DT_GEMM_DNNL ? dt_dnnl_name() : "own"; }

static void run(const DtGemm *g, const float *a, const float *b, float *c, float beta,
                const DtEpilogue *then) {
  enum { TILE_M = 512, TILE_N = 768 }; // of oneDNN, at most
  bool take = use_now() == DT_GEMM_DNNL && g->k > 0 && dt_dnnl_fits(g);
  DtGemmLibrary library = {take ? dt_dnnl_tile(NULL) : NULL, TILE_M, TILE_N};
  dt_gemm_run(g, a, b, c, beta, then, false, take ? &library : NULL);
}

void dt_gemm_f32(const DtGemm *g, const float *a, const float *b, float *c, float beta) { run(g, a, b, c, beta, NULL); }

void dt_gemm_then_f32(const DtGemm *g, const float *a, const float *b, float *c, const DtEpilogue *e) {
  run(g, a, b, c, 0, e);
}
