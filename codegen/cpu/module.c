// All kernels of a plan as one LLVM module; optimised, and written as text, assembly or an object.
#define _GNU_SOURCE // RTLD_DEFAULT
#include "codegen/cpu/cpu.h"
#include "codegen/cpu/target.h"

#include <dlfcn.h>
#include <llvm-c/Analysis.h>
#include <llvm-c/Error.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <llvm-c/Transforms/PassBuilder.h>

static const char triple[] = "x86_64-unknown-linux-gnu";

static LLVMTargetMachineRef machine(const KernelOptions *o) {
  LLVMInitializeX86TargetInfo();
  LLVMInitializeX86Target();
  LLVMInitializeX86TargetMC();
  LLVMInitializeX86AsmPrinter();
  LLVMTargetRef target;
  char *message = NULL;
  if (LLVMGetTargetFromTriple(triple, &target, &message)) BUG("%s: %s", triple, message);
  bool native = !strcmp(o->arch, "native");
  char *cpu = native ? LLVMGetHostCPUName() : NULL,
       *features = native ? LLVMGetHostCPUFeatures() : NULL;
  LLVMCodeGenOptLevel level = o->optimise == 0   ? LLVMCodeGenLevelNone
                              : o->optimise == 1 ? LLVMCodeGenLevelLess
                              : o->optimise == 2 ? LLVMCodeGenLevelDefault
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

static void start(Cpu *c, const Plan *p, const KernelOptions *o) {
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
  int bits = cpu_vector_bits(o->arch);
  c->arch = o->arch;
  c->width = cpu_width(c->m, o->arch);
  c->isa = bits == 512 ? 'e' : bits == 256 ? 'd' : 'b';
}

static void optimise(Cpu *c, LLVMTargetMachineRef tm, int opt) {
  // The printer has chosen vectors and unrolling; LLVM's own would only add code.
  LLVMPassBuilderOptionsRef po = LLVMCreatePassBuilderOptions();
  LLVMPassBuilderOptionsSetLoopVectorization(po, false);
  LLVMPassBuilderOptionsSetSLPVectorization(po, false);
  LLVMPassBuilderOptionsSetLoopUnrolling(po, false);
  LLVMErrorRef e = LLVMRunPasses(c->mod, str_printf("default<O%d>", opt), tm, po);
  LLVMDisposePassBuilderOptions(po);
  if (e) BUG("optimising kernels: %s", LLVMGetErrorMessage(e));
}

// As text of LLVM or of the assembler, or (form NULL) as an object file.
static void emit(Cpu *c, LLVMTargetMachineRef tm, Str form, Buf *out) {
  if (form && !strcmp(form, "llvm")) {
    char *text = LLVMPrintModuleToString(c->mod);
    buf_write(out, text, strlen(text));
    LLVMDisposeMessage(text);
    return;
  }
  char *message = NULL;
  LLVMMemoryBufferRef mem;
  LLVMCodeGenFileType type = form ? LLVMAssemblyFile : LLVMObjectFile;
  if (LLVMTargetMachineEmitToMemoryBuffer(tm, c->mod, type, &message, &mem)) BUG("emitting kernels: %s", message);
  buf_write(out, LLVMGetBufferStart(mem), LLVMGetBufferSize(mem));
  LLVMDisposeMemoryBuffer(mem);
}

static void print_kernel(Cpu *c, const FnPlan *fp, const Kernel *k) {
  if (k->kind == K_LOOPS) cpu_kernel(c, fp, k);
  if (k->kind == K_GEMM && k->gemm.act != ACT_NONE) cpu_epilogue(c, fp, k);
}

static void print_kernels(Cpu *c) {
  for (Id f = 0; f < c->m->fn.n; f++)
    for (uint32_t k = 0; c->plan->reached[f] && k < c->plan->fn[f].kernel.n; k++)
      print_kernel(c, &c->plan->fn[f], &c->plan->fn[f].kernel.at[k]);
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

void cpu_kernels(const Plan *p, const KernelOptions *o, Str form, Buf *out) {
  CHECK(cpu_known(o->arch));
  end_without_memory();
  LLVMTargetMachineRef tm = machine(o);
  Cpu c;
  start(&c, p, o);
  LLVMSetTarget(c.mod, triple);
  LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(tm);
  LLVMSetModuleDataLayout(c.mod, layout);
  print_kernels(&c);
  char *message = NULL;
  if (LLVMVerifyModule(c.mod, LLVMReturnStatusAction, &message))
    BUG("kernels are no valid LLVM module: %s", message);
  LLVMDisposeMessage(message);
  optimise(&c, tm, o->optimise);
  emit(&c, tm, form, out);
  LLVMDisposeTargetData(layout);
  LLVMDisposeTargetMachine(tm);
  LLVMDisposeBuilder(c.b);
  LLVMDisposeModule(c.mod);
  LLVMContextDispose(c.ll);
}
