// Matrix products in the emitted C: the shape of each, and its launch.
#include "codegen/host/host.h"

void host_declare_product(Host *h, const Fn *f, const Kernel *k) {
  const GemmPlan *g = &k->gemm;
  buf_printf(h->out, "static const DtGemm %s = {.m = %lld, .n = %lld, .k = %lld,\n", k->name,
             (long long)g->m, (long long)g->n, (long long)g->k);
  buf_printf(h->out,
             "    .a_row = %lld, .a_col = %lld, .b_row = %lld, .b_col = %lld, .c_row = %lld",
             (long long)g->a_row, (long long)g->a_col, (long long)g->b_row, (long long)g->b_col,
             (long long)g->c_row);
  if (g->nbatch) buf_printf(h->out, ",\n    .nbatch = %u, .batch = {", g->nbatch);
  for (uint32_t i = 0; i < g->nbatch; i++)
    buf_printf(h->out, "%s{.count = %lld, .a = %lld, .b = %lld, .c = %lld}", i ? ", " : "",
               (long long)g->batch[i].count, (long long)g->batch[i].a, (long long)g->batch[i].b,
               (long long)g->batch[i].c);
  if (g->nbatch) buf_printf(h->out, "}");
  if (is_half(f->value.at[g->a].type)) {
    buf_printf(h->out, ",\n    .operand = %s, .result = %s", host_type[f->value.at[g->a].type],
               host_type[f->value.at[g->c].type]);
    if (g->bias != NONE) buf_printf(h->out, ", .bias = %s", host_type[f->value.at[g->bias].type]);
    if (g->plus != NONE) buf_printf(h->out, ", .plus = %s", host_type[f->value.at[g->plus].type]);
    if (g->kept != NONE) buf_printf(h->out, ", .kept = %s", host_type[f->value.at[g->kept].type]);
  }
  if (g->plus_first) buf_printf(h->out, ", .plus_first = true");
  if (g->act == ACT_GELU) buf_printf(h->out, ", .act = DT_ACT_GELU");
  buf_printf(h->out, "};\n");
}

// dt_matmul_then(NAME, a, b, c, .bias = ..., .plus = ..., .kept = ..., .act = ...)
static void launch_with_epilogue(HostFn *x, const Kernel *k, Str function, Str a, Str b, Str c) {
  const GemmPlan *g = &k->gemm;
  const Layout *l = x->fp->layout;
  Str arg[8] = {k->name, a, b, c};
  uint32_t n = 4;
  if (g->bias != NONE) arg[n++] = str_printf(".bias = %s", host_plus(host_buffer(x, l[g->bias].buffer), g->bias_offset));
  if (g->plus != NONE) arg[n++] = str_printf(".plus = %s", host_plus(host_buffer(x, l[g->plus].buffer), g->plus_offset));
  if (g->kept != NONE) arg[n++] = str_printf(".kept = %s", host_buffer(x, l[g->kept].buffer));
  if (function) arg[n++] = str_printf(".act = %s", function);
  put_call(&x->body, 2, n == 4 ? "dt_matmul_act" : "dt_matmul_then", arg, n, ";\n");
}

void host_launch_product(HostFn *x, uint32_t kernel, const char *plain, const char *biased, Str function) {
  const Kernel *k = &x->fp->kernel.at[kernel];
  const GemmPlan *g = &k->gemm;
  const Layout *l = x->fp->layout;
  Str a = host_plus(host_buffer(x, l[g->a].buffer), g->a_offset), b = host_plus(host_buffer(x, l[g->b].buffer), g->b_offset),
      c = host_plus(host_buffer(x, l[g->c].buffer), g->c_offset);
  if (g->plus != NONE || g->act != ACT_NONE) {
    launch_with_epilogue(x, k, function, a, b, c);
    return;
  }
  if (g->bias != NONE) {
    Str with[] = {k->name, a, b, host_plus(host_buffer(x, l[g->bias].buffer), g->bias_offset), c};
    put_call(&x->body, 2, biased, with, 5, ";\n");
    return;
  }
  bool stores = host_kernel_stores(x->h, x->id, kernel);
  x->beta_used |= stores;
  Str arg[] = {k->name, a, b, c, stores ? "beta" : g->accumulate ? "1" : "0"};
  put_call(&x->body, 2, plain, arg, 5, ";\n");
}
