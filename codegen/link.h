// From emitted text to a program: private temporary files, the C compiler, the linker.
#ifndef DTC_LINK_H
#define DTC_LINK_H

#include "codegen/lower/kernel.h"

typedef struct LinkOptions {
  Str output; // the program to write
  Str save_temps; // a folder to leave the sources in, with a Makefile; NULL: a temporary one,
                  // removed
  Str arch; // what the kernels were compiled for
  const Plan *plan; // with save_temps: to print the kernels as LLVM IR too; may be NULL
  bool shared; // a shared object without main, for tests to dlopen
  bool quick; // host code as it stands: for tests that compile much and run it once
} LinkOptions;

// Compiles the C file, links it with the kernels' object and the runtime. False after a message on
// stderr where a tool is missing or fails, or a file cannot be written.
// Removes the output that a failed write left incomplete, unless it is a device or a pipe.
void remove_half(Str path);
bool link_program(const LinkOptions *o, const Buf *c, const Buf *object);

// The folder that dtc's files lie under: lib/dtc/libdtc_rt.a, include/dtc/runtime,
// share/dtc/stdlib. It is found above the running executable, so an installed tree can be moved.
Str install_dir(void);

#endif
