// codegen/cuda: the program's kernels as CUDA C++.
#ifndef DTC_CUDA_EMIT_H
#define DTC_CUDA_EMIT_H

#include "codegen/lower/kernel.h"

// Appends the text of all kernels of the program: loops, running sums, and those products that cuBLASLt does not take.
// Kernel NAME is the function NAME_kernel. With `emulate`, then also the table of kernels by which the stand-in of the
// driver runs them on the CPU.
void cuda_kernels(const Plan *p, bool emulate, Buf *out);
// Why a kernel cannot be launched: it needs more blocks than CUDA has; or NULL.
Str cuda_refuses(const Plan *p);
// The shape of a kernel's launch: blocks of x by y threads.
void cuda_kernel_shape(const Plan *p, Id fn, const Kernel *k, int64_t *blocks, int *x, int *y);
// A call of attention is several kernels: NAME_kernel, with for each of n a suffix of that name.
enum { CUDA_MOST_PARTS = 4 };
uint32_t cuda_attention_kernels(const Plan *p, Id fn, const Kernel *k, Str *suffix);
// Whether there are kernels for this call of attention; and the bytes of scratch memory that they need.
bool cuda_takes_attention(const Module *m, const Fn *f, const Stmt *call, const Id *value);
int64_t cuda_attention_scratch(const Module *m, const Fn *f, const Stmt *call);
// Whether cuBLASLt computes the product: strides, types and bias are such as it takes.
bool cuda_library_takes(const Fn *f, const GemmPlan *g);
bool cuda_by_library(const Fn *f, const Kernel *k); // the kernel is such a product
// Whether the function steps as many elements of its arrays as the launch says: the optimizer's update.
bool cuda_has_extent(const Fn *f);

#endif
