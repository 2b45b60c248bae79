// Checks the lowered level: after each of its passes, in debug builds and in tests.
#ifndef DTC_LOWERED_VERIFY_H
#define DTC_LOWERED_VERIFY_H

#include "codegen/lower/kernel.h"

// False where a rule of doc/ir.md is broken; appends to `why` which one, with the function, the kernel, the statement
// and the value. The module itself verifies (ir/verify.h).
bool plan_verify(const Plan *p, Buf *why);

#endif
