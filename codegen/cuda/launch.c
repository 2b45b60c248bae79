// Kernels in the emitted C: above a function the shape of each launch, in it the calls of runtime/device/cuda/launch.h.
#include "codegen/cuda/emit.h"
#include "codegen/cuda/target.h"
#include "codegen/host/host.h"

void cuda_declare(Host *h, Id fn, const Kernel *k) {
  const Fn *f = &h->m->fn.at[fn];
  int64_t blocks;
  int x, y;
  if (cuda_by_library(f, k)) {
    host_declare_product(h, f, k);
    return;
  }
  if (k->kind == K_INTRINSIC) {
    cuda_declare_attention(h, fn, k);
    return;
  }
  cuda_kernel_shape(h->p, fn, k, &blocks, &x, &y);
  buf_printf(h->out, "DT_KERNEL(%s, %lld, %d, %d);\n", k->name, (long long)blocks, x, y);
}

static void launch_loops(HostFn *x, const Kernel *k) {
  uint32_t n = 0;
  Str *arg = NEWN(x->h->a, Str, k->arg.n + 4);
  bool extent = cuda_has_extent(x->f), call = extent && x->entry == ENTRY_UPDATE;
  arg[n++] = k->name;
  if (call) arg[n++] = str_intern(host_type[param_type(x->h->m)]);
  if (call) arg[n++] = str_intern("call");
  else if (extent) arg[n++] = str_printf("%d", UPDATE_PIECE);
  for (uint32_t i = 0; i < k->arg.n; i++) arg[n++] = host_buffer(x, k->arg.at[i]);
  if (k->random) {
    x->key_used = true;
    arg[n++] = str_intern("key");
  }
  put_call(&x->body, 2, call ? "dt_launch_extent" : extent ? "dt_launch_count" : "dt_launch", arg, n, ";\n");
}

static void launch_scan(HostFn *x, const Kernel *k) {
  Str arg[] = {k->name, host_plus(host_buffer(x, k->scan.from), k->scan.from_offset),
               host_plus(host_buffer(x, k->scan.to), k->scan.to_offset)};
  put_call(&x->body, 2, "dt_launch", arg, 3, ";\n");
}

void cuda_launch(HostFn *x, uint32_t kernel) {
  const Kernel *k = &x->fp->kernel.at[kernel];
  switch (k->kind) {
  case K_LOOPS: launch_loops(x, k); return;
  case K_GEMM:
    if (cuda_by_library(x->f, k)) host_launch_product(x, kernel, "dt_matmul", "dt_matmul_bias", NULL);
    else host_launch_product(x, kernel, "dt_launch_product", "dt_launch", NULL);
    return;
  case K_SCAN: launch_scan(x, k); return;
  case K_INTRINSIC: cuda_launch_attention(x, kernel); return;
  default: BUG("a kernel of kind %d is launched", k->kind);
  }
}
