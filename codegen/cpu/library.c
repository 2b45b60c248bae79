// The scratch memory that the runtime's products and attention ask for.
#include "codegen/cpu/target.h"
#include "runtime/device/cpu/scratch.h"

static int64_t of_kernel(const Module *m, const Fn *f, const Kernel *k) {
  if (k->kind == K_INTRINSIC) return cpu_attention_scratch(m, f, &f->stmt.at[k->stmt.at[0]]);
  if (k->kind != K_GEMM) return 0;
  const GemmPlan *g = &k->gemm;
  Dtype a = f->value.at[g->a].type;
  if (a == DT_BF16) return dt_gemm_bf16_scratch(g->m, g->n, g->k);
  if (is_half(a)) return dt_gemm_half_scratch(g->m, g->n, g->k);
  return dt_gemm_scratch(g->m, g->n, g->k, f->value.at[g->c].type == DT_F64);
}

int64_t cpu_scratch(const Plan *p) {
  int64_t most = 0;
  for (uint32_t f = 0; f < p->m->fn.n; f++)
    for (uint32_t i = 0; i < p->fn[f].kernel.n; i++) {
      int64_t n = of_kernel(p->m, &p->m->fn.at[f], &p->fn[f].kernel.at[i]);
      if (n > most) most = n;
    }
  int64_t update = dt_extent_scratch(UPDATE_PIECE, dtype_size(p->m->compute));
  return p->m->entry[ENTRY_UPDATE] != NONE && update > most ? update : most;
}
