// Cutting the step into chunks: what passes/pipeline*.c share.
#ifndef DTC_PASSES_PIPELINE_H
#define DTC_PASSES_PIPELINE_H

#include "passes/cost.h"
#include "passes/pipeline/sets.h"
#include "passes/util.h"

typedef enum Phase { PHASE_F, PHASE_B, PHASE_W, NPHASE } Phase;

// What becomes of a statement.
typedef struct Task {
  Phase phase;
  uint32_t chunk;
  bool placed; // chunk is decided
  bool free; // computed again wherever it is read: from data alone, or another name for elements
} Task;

// A parameter or its gradient, or a range of its layers, as a value.
typedef struct Held {
  Id param; // Module.param, or NONE: the value is none
  int64_t first, count; // of the leading extent of a stacked one; 0 and 1 otherwise
  bool grad;
} Held;

// A function being cut: its values and statements change, its arguments are only a record.
typedef struct Cut {
  Module *m;
  Id fn;
  uint32_t nchunk;
  uint32_t nlead, ntrail; // arguments that all chunks get: data, first, batch, totals; $rank.tp
  VEC(Task) task; // by statement
  VEC(Held) held; // by value
  Id *def; // by value: the statement that defines it (the last += of an accumulator), or NONE
} Cut;

static inline Fn *cut_fn(const Cut *c) { return &c->m->fn.at[c->fn]; }
static inline bool is_held(const Cut *c, Id v) { return c->held.at[v].param != NONE; }
// An argument that all chunks get.
static inline bool is_uniform(const Cut *c, Id v) {
  return cut_fn(c)->value.at[v].role == ROLE_IN && !is_held(c, v);
}

// balance.c
// Parts n units in a row into `parts` intervals so that the most expensive one is as cheap as can
// be. cross[i]: what it costs both sides to cut before unit i. part[i] is unit i's. Needs n >=
// parts.
void cost_balance(const double *cost, const double *cross, uint32_t n, uint32_t parts,
                  uint32_t *part);

// cut.c: a copy of function `step` with its repeats cut at layers and its forward
// statements placed, balanced by cost; false after an error of the user's.
bool cut_step(Module *m, Id step, Cut *c);
// The same for a function without a backward part, whose parameters must be where `like` has them;
// `verb`, "validate": what the model is to do, for the message.
bool cut_eval(Module *m, Id eval, const char *verb, const Cut *like, const ChunkSets *use, Cut *c);
void cut_defs(Cut *c); // fills def
// Calls visit for each value that the statement reads, what it reads through free statements
// instead of their values.
void cut_reads(const Cut *c, const Stmt *s, void (*visit)(Id value, void *ctx), void *ctx);

// place.c: phase and chunk of every statement; accumulators become one a chunk, which starts as the one before
bool cut_place(Cut *c);
void cut_accumulators(Cut *c); // of placed statements

// split.c: moves what only gradients of parameters need to PHASE_W
bool cut_split(Cut *c); // false after an error

// emit.c: the functions of each phase and chunk, to Module.chunk
bool cut_emit(Cut *c); // false after an error
void cut_emit_eval(Cut *c, ChunkPart part); // CHUNK_EVAL or CHUNK_SAMPLE
ChunkSets cut_use(Cut *c); // by value: chunks that have the parameter

#endif
