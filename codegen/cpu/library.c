// What the runtime's library computes: matrix products, running sums, and the scratch memory that these ask for.
#include "codegen/cpu/target.h"
#include "runtime/device/cpu/scratch.h"

// In the type that is computed in, or operands of one 16-bit type and a result of that or of float.
static bool types_fit(const Module *m, Dtype a, Dtype b, Dtype c) {
  if (a != b || (m->compute != DT_F32 && m->compute != DT_F64)) return false;
  return is_half(a) ? m->compute == DT_F32 && (c == a || c == DT_F32) : a == m->compute && c == a;
}

bool cpu_takes_product(const Module *m, const Fn *f, const GemmPlan *g) {
  Dtype a = f->value.at[g->a].type;
  if (!types_fit(m, a, f->value.at[g->b].type, f->value.at[g->c].type)) return false;
  if (g->bias == NONE) return true;
  Dtype bias = f->value.at[g->bias].type;
  return bias == m->compute || (is_half(bias) && is_half(a));
}

bool cpu_takes_scan(const Module *m, Dtype t) {
  return t == DT_I32 || ((t == DT_F32 || t == DT_F64) && t == m->compute);
}

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
