// How much scratch memory a program's products and attention ask for on a thread, so that the
// runtime has it before the first step.
#include "codegen/lower/kernel.h"
#include "runtime/device/cpu/scratch.h"

static int64_t of_kernel(const Module *m, const Fn *f, const Kernel *k) {
  if (k->kind == K_INTRINSIC) return intrinsic_scratch(m, f, &f->stmt.at[k->stmt.at[0]]);
  if (k->kind != K_GEMM) return 0;
  const GemmPlan *g = &k->gemm;
  if (is_half(f->value.at[g->a].type)) return dt_gemm_half_scratch(g->m, g->n, g->k);
  return dt_gemm_scratch(g->m, g->n, g->k, f->value.at[g->c].type == DT_F64);
}

int64_t largest_scratch(const Plan *p) {
  int64_t most = 0;
  for (uint32_t f = 0; f < p->m->fn.n; f++)
    for (uint32_t i = 0; i < p->fn[f].kernel.n; i++) {
      int64_t n = of_kernel(p->m, &p->m->fn.at[f], &p->fn[f].kernel.at[i]);
      if (n > most) most = n;
    }
  return most;
}
