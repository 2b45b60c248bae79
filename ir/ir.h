// The program as dtc's passes see it: index notation, from source to kernel.
//
// Meaning. A Module is a set of functions, a table of parameters and settings. A function is a list
// of statements in an order that is a valid schedule. There is one kind of tensor statement, the
// comprehension:
//
//     lhs[subscripts] (= | +=) red(bound indices: body)
//
// For each assignment of the free indices (all those that occur in the lhs subscripts), evaluate the
// body over all assignments of the bound indices, reduce, round to the type of lhs and store. Bodies
// have no side effects. `where(c, a, b)` evaluates c, then only the branch taken; `and`, `or`
// evaluate the right side only where needed: so a read may be out of range where it is not reached.
// Values are immutable and defined once, with two exceptions: a value written by `+=` is an
// accumulator: zero before its first statement (unless it is an IN-OUT argument, which holds what the
// caller gave) and read only after its last one; and what `+=` writes may hit an element many times.
// A `=` statement writes every element of its lhs exactly once.
//
// Numbers. Scalars are real, int (32-bit, wraps) or bool. How a real is stored is its value's Dtype;
// arithmetic of one statement is done in Module.compute. Float rewrites that change a result are not
// allowed after differentiate, except where a pass's head comment says which. Subscripts and groups
// are evaluated in 64 bits, and so is the last argument of `random`. Integer // and % round towards minus infinity.
//
// Reductions. sum of nothing is 0. mean divides by the number of bound points. max, min: NaN if any
// is NaN. argmax: the number (row-major over the bound indices in order) of the first maximal point.
//
// Statements, values and indices are not hash-consed; expressions are (per Module): equal expressions
// have equal ids. Expressions name indices by position in their statement and values by position in
// their function, so an expression means something only together with those.
#ifndef DTC_IR_H
#define DTC_IR_H

#include "ir/diag.h"
#include "ir/limits.h"
#include "ir/util.h"

enum { MAX_RANK = 8, MAX_INDEX = 16, MAX_AXIS = 4, MAX_AXIS_SIZE = 1 << 20 };

// Storage types. REAL is a float whose storage the precision pass has not chosen (F32 before it: one that is
// float in programs of 16 bits, too, and as any other in fp64); the interpreter
// computes everything real in float64 whatever the storage.
typedef enum Dtype { DT_REAL, DT_F64, DT_F32, DT_BF16, DT_F16, DT_I32, DT_BOOL, NDTYPE } Dtype;
// Types of scalar expressions.
typedef enum Scalar { SC_REAL, SC_INT, SC_BOOL } Scalar;
static inline Scalar scalar_of(Dtype t) { return t == DT_BOOL ? SC_BOOL : t == DT_I32 ? SC_INT : SC_REAL; }
static inline bool is_half(Dtype t) { return t == DT_BF16 || t == DT_F16; }
extern const char *const dtype_name[NDTYPE]; // "real" "f64" "f32" "bf16" "f16" "int" "bool"
int dtype_size(Dtype t); // bytes; REAL counts as 8, bool as 1

// Operators: name, text, number of arguments, type rule, work, slopes, roundoffs.
//   LEAF  made by its own constructor     NUM  all reals or all ints, result the same
//   REAL  reals to real                   INT  ints to int
//   CMP   two reals or two ints to bool   BOOL bools to bool
//   SEL   (bool, T, T) to T               CONV see the operator
// Work of one evaluation: NONE; PLAIN, an instruction or two; SLOW, several; LIBM, a library's function,
// dearer than to store the value and read it again.
// Slopes: bit i is set where reals have a derivative by argument i (passes/differentiate/adjoint.c).
// Roundoffs: how far the computed result of reals may be from the operator's meaning, in units of
// roundoff of the result: 0 exact, 1 rounded correctly, 8 a library's (ir/interp/interp.h).
#define OPS(X)                                                                                     \
  X(REAL, "", 0, LEAF, NONE, 0, 0) /* a constant: Expr.real */                                     \
  X(INT, "", 0, LEAF, NONE, 0, 0) /* a constant: Expr.integer */                                   \
  X(BOOL, "", 0, LEAF, NONE, 0, 0) /* a constant: Expr.integer 0 or 1 */                           \
  X(INDEX, "", 0, LEAF, NONE, 0, 0) /* an index of the statement: Expr.integer; int, its GLOBAL    \
        position */                                                                                \
  X(READ, "", -1, LEAF, NONE, 0, 0) /* Expr.integer is the Value; arguments are its subscripts */  \
  X(GROUP, "", -1, LEAF, NONE, 0, 0) /* merged indices, row-major; int. Arguments after the        \
        first are INDEX */                                                                         \
  X(RANDOM, "random", 3, LEAF, SLOW, 0, 0) /* (site, iteration, element): uniform in [0,1), by     \
        Philox; the element is evaluated in 64 bits */                                             \
  X(NEG, "-", 1, NUM, PLAIN, 1, 0)                                                                 \
  X(ADD, "+", 2, NUM, PLAIN, 3, 1)                                                                 \
  X(SUB, "-", 2, NUM, PLAIN, 3, 1)                                                                 \
  X(MUL, "*", 2, NUM, PLAIN, 3, 1)                                                                 \
  X(DIV, "/", 2, REAL, PLAIN, 3, 1)                                                                \
  X(IDIV, "//", 2, INT, PLAIN, 0, 0)                                                               \
  X(MOD, "%", 2, INT, PLAIN, 0, 0)                                                                 \
  X(POW, "pow", 2, REAL, LIBM, 3, 8)                                                               \
  X(MIN, "min", 2, NUM, PLAIN, 3, 0)                                                               \
  X(MAX, "max", 2, NUM, PLAIN, 3, 0)                                                               \
  X(FMA, "fma", 3, REAL, PLAIN, 7, 1) /* a * b + c, rounded once */                                \
  X(ABS, "abs", 1, NUM, PLAIN, 1, 0)                                                               \
  X(EXP, "exp", 1, REAL, LIBM, 1, 8)                                                               \
  X(LOG, "log", 1, REAL, LIBM, 1, 8)                                                               \
  X(SQRT, "sqrt", 1, REAL, SLOW, 1, 1)                                                             \
  X(SIN, "sin", 1, REAL, LIBM, 1, 8)                                                               \
  X(COS, "cos", 1, REAL, LIBM, 1, 8)                                                               \
  X(TANH, "tanh", 1, REAL, LIBM, 1, 8)                                                             \
  X(ERF, "erf", 1, REAL, LIBM, 1, 8)                                                               \
  X(FLOOR, "floor", 1, REAL, PLAIN, 0, 0)                                                          \
  X(LT, "<", 2, CMP, PLAIN, 0, 0)                                                                  \
  X(LE, "<=", 2, CMP, PLAIN, 0, 0)                                                                 \
  X(GT, ">", 2, CMP, PLAIN, 0, 0)                                                                  \
  X(GE, ">=", 2, CMP, PLAIN, 0, 0)                                                                 \
  X(EQ, "==", 2, CMP, PLAIN, 0, 0)                                                                 \
  X(NE, "!=", 2, CMP, PLAIN, 0, 0)                                                                 \
  X(AND, "and", 2, BOOL, PLAIN, 0, 0)                                                              \
  X(OR, "or", 2, BOOL, PLAIN, 0, 0)                                                                \
  X(NOT, "not", 1, BOOL, PLAIN, 0, 0)                                                              \
  X(WHERE, "where", 3, SEL, PLAIN, 6, 0)                                                           \
  X(TO_REAL, "real", 1, CONV, PLAIN, 0, 0) /* int or bool to real */                               \
  X(TO_INT, "int", 1, CONV, PLAIN, 0, 0) /* real (towards zero) or bool to int */                  \
  X(STOP, "stop_gradient", 1, NUM, PLAIN, 0, 0)

typedef enum Op {
#define X(name, text, arity, rule, work, slopes, roundoffs) OP_##name,
  OPS(X)
#undef X
      NOP
} Op;
typedef enum TypeRule { RULE_LEAF, RULE_NUM, RULE_REAL, RULE_INT, RULE_CMP, RULE_BOOL, RULE_SEL, RULE_CONV } TypeRule;
typedef enum Work { WORK_NONE, WORK_PLAIN, WORK_SLOW, WORK_LIBM } Work; // in rising order
typedef struct OpInfo {
  const char *name; // "ADD"
  const char *text; // "+"
  int arity; // -1: any
  TypeRule rule;
  Work work;
  uint8_t slopes;
  uint8_t roundoffs;
} OpInfo;
extern const OpInfo op_info[NOP];

typedef struct Expr {
  uint8_t op; // Op
  uint8_t type; // Scalar
  uint16_t narg;
  Id arg; // first of narg consecutive expression ids in Module.arg
  union {
    double real; // OP_REAL
    int64_t integer; // OP_INT, OP_BOOL, OP_INDEX (position in the statement), OP_READ (Value)
  };
} Expr;

typedef enum Red { RED_NONE, RED_SUM, RED_MEAN, RED_MAX, RED_MIN, RED_ARGMAX, NRED } Red;
extern const char *const red_name[NRED]; // "" "sum" "mean" "max" "min" "argmax"

typedef struct Index {
  Str name; // unique in its statement
  int64_t extent; // at least 1
  bool local; // over the samples of one microbatch on one rank; meant for pass batch, none after it
  bool batch; // its extent is a multiple of the number of samples, as the front end says; as for local; not in the text form
  // What the model says of axis_word[i], bit i: dealt out over it; not dealt out over it. Meant for
  // pass shard, none after it.
  uint8_t on, off;
} Index;

// Mesh axes that options and models name, as in `shard(i: tp)`. IR text may have others.
typedef enum AxisId { AXIS_TP, AXIS_CP, NAMED_AXES, AXIS_OTHER = NAMED_AXES } AxisId;
extern const char *const axis_word[NAMED_AXES]; // "tp" "cp"
AxisId named_axis(Str name); // AXIS_OTHER: it is none of them

// How a value lies over the ranks of one mesh axis of size n. PARTIAL: the value is the reduction, by
// `op`, over the ranks' arrays. SPLIT: element p of dimension dim belongs to rank (p / block) % n;
// block = extent / n is the plain split, a smaller one an inner factor of a merged dimension. Where
// extent is not a multiple of block * n, the last ranks have less. On a folded axis every second
// turn goes back: where p / (block * n) is odd, it is rank n - 1 - (p / block) % n. With block =
// extent / (2 n) rank r then has blocks r and 2 n - 1 - r: equal work for causal attention.
typedef enum ShardKind { SHARD_WHOLE, SHARD_SPLIT, SHARD_PARTIAL } ShardKind;
typedef struct Shard {
  uint8_t kind; // ShardKind
  uint8_t dim; // SPLIT
  uint8_t op; // PARTIAL: RED_SUM, RED_MAX or RED_MIN
  int64_t block; // SPLIT
} Shard;

// What a comprehension does with one mesh axis. INDEX: each rank computes the positions of one index
// that are its own, (position / block) % n == rank. WRITE: each rank visits all terms of a `+=` and
// writes what falls into its share of dimension `index` of the left side.
typedef enum AssignKind { ASSIGN_NONE, ASSIGN_INDEX, ASSIGN_WRITE } AssignKind;
typedef struct Assign {
  uint8_t kind; // AssignKind
  uint8_t index; // INDEX: position of the index in the statement; WRITE: dimension of the left side
  int64_t block;
} Assign;

// A value's part in its function.
typedef enum Role {
  ROLE_LOCAL, // defined by a statement
  ROLE_IN, // argument, read only
  ROLE_INOUT // argument, accumulated into by += (and never written by =)
} Role;

// What the training program gives an argument or takes from a result. A value's name says nothing of
// it: names are for readers. Value.of says which one.
typedef enum Meaning {
  MEANS_NONE,
  MEANS_DATA, // the model's data argument `of`
  MEANS_FIRST, // int: number of the microbatch's first sample in the batch
  MEANS_BATCH, // int: samples in the global batch; later ones are padding
  MEANS_TOTAL, // real: result `of` of ENTRY_COUNT; as an argument, summed over microbatches and ranks
  MEANS_PARAM, // parameter `of`; in a chunk, its piece
  MEANS_GRAD, // INOUT: the gradient of parameter `of`
  MEANS_RANK, // int, in the local form: this rank's number along axis `of`
  MEANS_LOSS_SCALE, // real, of the step in fp16: multiplies the loss's adjoint, and so every gradient
  MEANS_RECEIVED, // by a chunk, from its neighbour, which returns the value SENT with the same `of`
  MEANS_SENT, // a chunk's result
  MEANS_KEPT, // with the microbatch: a chunk's result, and an argument of its later parts
  MEANS_SCALAR, // real, of the update: `of` is an UpdateScalar
  MEANS_PIECE, // of the update: `of` is an UpdatePiece
  MEANS_ADJOINT, // of an intrinsic's derivative: the adjoint of value `of` of the same function
  NMEANING
} Meaning;
// Arguments after the parameters and their gradients.
static inline bool means_trailing(Meaning k) { return k == MEANS_RANK || k == MEANS_LOSS_SCALE; }
extern const char *const meaning_name[NMEANING]; // "" "data" "first" ...
// What `of` numbers: nothing, things that have no names, or things that have.
typedef enum MeaningOf { OF_NOTHING, OF_NUMBER, OF_PARAM, OF_AXIS, OF_WORD, OF_VALUE } MeaningOf;
MeaningOf meaning_of(Meaning k);
typedef enum UpdateScalar { SCALAR_LR, SCALAR_CORRECT1, SCALAR_ROOT2, SCALAR_DECAY, SCALAR_SCALE, NUPDATE_SCALAR } UpdateScalar;
extern const char *const update_scalar_name[NUPDATE_SCALAR]; // "lr" "correct1" "root2" "decay" "scale"
typedef enum UpdatePiece { PIECE_PARAM, PIECE_GRAD, PIECE_MOMENT1, PIECE_MOMENT2, NUPDATE_PIECE } UpdatePiece;
extern const char *const update_piece_name[NUPDATE_PIECE]; // "param" "grad" "moment1" "moment2"

typedef struct Value {
  Str name; // unique in its function; dotted words
  Meaning means; // MEANS_NONE but for arguments and results
  uint32_t of; // see Meaning; 0 where that numbers nothing
  Dtype type;
  uint8_t rank;
  int64_t extent[MAX_RANK]; // each at least 1
  Role role;
  Shard shard[MAX_AXIS]; // for each of Module.axis; extents are those of the whole
  Id loc;
} Value;
// Makes the type of a real value float in programs of 16 bits; pass precision chooses that of the others.
static inline void value_widen(Value *v) {
  if (v->type == DT_REAL) v->type = DT_F32;
}
int64_t value_count(const Value *v); // elements (fits int64_t; checked when made)
static inline bool value_means(const Value *v, Meaning k, uint32_t of) { return v->means == k && v->of == of; }

// ST_CONVERT: lhs = the same elements as `from`, in lhs's Shards: how a global program changes the
// layout of a value. ST_COLL: lhs = a collective of `from` over one mesh axis, between arrays that each
// rank holds; pieces lie along a leading extent n, the axis's size:
//   ALL_REDUCE      lhs and from alike
//   ALL_GATHER      lhs has the extent n before from's: member r's array is lhs[r]
//   REDUCE_SCATTER  from has the extent n before lhs's: member r gets the reduction of all from[r]
//   ALL_TO_ALL      both have the extent n first: lhs[r] on member s is from[s] of member r
//   SHIFT           lhs and from alike: lhs on member r is from of the one before, (r + n - 1) % n
typedef enum StmtKind { ST_COMP, ST_CALL, ST_REPEAT, ST_CONVERT, ST_COLL } StmtKind;
typedef enum CollKind { COLL_ALL_REDUCE, COLL_ALL_GATHER, COLL_REDUCE_SCATTER, COLL_ALL_TO_ALL, COLL_SHIFT, NCOLL } CollKind;
extern const char *const coll_name[NCOLL]; // "all_reduce" "all_gather" "reduce_scatter" "all_to_all" "shift"
static inline bool coll_reduces(CollKind k) { return k == COLL_ALL_REDUCE || k == COLL_REDUCE_SCATTER; }

typedef enum ActualMode {
  ACT_WHOLE, // the value itself
  ACT_SLICE, // repeat: value[iteration, ...], one extent of the value's rank more than the formal's
  ACT_CARRY, // repeat: the value starts the carried chain; see Call
  ACT_ITER // repeat: the iteration number, an int scalar formal; no value
} ActualMode;
typedef struct Actual {
  ActualMode mode;
  Id value; // of the caller; for a formal that is ROLE_INOUT, what is accumulated into
} Actual;
typedef enum ResultMode {
  RES_WHOLE, // call: the result
  RES_CARRY, // repeat: fed to the next iteration's carried argument; the last one's result is `value`
  RES_SLICE, // repeat: stored to value[iteration, ...]
  RES_DROP // not kept; value is NONE
} ResultMode;
typedef struct Result {
  ResultMode mode;
  Id value; // of the caller, defined by this statement
} Result;
// A call of a function, or `count` of them in a row. The j-th RES_CARRY result feeds the j-th
// ACT_CARRY argument. `reverse` runs iterations count-1 down to 0. Arguments and results correspond
// one to one with Fn.arg and Fn.result of the callee.
typedef struct Call {
  Id fn; // Module.fn
  int64_t count; // ST_CALL: 1
  Str iter; // ST_REPEAT: name of the iteration, for print
  bool reverse;
  uint32_t narg, nresult;
  Actual *arg;
  Result *result;
} Call;

typedef struct Stmt {
  StmtKind kind;
  Red red;
  bool acc; // +=
  uint8_t nfree, nindex; // indices [0, nfree) are free, [nfree, nindex) are bound by red
  Index *index;
  Id lhs; // Value written (ST_COMP)
  Id *sub; // one expression for each dimension of lhs
  Id body;
  Call *call; // ST_CALL, ST_REPEAT
  Assign assign[MAX_AXIS]; // ST_COMP
  Id from; // ST_CONVERT, ST_COLL
  CollKind coll; // ST_COLL; what reduces, by `red`: RED_SUM, RED_MAX or RED_MIN
  uint8_t axis; // ST_COLL: of Module.axis
  bool both; // ST_COLL: over the axis that it is a factor of, that is, the other factor too
  Id loc;
  // Places of the body's distinct reads, in the order of ex_reads (0: unknown), for messages about
  // the program as it was written; NULL from IR text. Passes that rewrite a body leave it behind.
  const Id *read_loc;
  uint32_t nread_loc;
} Stmt;

typedef enum Intrinsic { INTR_NONE, INTR_ATTENTION, NINTR } Intrinsic;
extern const char *const intrinsic_name[NINTR]; // "" "attention"

// Where the places of a dimension stand in the whole: place i at position i + by * n + from, where n
// is the int at position `arg` of Fn.arg; [0] before place `turn`, [1] from there on. turn 0: [0]
// for all. All 0: each place is its position.
typedef struct Positions {
  uint8_t arg;
  int64_t by[2], from[2], turn;
} Positions;

// What an intrinsic that is attention computes; ir/attention.h has the formula. Pass inline finds it
// from the body, and it is true of the body from then on; pass localise adds the positions.
typedef struct Attention {
  bool known; // false: the body was not looked at yet
  bool causal, apart, has_sink;
  int64_t ahead, window; // positions; window 0: none
  double scale, cap, bias, sink; // cap 0: none; sink: where has_sink and no `sinks`
  uint8_t slopes, sinks; // positions in Fn.arg; 0: none
  Positions query, key;
} Attention;

typedef struct Fn {
  Str name; // unique in the module
  VEC(Value) value;
  VEC(Id) arg; // values with role IN or INOUT, in the order of the signature
  VEC(Id) result; // values
  VEC(Id) alias; // empty, or for each result the argument whose storage it takes over, or NONE
  VEC(Stmt) stmt;
  Intrinsic intrinsic; // the body defines it; a backend may have a better implementation
  Attention form; // of an INTR_ATTENTION
  bool backward; // of the intrinsic: this is its derivative
  Id loc;
  struct NameSet *names; // of values; private to ir.c
} Fn;

typedef enum InitKind { INIT_ZEROS, INIT_ONES, INIT_NORMAL, INIT_UNIFORM, INIT_CONST, NINIT } InitKind;
extern const char *const init_name[NINIT];

// A trainable tensor. A parameter of a layer in a stack has the stack's count as its leading extent
// (nstack of them where stacks nest) and its name has a star there: "blocks.*.attn.qkv.weight".
typedef struct Param {
  Str name;
  uint8_t rank, nstack;
  int64_t extent[MAX_RANK]; // stack extents first
  int8_t bar; // dimensions of fan-in, those of stacks not counted: [in | out] has 1; -1: no bar
  bool decay; // weight decay reaches it (by default a tensor with a bar)
  InitKind init;
  double init_a, init_b; // normal: mean, deviation; uniform: low, high; const: value
  Shard shard[MAX_AXIS]; // where its elements live
  // What the model says of axis_word[i]: nothing (0), whole (-1), or cut along dimension d of those
  // that are no stack's (d + 1). Meant for pass shard, none after it.
  int8_t asked[NAMED_AXES];
  Id loc;
} Param;

// The axes X.0 and X.1, INNER and OUTER, are factors of an axis X that a model or an option names: a
// rank's number along X is that along X.0, plus X.0's size times that along X.1.
typedef enum AxisPart { AXIS_WHOLE, AXIS_INNER, AXIS_OUTER } AxisPart;

// A mesh axis over which the program itself is cut: tp, cp. Its degree is known when dtc runs.
typedef struct Axis {
  Str name; // for readers
  AxisId id; // of X, for its factors
  AxisPart part; // AXIS_WHOLE for AXIS_OTHER
  int64_t size; // at least 2: an axis of one rank is left out
  bool sequence; // pass shard may put the sequence on it, and puts what a stack carries so
  bool heads; // cp: in attention, heads are on it, not the sequence
  bool ring; // cp: attention hands keys and values round, and gathers nothing
  bool folded; // see Shard
} Axis;

// The axis of that name, in text or options: "tp", "tp.0" and so on have ids.
Axis axis_new(Str name, int64_t size);
Axis axis_factor(const Axis *whole, AxisPart part, int64_t size); // INNER or OUTER, of a named axis
static inline bool is_factor(const Axis *x) { return x->part != AXIS_WHOLE; }
// Whether it is the axis of context parallelism.
static inline bool is_context(const Axis *x) { return x->id == AXIS_CP; }

typedef enum DataKind { DATA_NONE, DATA_TOKENS, DATA_BYTES, DATA_ARRAYS } DataKind;
typedef enum OptKind { OPT_SGD, OPT_ADAM, OPT_ADAMW } OptKind;
typedef enum ScheduleKind { SCHED_CONSTANT, SCHED_LINEAR, SCHED_COSINE, SCHED_INVSQRT } ScheduleKind;

// The train block after -D overrides.
typedef struct Train {
  DataKind data, val;
  Str data_path, val_path; // tokens, bytes
  int64_t length; // tokens, bytes: T
  VEC(Str) array_name; // arrays: the model's data arguments in order ...
  VEC(Str) array_path, val_array_path; // ... and their files
  int64_t batch, microbatch, steps, eval_every, seed;
  OptKind opt;
  double lr, beta1, beta2, eps, weight_decay, momentum;
  bool nesterov;
  ScheduleKind schedule;
  int64_t warmup; // steps
  double final; // last rate as a part of lr
  double clip; // 0: none
  Str precision; // "fp32" "fp64" "bf16" "fp16"
  Str residual; // "fp32": the residual stream is float in bf16 and fp16; NULL: it has their type
} Train;

// What the training program calls, made by passes from the model's loss. Arguments and their order
// (see Meaning): data first (leading extent the microbatch), then FIRST and BATCH, then totals, then
// parameters in the order of Module.param, then their gradients in that order, then (fp16) the LOSS_SCALE,
// then RANKs.
// What a program has at most; runtime/program.h has room for as many.
enum { MAX_DATA = 8, MAX_METRICS = 32, MAX_TOTALS = 64 };
typedef enum Entry {
  ENTRY_LOSS, // frontend: (data, params) -> loss, metrics...   one batch, training
  ENTRY_EVAL_LOSS, // the same with training = 0
  ENTRY_SAMPLE, // (tokens[1, T], params) -> logits[1, T, V], if the model has logits
  ENTRY_COUNT, // batch: (data, first, batch) -> totals   of one microbatch, to be added up
  ENTRY_STEP, // differentiate: (data, first, batch, totals, params, inout grads) -> loss, metrics
  ENTRY_EVAL, // batch: (data, first, batch, totals, params) -> loss, metrics
  ENTRY_UPDATE, // optimizer: of any UPDATE_PIECE elements, passes/optimizer.c
  NENTRY
} Entry;
extern const char *const entry_name[NENTRY];
enum { UPDATE_PIECE = 4096 }; // elements of a parameter that one call of the update steps

// What a stage of a pipeline holds of a parameter: slices [first, first + count) of the leading extent
// of a stacked one, or all of another (0, 1).
typedef struct Piece {
  Id param; // Module.param
  int64_t first, count;
} Piece;
// A part of the step that one stage runs. Its functions take the data arguments, FIRST, BATCH and
// totals, then what they receive and what is kept with the microbatch, then the
// chunk's parameters in the order of `piece`, then (BACKWARD and WEIGHTS) their INOUT gradients in that
// order, then RANKs. They return what is kept, then what is sent, then (the last chunk's
// FORWARD and EVAL) the loss and metrics. SAMPLE takes tokens and no totals, and the last chunk's
// returns the logits. What chunk c sends forward is what chunk c + 1 receives, in the same order;
// what it sends backward, what chunk c - 1 does.
typedef enum ChunkPart {
  CHUNK_FORWARD, CHUNK_BACKWARD, CHUNK_WEIGHTS, CHUNK_EVAL, CHUNK_SAMPLE, NCHUNK_PART
} ChunkPart;
extern const char *const chunk_part_name[NCHUNK_PART]; // "forward", ... "sample"
typedef struct Chunk {
  Id fn[NCHUNK_PART]; // or NONE
  VEC(Piece) piece;
} Chunk;

// A fact about data that a subscript's range proof relies on: checked when data is loaded.
typedef struct DataRange {
  Id arg; // position among the model's data arguments
  int64_t lo, hi; // lo <= element < hi
  Id loc;
} DataRange;

// What the backward pass of a stack's layers computes again; passes/recompute.c.
typedef enum Recompute { RECOMPUTE_NONE, RECOMPUTE_FULL, RECOMPUTE_SELECTIVE, RECOMPUTE_AUTO, NRECOMPUTE } Recompute;
extern const char *const recompute_name[NRECOMPUTE]; // "none" "full" "selective" "auto"
// What pass recompute did, of a microbatch and in all stacks together.
typedef struct Recomputed {
  int64_t before, kept; // bytes that layers saved for their backward pass, and save now
  double cost; // operations that run again; what ranks exchange counts too (passes/cost.h)
  bool proved; // auto: none costs less within the budget
} Recomputed;

typedef struct Module {
  Arena *arena;
  Sources *src;
  Str name; // of the model
  Dtype compute; // arithmetic of reals: REAL (exact oracle), F32 or F64
  Dtype store; // BF16 or F16: of parameters and stored values; else REAL: they are of type `compute`
  VEC(Expr) expr;
  VEC(Id) arg; // pool of expression arguments
  VEC(Fn) fn;
  VEC(Param) param;
  VEC(Axis) axis; // at most MAX_AXIS
  bool unproved; // passes/shard.c: the plan over the axes may not be a least one
  bool spmd; // local form (passes/localise.c): extents of values are those of one rank
  VEC(Str) metric; // names, in result order after the loss
  // The target that it is compiled for (codegen/target.h sets all of these), or NULL: pass shard and those after it need it.
  const struct Target *target;
  unsigned stores; // 1 << Dtype: types that the target has; all of them where there is no target
  Limits limits; // sizes at which passes and code generation choose: ir/limits.h
  const Limits *usual_limits; // what the target states; tests lower `limits`
  VEC(DataRange) range;
  uint32_t ndata; // data arguments of the loss
  Id entry[NENTRY]; // functions, or NONE
  // A pipeline: how many stages (0 or 1: none), chunks of each, whether backward is split into that of
  // the input and that of the weights, and the schedule's name; chunk c is stage c % stages'.
  uint32_t stages, chunks;
  bool split;
  Str schedule;
  Recompute recompute; // that pass recompute is to do; NONE after it
  int64_t keep; // AUTO: bytes that layers may save
  Recomputed recomputed; // not in the text form
  VEC(Chunk) chunk; // passes/pipeline.c; in place of ENTRY_STEP, ENTRY_EVAL and ENTRY_SAMPLE
  Train train;
  struct Plan *lowered; // codegen/lower/kernel.h: kernels, from pass fuse on; NULL before
  struct ExprTable *table; // hash-consing; private to ir.c
  struct NameSet *names; // of functions; private to ir.c
} Module;

// How many blocks come before owners repeat: the axis's size, or twice that where it is folded.
static inline int64_t axis_period(const Module *m, uint32_t axis) {
  return m->axis.at[axis].size * (m->axis.at[axis].folded ? 2 : 1);
}

// The storage type of parameters.
static inline Dtype param_type(const Module *m) { return is_half(m->store) ? m->store : m->compute; }

Module *module_new(Arena *a, Sources *s);

// Constructors of expressions: hash-consed, typed, arguments checked (a mistake is a BUG). They fold
// nothing; passes/simplify.c does.
Id ex_real(Module *m, double v);
Id ex_int(Module *m, int64_t v);
Id ex_bool(Module *m, bool v);
Id ex_index(Module *m, uint32_t position);
Id ex_read(Module *m, const Fn *f, Id value, const Id *sub); // f->value[value].rank subscripts
Id ex_group(Module *m, const Id *arg, uint32_t n);
Id ex_op(Module *m, Op op, const Id *arg, uint32_t n);
Id ex1(Module *m, Op op, Id a);
Id ex2(Module *m, Op op, Id a, Id b);
Id ex3(Module *m, Op op, Id a, Id b, Id c);
// The same node with other arguments and, for INDEX, READ, another `integer`.
Id ex_like(Module *m, Id e, int64_t integer, const Id *arg);
static inline const Expr *ex(const Module *m, Id e) { return &m->expr.at[e]; }
static inline Id ex_arg(const Module *m, Id e, uint32_t i) { return m->arg.at[m->expr.at[e].arg + i]; }
static inline bool ex_is(const Module *m, Id e, Op op) { return m->expr.at[e].op == op; }

// Rewrites an expression bottom-up: `leaf` (may be NULL) is asked for each INDEX and READ node with its
// subscripts already rewritten, and returns its replacement.
typedef Id (*ExprMap)(Module *m, Id e, void *ctx);
Id ex_map(Module *m, Id e, ExprMap map, void *ctx);
// Renumbers: index i becomes expression index[i] (NONE: unchanged), value v becomes value[v].
Id ex_rename(Module *m, Id e, const Id *index, const Id *value);
// Bit i is set where INDEX i occurs. Needs MAX_INDEX <= 32.
uint32_t ex_indices(const Module *m, Id e);
// Calls visit for each distinct READ node in e, subscripts' reads included.
void ex_reads(const Module *m, Id e, void (*visit)(const Module *m, Id read, void *ctx), void *ctx);
bool ex_has_read(const Module *m, Id e, Id value);

// What a statement reads. A comprehension's READ nodes, those of the body and then those of the left
// side's subscripts, as ex_reads visits them:
void comp_reads(const Module *m, const Fn *f, const Stmt *s,
                void (*visit)(const Module *m, Id read, void *ctx), void *ctx);
// The values that a statement of any kind reads, some of them maybe more than once: those of a
// comprehension's nodes, what a conversion or collective is from, a call's arguments, INOUT ones too.
void stmt_reads(const Module *m, const Fn *f, const Stmt *s, void (*visit)(Id value, void *ctx), void *ctx);
// The values that it defines or adds to: left side, results, INOUT arguments.
void stmt_writes(const Module *m, const Stmt *s, void (*visit)(Id value, void *ctx), void *ctx);
bool stmt_has_read(const Module *m, const Fn *f, const Stmt *s, Id value);

// Building functions.
Id fn_new(Module *m, Str name, Id loc); // makes the name unique by ".2" ...
Id fn_value(Module *m, Fn *f, Str name, Dtype t, const int64_t *extent, uint32_t rank, Role role, Id loc); // name made unique
Stmt *fn_stmt(Module *m, Fn *f, StmtKind kind, Id loc); // appended, zeroed; valid until the next append
// A comprehension appended: `index` (nfree free ones first), lhs subscripts, body.
void fn_comp(Module *m, Fn *f, Id lhs, const Id *sub, bool acc, Red red, const Index *index,
             uint32_t nfree, uint32_t nindex, Id body, Id loc);
Fn *entry_fn(Module *m, Entry e); // NULL where absent
uint32_t axis_other(const Module *m, uint32_t axis); // the other factor; NONE: it is no factor
Str axis_whole_name(const Module *m, uint32_t axis); // "tp" for "tp.0"; else its own name
int64_t coll_size(const Module *m, const Stmt *s); // members of a collective
Str coll_axis_name(const Module *m, const Stmt *s); // over which it is: "tp", "tp.0"
Id fn_find(const Module *m, Str name); // NONE where absent
Id value_find(const Fn *f, Str name); // NONE where absent
Id arg_find(const Fn *f, Meaning k, uint32_t of); // the argument's value; NONE where absent
// A value, as fn_value, that means something.
Id fn_meant(Module *m, Fn *f, Str name, Meaning k, uint32_t of, const Value *like, Role role);
Id fn_rank_arg(Module *m, Fn *f, uint32_t axis, Role role); // MEANS_RANK, "$rank.tp" to readers
Str value_plain_name(const Value *v); // what the model calls it: without what passes put before its name
void fn_rename(Module *m, Fn *f, Id value, Str name); // to one that no other value has
// Value v gets the number to[v], a permutation; all that names values by number follows.
void fn_renumber(Module *m, Fn *f, const Id *to);

#endif
