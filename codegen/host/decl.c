// What stands above a function: its kernels, each with what it computes, and the shapes of its
// products.
#include "codegen/host/host.h"
#include "ir/text/text.h"

static void put_flops(Buf *b, double flops) {
  static const char *const unit[] = {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"};
  int u = 0;
  for (; flops >= 999.5 && u < 4; u++) flops /= 1000;
  buf_printf(b, "%.3g %s", flops, unit[u]);
}

static void print_stmts(Host *h, const Fn *f, const Kernel *k) {
  for (uint32_t i = 0; i < k->stmt.n; i++) {
    Buf text = {0}, comment = {0};
    ir_print_stmt(h->m, f, &f->stmt.at[k->stmt.at[i]], &text);
    put_comment(&comment, text.text, text.n);
    put_wrapped(h->out, "//   ", "//       ", comment.text);
    buf_printf(h->out, "\n");
    buf_free(&text);
    buf_free(&comment);
  }
  if (!k->stmt.n) buf_printf(h->out, "//   zeros %s\n", f->value.at[k->fill].name);
}

// nn.dt:31 in gpt2.dt:8: 12.6 MB, 5.5 MFLOP
static void print_facts(Host *h, const Fn *f, const Kernel *k) {
  Buf inner = {0}, outer = {0};
  if (k->stmt.n) {
    put_source(h->m, f->stmt.at[k->stmt.at[0]].loc, false, &inner);
    put_source(h->m, f->stmt.at[k->stmt.at[0]].loc, true, &outer);
  }
  buf_printf(h->out, "// ");
  if (inner.n) put_comment(h->out, inner.text, inner.n);
  if (outer.n && strcmp(inner.text, outer.text)) {
    buf_printf(h->out, " in ");
    put_comment(h->out, outer.text, outer.n);
  }
  if (inner.n) buf_printf(h->out, ": ");
  put_bytes(h->out, k->bytes);
  buf_printf(h->out, ", ");
  put_flops(h->out, k->flops);
  buf_printf(h->out, "\n");
  buf_free(&inner);
  buf_free(&outer);
}

static void print_gemm(Host *h, const Fn *f, const Kernel *k) {
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
  }
  buf_printf(h->out, "};\n");
}

static void print_scan(Host *h, const Kernel *k) {
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

void host_kernels(Host *h, Id fn) {
  const Fn *f = &h->m->fn.at[fn];
  for (uint32_t i = 0; i < h->p->fn[fn].kernel.n; i++) {
    const Kernel *k = &h->p->fn[fn].kernel.at[i];
    if (!kernel_is_named(k)) continue;
    print_facts(h, f, k);
    print_stmts(h, f, k);
    if (k->kind == K_LOOPS) buf_printf(h->out, "DT_KERNEL(%s);\n", k->name);
    if (k->kind == K_GEMM) print_gemm(h, f, k);
    if (k->kind == K_SCAN) print_scan(h, k);
    if (k->kind == K_INTRINSIC) host_attention_shape(h, fn, k);
    buf_printf(h->out, "\n");
  }
}
