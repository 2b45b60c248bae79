// codegen/cuda: the program's kernels as CUDA C++.
#ifndef DTC_CUDA_EMIT_H
#define DTC_CUDA_EMIT_H

#include "codegen/lower/kernel.h"

// Runs before the passes of the lowered level. This target has no hand-written implementations of intrinsics: each is
// compiled from its body.
void cuda_prepare(Module *m);
// Appends the text of all kernels of the program (loops, products, running sums). False with a message in err where
// something cannot be printed. Kernel NAME is the function NAME_kernel.
bool cuda_kernels(const Plan *p, Buf *out, Buf *err);
// For programs that run the kernels on the CPU: for each kernel, after the text of cuda_kernels, a function
//     extern "C" void dt_emulate_NAME(void *const *arg, double beta);
// that launches it; arg: its buffers, and the key of random numbers where it takes one. Products and running sums
// take their first elements.
void cuda_stubs(const Plan *p, Buf *out);

#endif
