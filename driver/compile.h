// What dtc does with a model, once the command line is read.
#ifndef DTC_COMPILE_H
#define DTC_COMPILE_H

#include "codegen/kernel.h"
#include "driver/options.h"
#include "ir/ir.h"

// Runs the whole of dtc; returns its exit status.
int compile(const Options *o, Arena *a);

// Trains the module in the interpreter (after pass `optimizer`, before `precision`), steps steps, and
// prints the training log's records to out. The data is what the train block names. With `ranks` data-parallel ranks each
// is a process that interprets its part of the batch. Returns an exit status.
int interpret(Module *m, int64_t steps, int ranks, const ZeroOptions *zero, FILE *out);

#endif
