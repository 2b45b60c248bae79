// The CPU: kernels through LLVM, products and attention by the runtime's device/cpu.
#ifndef DTC_CPU_TARGET_H
#define DTC_CPU_TARGET_H

#include "codegen/target.h"

extern const Target cpu_target;

// schedule.c
void cpu_schedule(Schedule *x);
void cpu_tasks(const Module *m, Kernel *k);

// library.c
int64_t cpu_scratch(const Plan *p);

// attention.c: a call of the attention intrinsic
bool cpu_takes_attention(const Module *m, const Fn *f, const Stmt *call, const Id *value);
int64_t cpu_attention_scratch(const Module *m, const Fn *f, const Stmt *call); // bytes on a thread
void cpu_attention_shape(struct Host *h, Id fn, const Kernel *k); // its DtAttention
void cpu_attention_launch(struct HostFn *x, uint32_t kernel);

// launch.c: kernels in emitted C
void cpu_declare(struct Host *h, Id fn, const Kernel *k);
void cpu_launch(struct HostFn *x, uint32_t kernel);

// arch.c: processors
bool cpu_known(Str arch);
int cpu_vector_bits(Str arch); // the length of vectors that the processor runs at full speed
void cpu_program(struct DtProgram *p, const Plan *plan, Str arch);

// module.c
void cpu_kernels(const Plan *p, const KernelOptions *o, Str form, Buf *out);

// reduce.c
ReductionOrder cpu_order(const Module *m, Str arch, int64_t along);

// build.c
bool cpu_build(const struct LinkOptions *o, Str dir, const Buf *kernels);

#endif
