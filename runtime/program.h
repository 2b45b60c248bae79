// What a compiled model hands to the runtime: tables of its tensors and settings, and the functions
// that compute. The emitted C file defines one `const DtProgram dt_program`; runtime/train/main.c is the rest of the
// training program. Nothing here knows of the compiler.
#ifndef DT_PROGRAM_H
#define DT_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DT_MAX_RANK = 8, DT_MAX_DATA = 8, DT_MAX_TOTALS = 64, DT_MAX_METRICS = 32, DT_MAX_MOMENTS = 2 };

// BOOL: a byte, 0 or 1; of data only. BF16, F16: of values that are stored or exchanged in 16 bits.
typedef enum DtType {
  DT_TYPE_F32,
  DT_TYPE_F64,
  DT_TYPE_I32,
  DT_TYPE_BOOL,
  DT_TYPE_BF16,
  DT_TYPE_F16
} DtType;
typedef enum DtInit { DT_ZEROS, DT_ONES, DT_NORMAL, DT_UNIFORM, DT_CONST } DtInit;
typedef enum DtDataKind { DT_DATA_NONE, DT_DATA_TOKENS, DT_DATA_BYTES, DT_DATA_ARRAYS } DtDataKind;
typedef enum DtOptimizer { DT_SGD, DT_ADAM, DT_ADAMW } DtOptimizer;
typedef enum DtSchedule { DT_CONSTANT, DT_LINEAR, DT_COSINE, DT_INVSQRT } DtSchedule;
typedef enum DtPipeKind { // runtime/pipeline/pipeline.h
  DT_PIPE_GPIPE, DT_PIPE_1F1B, DT_PIPE_INTERLEAVED, DT_PIPE_ZB, DT_PIPE_FORWARD, DT_PIPE_KINDS
} DtPipeKind;

// How a parameter lies over an axis of n ranks: position p of dimension `dim`, counted from the first
// that is no stack's, belongs to rank p / block % n. block 0: every rank has all of it.
typedef struct DtShard {
  int dim;
  int64_t block;
} DtShard;
enum { DT_STATIC_AXES = 3 }; // tp, as two factors, and cp: the first of comm.h

// One parameter tensor; stored at `offset` elements in each of the parameter, gradient and moment
// regions. A stacked parameter ("blocks.*.attn.qkv.weight", nstack leading extents) is written to
// weight files as one tensor for each layer, its stars replaced by numbers.
typedef struct DtParam {
  const char *name;
  int rank, nstack;
  int64_t extent[DT_MAX_RANK];
  int64_t count; // elements
  int64_t offset; // elements from the region's start; a multiple of 16
  DtInit init;
  double init_a, init_b; // normal: mean, deviation; uniform: low, high; const: value
  bool decay;
  int stack; // 1 + number in DtProgram.stack: `offset` is that of layer 0; or 0: all layers lie together
  DtShard shard[DT_STATIC_AXES]; // along each of them
  int64_t local; // elements on one rank, all layers; 0: count
  unsigned partial; // 1 << axis: after the step a rank's gradient is its part of a sum over that axis
  const char *source; // where the model first uses it: "gpt2.dt:25"; or NULL
} DtParam;

// A stack of equal layers that the program runs one by one: each layer's parameters lie together, so
// that they can be gathered and reduced as one array.
typedef struct DtStack {
  const char *name; // "blocks"
  int64_t count; // layers
  int64_t offset, stride; // elements: layer l is [offset + l * stride, offset + (l + 1) * stride)
  int64_t first; // what the model calls layer 0: of a pipeline's stage
  const char *source; // where the model runs it, or NULL
} DtStack;

// One data argument of the model: what one microbatch of it looks like.
typedef struct DtData {
  const char *name; // tokens, targets, x, ...
  DtType type;
  int rank;
  int64_t extent[DT_MAX_RANK]; // [0] is the microbatch
  bool checked; // integer data: every element must satisfy lo <= element < hi
  int64_t lo, hi;
  const char *path, *val_path; // arrays: the .npy file; NULL for tokens and bytes
} DtData;

typedef struct DtTrain {
  DtDataKind data, val;
  const char *data_path, *val_path; // tokens and bytes; NULL: none given
  int64_t length, batch, microbatch, steps, eval_every, seed;
  DtOptimizer optimizer;
  double lr, beta1, beta2, eps, weight_decay, momentum;
  bool nesterov;
  DtSchedule schedule;
  int64_t warmup;
  double final, clip;
  const char *precision; // "fp32", "fp64", "bf16", "fp16"
} DtTrain;

// DtProgram.offload: masters and moments are kept outside of the memory that kernels compute in.
enum { DT_OFFLOAD_OPTIMIZER = 1 };

// The numbers that kernels read: in the device's memory, where emitted code hands on their addresses (DtCall.scalars).
// A real is a float or a double, as DtProgram.type says.
enum { DT_MAX_COORDS = 8, DT_UPDATE_SCALARS = 5 };
#define DT_REALS(n)                                                                                \
  union {                                                                                          \
    float f32[n];                                                                                  \
    double f64[n];                                                                                 \
  }
typedef struct DtScalars {
  uint64_t key[2]; // of random numbers: the seed; the step, 1 in the first (0 is initialisation's)
  int32_t first;   // number in the global batch of the microbatch's first sample
  int32_t batch;   // samples in the global batch; a sample at or past it is padding, weight 0
  int32_t coord[DT_MAX_COORDS]; // this rank's number along each axis (runtime/comm.h)
  // A power of two that multiplies the adjoint of the loss in a step, if DtProgram.loss_scaling, and so all
  // gradients; loss and metrics are returned without it. In all other calls, and programs, 1.
  DT_REALS(1) loss_scale;
  // update's lr, correct1 and root2 (1 - beta1^step and sqrt(1 - beta2^step), step from 1), decay (the
  // parameter's weight decay), scale
  DT_REALS(DT_UPDATE_SCALARS) update;
  DT_REALS(DT_MAX_TOTALS) total; // sums over the whole batch of what count() gives
} DtScalars;

// For how long a pipeline's chunk keeps a value of a microbatch: from forward to the end of backward; to the end of
// weights, where the schedule parts the backward pass; from backward to the end of weights. A chunk has slots of each.
typedef enum DtSpan { DT_F_TO_B, DT_F_TO_W, DT_B_TO_W, DT_SPANS } DtSpan;

// The buffers of one call, all in the device's memory.
typedef struct DtCall {
  const void *data[DT_MAX_DATA]; // one microbatch of each data argument (int32 or real)
  const DtScalars *scalars;
  // Regions, all parameters at their offsets: parameters of DtProgram.param_type, gradients real.
  void *param, *grad;
  // update: steps `count` elements at param, real (masters, where the types differ), with their gradients and
  // moments; `rounded`, if there is such, gets the new parameters in param_type.
  void *moment[DT_MAX_MOMENTS], *rounded;
  int64_t count;
  void *frame; // DtProgram.frame_bytes of scratch, contents not kept between calls
  void *out; // real results: count: ntotal; step, eval: loss, metrics; sample: logits[T, V]
  bool fresh; // step, if DtProgram.stores_grad: grad holds nothing yet, so the first contribution is stored
  // A pipeline's chunk: what was received and where to leave what is sent (DtPipeChunk.sent_bytes); what is
  // kept with the microbatch between its functions (slot_bytes).
  const void *in;
  void *send, *slot[DT_SPANS];
  int chunk, part; // which of a pipeline's functions is called, DtPipeChunk.run[part]
  bool last; // step: no microbatch of it comes after this one on the rank
  struct DtZero *zero; // where the layers' parameters and gradients are (runtime/train/zero.h); NULL: in param and grad
} DtCall;
typedef void DtEntry(const DtCall *call);

// A kernel's name and cost, for --info, the profile and reports.
typedef struct DtKernelInfo {
  const char *name, *source; // "layer_norm_fwd", "model.dt:12"
  double bytes, flops; // of one launch
} DtKernelInfo;

// A pipeline's stage has parts of the parameters, which lie in its regions as a program's own do. held[i]
// says what DtStage.param[i] is: DtProgram.param[param], of a stacked one slices [first, first +
// extent[0]) of the leading extent. Several stages may hold the same: then their gradients are summed.
typedef struct DtHeld {
  int param;
  int64_t first;
} DtHeld;
typedef struct DtStage {
  int nparam, nstack;
  const DtParam *param;
  const DtHeld *held;
  const DtStack *stack;
  int64_t param_count, frame_bytes;
} DtStage;

// A part of the step that a stage runs: chunk c is stage c % pp's. `weights` is NULL where the schedule
// does not part the backward pass. The last chunk's forward and eval return loss and metrics, its sample logits.
enum { DT_FORWARD, DT_BACKWARD, DT_WEIGHTS, DT_EVAL, DT_SAMPLE, DT_CHUNK_PARTS };
typedef struct DtPipeChunk {
  DtEntry *run[DT_CHUNK_PARTS];
  bool reads_data[DT_CHUNK_PARTS];
  int64_t slot_bytes[DT_SPANS]; // kept of a microbatch for that long
  int64_t sent_bytes[DT_CHUNK_PARTS]; // by forward, eval and sample to chunk c + 1, by backward to c - 1
  int64_t cost[DT_CHUNK_PARTS]; // time, in units of the compiler's estimate; at least 1
  int param, nparam; // of the stage's: those that the chunk uses
  // For messages, of what each function sends: "activations x", and where that is computed.
  const char *message[DT_CHUNK_PARTS], *source[DT_CHUNK_PARTS];
} DtPipeChunk;

typedef struct DtProgram {
  const char *model, *build; // build: hash of the compiled program, hex
  // F32 or F64: of masters, gradients, moments, totals, losses, scalars and real data.
  DtType type;
  // Of the parameters that kernels read: `type`; or BF16 or F16, with `type` F32. Then the runtime keeps
  // masters in `type`, updates those, and rounds each to its parameter (to nearest, ties to even).
  DtType param_type;
  DtType reduce_type; // of gradients on their way between ranks: `type`; or BF16, with `type` F32
  // The runtime chooses DtScalars.loss_scale, divides gradients by it, and skips a step whose gradients are not
  // finite.
  bool loss_scaling;
  int device_level; // that the kernels need, as the target's runtime/device/ numbers them; 0: no named ones
  const char *device_features; // and what beyond a level, or NULL
  bool device_products; // they need the device's library of matrix products
  int ndata, nparam, ntotal, nmetric, nmoment, nkernel;
  const DtData *data;
  const DtParam *param;
  const char *const *metric; // names
  const DtKernelInfo *kernel;
  DtTrain train;
  int64_t param_count; // elements in a region, offsets included
  int64_t frame_bytes;
  bool stores_grad; // step heeds DtCall.fresh; otherwise grad must be zeros before a batch's first step
  // Each works on one microbatch. count may be NULL (ntotal 0). step ADDS to grad. update steps DtCall.count
  // elements, of one parameter; sgd with momentum and adam(w) read and write moments; scale multiplies gradients
  // (clipping).
  DtEntry *count, *step, *eval, *update, *sample;
  bool random_totals; // what count() gives depends on the step, also of the same samples
  int64_t sample_length, sample_vocab; // sample: T and V; NULL sample: not a model over tokens
  const char *listing; // the program's buffers and functions, as --info prints them
  int tp, cp, pp; // mesh degrees that the program was compiled for; 0 means 1
  int tp_outer; // the outer one of two factors of tp; 0 or 1: tp is one axis
  int nstack;
  const DtStack *stack; // after the parameters that are in none
  // State that is cut over the ranks that replicate the parameters: 0 nothing; 1 the optimizer's state; 2
  // gradients too; 3 parameters too. In groups of zero_group ranks (0: all of them in one).
  int zero, zero_group;
  bool accumulate_each; // gradients are reduced at every microbatch, not once a step
  bool gather_once; // zero 3: gathered parameters are kept for the step
  int offload; // bits of DT_OFFLOAD_
  // With pp above 1, in place of step, eval and sample: pp stages, nchunk chunks in all. `param` then names the
  // model's parameters, and the stages say where their parts of them lie.
  int nchunk;
  DtPipeKind schedule;
  const DtPipeChunk *chunk;
  const DtStage *stage;
  const char *source; // where the loss is: "gpt2.dt:24"; or NULL
  // Microbatches that a rank has under way at once (runtime/comm/flight.h), each with a frame and its
  // data; 0 means 1.
  int in_flight;
  // That kernels ask for on a thread of the host, at most.
  int64_t scratch_bytes;
} DtProgram;

// A call's results, at most: loss and metrics, or totals.
enum { DT_MOST_RESULTS = 1 + DT_MAX_METRICS + DT_MAX_TOTALS };

static inline int dt_in_flight(const DtProgram *p) { return p->in_flight > 1 ? p->in_flight : 1; }

extern const DtProgram dt_program;

// Whether text can be made with it: it has logits of tokens.
static inline bool dt_samples(const DtProgram *p) {
  return p->nchunk ? p->chunk[0].run[DT_SAMPLE] != NULL : p->sample != NULL;
}

// The training program: parses options and runs; returns the exit status (0, or 64 to 79 as doc/training.md lists).
int dt_main(const DtProgram *p, int argc, char **argv);

#endif
