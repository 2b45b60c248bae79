// What emitted host code calls, on any target, where it runs layers of a stack.
#ifndef DTC_RUNTIME_LAYERS_H
#define DTC_RUNTIME_LAYERS_H

#include <stdint.h>

// Layer `layer` of the program's stack number `stack`: its parameters, which may have to be gathered
// from other ranks; `next` is the layer that runs after it, if there is one of that number. They stay
// until the next layer but one is asked for.
struct DtCall;
const void *dt_layer_params(const struct DtCall *call, int stack, int64_t layer, int64_t next);
// The gradients of parameters outside stacks are the step's from here on: those of the microbatch before
// have been reduced.
void dt_outside_grads(const struct DtCall *call);
// The layer's gradients, and that this microbatch has nothing to add to them any more.
void *dt_layer_grads(const struct DtCall *call, int stack, int64_t layer);
void dt_layer_reduce(const struct DtCall *call, int stack, int64_t layer);

// Layer `layer` of a stack of `count` runs until dt_layer_leave: messages and the profile report
// that layer for the operations in between. Stacks nest; dt_layer_leave takes the returned number.
int64_t dt_layer_enter(int64_t layer, int64_t count);
void dt_layer_leave(int64_t outside);

#endif
