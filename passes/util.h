// Shared by several passes: copying and renumbering statements, removing dead ones, and
// constructors of expressions that fold the trivial cases.
#ifndef DTC_PASSES_UTIL_H
#define DTC_PASSES_UTIL_H

#include "ir/ir.h"

// A copy of a statement of `f` that shares nothing with it but expressions and read_loc.
Stmt stmt_copy(Module *m, const Fn *f, const Stmt *s);
// The same with values renumbered: value v, of f, becomes value[v].
Stmt stmt_renumber(Module *m, const Fn *f, const Stmt *s, const Id *value);
// The place of a read in a statement's body: its own, where that is known, or the statement's.
Id stmt_read_loc(const Module *m, const Stmt *s, Id read);

// One more argument or result of a call.
void call_add_arg(Module *m, Call *c, ActualMode mode, Id value);
void call_add_result(Module *m, Call *c, ResultMode mode, Id value);

// Whether the function, or one that it calls, draws random numbers.
bool fn_is_random(const Module *m, Id fn);

// A copy of a function under a new name; returns its id.
Id fn_clone(Module *m, Id fn, Str name);
// Removes statements that no result and no INOUT argument depends on. Where `mark` is not NULL,
// *mark is a position among the statements, kept pointing between the same two neighbours.
void fn_remove_dead(Module *m, Fn *f, uint32_t *mark);
// Removes values that are neither arguments nor mentioned by any statement, and renumbers the rest.
void fn_compact(Module *m, Fn *f);
// Removes functions that no entry reaches, and renumbers the rest. A copy whose original is gone
// takes its name.
void module_sweep(Module *m);
// Fills `order` (room for m->fn.n) with all functions reached from entries, callees first.
uint32_t module_postorder(const Module *m, Id *order);

// to[i, j, ...] = from[i, j, ...], appended.
void fn_copy_stmt(Module *m, Fn *f, Id to, Id from, Id loc);
// A read of `value` by the bare indices 0 .. rank - 1.
Id read_bare(Module *m, const Fn *f, Id value);
// Indices named i, j, k, ... with the extents of `v`.
void bare_indices(const Value *v, Index *index);
// A name that none of the n indices has, preferably `want`.
Str index_name(Str want, const Index *index, uint32_t n);

// Replaces index i by index[i] where that is not NONE. A group of which an index after the first is
// replaced by what is no index, or is in the set `ungroup`, is written out with the extents given.
Id ex_substitute(Module *m, Id e, const Index *extent, const Id *index, uint32_t ungroup);

// Constructors that fold 0 and 1, constants, and double signs. x * 0 is not folded.
Id fold_add(Module *m, Id a, Id b);
Id fold_sub(Module *m, Id a, Id b);
Id fold_mul(Module *m, Id a, Id b);
Id fold_div(Module *m, Id a, Id b); // reals
Id fold_neg(Module *m, Id a);
Id fold_and(Module *m, Id a, Id b); // NONE stands for true
Id fold_where(Module *m, Id c, Id a, Id b); // c may be NONE for true
Id ex_zero(Module *m, Scalar type);

#endif
