// Hand-written models, so that the runtime is tested without the compiler. What they compute is
// plain enough to check by eye; a sample's term is added in the order of samples whatever the
// microbatch, as a compiled model does.
#ifndef FAKE_H
#define FAKE_H

#include "runtime/program.h"

// y is learnt from x[6] by a linear map through two stacked scales; float; arrays x float32 [n, 6]
// and y int32 [n] in [0, 10); metric "error". AdamW, batch 8 in microbatches of 3.
extern const DtProgram fake_arrays;

// The next token from the one before, a table of 16 x 16 logits; double; targets 0 are ignored, so
// it has a count. Tokens in [0, 16), length 8. SGD with momentum, batch 4 in microbatches of 4;
// logits to sample from.
extern const DtProgram fake_tokens;

// 16 layers that draw near x[6]; double; a stack, so that ranks gather and reduce layer by layer. Each
// layer takes fake_delay forward and backward. SGD with momentum, batch 2 in microbatches of 1.
extern const DtProgram fake_layers;

// All of the parameters, in a stack and outside, draw near x[6], as fake_half_type says that they are
// stored; float. AdamW with clipping, batch 8 in microbatches of 1.
extern const DtProgram fake_half;
extern DtType fake_half_type; // F32, BF16, F16; DtProgram.param_type is to say the same
// Steps, from 1, in which this rank's gradient of fake_half overflows.
extern int64_t fake_overflow_from, fake_overflow_to;
extern int fake_overflow_rank;

// Set before dt_main: a step at which the loss is not a number (0: none), and microseconds that a
// microbatch takes.
extern int64_t fake_nan_at;
extern int fake_delay;

// Where a model finds what is at an address of the device: at that address, where a test has no other device.
extern void *(*fake_at)(const void *device);

// A step of fake_arrays writes past its frame.
extern int fake_overrun;

// Samples in a microbatch of fake_arrays' functions; its tables say 3.
extern int fake_micro;

#endif
