// Who writes which tensor of a checkpoint: a function of the layout, for a launch that runs or is planned.
#ifndef DTC_RUNTIME_WRITERS_H
#define DTC_RUNTIME_WRITERS_H

#include "runtime/files/pieces.h"

// Of the tensors that `stage` answers for, of the parameters and each of `moments` moments: the rank that writes tensor
// `number` of kind k is writer[k * s->ninstance + number]. It holds a piece of it, and the ranks of the stage write about as
// many elements each; *most is of the one with the most. `writer` may be NULL. 71.
int dt_writers(const DtStages *s, int stage, const DtCut *cut, const int degree[DT_AXES], int moments, int *writer,
               int64_t *most, DtError *e);

#endif
