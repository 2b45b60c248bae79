// Parameters, gradients and optimizer state over the ranks that replicate a parameter (the data
// group: all of cp and dp), as ZeRO cuts them (Rajbhandari et al., 2020). Every unit
// (runtime/model/units.h) has an owner for each piece of it; what a stage keeps cut, a rank holds its own
// pieces of.
//
//   stage            0      1       2       3
//   parameters     whole  whole   whole   pieces
//   gradients      whole  whole   pieces  pieces
//   moments        whole  pieces  pieces  pieces
//   masters        whole  pieces  pieces  pieces
//
// Masters are there where parameters are of a 16-bit type: the update steps them, and each is rounded
// to its parameter. Otherwise the parameters are their own masters. Parameters are gathered in their
// own type.
//
// Gradients are summed over the ranks once a step, or (`each`) at every microbatch, and then over
// microbatches. A sum is taken in the order of ranks, so no stage changes a bit of it. With
// `--zero-group` the group is cut into parts of consecutive ranks: owners are the members of a
// part, and a piece is summed over its part and then over parts. Where DtProgram.reduce_type has 16
// bits, gradients are rounded to it, in their own memory, before they are sent; each sum over ranks is
// taken in float and rounded once.
//
// The emitted code asks for a layer's parameters and gradients where it runs the layer: that is
// where they are gathered and reduced, while the next layer is computed.
#ifndef DTC_RUNTIME_ZERO_H
#define DTC_RUNTIME_ZERO_H

#include "runtime/comm.h"
#include "runtime/model/stage.h"

// The regions of a run that have an element for each of the parameters'. DT_PARAM is what kernels read, of
// DtProgram.param_type; the others are of DtProgram.type. DT_MASTER is what the update steps and files
// hold: DT_PARAM itself where the types are equal.
typedef enum DtRegion {
  DT_PARAM,
  DT_MASTER,
  DT_GRAD,
  DT_MOMENT,
  DT_REGIONS = DT_MOMENT + DT_MAX_MOMENTS
} DtRegion;

// How a program's state is cut over the `ranks` of a data group.
typedef struct DtCut {
  int owners; // of a unit's pieces: the ranks, or the members of a zero group
  bool params, grads, moments; // a rank keeps its pieces alone; gradients: once they are reduced; masters: as moments
  bool each;        // gradients are reduced at every microbatch
  bool param_slots; // a layer's parameters are gathered when it runs, not all at once
  bool grad_slots;  // a layer's gradients are gone when they are reduced
} DtCut;
DtCut dt_cut(const DtProgram *p, int ranks);

// Elements of each region, all a rank has.
typedef struct DtSizes {
  int64_t params, masters, gathered, grads, sums, moment, packed;
} DtSizes;
DtSizes dt_sizes(const DtUnits *u, const DtProgram *p, const DtCut *cut);

// Elements [lo, hi) of a unit, and where they are.
typedef struct DtPart {
  char *at;
  int64_t lo, hi;
} DtPart;

// The same, wherever the region is: elements [lo, hi), and the element of the region that the first of them is.
typedef struct DtStretch {
  int64_t lo, hi, at;
} DtStretch;

enum { DT_SLOTS = 2 }; // one is used while the other is filled or emptied
typedef struct DtSlot {
  int64_t unit; // -1: none
  DtTicket ticket;
} DtSlot;

// A gradient on its way to the owners: a unit's, or those of several (`until` is the unit after
// them).
typedef struct DtSum {
  bool pending;
  bool store; // what arrives is the sum so far, and otherwise added to it
  int64_t until;
  DtTicket ticket;
  char *from, *to; // when it has arrived, `count` elements of DtProgram.reduce_type are at `from`; from == to: in place
  int64_t count;
} DtSum;

typedef struct DtZero {
  const DtProgram *p; // of a pipeline: this rank's stage, DtStages.view
  DtCut cut;
  DtStages stages;
  DtUnits units; // those of this rank's stage
  const DtGroup *shard, *across; // owners of a unit's pieces; those who own the same pieces
  char *param, *master, *gathered, *grad, *sum, *moment[DT_MAX_MOMENTS], *packed;
  size_t grad_bytes;
  DtSlot slot[DT_SLOTS];
  int64_t grad_slot[DT_SLOTS]; // units, or -1
  int slot_used, grad_used; // what was asked for last
  DtTicket *ticket;         // for each unit: its parameters have arrived; 0: they were there
  int64_t *spread;          // for each: the unit after those of a bucket that arrives with it; 0
  bool gathered_now;        // what is gathered before the first layer is
  DtSum *sum_of;    // for each unit; outside stacks, whole gradients go together as the first's
  bool fresh, last; // the microbatch is the step's first, its last
} DtZero;

// Makes the groups and tables; regions are the caller's (runtime/base/memory.c). 78 where --zero-group
// does not divide the ranks.
int dt_zero_open(DtZero *z, const DtProgram *p, DtError *e);
void dt_zero_close(DtZero *z);

static inline bool dt_has_masters(const DtProgram *p) { return p->param_type != p->type; }
static inline DtType dt_region_type(const DtProgram *p, DtRegion region) {
  return region == DT_PARAM ? p->param_type : p->type;
}

// What this rank holds of a unit in a region. Of gradients: once they are reduced.
DtPart dt_part(const DtZero *z, DtRegion region, int64_t unit);
// What it holds of an instance; lo and hi count the instance's elements.
DtPart dt_instance_part(const DtZero *z, DtRegion region, int64_t instance);
// The same of a region that may be in no memory.
DtStretch dt_stretch(const DtZero *z, DtRegion region, int64_t unit);
DtStretch dt_instance_stretch(const DtZero *z, DtRegion region, int64_t instance);
// The part of a unit that this rank is the owner of.
DtRange dt_owned(const DtZero *z, int64_t unit);

// Before a call of the program: parameters outside stacks are there, and the call knows where the
// others are.
void dt_zero_begin(DtZero *z, DtCall *call);
// The same for a microbatch of a step, and what follows it.
void dt_zero_begin_step(DtZero *z, DtCall *call, bool first, bool last);
void dt_zero_end_step(DtZero *z);
// As dt_zero_end_step, of units [from, to) that lie outside stacks, which other chunks do not
// touch.
void dt_zero_end_units(DtZero *z, int64_t from, int64_t to);
// The units outside stacks of parameters [param, param + n), which lie together.
DtRange dt_zero_units_of(const DtZero *z, int param, int n);
// After the last microbatch: gradients are where dt_part says.
void dt_zero_finish(DtZero *z);
// A unit's parameters have been updated: all ranks get to know them, in time for their next use.
void dt_zero_updated(DtZero *z, int64_t unit);
// All that is under way has arrived.
void dt_zero_settle(DtZero *z);
// Nothing has been asked for or is under way, after a rehearsal.
void dt_zero_forget(DtZero *z);

#endif
