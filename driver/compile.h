// What dtc does with a model, once the command line is read.
#ifndef DTC_COMPILE_H
#define DTC_COMPILE_H

#include "codegen/lower/kernel.h"
#include "driver/options.h"
#include "ir/ir.h"

// Runs the whole of dtc; returns its exit status.
int compile(const Options *o, Arena *a);

// A run of the training program in the interpreter.
typedef struct InterpretRun {
  int64_t steps;
  int ranks; // each is a process that interprets its part of the batch
  ZeroOptions zero;
  struct Source *source; // computes the steps (driver/source.h); NULL: the module does
  // The program's options; NULL: the train block's data, initial weights, stdout, no file.
  Str data, init, log, gradient;
} InterpretRun;

// Trains the module in the interpreter, and writes the training log's records. After pass `optimizer` all is float64;
// after `precision` values of 16 bits are rounded. Returns an exit status.
int interpret(Module *m, const InterpretRun *run);

#endif
