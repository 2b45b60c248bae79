// Proves inequalities between the integers of one statement, from the extents of its indices, the
// conditions around a place and what is known of the values that it reads (ir/range.c uses it).
//
// An integer is kept as a linear form over atoms: indices, reads of int values, quotients, and
// whatever else is not linear. A goal G >= 0 is proved by bounding G over the box of its atoms,
// after subtracting multiples of up to three known forms F >= 0 so that atoms cancel (Fourier and
// Motzkin's elimination, cut short), and by cases: of `where`, min, max, abs, `or`, `!=`.
// Arithmetic outside of subscripts wraps at 32 bits: where bounds do not rule that out, a form there
// is less 2^32 times a quotient.
#ifndef DTC_PROVER_H
#define DTC_PROVER_H

#include "ir/ir.h"

typedef struct Interval {
  int64_t lo, hi; // lo <= x <= hi; INT64_MIN, INT64_MAX: unbounded
} Interval;

// What is known of every element of an int value.
typedef struct ValueFact {
  Interval range;
  Id data; // the model's data argument whose elements these are, or NONE
} ValueFact;

enum { MAX_TERMS = 24 };

typedef struct LinTerm {
  uint32_t atom;
  int64_t coef; // not 0
} LinTerm;

// constant + sum of coef * atom, atoms ascending.
typedef struct Lin {
  int64_t constant;
  uint32_t n;
  LinTerm term[MAX_TERMS];
} Lin;

typedef struct Prover Prover;
Prover *prover_new(Arena *a, const Module *m);
// The function whose statements come next; fact[] is read as it is at the time of a question.
void prover_fn(Prover *p, const Fn *f, const ValueFact *fact);
// Forgets all assumptions and forms: those of one statement mean nothing in another.
void prover_stmt(Prover *p, const Stmt *s);

// Assumptions, as a stack.
typedef struct Mark {
  uint32_t known, open, trail;
  bool dead;
} Mark;
Mark prover_mark(const Prover *p);
void prover_undo(Prover *p, Mark mark);
// From here on the condition holds, or doesn't.
void prover_assume(Prover *p, Id cond, bool holds);
bool prover_dead(const Prover *p); // the assumptions contradict each other

Lin prover_form(Prover *p, Id e, bool wide);
bool prover_nonneg(Prover *p, const Lin *goal);
Interval prover_bounds(const Prover *p, const Lin *form);
// Of an int expression outside of subscripts, under the assumptions.
Interval prover_range(Prover *p, Id e);
// If the form is an element of a data argument, plus what has bounds: that argument, and the range
// that keeps the form within 0 .. extent-1. NONE otherwise.
Id prover_data(const Prover *p, const Lin *form, int64_t extent, Interval *need);

#endif
