// How the parameters are cut into units and instances.
//
// A unit is what is gathered and reduced as one array: a layer of a stack, all its parameters
// together, or a parameter outside stacks. Its owners are the members of a group: member k of n has
// the piece [k * c, min(count, (k + 1) * c)), c = ceil(count / n), in every stage of ZeRO. An
// instance is one tensor of a weights file: a parameter, or a layer's slice of a stacked one.
#ifndef DTC_RUNTIME_UNITS_H
#define DTC_RUNTIME_UNITS_H

#include "runtime/base/error.h"
#include "runtime/program.h"

typedef struct DtInstance {
  int param;     // DtProgram.param; of a pipeline: DtStage.param
  int64_t layer; // which slice of the model's stacked parameter
  int64_t unit;
  int64_t begin, count; // elements of the unit
  int64_t number;       // among all of the model
  bool counts; // in the norm and in files: not where an earlier stage has it too (runtime/model/stage.h)
} DtInstance;

typedef struct DtUnit {
  int64_t offset, count; // elements of a whole region
  int64_t piece;         // where its piece begins in a region of pieces
  int64_t together;      // of a bucket (runtime/train/bucket.h): the unit after its last; 0: in none
  int64_t packed;        // of a bucket: where its piece begins among those of all buckets
  int stack;             // 1 + DtProgram.stack, or 0
  int64_t layer;         // the model's number of it; -1 outside
  const char *name, *source;
  int64_t first, n; // its instances: DtUnits.inside[first, first + n), in the order of `begin`
} DtUnit;

typedef struct DtUnits {
  DtUnit *unit; // those outside stacks first, then layer by layer
  int64_t nunit;
  DtInstance *instance; // in the order of files: parameter by parameter, layer by layer
  int64_t ninstance, model; // of this rank's stage; of the whole model
  int64_t *inside;  // instances unit by unit
  int64_t outside;  // units outside stacks
  int64_t *stack;   // for each stack: its first unit
  int64_t outside_count; // elements of a region before the stacks
  int64_t layer_count;   // elements of the largest layer
  int64_t piece_count;   // elements in a region of pieces
  int64_t packed_count;  // elements of an owner's pieces of all buckets
} DtUnits;

// Elements [lo, hi) of a unit.
typedef struct DtRange {
  int64_t lo, hi;
} DtRange;

// For pieces of `owners` members. 71 where memory is out.
int dt_units_make(DtUnits *u, const DtProgram *p, int owners, DtError *e);
void dt_units_free(DtUnits *u);

DtRange dt_unit_piece(const DtUnit *u, int owner, int owners);

// The number of its layer in messages and the profile: -1 for a parameter outside stacks.
static inline int64_t dt_told_layer(const DtParam *p, const DtInstance *x) {
  return p->nstack ? x->layer : -1;
}

// Elements in a stacked parameter's slice, and how many slices there are.
int64_t dt_param_slices(const DtParam *p);

#endif
