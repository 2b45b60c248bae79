// A pipeline's stages: the parameters that each holds, and the stage responsible for each. Without
// a pipeline there is one stage, the program itself.
//
// An instance of the model is one tensor of a weights file, numbered in the order of files; a stage
// has some of them. Where several stages have the same, as those do that begin with an embedding
// and end with a head tied to it, each keeps it and steps it alike: gradients are summed over them,
// in the order of stages, once a step. The first of them answers for it in the norm and in files.
#ifndef DTC_RUNTIME_STAGE_H
#define DTC_RUNTIME_STAGE_H

#include "runtime/model/units.h"

typedef struct DtHolder {
  int stage;
  int64_t unit; // of the stage's units
} DtHolder;

// A parameter that several chunks hold.
typedef struct DtTie {
  const char *name, *source;
  DtHolder *holder; // in the order of stages
  int n;
} DtTie;

typedef struct DtHome {
  int stage; // the first to hold it
  int64_t instance; // of the stage's
} DtHome;

typedef struct DtStages {
  int n;
  DtProgram *view; // by stage: the program with the stage's parameters in place of the model's
  DtUnits *units;  // by stage
  DtHome *home;    // by number of the model's instances
  int64_t ninstance;
  DtTie *tie;
  int ntie;
} DtStages;

// For pieces of `owners` members. 71 where memory is out.
int dt_stages_make(DtStages *s, const DtProgram *p, int owners, DtError *e);
void dt_stages_free(DtStages *s);

// Elements that a rank of a stage receives of a tie, at most, where a tensor's gradient has this number
// of owners: the first holder's ranks do.
int64_t dt_tie_count(const DtStages *s, int stage, int owners);

#endif
