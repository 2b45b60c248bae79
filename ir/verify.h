// Checks that a Module keeps the rules of ir/ir.h: after the front end and after every pass.
#ifndef DTC_VERIFY_H
#define DTC_VERIFY_H

#include "ir/ir.h"

// False where a rule is broken; appends to `why` which one, with the function and the statement.
bool ir_verify(const Module *m, Buf *why);
// As ir_verify, and every subscript must be provably in range, given Module.range. For use after
// pass_range; a failure is a bug of the pass just run, or a proof that is beyond the prover.
bool ir_verify_ranges(const Module *m, Buf *why);

#endif
