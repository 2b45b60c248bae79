// A program's tables (runtime/program.h), made of the module and its plan: emitted C prints them, reports and the
// interpreter read them in memory.
#ifndef DTC_HOST_PROGRAM_H
#define DTC_HOST_PROGRAM_H

#include "codegen/lower/kernel.h"
#include "runtime/program.h"

// All that the module and the plan say: no functions, `build` "", and nothing of the processor (Target.program).
// Without a plan (the interpreter): parameters lie one after another, each whole, and there are no kernels, frames, costs
// and sizes of messages. All memory is the module's.
DtProgram program_make(const Module *m, const Plan *p);
int mesh_axis(const Module *m, uint32_t axis); // the runtime's number of it, DT_AXIS_TP ...
// Functions that the program runs, callees first, in order[]: those of entries and chunks, or (`all`) each reached one. Returns
// their number.
uint32_t program_order(const Plan *p, bool all, Id *order);


// Names in C of the functions, NULL where there is none.
typedef struct ProgramNames {
  Str entry[NENTRY];
  const Str (*run)[NCHUNK_PART]; // for each chunk
} ProgramNames;
// The C that defines all tables and `const DtProgram dt_program`. The listing is `listing`, which stands before it.
void program_print(const DtProgram *p, const ProgramNames *names, Arena *a, Buf *out);

#endif
