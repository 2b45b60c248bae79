// NVIDIA's GPUs: kernels as CUDA C++ through nvcc, products by cuBLASLt, the runtime's device/cuda. With KernelOptions.emulate
// kernels are compiled as C++ and run on the CPU.
#ifndef DTC_CUDA_TARGET_H
#define DTC_CUDA_TARGET_H

#include "codegen/target.h"

extern const Target cuda_target;

// launch.c: kernels in emitted C
void cuda_declare(struct Host *h, Id fn, const Kernel *k);
void cuda_launch(struct HostFn *x, uint32_t kernel);

// attention.c: the same of a call of attention
void cuda_declare_attention(struct Host *h, Id fn, const Kernel *k);
void cuda_launch_attention(struct HostFn *x, uint32_t kernel);

// arch.c: architectures, "sm_80,sm_90a"
bool cuda_known(Str archs);
void cuda_program(struct DtProgram *p, const Plan *plan, Str archs);
void cuda_gencode(Str archs, Buf *out); // nvcc's options for them, with a space before each

bool cuda_uses_library(const Plan *p); // target.c: some product is cuBLASLt's

// build.c
bool cuda_build(const struct LinkOptions *o, Str dir, const Buf *kernels);

#endif
