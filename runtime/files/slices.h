// Arrays of equal length in a file, in slices that pass through a few buffers of memory while others are read and
// written: ahead of what visits them in an order that repeats (ZeRO-Infinity's offload to disk, Rajbhandari et al.,
// 2021). Each array's part of a slice has a checksum in memory, which must be that of what comes back.
//
// The file has no name once it is open, so that nothing is left of it after a crash, and its space is reserved.
#ifndef DTC_RUNTIME_SLICES_H
#define DTC_RUNTIME_SLICES_H

#include "runtime/base/counter.h"
#include "runtime/base/error.h"

#include <limits.h>
#include <pthread.h>

// Bytes of an array in a slice, at most: a multiple of 4,096; tests make it small (DT_OFFLOAD_SLICE).
extern int64_t dt_slice_bytes;

// How arrays are cut.
typedef struct DtSlicePlan {
  int arrays, buffers;
  int64_t slice, n;     // bytes of an array in a slice, a multiple of 4,096; slices
  int64_t memory, file; // bytes
} DtSlicePlan;
DtSlicePlan dt_slice_plan(int arrays, int64_t bytes); // of each array

// The file of offloaded state. A slice holds its part of each array, one after the other; so does a buffer.
typedef struct DtSlices {
  DtSlicePlan plan;
  char path[PATH_MAX]; // that it had, for messages
  int fd;              // -1: not open
  uint64_t *sum;       // XXH64 of each array's part of each slice
  char *memory;        // the buffers, then the window: an array's part of a slice
  int64_t window;      // what is in it: slice * arrays + array; -1: nothing
  int64_t seen;        // visits that had begun when it was read
  bool changed;        // and it is to be written

  // Visits, numbered from 0: visit v is of slice order[v % norder]. One thread reads ahead, one writes behind.
  int64_t *order, norder;
  int64_t *back; // of each visit of a round: how many visits ago its slice was visited before
  int64_t begun; // visits
  int64_t waited; // nanoseconds that they have waited for their slices
  DtCounter read, done, written; // visits: whose slice is in its buffer; that are over; whose slice is in the file
  _Atomic int stop, failed;      // failed: 1 + the thread, 0: none
  DtError error[2];
  pthread_t thread[2];
  int threads; // that run
} DtSlices;

// Makes the file in `folder`, of zeros, for rank `rank`; `memory` has plan.memory bytes, at a multiple of 4,096. 73 where
// it cannot be made, 74 where the disk is too full, 71. dt_slices_close in any case.
int dt_slices_open(DtSlices *s, DtSlicePlan plan, const char *folder, int rank, char *memory, DtError *e);
void dt_slices_close(DtSlices *s);

// Bytes of an array from `at` on, *n of them or fewer, in the window: to be read, or to be changed (before
// dt_slices_start). Valid until the next call. NULL: 65 where they are not what was written, 74.
char *dt_slices_see(DtSlices *s, int array, int64_t at, int64_t *n, DtError *e);
char *dt_slices_change(DtSlices *s, int array, int64_t at, int64_t *n, DtError *e);

// What was changed is written, and reading begins: slices will be visited in this order, again and again. 71, 74.
int dt_slices_start(DtSlices *s, const int64_t *order, int64_t n, DtError *e);
// The slice, which is that of the visit under way or of the next one: its buffer, to be read and changed; waits until it
// is there. NULL: 65 where it is not what was written, 74.
char *dt_slices_visit(DtSlices *s, int64_t slice, DtError *e);
// The visit under way is over: it is written back.
void dt_slices_leave(DtSlices *s);

#endif
