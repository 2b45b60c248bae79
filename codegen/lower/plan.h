// What plan_memory decides beyond the addresses in FnPlan, shared with the host-code printer.
#ifndef DTC_PLAN_H
#define DTC_PLAN_H

#include "codegen/lower/kernel.h"

// Where an element of a function's result is kept.
typedef enum ResultKind {
  RESULT_OWN, // the caller gives storage, the function writes it
  RESULT_ALIAS, // Fn.alias: it takes the storage of argument `arg`
  RESULT_ARG, // it is argument `arg`, unchanged: the function does nothing, the caller copies or
              // shares
  RESULT_SAME // it is result `arg` once more: the caller copies
} ResultKind;
typedef struct ResultPlace {
  ResultKind kind;
  uint32_t arg; // position in Fn.arg (ALIAS, ARG) or Fn.result (SAME)
} ResultPlace;
ResultPlace result_place(const Plan *p, Id fn, uint32_t result);

// A repeat hands on carried values through two places in turn: the result's own and a scratch one,
// so that the last iteration writes the result's. Where the callee hands its carried argument back
// unchanged as a stacked result (a value saved for the backward pass), the chain lives in the stack
// itself: iteration i reads slot i and writes slot i + 1. Returns that stacked result's position
// for carried argument `arg`, or NONE.
uint32_t carry_stack(const Plan *p, const Call *c, uint32_t arg);
// The argument that result `result` (RES_CARRY) feeds.
uint32_t carry_arg(const Call *c, uint32_t result);

// Scratch of a call lies after the callee's frame: a second place for carried values, a place for
// dropped results. Bytes from FnPlan.callee_frame to that of `result`; -1: it needs none. With
// result == nresult: bytes of all of it, callee's frame included.
int64_t call_scratch(const Plan *p, const Call *c, uint32_t result);

// Calls visit for each buffer that the kernel touches in memory (a value that owns storage),
// whether it is written, and in the order of first appearance.
typedef void TouchVisit(Id buffer, bool written, void *ctx);
void kernel_touch(const Plan *p, Id fn, const Kernel *k, TouchVisit *visit, void *ctx);

// True if the value's elements lie row-major and without gaps from its buffer's `offset` on.
bool layout_is_dense(const Value *v, const Layout *l);

// First and last kernel that touch each value's buffer; first is UINT32_MAX where none does.
typedef struct Life {
  uint32_t first, last;
} Life;
Life *plan_lives(const Plan *p, Id fn);

#endif
