// What the files of the front end share. The order of work, and the file that does it:
//
//   unit.c      reads and parses files, resolves `use`, finds declarations
//   ct.c        compile-time values: sizes, flags, initialisers
//   layer.c     templates to layer types: sizes settled, parameters laid out
//   scope.c     the meaning of a name
//   comp.c      scalar expressions and comprehensions to IR
//   index.c     which indices a statement has, and their extents
//   bound.c     an index of unknown extent
//   tensor.c    calls, whole-tensor arithmetic, pad, slice, concat, cumsum, topk
//   body.c      bodies of methods and functions; one IR function per distinct instance
//   train.c     the train block and -D
//   frontend.c  the entry functions
#ifndef DTC_FRONT_H
#define DTC_FRONT_H

#include "frontend/ast.h"
#include "frontend/frontend.h"
#include "ir/map.h"

enum { MAX_STACKS = 4, MAX_CALLS = 64, MAX_ARGS = 64, MAX_INSTANCES = 10000 };

typedef struct Unit Unit;
typedef struct Use {
  Str name;
  Unit *unit; // NULL: not found, and reported
} Use;
// A parsed file.
struct Unit {
  Str path;
  uint32_t file;
  DeclList decl;
  VEC(Use) use;
  StrMap found[D_KINDS]; // declarations of each kind by name
};

typedef enum CtKind {
  CT_ERROR, CT_INT, CT_REAL, CT_BOOL, CT_STR, CT_INIT, CT_ITER, CT_TUPLE
} CtKind;
typedef enum InitRule {
  IR_ZEROS, IR_ONES, IR_CONST, IR_NORMAL, IR_UNIFORM, IR_XAVIER_UNIFORM, IR_XAVIER_NORMAL,
  IR_KAIMING_UNIFORM, IR_KAIMING_NORMAL
} InitRule;
// A compile-time value.
typedef struct Ct Ct;
struct Ct {
  CtKind kind;
  InitRule init; // INIT, with a and b in r, r2
  uint32_t level; // ITER: mul * (iteration of the stack at this depth) + i
  uint32_t nitem; // TUPLE
  int64_t i, mul; // INT, BOOL, ITER
  double r, r2; // REAL, INIT
  Str s; // STR
  Ct *item;
  Id from; // the -D that it was made of, or 0
  // INT: it is this times the number of samples. 0: it does not depend on that number; OTHERWISE: it does, in another way.
  int64_t per_sample;
};
enum { OTHERWISE = -1 };

// A quotient of sizes that was rounded down, one of them given by a -D.
typedef struct Rounded {
  int64_t a, b;
  Id loc, from;
} Rounded;

// The shape of a tensor, with a name for each dimension where one is known (else NULL).
typedef struct Shape {
  Dtype type;
  uint32_t rank;
  int64_t extent[MAX_RANK];
  int64_t per_sample[MAX_RANK]; // of each extent, as in Ct
  Str dim[MAX_RANK];
} Shape;

typedef struct LayerType LayerType;
typedef enum FieldKind { F_CT, F_PARAM, F_ABSENT, F_LAYER, F_STACK, F_ERROR } FieldKind;
typedef struct Field {
  Str name;
  FieldKind kind;
  Id loc, from; // from: where an argument gets its value, or 0
  Ct ct; // CT
  LayerType *type; // LAYER, STACK
  int64_t count; // STACK
  uint32_t first; // PARAM: position in LayerType.param; LAYER, STACK: of its first parameter
} Field;
// A layer with its sizes settled. Equal arguments (and, where a stack's iteration matters, depth)
// give the same LayerType.
struct LayerType {
  AstDecl *decl;
  Unit *unit;
  Str key; // its arguments as text
  uint32_t depth; // of stacks around it
  bool uses_depth, failed, building;
  bool wide; // `precision = fp32` in its body
  VEC(Field) field; // arguments first
  VEC(Param) param; // of the whole subtree, names from here
};

typedef struct Binding {
  Str name;
  Id loc;
  bool failed; // its definition was in error
  bool is_ct;
  bool size; // a dimension's name in the signature
  Ct ct;
  Id value; // tensor
  bool acc, zero; // made by +=; all zeros so far
} Binding;

typedef struct Inst Inst;
// A function of the module that was made from a method or fn.
struct Inst {
  Str key;
  Inst *next; // of the same key
  LayerType *layer;
  bool training, uses_training, random, failed, building;
  bool wide; // as Fb's
  Id fn;
  uint32_t nresult;
  Shape *result;
  int *result_arg; // the tensor argument that a result is, or -1
  bool identity; // every result is an argument, and there are no statements
  VEC(uint32_t) iter; // stack depths whose iteration it takes, in order, as its last arguments
};

typedef struct Trail Trail;
struct Trail { // the instantiation under way, for notes
  Trail *up;
  Id loc;
  const char *what;
};

typedef struct Front {
  Arena *arena;
  Sources *src;
  const FrontendOptions *opt;
  Module *m;
  VEC(Unit *) unit;
  AstDecl *model, *train;
  LayerType *root;
  VEC(LayerType *) type;
  VEC(Inst *) inst;
  StrMap inst_of; // key: the first of its instances
  VEC(Id) reported; // places that have their error
  Trail *trail;
  bool trail_due, muted, quiet;
  bool bad_size; // that of an argument is not positive: what else is made of it is not looked at
  bool full; // MAX_INSTANCES of layers or functions were made, and it was said
  uint32_t nerror; // quiet ones too
  uint32_t depth, calls; // stacks and calls around this place
  uint32_t nsite; // of random numbers
  bool local; // an index is local
  Id number_loc; // the first place that uses the number of samples as a number, or 0
  Trail *number_trail;
  int64_t stack_count[MAX_STACKS];
  VEC(struct Define) define;
  VEC(Rounded) rounded;
  Unit *main; // the file that was given
} Front;

// A function while it is built.
typedef struct Fb {
  Front *fr;
  Unit *unit;
  LayerType *layer; // NULL in a fn
  Fn fn;
  VEC(Shape) shape; // of each value
  VEC(bool) read; // of each value: whether something reads it
  VEC(Binding) bind;
  StrMap bound; // name: its position in bind
  StrMap called; // call_key: the statement that calls so
  Id *param; // value of each of layer->param
  bool training, uses_training, random, failed, returned;
  bool wide; // in a layer whose precision is fp32, or called from one
  Id iter[MAX_STACKS]; // arguments that hold iteration numbers, or NONE
  VEC(uint32_t) iter_order;
  VEC(Id) result;
  VEC(Id) result_loc;
  bool dots_known; // `...` of the signature
  uint32_t ndots;
  int64_t dots[MAX_RANK];
  Id dots_loc;
} Fb;

// Where names are looked up. fb is NULL outside bodies; layer is NULL in a fn.
typedef struct Env {
  Front *fr;
  Unit *unit;
  LayerType *layer;
  Fb *fb;
} Env;

typedef enum EntityKind {
  ENT_NONE, ENT_ERROR, ENT_CT, ENT_VALUE, ENT_ABSENT, ENT_LAYER, ENT_METHOD, ENT_FN, ENT_TEMPLATE,
  ENT_UNIT, ENT_BUILTIN
} EntityKind;
typedef struct Entity {
  EntityKind kind;
  Ct ct; // CT
  Id value; // VALUE
  Binding *binding; // VALUE: a local, or NULL
  LayerType *type; // LAYER, METHOD: whose
  bool stack; // it is a stack of `count`
  int64_t count;
  bool in_stack; // reached through a stack
  bool empty; // reached through a stack of no layers: there are no parameters
  uint32_t first; // of its parameters in fb->layer->param
  AstStmt *method; // METHOD
  AstDecl *decl; // FN, TEMPLATE
  Unit *unit; // FN, TEMPLATE, UNIT
  Str name; // BUILTIN
} Entity;

// Errors. Each place has at most one; notes follow their error; the trail of instantiations comes
// last.
void err(Front *fr, Id loc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void note(Front *fr, Id loc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
// An error of two extents that would be equal had a quotient not been rounded down is that of the
// -D: 5 does not divide 768. `loc` and `text` are the error's own.
void extent_error(Front *fr, Id loc, int64_t one, int64_t other, const char *text);
void trail_push(Front *fr, Trail *t, Id loc, const char *what);
void trail_pop(Front *fr);
// What depends on the number of samples is decided when the model is compiled: an error.
bool decided_by_samples(Front *fr, Id loc, int64_t per_sample);
// A value depends on the number of samples. An error of models without `local`, which is known at the end.
void number_of_samples(Front *fr, Id loc, int64_t per_sample);
void report_number_of_samples(Front *fr);
const char *shape_text(Front *fr, const Shape *s);
const char *extents_text(Front *fr, const int64_t *extent, uint32_t n);

// unit.c
Unit *unit_load(Front *fr, Str path, const char *text, Id loc);
AstDecl *unit_find(Unit *u, Str name, DeclKind kind); // NULL where absent
Unit *unit_use(Unit *u, Str name, bool *known);
void parse_define(Front *fr, Str text, Str *name, Id *name_loc, Ast **value);

// scope.c
Entity lookup(Env *env, Str name);
Entity resolve(Env *env, const Ast *e); // NAME and FIELD; NONE where unknown (nothing is reported)
// The same where a layer or function is meant (it is called, or a field of it is taken): the size of
// a dimension of that name does not hide a layer.
Entity resolve_object(Env *env, const Ast *e);
void unknown_name(Env *env, const Ast *e, const char *what); // reports it, with a suggestion
Binding *bind(Fb *fb, Str name, Id loc);
Binding *bind_find(Fb *fb, Str name);
bool is_builtin(Str name);

// ct.c
static inline Ct ct_int(int64_t v) { return (Ct){.kind = CT_INT, .i = v}; }
static inline Ct ct_bool(bool v) { return (Ct){.kind = CT_BOOL, .i = v}; }
static inline Ct ct_real(double v) { return (Ct){.kind = CT_REAL, .r = v}; }
static inline Ct ct_error(void) { return (Ct){.kind = CT_ERROR}; }
static inline Ct ct_not(Ct c) { return (Ct){.kind = CT_BOOL, .i = !c.i, .per_sample = c.per_sample}; }
static inline bool ct_number(const Ct *c) { return c->kind == CT_INT || c->kind == CT_REAL; }
static inline double ct_as_real(const Ct *c) { return c->kind == CT_INT ? (double)c->i : c->r; }
static inline Ct ct_to_real(Ct c) {
  return (Ct){.kind = CT_REAL, .r = ct_as_real(&c), .per_sample = c.per_sample ? OTHERWISE : 0};
}
const char *ct_text(Front *fr, const Ct *c);
const char *ct_kind_text(const Ct *c); // "an int"
Ct ct_eval(Env *env, const Ast *e); // reports errors
bool ct_is(Env *env, const Ast *e); // whether it can be evaluated (errors in values aside)
Ct ct_binary(Front *fr, BinOp op, Ct a, Ct b, Id loc);
Ct ct_call(Front *fr, Str name, const Ct *arg, const Str *arg_name, uint32_t n, Id loc,
           bool *known);
bool ct_function(Str name);
bool ct_size(Env *env, const Ast *e, int64_t *out); // an extent, at least 1
bool ct_size_from(Env *env, const Ast *e, Ct *out); // with what it is made of
// How `a op b` depends on the number of samples, given how a and b do.
int64_t per_sample(BinOp op, int64_t a, int64_t a_per, int64_t b, int64_t b_per);
bool ct_cond(Env *env, const Ast *e, bool *out);

// layer.c
// The layer with these arguments; NULL after an error.
LayerType *layer_make(Env *env, AstDecl *decl, Unit *unit, const ArgList *arg, Id loc);
LayerType *layer_root(Front *fr, AstDecl *model, Unit *unit);
Field *field_find(LayerType *t, Str name);
AstStmt *method_find(LayerType *t, Str name);
bool formal_is_tensor(const Arg *f);
Str formal_name(const Arg *f);
Id formal_loc(const Arg *f);
bool check_formals(Front *fr, const ArgList *formal, bool tensors);
// Which argument goes to which formal: fills position[formal] with an index into arg, or -1.
bool match_args(Front *fr, const char *what, const ArgList *formal, Id decl_loc,
                const ArgList *arg, Id loc, int *position);

// body.c
Fb *fb_new(Front *fr, Unit *unit, LayerType *layer, Str name, Id loc, bool training);
Id fb_value(Fb *fb, Str name, const Shape *s, Role role, Id loc);
Shape value_shape(Fb *fb, Id value);
Id fb_iter(Fb *fb, uint32_t level); // the int scalar that holds this stack's iteration
void fb_params(Fb *fb);
void run_body(Fb *fb, const StmtList *body);
// What a method or fn is called with: for each formal a tensor of the caller or a compile-time
// value.
typedef struct Actuals {
  uint32_t n;
  Id tensor[MAX_ARGS]; // NONE: a compile-time value
  Ct ct[MAX_ARGS];
  Id loc[MAX_ARGS];
} Actuals;
const ArgList *callee_formals(const Entity *callee);
const char *callee_name(Front *fr, const Entity *callee); // "Block.forward"
// The instance of a method or fn for these arguments; NULL after errors.
Inst *instance(Fb *caller, const Entity *callee, const Actuals *arg, Id loc);
bool bind_formal(Fb *fb, const Arg *f, const Shape *s, Id arg_loc);
Dtype formal_type(const Arg *f);
Id fb_finish(Fb *fb); // to Module.fn

// index.c
typedef struct IndexVar {
  Str name;
  int64_t extent; // 0: not known yet
  int64_t per_sample; // as in Ct
  bool ranged; // fixed by i < n
  bool failed; // no extent would do, and it was reported
  bool hidden; // one of `...` or of a whole tensor: the user has no name for it
  bool local; // a reduction binds it inside of a local(...) that names it
  uint8_t on; // axes that `shard` gives it, as in Index
  Id loc; // where it is bound
  Id fixed_loc; // where its extent was found
  Id define; // the -D that its range is made of, or 0
  Str fixed_by; // tensor there, or NULL for a range
  uint32_t fixed_dim;
} IndexVar;
// A subscript that is no plain index or group, and the dimension that it reads: x[b, t - j].
typedef struct Loose {
  const Ast *e;
  Str tensor, name; // name: of the dimension, or NULL
  uint32_t dim;
  int64_t extent;
  const struct Frame *frame;
} Loose;
typedef struct Constraint { // the product of the factors is a tensor's extent
  Id loc;
  Str tensor;
  uint32_t dim;
  int64_t extent, per_sample;
  uint32_t n;
  IndexVar *factor[MAX_INDEX];
  bool done;
} Constraint;
// Indices in scope, outermost first, at their positions in the IR statement that is built.
typedef struct Frame {
  IndexVar *var[2 * MAX_INDEX];
  uint32_t n;
  Id guard; // conditions around this place, or NONE
  bool whole; // whole tensors are read element by element here
} Frame;
typedef VEC(IndexVar *) VarList;
typedef struct LocalName { // an index that a local(...) around this place names
  Str name; // "..." too
  bool bound; // by a reduction in there
} LocalName;
typedef struct ShardName { // an index that the statement's `shard` names
  Str name;
  Id loc;
  uint32_t axis; // of axis_word
  bool bound;
} ShardName;
typedef struct ReadLoc {
  Id read, loc;
} ReadLoc;
typedef struct NodeInfo { // what prepare found out about a node
  const Ast *e;
  Id value; // tensor that it names or that a call gave
  bool failed, absent, mapped;
  VarList var; // of a reduction
} NodeInfo;
// A statement while it is elaborated.
typedef struct St {
  Fb *fb;
  Env env;
  Id loc;
  Str name; // of its target, for temporaries
  bool failed;
  bool subscript; // building one: integers have 64 bits there
  VEC(NodeInfo) node;
  VEC(Constraint) constraint;
  VEC(Loose) loose;
  VEC(LocalName) local;
  VEC(ShardName) shard;
  uint8_t off; // axes that `shard` gives to none
  VEC(ReadLoc) read; // places of reads that were made
  const Id *read_loc; // of the body that is about to be emitted, in Stmt's terms; or NULL
  uint32_t nread_loc;
  bool dots_local; // `...` is named by a local(...)
  bool dots_bound, dots_known; // `...` is bound somewhere; its rank is known
  Id dots_loc; // of the tensor that determined it
  VarList dots;
  IndexVar dots_mark; // stands for all of dots in a list made before they are known
  bool whole_known;
  Shape whole_shape;
  Id whole_loc;
  VarList whole_var;
} St;
IndexVar *var_new(St *st, Str name, Id loc);
// shard.c. Enters a statement's `shard(...)` in st; shard_bound, once all indices are bound: each was.
bool shard_enter(St *st, const ArgList *shard);
bool shard_bound(St *st);
uint8_t shard_on(St *st, Str name); // the axes that it gives to an index
void no_shard(Fb *fb, const ArgList *shard); // of a statement without indices on its left: an error
bool param_shard(Front *fr, const AstStmt *s, Param *p);
// The indices that e binds (i, i < n, ..., (a b=2)), appended to list and to f.
bool bind_index(St *st, const Ast *e, Frame *f, VarList *list);
// Appends the list to the frame, with `...` expanded; false if there are too many.
bool frame_add(St *st, Frame *f, const VarList *list, Id loc);
NodeInfo *node_info(St *st, const Ast *e);
// That the factors' product is the extent of dimension `dim` of `s`.
void constrain(St *st, Id loc, Str tensor, const Shape *s, uint32_t dim, IndexVar **factor, uint32_t n);
bool solve(St *st);
// Walks an expression once: calls are made, indices bound, extents constrained.
void prepare(St *st, const Ast *e, Frame *f);
// Constrains the indices of name[sub] by the tensor's shape; false after an error.
bool match_subs(St *st, const ArgList *sub, const Shape *s, Str name, Id loc, Frame *f);
IndexVar *frame_find(const Frame *f, Str name);

// comp.c
typedef struct R { // a scalar in the making
  enum { R_ERROR, R_CT, R_IR, R_ABSENT } kind;
  Ct ct;
  Id e;
  Scalar type;
} R;
R build(St *st, const Ast *e, Frame *f);
Id build_subscript(St *st, const Ast *e, Frame *f);
Id to_ir(St *st, R r, Id loc); // NONE after an error
Id to_scalar(St *st, R r, Scalar want, Id loc, const char *what); // constants convert
Scalar r_type(const R *r);
// What a comprehension is written to: a value that is there (`value`), or a new one of this shape.
typedef struct Target {
  Id value; // NONE: a new one
  Shape shape; // of the new one; its type comes from the expression
  Str name;
  Id name_loc;
  Id sub[MAX_RANK]; // subscripts, in positions of the frame
  bool acc;
} Target;
// Emits target (=, +=) e; the first f->n indices are free. A reduction at the top of e stays at
// the top, others become statements before it. Sets target->value; false after an
// error.
bool emit_comp(St *st, Target *t, const Ast *e, Frame *f);
// The same for an expression that is built already.
bool emit_body(St *st, Target *t, Red red, Id body, const Frame *f, uint32_t nfree);
// A temporary that holds e at each point of the frame, or of the indices in `keep`; its read there.
Id lift(St *st, Red red, Id body, Frame *f, uint32_t nfree, uint32_t keep, Id loc, Id *value);
bool check_extents(St *st, const Frame *f); // all known
const char *scalar_text(Scalar s);
Dtype dtype_of(Scalar s);

// tensor.c
typedef struct Val { // the value of a whole-tensor expression
  enum { V_ERROR, V_CT, V_TENSOR, V_ABSENT } kind;
  Ct ct;
  Id value;
} Val;
Val whole(Fb *fb, const Ast *e, Str name); // name: for the value that is made
Id val_tensor(Fb *fb, Val v, Dtype want, Id loc); // constants become scalars; NONE after an error
uint32_t call_results(Fb *fb, const Ast *e, Str name, Id *out, uint32_t max); // 0 after an error
bool is_tensor_call(Env *env, const Ast *e); // a call that gives a tensor, not a scalar function
Id copy_value(Fb *fb, Id value, Str name, Id loc);
R build_mapped(St *st, const Ast *e, Frame *f);
void st_init(St *st, Fb *fb, Str name, Id loc);
// builtin.c: pad, slice, concat, cumsum, topk.
bool tensor_builtin(Str name);
uint32_t builtin_results(Fb *fb, Str builtin, const Ast *e, Str name, Id *out, uint32_t max);

// train.c
typedef struct Define { // -D name=value
  Str name;
  Id name_loc;
  Ast *value;
  bool used;
} Define;
typedef struct Metric {
  Str name;
  Id loc;
  const Ast *value;
} Metric;
void read_defines(Front *fr);
bool define_value(Front *fr, Str name, Ct *out, Id *loc); // a -D for a size of the model
bool train_block(Front *fr); // fills Module.train from the block and -D
bool check_defines(Front *fr); // all of them meant something
uint32_t train_metrics(Front *fr, Metric *out, uint32_t max);

#endif
