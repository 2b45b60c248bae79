// The passes over a Module, one file each. A pass changes the Module in place (it makes new statement
// arrays) and returns false where it has reported an error of the user's with diag_error; a mistake of
// dtc's own is a BUG. The driver's table (driver/passes.c) holds their order.
#ifndef DTC_PASSES_H
#define DTC_PASSES_H

#include "ir/ir.h"

bool pass_inline(Module *m);
bool pass_range(Module *m);
bool pass_batch(Module *m);
bool pass_differentiate(Module *m);
bool pass_optimizer(Module *m);
bool pass_precision(Module *m);
bool pass_simplify(Module *m);
bool pass_shard(Module *m);
bool pass_localise(Module *m);
bool pass_recompute(Module *m);
bool pass_pipeline(Module *m);
bool pass_normalise(Module *m);

// For pass recompute with auto: the fewest bytes that layers can save, and those with which nothing that costs anything is computed
// again. Of a module that is as the pass gets it, which may get copies of functions.
void recompute_range(Module *m, int64_t *least, int64_t *most);

#endif
