// What the files of pass shard share: an entry as levels of items and slots, the ways to do each
// item on one axis, and a plan. passes/shard.c says how they go together.
#ifndef DTC_PASSES_SHARD_H
#define DTC_PASSES_SHARD_H

#include "ir/shard.h"
#include "passes/product.h"
#include "passes/util.h"

// ---- cost

// What a plan costs a rank, compared in this order. Sums of these are costs, too, as the order is
// that of a lexicographic product.
enum {
  COST_FLOPS, // points of products
  COST_RESIDENT, // bytes of parameters that products and lookups read
  COST_COMM, // bytes that it sends in collectives
  COST_MASKS, // terms that one rank alone counts
  COST_FIFTH, COST_SIXTH, // the number of collectives, then bytes that statements move; or reversed
  NCOST
};
typedef struct Cost {
  int64_t at[NCOST];
} Cost;

static inline int cost_order(const Cost *a, const Cost *b) {
  for (int i = 0; i < NCOST; i++)
    if (a->at[i] != b->at[i]) return a->at[i] < b->at[i] ? -1 : 1;
  return 0;
}
static inline void cost_add(Cost *a, const Cost *b) {
  for (int i = 0; i < NCOST; i++) a->at[i] += b->at[i];
}

// ---- levels

// The bodies of repeats that share stacked values (a stack's forward and backward pass) are solved
// together, as one list of items: a level. The entry itself is the outermost one.

enum { MAX_TYPES = 32 };

// A value of one or more bodies of a level: what one hands to another through a stack is one slot.
typedef struct Slot {
  Value of; // name and shape, as the bodies see it
  Id param; // Module.param, of its value or its gradient; else NONE
  bool grad;
  bool counted; // a parameter that a product or a lookup reads
  bool whole; // an argument that every rank holds all of
  bool given; // an argument, there from the start
  bool still; // a parameter, which does not move on a model axis
  Id partner; // of a gradient: the parameter's slot; NONE
  Id var; // Level.var that fixes its type; NONE
  Id memory; // no value: what the plan chose for the earlier repeats of this cluster; NONE
  uint32_t first, last; // items between which a plan must know of it
  Shard fixed[MAX_AXIS]; // the type of a parameter, gradient or variable, once solved
  bool is_fixed[MAX_AXIS];
  bool via[MAX_AXIS]; // what is split is cut out of the whole
  bool halved; // float, a product's or the sum of some: ranks send partial ones in the module's 16-bit type
  // on the axis being solved
  Shard type[MAX_TYPES];
  uint32_t ntype;
} Slot;

typedef struct Body {
  Id fn;
  Id *slot; // for each value of fn
} Body;

typedef struct Need {
  Id slot;
  uint32_t type; // of Slot.type
} Need;

// One way to do an item on one axis.
typedef struct Choice {
  Assign assign; // ITEM_COMP
  uint32_t nneed, nout;
  Need *need, *out; // what it reads, each once; what it makes
  Cost cost;
  Id class; // ITEM_CALL: the local class of the indices that are dealt out; NONE
  uint32_t prefix; // ITEM_REPEAT: see Cluster
} Choice;

typedef enum ItemKind { ITEM_COMP, ITEM_CALL, ITEM_REPEAT, ITEM_RETURN } ItemKind;

// What was chosen for an item, once an axis is solved.
typedef struct Decision {
  Choice choice; // needs and outs with types of ...
  Shard *need, *out; // ... these
  Shard target; // of an accumulator
} Decision;

typedef struct Made {
  Id slot; // NONE: dropped
  bool add; // it is added to
} Made;

typedef struct Item {
  ItemKind kind;
  uint32_t body, stmt;
  VEC(Id) in; // slots that it reads, each once
  VEC(Made) to; // slots that it makes, in the order of Choice.out
  uint32_t types; // of these slots when its choices were made
  uint32_t cluster, at; // ITEM_REPEAT: which repeat of which cluster
  VEC(Choice) choice;
  Decision done[MAX_AXIS];
} Item;

// A slot of a level whose type is agreed with the level around it.
typedef enum VarKind {
  VAR_IN, // an argument
  VAR_OUT, // a result
  VAR_CARRY, // an argument, a result that feeds it, and the last one's result
  VAR_ACC // what a repeat adds to
} VarKind;
typedef struct Var {
  VarKind kind;
  Id slot, last; // of this level; VAR_CARRY: last is the result's slot
  Id outer, outer_last; // of the level around; VAR_CARRY: the chain's start and end
  bool slice; // outer has the stack's extent first
  uint32_t repeat; // the first repeat of the cluster that uses it
  VEC(Shard) type; // candidates
} Var;

typedef struct Pick {
  uint32_t choice, target; // target: type of the accumulator
  // Bit j: what need j reads, or the j-th thing made, is split out of the whole.
  uint32_t via, made_via;
} Pick;
typedef struct Plan {
  bool ok; // there is one
  bool exact; // nothing was cut off in looking for it
  Cost cost;
  Pick *pick; // for each item
} Plan;

// Repeats that share stacked values. A plan of the level around walks them in order and fixes the
// variables of each; prefix numbers count, in mixed radix, what is fixed so far.
typedef struct Cluster {
  struct Level *in;
  VEC(uint32_t) item; // of the level around
  uint32_t ncombo;
  Plan *plan; // for each choice of all variables
  Id memory; // slot of the level around
} Cluster;

typedef struct Level {
  struct Level *around; // NULL: an entry
  int64_t count; // iterations
  bool together; // the repeats stand in one body
  VEC(Body) body;
  VEC(Slot) slot;
  VEC(Item) item;
  VEC(Var) var;
  VEC(Cluster) cluster;
  uint32_t combo[MAX_AXIS]; // of the variables, once solved
  uint32_t course; // the order of items that did best so far
  void **emitted; // emit.c: for each cluster, what its bodies hand on
} Level;

// ---- classes of indices

// Dimensions and indices that run over the same thing, by union of what is subscripted bare.
typedef struct Classes {
  const Module *m;
  Id *parent, *local; // local: joined within functions only
  uint32_t *value_base, *stmt_base; // for each function
  bool *batch, *sequence; // for each class
} Classes;

void classes_make(Classes *c, const Module *m);
Id class_of_dim(const Classes *c, Id fn, Id value, uint32_t dim);
Id class_of_index(const Classes *c, Id fn, uint32_t stmt, uint32_t index);
Id local_class_of_dim(const Classes *c, Id fn, Id value, uint32_t dim);
Id local_class_of_index(const Classes *c, Id fn, uint32_t stmt, uint32_t index);

// ---- one axis

typedef struct Sharder {
  Module *m;
  Classes class;
  bool *counted; // for each parameter
  uint32_t axis; // being solved
  bool solved[MAX_AXIS];
  int64_t n; // size of the axis
  bool context; // the axis is for sequence indices only, and parameters are whole
  bool sequence; // sequence indices may be on the axis
  bool heads; // on a context axis: attention has its heads on it
  bool moves; // parameters may be gathered after all: nothing else was found
  Id outer; // the axis is the inner factor of one of which this is the outer one, solved; else NONE
  bool quiet; // a plan that need not be: nothing is reported where there is none
  const Level *step; // the training step
  Cost cost[MAX_AXIS]; // of its plan on each axis
  uint8_t named; // the axis as a bit of Index.on; 0: the model has no name for it
  Id free_fn; // of this statement, or of parameter free_param, what the model says is left aside
  uint32_t free_stmt, free_param; // NONE
  int collectives, traffic; // where Cost counts them
  bool cut; // some search was not exhaustive, or did not have all ways
  uint32_t first; // states that the first run of a search keeps at an item
  bool lost; // some search found nothing, was not exhaustive, and had no time for more runs
  uint64_t made; // states, by the searches of an entry on this axis (and, once some are cut, later)
} Sharder;

// Whether an index or dimension of this class may be on the axis.
bool shard_allowed(const Sharder *z, Id class, int64_t extent);

// asked.c: what the model says by `shard(i: tp)` of a statement and the axis that is being
// solved: the index that is dealt out, or one of these.
enum { ASKED_NOTHING = -2, ASKED_WHOLE = -1 };
int shard_asked(const Sharder *z, Id fn, uint32_t stmt);
// The home that it says a parameter has; false where it says nothing.
bool shard_asked_home(const Sharder *z, uint32_t param, Shard *home);
// Whether the dimensions of parameters that it cuts can be; else reports one that cannot.
bool asked_possible(const Sharder *z);
// Fixes the homes of parameters that the model says.
void asked_homes(const Sharder *z, Level *l);
// Reports which of it no plan honours, and why; false where nothing was said.
// `homes`: those of parameters are being chosen.
bool asked_refused(Sharder *z, Level *l, bool homes);
// Forgets all of it.
void asked_forget(Module *m);
// fold.c: folds the context axis where some attention is causal. Then, in how many turns a
// sequence is dealt out: 2 where it is folded, else 1.
void shard_fold(Module *m);
int64_t shard_turns(const Module *m, uint32_t axis, int64_t extent);
// ring.c: attention as a ring. Whether it can be one on the axis; whether it is asked for and
// cannot be, said so; makes of the types of a call those of a ring; what a rank sends for it; makes
// the function that a call is of take shares.
bool ring_fits(const Module *m, const Fn *g, uint32_t axis);
bool ring_refuses(const Module *m);
void ring_types(const Sharder *z, Id fn, Shard *type);
int64_t ring_bytes(const Sharder *z, Id fn);
void ring_wrap(Module *m, Id fn);
// factor.c: an axis as two factors. The next number of outer ranks, above `last`, to be
// tried, or 0; makes the axes so.
int64_t factor_next(const Module *m, uint32_t axis, int64_t last);
void factor_axis(Module *m, uint32_t axis, int64_t outer);
// What the inner factor may deal out where the outer one deals out an index of class `outer`: the
// same in blocks within its blocks, or the heads of a group where that has the groups.
bool factor_heads(const Sharder *z, Id outer, Id inner);
// What the step's plan costs a rank of the axis, its factors together.
double factor_cost(Sharder *z, const Level *l, uint32_t axis);
// unpack.c: saves the parts of packed values apart.
void shard_unpack(Module *m);
// level.c: the levels of an entry.
Level *level_of_entry(Sharder *z, Id fn);
// Whether a repeat of the cluster reads or makes the variable.
bool repeat_uses(const Var *v, uint32_t repeat);
// choice.c: fills in the types and choices of a level and those inside it, but for repeats.
void level_choices(Sharder *z, Level *l);
uint32_t slot_type(Slot *s, Shard t); // its number, added where new; MAX_TYPES: no room
uint32_t slot_find(const Slot *s, Shard t); // MAX_TYPES: it is not there
// Lays out a call of an intrinsic with the indices of one local class in blocks: fills `type` for
// the callee's values and, where not NULL, `assign` for its statements. False where the rule
// refuses.
bool intrinsic_types(const Sharder *z, Id fn, Id class, int64_t block, Shard *type, Assign *assign);
// Whether a local class is that of heads of an intrinsic or its derivative.
bool class_is_heads(const Sharder *z, Id fn, Id class);
// cost.c
int64_t slot_bytes(const Slot *s);
// A conversion's cost; false where there is none.
bool convert_cost(const Sharder *z, const Slot *s, Shard from, Shard to, Cost *cost);
// The part of `whole` that a rank has of an extent dealt out in blocks: rounded as if it divided
// where little is lost.
int64_t share_of(int64_t whole, int64_t extent, int64_t block, int64_t n);
// The points of a statement that a rank has with this assignment.
int64_t stmt_points(const Sharder *z, const Stmt *s, Assign a);
Cost comp_cost(const Sharder *z, const Level *l, const Item *it, const Choice *c);
Cost call_cost(const Sharder *z, const Level *l, const Item *it, const Choice *c);
// order.c: an order of the items that keeps few slots open, one of several; the first and the
// last place in it that touches each slot (NONE: none does).
enum { ORDERS = 3 };
void level_order(Arena *a, const Level *l, uint32_t which, uint32_t *order, uint32_t *first,
                 uint32_t *last);
// solve.c: a least plan of a level whose variables have the types var[] (of their slots).
Plan level_solve(Sharder *z, Level *l, const uint32_t *var);
// plan.c: solves a level on an axis, those inside it first, and records what was chosen.
bool entry_solve(Sharder *z, Level *l);
// emit.c: rewrites the entry in form A.
void entry_emit(Sharder *z, Level *l);

#endif
