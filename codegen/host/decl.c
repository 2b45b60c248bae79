// What stands above a function: its kernels, each with what it computes, and what the target declares for it.
#include "codegen/host/host.h"
#include "codegen/target.h"
#include "ir/text/text.h"

static void put_flops(Buf *b, double flops) {
  static const char *const unit[] = {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"};
  int u = 0;
  for (; flops >= 999.5 && u < 4; u++) flops /= 1000;
  buf_printf(b, "%.3g %s", flops, unit[u]);
}

// nn.dt:31 in gpt2.dt:8: 12.6 MB, 5.5 MFLOP
static void put_facts(const Module *m, const Fn *f, const Kernel *k, Buf *b) {
  Buf inner = {0}, outer = {0};
  if (k->stmt.n) {
    put_source(m, f->stmt.at[k->stmt.at[0]].loc, false, &inner);
    put_source(m, f->stmt.at[k->stmt.at[0]].loc, true, &outer);
  }
  buf_printf(b, "// ");
  if (inner.n) put_comment(b, inner.text, inner.n);
  if (outer.n && strcmp(inner.text, outer.text)) {
    buf_printf(b, " in ");
    put_comment(b, outer.text, outer.n);
  }
  if (inner.n) buf_printf(b, ": ");
  put_bytes(b, k->bytes);
  buf_printf(b, ", ");
  put_flops(b, k->flops);
  buf_printf(b, "\n");
  buf_free(&inner);
  buf_free(&outer);
}

void put_kernel(const Module *m, const Fn *f, const Kernel *k, Buf *b) {
  put_facts(m, f, k, b);
  for (uint32_t i = 0; i < k->stmt.n; i++) {
    Buf text = {0}, comment = {0};
    ir_print_stmt(m, f, &f->stmt.at[k->stmt.at[i]], &text);
    put_comment(&comment, text.text, text.n);
    put_wrapped(b, "//   ", "//       ", comment.text);
    buf_printf(b, "\n");
    buf_free(&text);
    buf_free(&comment);
  }
  if (k->stmt.n) return;
  Str zeros = f->value.at[k->fill].name;
  buf_printf(b, "//   zeros ");
  put_comment(b, zeros, strlen(zeros));
  buf_printf(b, "\n");
}

void host_kernels(Host *h, Id fn) {
  const Fn *f = &h->m->fn.at[fn];
  for (uint32_t i = 0; i < h->p->fn[fn].kernel.n; i++) {
    const Kernel *k = &h->p->fn[fn].kernel.at[i];
    if (!kernel_is_named(k)) continue;
    put_kernel(h->m, f, k, h->out);
    h->m->target->declare(h, fn, k);
    buf_printf(h->out, "\n");
  }
}
