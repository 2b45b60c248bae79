// The plan as text: for --emit kernels. For each kernel its name, what it moves and computes, how
// it is launched, and its statements in index notation with their places in the source.
#include "codegen/host/host.h"
#include "codegen/lower/nest.h"
#include "ir/text/text.h"

static const char *const kind_name[] = {"loops",     "matrix product", "running sum",
                                        "intrinsic", "call",           "collective",
                                        "wait for"};

static void print_amount(Buf *b, double v, const char *unit) {
  static const char *const prefix[] = {"", "k", "M", "G", "T"};
  int p = 0;
  while (v >= 9999.5 && p < 4) v /= 1000, p++;
  buf_printf(b, v < 100 && p ? "%.1f %s%s" : "%.0f %s%s", v, prefix[p], unit);
}

// A statement, and where it stands in the source: `y[b<4] = sum(i<3: x[b, i])  # model.dt:12`.
static void print_stmt(const Module *m, const Fn *f, const Stmt *s, const char *lead, Buf *b) {
  Buf text = {0};
  ir_print_stmt(m, f, s, &text);
  if (s->loc && m->src) {
    buf_printf(&text, "  # ");
    put_source(m, s->loc, false, &text);
  }
  put_wrapped(b, lead, "          ", text.text);
  buf_printf(b, "\n");
  buf_free(&text);
}

static void print_shape(const Value *v, Buf *b) {
  buf_printf(b, "%s", dtype_name[v->type]);
  for (uint32_t d = 0; d < v->rank; d++)
    buf_printf(b, "%s%lld", d ? ", " : "[", (long long)v->extent[d]);
  if (v->rank) buf_printf(b, "]");
}

static void print_args(const Fn *f, const Kernel *k, Buf *b) {
  for (uint32_t i = 0; i < k->arg.n; i++) {
    const Value *v = &f->value.at[k->arg.at[i]];
    buf_printf(b, "    %s %s: ", k->written.at[i] ? "writes" : "reads ", v->name);
    print_shape(v, b);
    buf_printf(b, "\n");
  }
  if (k->random) buf_printf(b, "    reads  key: seed, step\n");
  for (uint32_t i = 0; i < k->inplace.n; i++)
    buf_printf(b, "    %s may take over the storage of %s\n",
               f->value.at[k->inplace.at[i].out].name, f->value.at[k->inplace.at[i].in].name);
}

static void print_grid(const Kernel *k, Buf *b) {
  const Loops *l = k->loops;
  buf_printf(b, "    grid %lld", (long long)k->grid);
  for (uint32_t i = 0; l && i < l->ngrid; i++) {
    bool tiled = l->tile && i == l->ngrid - 1;
    buf_printf(b, "%s%s<%lld", i ? ", " : ": ", l->var.at[i].name, (long long)l->var.at[i].extent);
    if (tiled) buf_printf(b, " by %lld", (long long)l->tile);
  }
  buf_printf(b, "; %lld points a task\n", (long long)k->chunk);
}

static void print_nests(const FnPlan *fp, const Module *m, const Kernel *k, Buf *b) {
  const Fn *f = &m->fn.at[fp->fn];
  for (uint32_t i = 0; i < k->loops->nest.n; i++) {
    const Nest *n = &k->loops->nest.at[i];
    buf_printf(b, "    for");
    for (uint32_t j = 0; j < n->nloop; j++)
      buf_printf(b, "%s %s", j ? "," : "", k->loops->var.at[n->loop[j]].name);
    if (!n->nloop) buf_printf(b, " the point");
    if (n->vec != NO_VAR) buf_printf(b, "; lanes %s", k->loops->var.at[n->vec].name);
    buf_printf(b, "\n");
    for (uint32_t j = 0; j < n->stmt.n; j++) {
      const Stmt *s = &f->stmt.at[n->stmt.at[j].stmt];
      print_stmt(m, f, s, fp->layout[s->lhs].internal ? "      let " : "      ", b);
    }
  }
}

static void print_kernel(const FnPlan *fp, const Module *m, const Kernel *k, Buf *b) {
  const Fn *f = &m->fn.at[fp->fn];
  buf_printf(b, "  %s %s", kind_name[k->kind], k->name);
  if (k->bytes > 0) {
    buf_printf(b, ": ");
    print_amount(b, k->bytes, "B");
    buf_printf(b, ", ");
    print_amount(b, k->flops, "FLOP");
  }
  buf_printf(b, "\n");
  if (k->kind == K_LOOPS) {
    print_args(f, k, b);
    print_grid(k, b);
    if (k->fill != NONE) buf_printf(b, "      %s = 0\n", f->value.at[k->fill].name);
    else print_nests(fp, m, k, b);
    return;
  }
  for (uint32_t i = 0; i < k->stmt.n; i++) {
    print_stmt(m, f, &f->stmt.at[k->stmt.at[i]], "      ", b);
  }
}

static void print_views(const FnPlan *fp, const Fn *f, Buf *b) {
  for (Id v = 0; v < f->value.n; v++) {
    const Layout *l = &fp->layout[v];
    if (l->buffer == v) continue;
    buf_printf(b, "  view %s: ", f->value.at[v].name);
    print_shape(&f->value.at[v], b);
    buf_printf(b, " = %s + %lld", f->value.at[l->buffer].name, (long long)l->offset);
    for (uint32_t d = 0; d < f->value.at[v].rank; d++)
      buf_printf(b, "%s%lld", d ? ", " : " by ", (long long)l->stride[d]);
    buf_printf(b, "\n");
  }
}

void plan_print(const Plan *p, Buf *out) {
  for (Id id = 0; id < p->m->fn.n; id++) {
    if (!p->reached[id]) continue;
    const FnPlan *fp = &p->fn[id];
    buf_printf(out, "%s: %u kernels\n", p->m->fn.at[id].name, fp->kernel.n);
    print_views(fp, &p->m->fn.at[id], out);
    for (uint32_t k = 0; k < fp->kernel.n; k++) print_kernel(fp, p->m, &fp->kernel.at[k], out);
    buf_printf(out, "\n");
  }
}
