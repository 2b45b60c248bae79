// What dtc does with a model, once the command line is read.
#ifndef DTC_COMPILE_H
#define DTC_COMPILE_H

#include "driver/options.h"
#include "ir/ir.h"

// Runs the whole of dtc; returns its exit status.
int compile(const Options *o, Arena *a);

// Trains the module in the interpreter (after pass `optimizer`, before `precision`), steps steps, and
// prints the training log's records to out. The data is what the train block names. Returns an exit status.
int interpret(Module *m, int64_t steps, FILE *out);

#endif
