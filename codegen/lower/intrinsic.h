// Calls of intrinsics that a target computes by itself.
#ifndef DTC_LOWER_INTRINSIC_H
#define DTC_LOWER_INTRINSIC_H

#include "codegen/lower/kernel.h"
#include "ir/intrinsic.h"

// The caller's value for each operand, or NONE; false where the callee has others.
bool intrinsic_values(const Module *m, const Stmt *call, Id value[NOPERAND]);

#endif
