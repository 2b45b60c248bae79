// What passes and code generators ask of an intrinsic: which function a body is, where its operands
// stand, which dimensions are what. There is one, softmax attention (ir/attention.h), and no other
// file of the compiler knows what it computes, but those that print calls of its kernels.
#ifndef DTC_INTRINSIC_H
#define DTC_INTRINSIC_H

#include "ir/ir.h"

// Finds the parameters of each intrinsic from its body, and takes the note `intrinsic` from
// functions with another body. False after an error: a layout was asked for that needs them.
bool intrinsics_recognise(Module *m);

// The operands by name. Forward OPD_O and OPD_LSE are results, backward arguments.
typedef enum Operand {
  OPD_Q, OPD_K, OPD_V, OPD_SLOPES, OPD_SINKS, OPD_O, OPD_LSE, OPD_DO, OPD_DQ, OPD_DK, OPD_DV,
  OPD_DSLOPES, OPD_DSINKS, NOPERAND
} Operand;
// Where each stands in f->arg, or, forward, O and LSE in f->result; NONE: the function has none.
// False where f is no known intrinsic, or has arguments besides (an adjoint of lse); ints that say
// where a rank stands do not count.
bool intrinsic_operands(const Fn *f, uint32_t at[NOPERAND]);

static inline bool is_moved(const Positions *p) {
  return p->by[0] || p->from[0] || p->turn;
}

// Whether dimension d of argument `arg` runs over the sequence: positions of queries or of keys.
bool intrinsic_is_sequence(const Fn *f, uint32_t arg, uint32_t d);
// Whether dimension d of argument 0, the queries, is one of heads: groups, or members of a group.
bool intrinsic_is_heads(const Fn *f, uint32_t d);
// The queries [b, t, g, r, e]; NULL: f is no known intrinsic.
const Value *intrinsic_queries(const Fn *f);
// Whether it asks where queries and keys stand; then where the places of OPD_Q or OPD_K do.
bool intrinsic_uses_places(const Fn *f);
void intrinsic_place(Fn *f, Operand of, Positions at);
// Makes of `part` what f is on a share of the keys: all but its sink. Its slopes come after q, k, v.
void intrinsic_make_part(Fn *part, const Fn *f);
bool intrinsic_has_sink(const Fn *f);
// Whether late queries are more work than early ones.
bool intrinsic_grows(const Fn *f);
// The pairs of a query and a key that are computed, of all pairs; 0 to 1.
double intrinsic_density(const Fn *f);

// Of one query and one key at positions t and s (ints), whose product has been summed up: the score,
// -inf where the query does not see the key, and its derivative by the product, 0 there. slope: the
// head's, NONE where the function has no slopes.
Id intrinsic_score(Module *m, const Fn *f, Id product, Id t, Id s, Id slope);
Id intrinsic_score_adjoint(Module *m, const Fn *f, Id product, Id t, Id s);
// The sink's logit: a constant, or the read `sinks` of the head's; NONE: there is none.
Id intrinsic_sink(Module *m, const Fn *f, Id sinks);

// The parameters as IR text, "(scale 0.5, causal 0, window 4)"; nothing where they are not known.
void intrinsic_print(const Fn *f, Buf *b);
// A parameter in the text: its name and its numbers, one real or n ints.
typedef struct IntrinsicField {
  const char *name;
  uint32_t n;
  bool real;
} IntrinsicField;
const IntrinsicField *intrinsic_parameter(const char *name); // NULL: there is none of the name
void intrinsic_set(Fn *f, const IntrinsicField *p, const int64_t *integer, double real);
// What is wrong with the parameters; NULL: nothing. For the verifier.
const char *intrinsic_fault(const Fn *f);

#endif
