// The names of checkpoints in a folder.
#ifndef DTC_RUNTIME_STEPS_H
#define DTC_RUNTIME_STEPS_H

#include "runtime/base/error.h"

#include <limits.h>
#include <stdint.h>

// The step in "step-00000100", with `end` behind it; -1 where the name is another.
int64_t dt_step_of(const char *name, const char *end);

// The newest step below `below` of which there is a folder "step-N" + end; -1: none.
int dt_step_below(const char *folder, const char *end, int64_t below, int64_t *step, DtError *e);

// The path of that folder.
int dt_step_path(char out[PATH_MAX], const char *folder, int64_t step, const char *end, DtError *e);

#endif
