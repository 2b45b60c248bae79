// All kernels of a plan as one LLVM module; optimised, and written as text, assembly or an object.
#define _GNU_SOURCE // RTLD_DEFAULT
#include "codegen/cpu/cpu.h"
#include "runtime/device/cpu/level.h"

#include <dlfcn.h>
#include <llvm-c/Analysis.h>
#include <llvm-c/Error.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <llvm-c/Transforms/PassBuilder.h>

static const char triple[] = "x86_64-unknown-linux-gnu";

static LLVMTargetMachineRef machine(const CpuOptions *o, Buf *err) {
  LLVMInitializeX86TargetInfo();
  LLVMInitializeX86Target();
  LLVMInitializeX86TargetMC();
  LLVMInitializeX86AsmPrinter();
  LLVMTargetRef target;
  char *message = NULL;
  if (LLVMGetTargetFromTriple(triple, &target, &message)) {
    buf_printf(err, "%s", message);
    LLVMDisposeMessage(message);
    return NULL;
  }
  bool native = !strcmp(o->arch, "native");
  char *cpu = native ? LLVMGetHostCPUName() : NULL,
       *features = native ? LLVMGetHostCPUFeatures() : NULL;
  LLVMCodeGenOptLevel level = o->opt == 0   ? LLVMCodeGenLevelNone
                              : o->opt == 1 ? LLVMCodeGenLevelLess
                              : o->opt == 2 ? LLVMCodeGenLevelDefault
                                            : LLVMCodeGenLevelAggressive;
  LLVMTargetMachineRef tm =
      LLVMCreateTargetMachine(target, triple, native ? cpu : o->arch, native ? features : "", level,
                              LLVMRelocPIC, LLVMCodeModelDefault);
  if (native) {
    LLVMDisposeMessage(cpu);
    LLVMDisposeMessage(features);
  }
  return tm;
}

bool cpu_known(const char *arch) {
  static const char *const name[] = {
      "native",         "x86-64",         "x86-64-v2",     "x86-64-v3",     "x86-64-v4",
      "nehalem",        "sandybridge",    "ivybridge",     "haswell",       "broadwell",
      "skylake",        "skylake-avx512", "cascadelake",   "cooperlake",    "icelake-client",
      "icelake-server", "sapphirerapids", "emeraldrapids", "graniterapids", "alderlake",
      "znver1",         "znver2",         "znver3",        "znver4",        "znver5"};
  for (unsigned i = 0; i < sizeof name / sizeof *name; i++)
    if (!strcmp(arch, name[i])) return true;
  return false;
}

// The length of vectors that the processor runs at full speed.
static int vector_bits(const char *arch) {
  static const char *const none[] = {"x86-64", "x86-64-v2", "nehalem", "sandybridge", "ivybridge"};
  static const char *const avx2[] = {"x86-64-v3", "haswell", "broadwell", "skylake",
                                     "alderlake", "znver1",  "znver2",    "znver3"};
  if (!strcmp(arch, "native")) {
    __builtin_cpu_init();
    bool v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return v4 ? 512 : __builtin_cpu_supports("avx2") ? 256 : 128;
  }
  for (unsigned i = 0; i < sizeof none / sizeof *none; i++)
    if (!strcmp(arch, none[i])) return 128;
  for (unsigned i = 0; i < sizeof avx2 / sizeof *avx2; i++)
    if (!strcmp(arch, avx2[i])) return 256;
  return 512;
}

int cpu_level_of(Str arch) {
#if defined(__x86_64__)
  if (strcmp(arch, "native") != 0) {
    int bits = vector_bits(arch);
    return bits == 512 ? 4 : bits == 256 ? 3 : 1;
  }
#endif
  (void)arch;
  return 0;
}

#define SSE4    "sse3 ssse3 sse4.1 sse4.2 popcnt"
#define ICELAKE "avx512ifma avx512vbmi avx512vbmi2 avx512vnni avx512bitalg avx512vpopcntdq gfni"

void cpu_features_of(Str arch, char *out, size_t size) {
  static const struct {
    const char *arch, *needs;
  } more[] = {{"x86-64-v2", SSE4},
              {"nehalem", SSE4},
              {"sandybridge", SSE4 " avx"},
              {"ivybridge", SSE4 " avx f16c"},
              {"alderlake", "avxvnni gfni"},
              {"cascadelake", "avx512vnni"},
              {"cooperlake", "avx512vnni avx512bf16"},
              {"icelake-client", ICELAKE},
              {"icelake-server", ICELAKE},
              {"sapphirerapids", ICELAKE " avx512bf16 avx512fp16 avxvnni"},
              {"emeraldrapids", ICELAKE " avx512bf16 avx512fp16 avxvnni"},
              {"graniterapids", ICELAKE " avx512bf16 avx512fp16 avxvnni"},
              {"znver4", ICELAKE " avx512bf16"},
              {"znver5", ICELAKE " avx512bf16 avxvnni"}};
  out[0] = 0;
  if (!strcmp(arch, "native")) dt_cpu_features(out, size);
  for (unsigned i = 0; i < sizeof more / sizeof *more; i++)
    if (!strcmp(arch, more[i].arch)) snprintf(out, size, "%s", more[i].needs);
}

static void start(Cpu *c, const Plan *p, const CpuOptions *o) {
  *c = (Cpu){.plan = p, .m = p->m, .ll = LLVMContextCreate()};
  c->mod = LLVMModuleCreateWithNameInContext(p->m->name[0] ? p->m->name : "kernels", c->ll);
  c->b = LLVMCreateBuilderInContext(c->ll);
  c->i1 = LLVMInt1TypeInContext(c->ll);
  c->i8 = LLVMInt8TypeInContext(c->ll);
  c->i16 = LLVMInt16TypeInContext(c->ll);
  c->i32 = LLVMInt32TypeInContext(c->ll);
  c->i64 = LLVMInt64TypeInContext(c->ll);
  c->f32 = LLVMFloatTypeInContext(c->ll);
  c->f64 = LLVMDoubleTypeInContext(c->ll);
  c->ptr = LLVMPointerTypeInContext(c->ll, 0);
  c->real = p->m->compute == DT_F32 ? c->f32 : c->f64;
  int bits = vector_bits(o->arch);
  c->width = bits / (c->real == c->f32 ? 32 : 64);
  c->isa = bits == 512 ? 'e' : bits == 256 ? 'd' : 'b';
}

static bool optimise(Cpu *c, LLVMTargetMachineRef tm, int opt, Buf *err) {
  // The printer has chosen vectors and unrolling; LLVM's own would only add code.
  LLVMPassBuilderOptionsRef po = LLVMCreatePassBuilderOptions();
  LLVMPassBuilderOptionsSetLoopVectorization(po, false);
  LLVMPassBuilderOptionsSetSLPVectorization(po, false);
  LLVMPassBuilderOptionsSetLoopUnrolling(po, false);
  LLVMErrorRef e = LLVMRunPasses(c->mod, str_printf("default<O%d>", opt), tm, po);
  LLVMDisposePassBuilderOptions(po);
  if (!e) return true;
  char *message = LLVMGetErrorMessage(e);
  buf_printf(err, "%s", message);
  LLVMDisposeErrorMessage(message);
  return false;
}

static bool emit(Cpu *c, LLVMTargetMachineRef tm, CpuOutput kind, Buf *out, Buf *err) {
  if (kind == CPU_LLVM) {
    char *text = LLVMPrintModuleToString(c->mod);
    buf_write(out, text, strlen(text));
    LLVMDisposeMessage(text);
    return true;
  }
  char *message = NULL;
  LLVMMemoryBufferRef mem;
  LLVMCodeGenFileType type = kind == CPU_ASM ? LLVMAssemblyFile : LLVMObjectFile;
  if (LLVMTargetMachineEmitToMemoryBuffer(tm, c->mod, type, &message, &mem)) {
    buf_printf(err, "%s", message);
    LLVMDisposeMessage(message);
    return false;
  }
  buf_write(out, LLVMGetBufferStart(mem), LLVMGetBufferSize(mem));
  LLVMDisposeMemoryBuffer(mem);
  return true;
}

static void print_kernels(Cpu *c) {
  for (Id f = 0; f < c->m->fn.n; f++)
    for (uint32_t k = 0; c->plan->reached[f] && k < c->plan->fn[f].kernel.n; k++)
      if (c->plan->fn[f].kernel.at[k].kind == K_LOOPS)
        cpu_kernel(c, &c->plan->fn[f], &c->plan->fn[f].kernel.at[k]);
}

// A function of the libraries that LLVM brought along: they have no declaration for C.
static void *library_function(const char *mangled) { return dlsym(RTLD_DEFAULT, mangled); }

static void llvm_out_of_memory(void *ctx, const char *reason, bool crash) {
  (void)ctx, (void)reason, (void)crash;
  out_of_memory();
}

// LLVM allocates with C++'s new, which throws where nothing catches, and with malloc, after which it
// aborts: both would be a signal.
static void end_without_memory(void) {
  typedef void (*NewHandler)(void);
  typedef void (*LlvmHandler)(void *, const char *, bool);
  NewHandler (*set_new)(NewHandler) = NULL;
  void (*install)(LlvmHandler, void *) = NULL;
  void *found = library_function("_ZSt15set_new_handlerPFvvE"); // std::set_new_handler
  memcpy(&set_new, &found, sizeof set_new);
  if (set_new) set_new(out_of_memory);
  // llvm::install_bad_alloc_error_handler
  found = library_function("_ZN4llvm31install_bad_alloc_error_handlerEPFvPvPKcbES0_");
  memcpy(&install, &found, sizeof install);
  static bool installed; // LLVM takes one handler
  if (install && !installed) install(llvm_out_of_memory, NULL);
  installed = true;
}

bool cpu_kernels(const Plan *p, const CpuOptions *o, CpuOutput kind, Buf *out, Buf *err) {
  if (!cpu_known(o->arch)) {
    buf_printf(err, "unknown processor '%s'", o->arch);
    return false;
  }
  end_without_memory();
  LLVMTargetMachineRef tm = machine(o, err);
  if (!tm) return false;
  Cpu c;
  start(&c, p, o);
  LLVMSetTarget(c.mod, triple);
  LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(tm);
  LLVMSetModuleDataLayout(c.mod, layout);
  print_kernels(&c);
  char *message = NULL;
  if (LLVMVerifyModule(c.mod, LLVMReturnStatusAction, &message)) {
    char *text = LLVMPrintModuleToString(c.mod);
    fprintf(stderr, "%s\n", text);
    BUG("kernels are no valid LLVM module: %s", message);
  }
  LLVMDisposeMessage(message);
  bool ok = optimise(&c, tm, o->opt, err) && emit(&c, tm, kind, out, err);
  LLVMDisposeTargetData(layout);
  LLVMDisposeTargetMachine(tm);
  LLVMDisposeBuilder(c.b);
  LLVMDisposeModule(c.mod);
  LLVMContextDispose(c.ll);
  return ok;
}
