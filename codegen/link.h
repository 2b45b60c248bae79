// From emitted text to a program: private temporary files, the C compiler, the linker.
#ifndef DTC_LINK_H
#define DTC_LINK_H

#include "codegen/lower/kernel.h"

typedef struct LinkOptions {
  const Plan *plan; // what is linked; its module's target builds it
  Str output; // the program to write
  Str save_temps; // a folder to leave the sources in, with a Makefile; NULL: a temporary one,
                  // removed
  Str arch; // what the kernels were compiled for
  bool shared; // a shared object without main, for tests to dlopen
  bool emulate; // a GPU's kernels run on the CPU
  bool quick; // host code as it stands: for tests that compile much and run it once
} LinkOptions;

// Compiles the C file, links it with the kernels (as Target.kernels made them) and the runtime. False after a message on
// stderr where a tool is missing or fails, or a file cannot be written.
bool link_program(const LinkOptions *o, const Buf *c, const Buf *kernels);
// Removes the output that a failed write left incomplete, unless it is a device or a pipe.
void remove_half(Str path);

// The folder that dtc's files lie under: lib/dtc/libdtc_rt.a, include/dtc/runtime,
// share/dtc/stdlib. It is found above the running executable, so an installed tree can be moved.
Str install_dir(void);

// ---- for Target.build

bool link_write(Str path, const Buf *b); // false after a message
// The archive and the libraries of a target's programs.
typedef struct LinkWith {
  const char *runtime; // the runtime's archive in lib/dtc, "libdtc_rt.a"
  const char *const *library; // libraries, and flags; ends with NULL
} LinkWith;
// Compiles DIR/train.c and links it with object files (flags too; the list ends with NULL).
bool link_host(const LinkOptions *o, Str dir, const char *const *object, const LinkWith *with);
// The variables and the rule by which a Makefile does the same: DIR/train from train.c and `objects`.
void link_makefile(const char *objects, const char *tools, const LinkWith *with, Buf *b);
// Runs a tool, found through PATH; `arg` ends with NULL. False after a message, which says what the tool is
// ("the C compiler") and how to have it.
bool link_run(const char *const *arg, const char *what, const char *hint);

#endif
