// Reverse mode over one function: declarations for passes/differentiate.c, call.c and repeat.c.
#ifndef DTC_DIFF_H
#define DTC_DIFF_H

#include "passes/differentiate/adjoint.h"
#include "passes/util.h"

// What is known of one value's adjoint.
typedef struct Adj {
  Forms form; // contributions so far; all are there once the walk comes to the value's definition
  bool done;
  Id value; // where it is stored
  Id constant; // instead: an OP_REAL
} Adj;

typedef struct Inserted {
  uint32_t at; // after this forward statement
  Stmt stmt;
} Inserted;

typedef struct Diff {
  Module *m;
  Id fn; // while differentiating, fn's statements are the backward ones
  uint32_t nvalue; // values of the forward function
  bool *varied; // by value: depends differentiably on an input of the derivative
  Id *into; // by value: the INOUT accumulator of its adjoint, or NONE
  Adj *adj;
  VEC(Stmt) forward;
  VEC(Inserted) inserted;
  struct Memo *memo; // derivatives of intrinsics made so far
} Diff;

typedef struct Memo {
  struct Memo *next;
  Id fn, backward;
  uint32_t used; // set of results with an adjoint
} Memo;

static inline Fn *fn_of(const Diff *d) { return &d->m->fn.at[d->fn]; }
static inline Value value_of(const Diff *d, Id v) { return fn_of(d)->value.at[v]; }
static inline bool is_real_value(const Value *v) { return scalar_of(v->type) == SC_REAL; }
static inline Str d_name(Str name) { return str_printf("d.%s", name); }

// A walk over function fn; diff_room sizes the tables, once the function has its forward values.
Diff diff_new(Module *m, Id fn, Memo *memo);
void diff_room(Diff *d);
// Which values of a callee depend differentiably on the varied values of its caller.
bool *diff_callee_varied(Module *m, const Call *c, const bool *varied);
// Walks the function backwards. After it, fn's statements are the backward ones alone.
void diff_walk_back(Diff *d);
// Puts forward and backward statements together; returns how many are forward.
uint32_t diff_join(Diff *d);
// Reports a read whose subscript a derivative cannot compare in 32 bits; false then.
bool diff_subscripts_fit(const Module *m);

// A contribution of a value of the same shape: dT += from.
void contribute_value(Diff *d, Id target, Id from, Id loc);
// The value that holds the finished adjoint of T: a constant is stored, no contribution at all is
// zero.
Id adjoint_value(Diff *d, Id target);
// A new local value for an adjoint of T; a value like another one.
Id new_adjoint(Diff *d, Id of);
Id value_like(Module *m, Fn *f, Id like, Str name, Role role);
// The actual of an INOUT formal: the accumulator of T's adjoint. A local one is a contribution of
// its own (the caller says so); so is a second one in the same call, which must not be the same
// storage.
Id accumulator(Diff *d, Id target, const Call *c);

void push_call(Diff *d, StmtKind kind, Call *c, Id loc);

// The adjoint of a call of an intrinsic (call.c) and of a repeat (repeat.c), which
// changes s.
void back_call(Diff *d, const Stmt *s);
void back_repeat(Diff *d, Stmt *s);

#endif
