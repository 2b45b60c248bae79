// --interpret of a pipeline: its chunks' functions, on memory of the runtime's.
#ifndef DTC_INTERPRET_CHUNK_H
#define DTC_INTERPRET_CHUNK_H

#include "ir/interp/interp.h"
#include "runtime/program.h"

// Fills the program's chunks, which program_make made: sizes of messages and of kept values, and
// `run`, which calls chunk_run.
void chunks_fill(const Module *m, DtProgram *p, DtEntry *run);

// Runs the function that the call names. `place` finds an argument that is neither passed between
// functions nor a parameter.
void chunk_run(Interp *interp, const Module *m, const DtProgram *p, const DtCall *c,
               void *(*place)(const DtCall *c, const Value *v));

#endif
