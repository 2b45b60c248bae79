// Chooses a storage type for every real value, and the arithmetic of statements.
// requires: optimizer, so that every function is there.
// guarantees: no value of type REAL; Module.compute is F32 or F64.
// invalidates: nothing.
#include "passes/passes.h"

bool pass_precision(Module *m) {
  Str want = m->train.precision ? m->train.precision : str_intern("fp32");
  Dtype type = DT_F32;
  if (!strcmp(want, "fp64")) {
    type = DT_F64;
  } else if (!strcmp(want, "bf16") || !strcmp(want, "fp16")) {
    diag_error(m->src, 0,
               "precision %s needs a GPU, and this dtc compiles for the CPU: use --precision fp32",
               want);
    return false;
  } else if (strcmp(want, "fp32")) {
    diag_error(m->src, 0, "unknown precision `%s`: fp32 or fp64 is expected", want);
    return false;
  }
  m->compute = type;
  for (Id f = 0; f < m->fn.n; f++)
    for (Id v = 0; v < m->fn.at[f].value.n; v++) {
      Value *x = &m->fn.at[f].value.at[v];
      if (x->type == DT_REAL) x->type = type;
    }
  return true;
}
