// The optimizer's state outside of memory (DtProgram.offload; ZeRO-Offload, Ren et al., 2021): masters and moments are
// in a file of each rank, element by element as in a region of moments, and the update sees a slice of them at a time.
#ifndef DTC_RUNTIME_OFFLOAD_H
#define DTC_RUNTIME_OFFLOAD_H

#include "runtime/device.h"
#include "runtime/files/slices.h"
#include "runtime/train/zero.h"

struct DtRun;

typedef struct DtOffload {
  DtSlices slices;
  bool open;
  int array[DT_REGIONS]; // 1 + its array in the file; 0: the region is not there
  void *staging;         // buffers of slices; or NULL
} DtOffload;

// Arrays that the program's state has in a file, and how they are cut for a rank with so many elements of each. No
// arrays: it keeps all in memory.
DtSlicePlan dt_offload_plan(const DtProgram *p, const DtSizes *n);

// Makes this rank's file, in --offload-dir, for a run that takes steps, or one that exports masters; r->offload.staging is
// there. 64 where no folder was named; as dt_slices_open.
int dt_offload_open(struct DtRun *r, bool training, DtError *e);
// Its contents are those to begin with: slices are read ahead from here on. 71, 74.
int dt_offload_start(struct DtRun *r, DtError *e);
void dt_offload_close(DtOffload *o);

// Seconds that updates have waited for slices, since it was last asked.
double dt_offload_exposed(DtOffload *o);

// Whether the run has the region, in memory or in a file; and in a file.
bool dt_holds(const struct DtRun *r, DtRegion region);
static inline bool dt_offloaded(const DtOffload *o, DtRegion region) { return o->array[region] > 0; }

// The slice of element `at` of offloaded regions, and of *n elements from there on how many are in it.
int64_t dt_offload_slice(const DtOffload *o, const DtProgram *p, int64_t at, int64_t *n);
// Elements from `at` on of offloaded regions, in the buffer of their slice: *n of them or fewer. 65, 74. For the update
// alone, which takes all elements in the same order each time.
int dt_offload_visit(DtOffload *o, const DtProgram *p, int64_t at, int64_t *n, char *to[DT_REGIONS], DtError *e);

// What the host sees of a region: n elements of an instance from one on that this rank holds.
typedef struct DtView {
  char *at;
  int64_t n;
  char *device; // where they are in the device's memory; NULL: in a file
  size_t bytes;
  DtAccess access;
} DtView;
// `most` elements or fewer. To be closed before the next one is opened. 65, 74.
int dt_view_open(DtView *v, struct DtRun *r, DtRegion region, int64_t instance, int64_t element, int64_t most,
                 DtAccess access, DtError *e);
void dt_view_close(const DtView *v);

#endif
