// The emitted C file: what a person would write to train this model by hand. At its head the table
// of buffers; then for each function its kernels, with what they compute, and straight calls of
// them; then the tables that the runtime reads. Equal plans give equal bytes.
#include "codegen/host/host.h"
#include "codegen/target.h"

// The needs of a function and of those that it calls, which come before it in h->order.
static void find_needs(Host *h, Id fn) {
  const FnPlan *fp = &h->p->fn[fn];
  for (uint32_t i = 0; i < fp->kernel.n; i++) {
    const Kernel *k = &fp->kernel.at[i];
    h->random[fn] |= k->random;
    h->exchanges[fn] |= k->kind == K_COLL;
    if (k->kind != K_CALL) continue;
    Id callee = h->m->fn.at[fn].stmt.at[k->stmt.at[0]].call->fn;
    h->random[fn] |= h->random[callee];
    h->exchanges[fn] |= h->exchanges[callee];
  }
}

// Kernels have their names already (the object file's symbols), functions take what is left.
static void name_file_scope(Host *h) {
  static const char *const tables[] = {"param", "stack", "data", "metric", "kernel"};
  names_init(&h->file, h->a, NULL);
  for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
    names_new(&h->file, str_intern(tables[i]));
  host_pipeline_names(h);
  for (uint32_t i = 0; i < h->order.n; i++) {
    const FnPlan *fp = &h->p->fn[h->order.at[i]];
    for (uint32_t j = 0; j < fp->kernel.n; j++) {
      if (!kernel_is_named(&fp->kernel.at[j])) continue;
      names_take(&h->file, fp->kernel.at[j].name);
    }
  }
  for (uint32_t i = 0; i < h->order.n; i++)
    h->fn[h->order.at[i]] = names_new(&h->file, h->m->fn.at[h->order.at[i]].name);
}

static void start(Host *h, const Plan *p, bool test, Buf *out) {
  const Module *m = p->m;
  *h = (Host){.p = p, .m = m, .a = m->arena, .out = out, .test = test};
  h->fn = NEWN(h->a, Str, m->fn.n + 1);
  h->random = NEWN(h->a, bool, m->fn.n + 1);
  h->exchanges = NEWN(h->a, bool, m->fn.n + 1);
  Id *order = NEWN(h->a, Id, m->fn.n + 1);
  uint32_t n = program_order(p, test, order);
  for (uint32_t i = 0; i < n; i++) {
    find_needs(h, order[i]);
    PUSH(h->a, h->order, order[i]);
  }
  name_file_scope(h);
  host_find_stores(h);
  if (test) return;
  h->program = program_make(m, p);
  h->params = param_layout(m);
  h->stage = NEWN(h->a, ParamLayout *, m->stages + 1);
  for (uint32_t s = 0; m->chunk.n && s < m->stages; s++) h->stage[s] = param_layout_stage(m, s);
}

static void print_functions(Host *h) {
  for (uint32_t i = 0; i < h->order.n; i++) {
    host_kernels(h, h->order.at[i]);
    host_fn(h, h->order.at[i]);
  }
}

void host_c(const Plan *p, Str arch, Str build_hash, Buf *out) {
  Host h;
  start(&h, p, false, out);
  buf_printf(out, "// ");
  put_comment(out, p->m->name, strlen(p->m->name));
  buf_printf(
      out,
      ", %s, as dtc compiled it: one C function for each function of the program,\n"
      "// its kernels (in kernels.o) above it.\n",
      precision_name(p->m));
  buf_printf(out, "%s#include \"%s\"\n#include \"runtime/program.h\"\n\n",
             p->m->spmd ? "#include \"runtime/comm.h\"\n" : "", p->m->target->include);
  host_listing(&h);
  print_functions(&h);
  host_tables(&h, arch, build_hash);
}

// The dt_test_F function: takes its storage from arrays of pointers.
static void print_shim(Host *h, Id fn) {
  const Fn *f = &h->m->fn.at[fn];
  Str *arg = NEWN(h->a, Str, f->arg.n + f->result.n + 3);
  uint32_t n = 0;
  for (uint32_t i = 0; i < f->arg.n; i++) arg[n++] = str_printf("arg[%u]", i);
  for (uint32_t i = 0; i < f->result.n; i++)
    if (result_place(h->p, fn, i).kind == RESULT_OWN) arg[n++] = str_printf("result[%u]", i);
  if (h->p->fn[fn].frame_bytes) arg[n++] = str_intern("frame");
  if (h->random[fn]) arg[n++] = str_intern("key");
  if (host_takes_beta(h, fn)) arg[n++] = str_intern("1");
  buf_printf(
      h->out,
      "void dt_test_%u(void *const *arg, void *const *result, char *frame, const uint64_t *key) {\n"
      "  (void)arg, (void)result, (void)frame, (void)key;\n",
      fn);
  put_call(h->out, 2, h->fn[fn], arg, n, ";\n");
  for (uint32_t i = 0; i < f->result.n; i++) {
    ResultPlace r = result_place(h->p, fn, i);
    const Value *v = &f->value.at[f->result.at[i]];
    if (r.kind != RESULT_ARG && r.kind != RESULT_SAME) continue;
    buf_printf(h->out, "  dt_device_copy(result[%u], %s[%u], %lld);\n", i,
               r.kind == RESULT_ARG ? "arg" : "result", r.arg,
               (long long)(value_count(v) * dtype_size(v->type)));
  }
  buf_printf(h->out, "}\n\n");
}

void host_c_test(const Plan *p, Buf *out) {
  Host h;
  start(&h, p, true, out);
  buf_printf(out, "%s#include \"%s\"\n\n",
             p->m->spmd ? "#include \"runtime/comm.h\"\n" : "", p->m->target->include);
  print_functions(&h);
  for (uint32_t i = 0; i < h.order.n; i++) print_shim(&h, h.order.at[i]);
}
