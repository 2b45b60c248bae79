// Programs whose CUDA kernels run on the CPU.
#ifndef DTC_TESTS_EMULATED_H
#define DTC_TESTS_EMULATED_H

#include "codegen/lower/kernel.h"

enum { EMULATED_ORDERS = 4 };

// Compiles the program's kernels and its host code to a shared object with functions dt_test_F (host_c_test), and
// loads it. With DT_SANITIZE in the environment (and libasan.so in LD_PRELOAD, where the test is not built with it)
// kernels run under the address sanitizer; with DT_OFF_BY_ONE loops over `i` do a round too many; with DT_KEEP the sources
// stay in /tmp. NULL with a message in `error`.
void *emulated_load(const Plan *p, bool warnings, Buf *error);
// For tests of the tests: the barrier of the kernels' text that is left out, counted from 0, or -1; and how many there
// were in what was loaded last.
extern int emulated_left_out, emulated_barriers;
// The order in which the threads of what was loaded run: 0 to EMULATED_ORDERS - 1.
void emulated_order(void *lib, int order);
// Kernels may run after the function that launches them has returned; after this they have.
void emulated_wait(void *lib);

#endif
