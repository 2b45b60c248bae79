// The interpreter's parts: statements compiled to straight-line code over lanes (code.c),
// running such code (exec.c), functions and calls (interp.c).
//
// Code works on blocks of up to LANES consecutive points of a statement's iteration space,
// row-major. Lazy operators need no jumps: all lanes of all branches are evaluated, and each
// instruction that may fail knows the mask of lanes that are really reached.
#ifndef DTC_INTERP_CODE_H
#define DTC_INTERP_CODE_H

#include "ir/interp/interp.h"

enum { LANES = 128, NO_REG = UINT16_MAX };

// constant + sum of coefficient * index: 64 bits, wrapping (narrow integers wrap again at 32).
typedef struct Affine {
  int64_t constant;
  uint8_t n;
  uint8_t index[MAX_INDEX];
  int64_t coef[MAX_INDEX];
} Affine;

// Where an element of a value is: an affine offset over the subscripts that were proved in range
// from extents alone, and the others, checked in every lane that is reached.
typedef struct Access {
  Id value;
  Affine offset;
  uint8_t ncheck;
  struct {
    uint16_t reg;
    uint8_t dim;
    int64_t stride, extent;
  } check[MAX_RANK];
} Access;

// One operator on all lanes. INDEX, GROUP and all affine integers are OP_INDEX with `at` into
// affine.
typedef struct Ins {
  uint8_t op; // Op
  bool real; // operands are real
  bool wide; // 64-bit integers
  bool strict; // MAX, MIN: the second operand is a constant, and wins ties
  uint16_t dst, arg[3];
  uint16_t mask; // lanes reached; NO_REG: all
  uint32_t at; // OP_INDEX: affine; OP_READ: access
} Ins;

typedef struct Constant {
  uint16_t reg;
  bool is_real;
  double real;
  int64_t integer;
} Constant;

typedef struct Code {
  VEC(Ins) ins;
  VEC(Constant) constant;
  VEC(Affine) affine;
  VEC(Access) access;
  uint16_t nreg, result; // result: NO_REG where the code only computes `lhs`
  Access lhs;
} Code;

// The body over all indices, or the left side's place over the free ones.
Code *code_body(const Module *m, const Fn *f, const Stmt *s, Arena *a);
Code *code_lhs(const Module *m, const Fn *f, const Stmt *s, Arena *a);
// Whether free index i is subscript i, so that the left side is written in order.
bool lhs_in_order(const Module *m, const Fn *f, const Stmt *s);

typedef struct Reg {
  union {
    double real[LANES];
    int64_t integer[LANES];
  };
  double err[LANES];
  double tangent[LANES]; // of a real
} Reg;

// A stretch of lanes in which only one index moves, by one a lane.
typedef struct Run {
  int lane, n;
  int64_t index[MAX_INDEX];
} Run;

// A block of points being evaluated.
typedef struct Block {
  const Module *m;
  const Fn *f;
  const Stmt *s;
  Tensor *const *value; // by value of f
  const InterpOptions *o;
  double unit;
  Reg *reg;
  uint32_t nreg;
  uint32_t nindex; // indices that are walked: all, or the free ones
  int moving; // the index that moves within a run, or -1
  int n; // lanes in use
  int nrun;
  Run run[LANES];
  int64_t offset[LANES]; // of the last access
  Buf *error;
} Block;

// Makes registers for the code, with its constants.
void block_open(Block *b, const Code *c, uint32_t nindex);
void block_close(Block *b);
// Moves to points [first, first + n).
void block_place(Block *b, int64_t first, int n);
// Runs the code; false after an error.
bool block_run(Block *b, const Code *c);
// Offsets of an access into b->offset; `mask` as in Ins. *uncertain[lane] is set where a subscript
// is.
bool block_access(Block *b, const Access *a, uint16_t mask, bool *uncertain);

// A hash of outcomes; see InterpOptions.ways.
static inline void note_way(const InterpOptions *o, uint64_t outcome) {
  *o->ways = (*o->ways ^ outcome) * UINT64_C(0x9e3779b97f4a7c15);
  *o->ways ^= *o->ways >> 29;
}
// Bounds of one instruction's result (scale.c).
void block_errors(Block *b, const Ins *in);
// The tangent of an operator of reals at x, whose result is r; t: its operands' tangents.
double op_tangent(const Ins *in, double r, const double *x, const double *t);
// Tangents of one instruction's result (tangent.c).
void block_tangents(Block *b, const Ins *in);

#endif
