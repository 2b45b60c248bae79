// The tables that emitted C holds, made of the module itself: for the interpreter, which takes the
// compiled code's place, and for reports on the program's memory.
#ifndef DTC_TABLES_H
#define DTC_TABLES_H

#include "codegen/lower/kernel.h"
#include "runtime/program.h"

// Sizes, data and parameters; no functions. With a plan parameters lie as its program has them, else
// each lies whole. All memory is the module's.
DtProgram tables_make(const Module *m, const Plan *p);
int mesh_axis(const Module *m, uint32_t axis); // the runtime's number of it, DT_AXIS_TP ...

#endif
