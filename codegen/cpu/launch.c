// Kernels in the emitted C: above a function what each is, in it the calls of runtime/device/cpu/launch.h.
#include "codegen/cpu/target.h"
#include "codegen/host/host.h"

// The name in C of what a product applies to its sums: no kernel's begins like this (codegen/lower/fuse.c).
static Str function_of(const Kernel *k) { return str_printf("dt_act_%s", k->name); }

// ---- declarations

static void declare_scan(Host *h, const Kernel *k) {
  const ScanPlan *p = &k->scan;
  buf_printf(h->out,
             "static const DtScan %s = {.n = %lld, .x = %lld, .y = %lld, .count = %lld, "
             ".x_col = %lld, .y_col = %lld",
             k->name, (long long)p->along.count, (long long)p->along.x, (long long)p->along.y,
             (long long)p->column.count, (long long)p->column.x, (long long)p->column.y);
  if (p->nloop) buf_printf(h->out, ",\n    .nloop = %u, .loop = {", p->nloop);
  for (uint32_t i = 0; i < p->nloop; i++)
    buf_printf(h->out, "%s{.count = %lld, .x = %lld, .y = %lld}", i ? ", " : "",
               (long long)p->loop[i].count, (long long)p->loop[i].x, (long long)p->loop[i].y);
  buf_printf(h->out, "%s%s%s%s};\n", p->nloop ? "}" : "", p->reverse ? ", .reverse = true" : "",
             p->exclusive ? ", .exclusive = true" : "", p->add ? ", .add = true" : "");
}

void cpu_declare(Host *h, Id fn, const Kernel *k) {
  switch (k->kind) {
  case K_LOOPS: buf_printf(h->out, "DT_KERNEL(%s);\n", k->name); return;
  case K_GEMM:
    if (k->gemm.act != ACT_NONE) buf_printf(h->out, "DtKernel %s __asm__(\"kernel.%s\");\n", function_of(k), k->name);
    host_declare_product(h, &h->m->fn.at[fn], k);
    return;
  case K_SCAN: declare_scan(h, k); return;
  case K_INTRINSIC: cpu_attention_shape(h, fn, k); return;
  default: BUG("a kernel of kind %d is declared", k->kind);
  }
}

// ---- launches

static void launch_loops(HostFn *x, const Kernel *k) {
  uint32_t n = 0;
  Str *arg = NEWN(x->h->a, Str, k->arg.n + 7);
  bool extent = x->entry == ENTRY_UPDATE; // of as many elements as the caller says
  arg[n++] = k->name;
  arg[n++] = str_printf("%lld", (long long)k->grid);
  if (!extent) arg[n++] = str_printf("%lld", (long long)k->chunk);
  if (extent) {
    arg[n++] = str_printf("%d", UPDATE_PIECE);
    arg[n++] = str_intern(host_type[x->h->m->compute]);
    arg[n++] = str_intern(host_type[param_type(x->h->m)]);
    arg[n++] = str_intern("call");
  }
  for (uint32_t i = 0; i < k->arg.n; i++) arg[n++] = host_buffer(x, k->arg.at[i]);
  if (k->random) {
    x->key_used = true;
    arg[n++] = str_intern("key");
  }
  put_call(&x->body, 2, extent ? "dt_launch_extent" : "dt_launch", arg, n, ";\n");
}

static void launch_scan(HostFn *x, const Kernel *k) {
  Str arg[] = {k->name, host_plus(host_buffer(x, k->scan.from), k->scan.from_offset),
               host_plus(host_buffer(x, k->scan.to), k->scan.to_offset)};
  put_call(&x->body, 2, "dt_scan", arg, 3, ";\n");
}

void cpu_launch(HostFn *x, uint32_t kernel) {
  const Kernel *k = &x->fp->kernel.at[kernel];
  switch (k->kind) {
  case K_LOOPS: launch_loops(x, k); return;
  case K_GEMM:
    host_launch_product(x, kernel, "dt_matmul", "dt_matmul_bias", k->gemm.act == ACT_NONE ? NULL : function_of(k));
    return;
  case K_SCAN: launch_scan(x, k); return;
  case K_INTRINSIC: cpu_attention_launch(x, kernel); return;
  default: BUG("a kernel of kind %d is launched", k->kind);
  }
}
