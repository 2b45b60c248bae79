// Groups of statements on their way to kernels: private to codegen/lower, and to the schedules of targets.
#ifndef DTC_FUSE_H
#define DTC_FUSE_H

#include "codegen/lower/affine.h"
#include "codegen/lower/nest.h"

// A statement in a group: which of its indices runs along each dimension of the grid.
typedef struct Member {
  Id stmt;
  uint8_t grid[MAX_INDEX];
  uint8_t vec; // a reduction's index in lanes (Target.lane_index), or NO_VAR; pointwise statements take any
  bool init; // `+=` that may store without reading: the first, and it writes every element
} Member;

typedef struct Group {
  KernelKind kind;
  VEC(Member) member;
  uint32_t ngrid;
  Id fill; // fills this value with zeros; no members
  GemmPlan gemm;
  ScanPlan scan;
} Group;

// Statements that a product's kernel computes from the sum: those after the product, in the order of match_epilogue, and the
// plan with them. n 0: nothing.
typedef struct Epilogue {
  Id stmt[EPILOGUE_STMTS];
  uint32_t n;
  GemmPlan gemm;
} Epilogue;

typedef struct Fuse {
  Module *m;
  Fn *f;
  FnPlan *fp;
  VEC(Group) group;
  Id *alias; // for each value: the argument whose storage it takes over, or NONE
  bool *pieces; // accumulators whose every += may store: together they write each element once
  Epilogue *epilogue; // for each statement, if it is a product
} Fuse;

// view.c: layouts, renaming statements as views (marks those statements in `skip`)
void fuse_layouts(Fuse *u, bool *skip);
// where(constant == index, piece[..], 0.0): the read, the constant and the index.
bool view_is_piece(const Module *m, Id e, Id *read, int64_t *constant, uint32_t *index);
// An accumulator that its += statements write piece by piece, each element once: all may just store.
bool view_in_pieces(const Fuse *u, Id value);

// epilogue.c: what products' kernels compute from the sum; marks those statements in `skip`
void fuse_epilogues(Fuse *u, bool *skip);
// One element of the bias for each column of the product that s adds it to: with the left side's address, the bias's
// moves along the columns and stands still along the rows.
bool fuse_along_columns(const Stmt *s, const Affine *y, const Affine *bias, int64_t columns);
// Both are the same element at every point of s.
bool fuse_same_place(const Stmt *s, const Affine *a, const Affine *b);

// access.c: what statements touch
// Calls visit for each access: READ node, or NONE for the left side.
typedef void AccessVisit(const Fuse *u, const Stmt *s, Id read, const Affine *a, void *ctx);
void fuse_accesses(const Fuse *u, const Stmt *s, AccessVisit *visit, void *ctx);
// Indices whose use is not as linear parts of subscripts.
uint32_t fuse_value_indices(const Fuse *u, const Stmt *s);
double fuse_flops(const Module *m, Id e); // of one evaluation
bool fuse_has_random(const Module *m, Id e);

// nest.c: a group's kernel; `outside`: values that must be in memory when it ends, or before
// it starts
void fuse_loops(Fuse *u, const Group *g, const bool *outside, Kernel *k);
bool fuse_in_grid(const Group *g, const Member *x, uint32_t index); // index of x is one of the grid's

// join.c: adds the candidate to the group if it may and should run there
bool fuse_join(Fuse *u, Group *g, const Member *candidate);
bool fuse_depends(const Fuse *u, const Stmt *t,
                  const Stmt *s); // s, the later one, must come after t
bool fuse_touches(const Fuse *u, const Stmt *s, Id buffer);

// scan.c: true if the statement is a running sum long enough for a separate pass; fills *p
bool match_scan(const Fuse *u, const Stmt *s, ScanPlan *p);

// group.c: which statements share a kernel
void fuse_groups(Fuse *u, const bool *skip);
// Points that differ in this free index write different elements.
bool fuse_owned(const Module *m, const Fn *f, const Stmt *s, uint32_t index);
// No two points of the free indices meet in an element; with `whole`, and every element is written.
bool fuse_injective(const Module *m, const Fn *f, const Stmt *s);
bool fuse_whole(const Module *m, const Fn *f, const Stmt *s);
// As whole, but constants may stand for dimensions: a piece.
bool fuse_pieces(const Module *m, const Fn *f, const Stmt *s);
// The place of an index in a subscript list: alone, or in a group of indices. False if it has none
// such.
typedef struct Slot {
  uint8_t dim;
  int64_t stride; // within the dimension
} Slot;
bool fuse_slot(const Module *m, const Stmt *s, const Id *sub, uint32_t rank, uint32_t index,
               Slot *slot);
// The index of s that stands at the slot, or NO_VAR.
uint8_t fuse_index_at(const Module *m, const Stmt *s, const Id *sub, uint32_t rank, Slot slot);

#endif
