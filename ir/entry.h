// Parts of ir_verify: what arguments and results mean.
#ifndef DTC_ENTRY_H
#define DTC_ENTRY_H

#include "ir/ir.h"

// Of a function whose values, arguments and results are in range; says what is wrong, in `why`.
bool meanings_verify(const Module *m, const Fn *f, Buf *why);
// Of an entry that the module has.
bool entry_verify(const Module *m, Entry e, Buf *why);

#endif
