// Recomputation of a stack's layers: declarations for passes/recompute.c and the files of passes/recompute/.
#ifndef DTC_RECOMPUTE_H
#define DTC_RECOMPUTE_H

#include "passes/recompute/choose.h"
#include "passes/util.h"

// A value of the forward function that the backward function has as an argument.
typedef struct Cross {
  Id made, here; // its value in the one and in the other
} Cross;

// A forward repeat, and the repeat of the backward pass that reads what it saves.
typedef struct Layer {
  Module *m;
  struct Layer *outer; // whose functions the repeats are in; NULL: both are in the step
  Id in_forward, in_backward; // functions that the repeats are in
  Call *forward, *backward;
  int64_t times; // iterations in one step, those of outer layers counted
  VEC(Cross) cross;
  VEC(Cross) copy; // a carried argument (made), and the result that is its copy (here)
  // The choice, by graph.c: values are those of the forward function.
  Keep keep;
  uint32_t *step; // by statement of the forward function: its step, or NONE
  uint32_t nstmt; // statements that it had then
} Layer;

static inline Fn *layer_forward(const Layer *l) { return &l->m->fn.at[l->forward->fn]; }
static inline Fn *layer_backward(const Layer *l) { return &l->m->fn.at[l->backward->fn]; }

typedef VEC(Layer *) Layers;

// layer.c: the layers whose repeats are in these functions, and those inside of them, after their outer ones.
void layers_find(Module *m, Layer *outer, Id in_forward, Id in_backward, Layers *to);
// The argument of the backward function that is value v of the forward one: passed on where that is an argument, else saved.
Id layer_cross(Layer *l, Id v);
// The value that readers of v in the forward function read in place of it: the saved copy of a carried argument.
Id layer_saved(const Layer *l, Id v);
bool layer_is_passed(const Layer *l, Id v); // an argument that is the same, or of the same iteration, in both passes
// Runs steps again in the backward function, each before its first reader, and saves what they read. Then drops what
// nothing reads.
void layer_apply(Layer *l, const Choice *c);
// Drops results of the layer's functions that no caller keeps, and what they alone needed.
void layer_tidy(Layer *l);
int64_t layer_saved_bytes(const Layer *l); // of one microbatch, over all iterations

// graph.c: fills keep and step, as the mode allows.
void layer_graph(Layer *l, Recompute mode);

#endif
