// The emitted CUDA file: all kernels of the program, callees' first.
#include "codegen/cuda/emit.h"
#include "codegen/cuda/cuda.h"

// Words of C++ and CUDA, functions and macros that kernels and their headers use.
static const char *const taken[] = {
    "alignas",   "alignof",  "and",       "bitand",   "bitor",     "catch",    "class",    "compl",     "concept",
    "constexpr", "decltype", "delete",    "explicit", "export",    "false",    "friend",   "mutable",   "namespace",
    "new",       "noexcept", "not",       "nullptr",  "operator",  "or",       "private",  "protected", "public",
    "requires",  "static_assert",         "template", "this",      "throw",    "true",     "try",       "typeid",
    "typename",  "using",    "virtual",   "xor",      "bf16",      "fp16",     "half",     "key",       "beta",
    "threadIdx", "blockIdx", "blockDim",  "gridDim",  "warpSize",  "dim3",     "NAN",      "INFINITY",  "HUGE_VAL",
    "exp",       "log",      "sqrt",      "sin",      "cos",       "tanh",     "erf",      "pow",       "floor",
    "fabs",      "fma",      "expf",      "logf",     "sqrtf",     "sinf",     "cosf",     "tanhf",     "erff",
    "powf",      "floorf",   "fabsf",     "fmaf",     "abs",       "min",      "max",      "int64_t",   "uint8_t",
    "uint64_t",  "and_eq",   "not_eq",    "or_eq",    "xor_eq",    "wchar_t",  "char16_t", "char32_t",  "stdin",
    "stdout",    "stderr",   "EOF",       "errno",    "assert",    "isnan",    "isinf",    "signbit",   "isfinite",
};

static void begin_kernel(Cuda *c, const FnPlan *fp, const Kernel *k) {
  c->fp = fp;
  c->f = &c->m->fn.at[fp->fn];
  c->k = k;
  c->l = k->loops;
  uint32_t n = c->f->value.n + 1;
  c->keep = NEWN(c->a, Keep, n);
  c->row = NEWN(c->a, bool, n);
  c->writer = NEWN(c->a, const NestStmt *, n);
  c->writer_nest = NEWN(c->a, uint32_t, n);
  c->rebased = NEWN(c->a, bool, n);
  c->pointer = NEWN(c->a, Str, n);
  c->kept = NEWN(c->a, Str, n);
  c->now = NEWN(c->a, Str, n);
  c->run = k->loops ? NEWN(c->a, Run, k->loops->nest.n + 1) : NULL;
  c->cached.n = 0;
  memset(c->var, 0, sizeof c->var);
  c->first = c->place = c->own = NULL;
  c->indent = c->base = 0;
  names_init(&c->names, c->a, &c->file);
}

static void begin_file(Cuda *c, const Plan *p, Buf *out) {
  *c = (Cuda){.plan = p, .m = p->m, .a = p->m->arena, .out = out};
  c->real = p->m->compute == DT_F64 ? "double" : "float";
  names_init(&c->file, c->a, NULL);
  for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) PUSH(c->a, c->file.taken, str_intern(taken[i]));
}

static void print_kernel(Cuda *c, const FnPlan *fp, const Kernel *k) {
  begin_kernel(c, fp, k);
  switch (k->kind) {
  case K_LOOPS: cuda_loops(c); break;
  case K_GEMM: cuda_product(c); break;
  case K_SCAN: cuda_scan(c); break;
  case K_INTRINSIC: cuda_attention(c); break;
  default: BUG("a kernel of kind %d is printed", k->kind);
  }
  buf_printf(c->out, "\n");
}

// Products that the library computes have no kernel.
static bool is_printed(const FnPlan *fp, const Module *m, const Kernel *k) {
  return kernel_is_named(k) && !cuda_by_library(&m->fn.at[fp->fn], k);
}

static void print_row(const Plan *p, Id fn, const Kernel *k, Buf *out) {
  Str suffix[CUDA_MOST_PARTS] = {""};
  uint32_t n = k->kind == K_INTRINSIC ? cuda_attention_kernels(p, fn, k, suffix) : 1;
  for (uint32_t i = 0; i < n; i++) buf_printf(out, "    DT_EMULATED(%s_kernel%s),\n", k->name, suffix[i]);
}

// For programs that run the kernels on the CPU.
static void print_table(const Plan *p, Buf *out) {
  buf_printf(out, "// The table in which the stand-in of the driver finds kernels.\n"
                  "#include \"runtime/device/cuda/emulate_driver.h\"\n"
                  "extern \"C\" const DtEmulatedKernel dt_cuda_image[] = {\n");
  for (Id f = 0; f < p->m->fn.n; f++)
    for (uint32_t i = 0; p->reached[f] && i < p->fn[f].kernel.n; i++)
      if (is_printed(&p->fn[f], p->m, &p->fn[f].kernel.at[i])) print_row(p, f, &p->fn[f].kernel.at[i], out);
  buf_printf(out, "    DT_ARRAY_KERNELS(DT_EMULATED), {}};\n");
}

static bool has_attention(const Plan *p) {
  for (Id f = 0; f < p->m->fn.n; f++)
    for (uint32_t i = 0; p->reached[f] && i < p->fn[f].kernel.n; i++)
      if (p->fn[f].kernel.at[i].kind == K_INTRINSIC) return true;
  return false;
}

void cuda_kernels(const Plan *p, bool emulate, Buf *out) {
  Cuda c;
  begin_file(&c, p, out);
  buf_printf(out, "// ");
  put_comment(out, p->m->name, strlen(p->m->name));
  buf_printf(out,
             ", %s: its kernels, as dtc printed them. Compile with -fmad=false: the order and the\n"
             "// rounding of every operation are the program's.\n"
             "#include \"runtime/device/cuda/arrays.h\"\n%s#include \"runtime/device/cuda/kernel.h\"\n\n",
             precision_name(p->m), has_attention(p) ? "#include \"runtime/device/cuda/flash.h\"\n" : "");
  for (Id f = 0; f < p->m->fn.n; f++)
    for (uint32_t i = 0; p->reached[f] && i < p->fn[f].kernel.n; i++)
      if (is_printed(&p->fn[f], p->m, &p->fn[f].kernel.at[i])) print_kernel(&c, &p->fn[f], &p->fn[f].kernel.at[i]);
  if (emulate) print_table(p, out);
}

static CudaLaunch launch_of(const Plan *p, Id fn, const Kernel *k) {
  Cuda c;
  Buf unused = {0};
  begin_file(&c, p, &unused);
  print_kernel(&c, &p->fn[fn], k);
  buf_free(&unused);
  return cuda_launch_of(&c);
}

Str cuda_refuses(const Plan *p) {
  for (Id f = 0; f < p->m->fn.n; f++)
    for (uint32_t i = 0; p->reached[f] && i < p->fn[f].kernel.n; i++) {
      const Kernel *k = &p->fn[f].kernel.at[i];
      int64_t blocks = is_printed(&p->fn[f], p->m, k) ? launch_of(p, f, k).blocks : 0;
      if (blocks > INT32_MAX)
        return str_printf("%s in function %s needs %lld blocks, and CUDA has 2147483647 at most", k->name, p->m->fn.at[f].name,
                          (long long)blocks);
    }
  return NULL;
}

void cuda_kernel_shape(const Plan *p, Id fn, const Kernel *k, int64_t *blocks, int *x, int *y) {
  CudaLaunch l = launch_of(p, fn, k);
  *blocks = l.blocks;
  *x = l.x;
  *y = l.y;
}
