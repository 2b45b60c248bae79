// The launch of a kernel over an extent that it was not made for: an optimizer's update of a parameter, or of a piece
// of it.
#include "runtime/device/cpu/launch.h"

#include "runtime/base/real.h"
#include "runtime/device/cpu/scratch.h"

#include <stdlib.h>
#include <string.h>

enum { ARGS = 16 };

typedef struct Extent {
  DtKernel *kernel;
  int64_t grid, tile;
  DtType type, rounds;
  const DtCall *call;
  char *array[DT_EXTENT_ARRAYS]; // that there are: the parameters, their gradients, then moments
  int narray;
  const void *const *arg;
  int narg;
} Extent;
enum { PARAM, GRAD };

// The kernel steps a whole tile: what is less is copied to one and back.
static void run_tile(const Extent *x, int64_t i) {
  int64_t size = (int64_t)dt_type_size(x->type), left = x->call->count - i * x->tile;
  size_t whole = (size_t)(x->tile * size), n = left < x->tile ? (size_t)(left * size) : whole;
  char *scratch = n < whole ? dt_scratch((size_t)dt_extent_scratch(x->tile, size)) : NULL;
  char *at[DT_EXTENT_ARRAYS], *here[DT_EXTENT_ARRAYS];
  void *arg[ARGS];
  for (int k = 0; k < x->narray; k++) {
    at[k] = here[k] = x->array[k] + (size_t)i * whole;
    if (!scratch) continue;
    here[k] = scratch + (size_t)k * whole;
    memcpy(here[k], at[k], n);
    memset(here[k] + n, 0, whole - n);
  }
  for (int k = 0; k < x->narg; k++) {
    arg[k] = (void *)x->arg[k];
    for (int j = 0; j < x->narray; j++)
      if (x->arg[k] == x->array[j]) arg[k] = here[j];
  }
  x->kernel(arg, 0, x->grid);
  for (int k = 0; scratch && k < x->narray; k++)
    if (k != GRAD) memcpy(at[k], here[k], n);
  if (!x->call->rounded) return;
  char *rounded = (char *)x->call->rounded + (size_t)(i * x->tile) * dt_type_size(x->rounds);
  dt_narrow(x->rounds, rounded, (const float *)(const void *)at[PARAM], (int64_t)n / size);
}

static void run_tiles(void *const *arg, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i++) run_tile(arg[0], i);
}

void dt_extent(DtKernel *kernel, int64_t grid, int64_t tile, DtType type, DtType rounds, const DtCall *call,
               const void *const *arg, int narg) {
  Extent x = {kernel, grid, tile, type, rounds, call, {call->param, call->grad}, 2, arg, narg};
  if (narg > ARGS) {
    fprintf(stderr, "a bug: a kernel over an extent has %d arguments\n", narg);
    exit(DT_EXIT_BUG);
  }
  for (int i = 0; i < DT_MAX_MOMENTS; i++)
    if (call->moment[i]) x.array[x.narray++] = call->moment[i];
  void *of[] = {&x};
  dt_parallel(run_tiles, of, (call->count + tile - 1) / tile, 1);
}
