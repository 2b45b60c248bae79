#include "runtime/train/offload.h"

#include "runtime/base/real.h"
#include "runtime/train/run.h"

#include <linux/magic.h>
#include <stdlib.h>
#include <sys/vfs.h>

DtSlicePlan dt_offload_plan(const DtProgram *p, const DtSizes *n) {
  int arrays = (p->offload & DT_OFFLOAD_OPTIMIZER) ? dt_has_masters(p) + p->nmoment : 0;
  return dt_slice_plan(arrays, n->moment * (int64_t)dt_type_size(p->type));
}

// Numbers the arrays that this run has.
static int choose_arrays(DtRun *r, bool training) {
  int n = 0;
  if (dt_has_masters(r->p) && (training || r->o.export_to)) r->offload.array[DT_MASTER] = ++n;
  for (int i = 0; training && i < r->p->nmoment; i++) r->offload.array[DT_MOMENT + i] = ++n;
  return n;
}

// What is written there takes the memory that it was to leave.
static void note_memory(const DtOffload *o, const char *folder) {
  struct statfs f;
  if (dt_world.rank == 0 && fstatfs(o->slices.fd, &f) == 0 && (f.f_type == TMPFS_MAGIC || f.f_type == RAMFS_MAGIC))
    dt_note("--offload-dir %s is in memory: no memory is saved", folder);
}

int dt_offload_open(DtRun *r, bool training, DtError *e) {
  DtOffload *o = &r->offload;
  DtSizes n = dt_sizes(&r->zero.units, r->zero.p, &r->zero.cut);
  bool away = (r->p->offload & DT_OFFLOAD_OPTIMIZER) && n.moment; // a stage may be without parameters
  int arrays = away ? choose_arrays(r, training) : 0;
  if (!arrays) return 0;
  if (!r->o.offload_dir)
    return dt_fail(e, DT_EXIT_USAGE,
                   "%s was compiled with --offload optimizer, and its memory is the host's already: name a folder for the "
                   "state with --offload-dir DIR", r->p->model);
  DtSlicePlan plan = dt_slice_plan(arrays, n.moment * (int64_t)dt_type_size(r->p->type));
  o->open = true;
  if (dt_slices_open(&o->slices, plan, r->o.offload_dir, dt_world.rank, o->staging, e)) return e->status;
  note_memory(o, r->o.offload_dir);
  return 0;
}

void dt_offload_close(DtOffload *o) {
  if (o->open) dt_slices_close(&o->slices);
  o->open = false;
}

double dt_offload_exposed(DtOffload *o) {
  double seconds = 1e-9 * (double)o->slices.waited;
  o->slices.waited = 0;
  return seconds;
}

bool dt_holds(const DtRun *r, DtRegion region) {
  const DtZero *z = &r->zero;
  if (dt_offloaded(&r->offload, region)) return true;
  if (region >= DT_MOMENT) return z->moment[region - DT_MOMENT] != NULL;
  return region != DT_MASTER || !dt_has_masters(r->p) || z->master;
}

static int64_t size_of(const DtProgram *p) { return (int64_t)dt_type_size(p->type); }

int64_t dt_offload_slice(const DtOffload *o, const DtProgram *p, int64_t at, int64_t *n) {
  int64_t each = o->slices.plan.slice / size_of(p), left = each - at % each;
  if (*n > left) *n = left;
  return at / each;
}

int dt_offload_visit(DtOffload *o, const DtProgram *p, int64_t at, int64_t *n, char *to[DT_REGIONS], DtError *e) {
  int64_t slice = o->slices.plan.slice, within = at * size_of(p) % slice;
  char *buffer = dt_slices_visit(&o->slices, dt_offload_slice(o, p, at, n), e);
  if (!buffer) return e->status;
  for (int i = 0; i < DT_REGIONS; i++) to[i] = o->array[i] ? buffer + (o->array[i] - 1) * slice + within : NULL;
  return 0;
}

int dt_offload_start(DtRun *r, DtError *e) {
  int64_t n;
  if (!r->offload.open) return 0;
  int64_t *order = dt_update_order(r, &n);
  if (!order) return dt_fail(e, DT_EXIT_OS, "no memory for the order of offloaded state");
  dt_slices_start(&r->offload.slices, order, n, e);
  free(order);
  return e->status;
}

// ---- what the host sees

static int view_file(DtView *v, DtRun *r, DtRegion region, int64_t at, int64_t most, DtError *e) {
  int64_t size = size_of(r->p), n = most * size;
  int array = r->offload.array[region] - 1;
  DtSlices *s = &r->offload.slices;
  v->at = v->access == DT_WRITE ? dt_slices_change(s, array, at * size, &n, e) : dt_slices_see(s, array, at * size, &n, e);
  v->n = n / size;
  return v->at ? 0 : e->status;
}

int dt_view_open(DtView *v, DtRun *r, DtRegion region, int64_t instance, int64_t element, int64_t most, DtAccess access,
                 DtError *e) {
  size_t size = dt_type_size(dt_region_type(r->p, region));
  *v = (DtView){.access = access};
  if (dt_offloaded(&r->offload, region)) {
    DtStretch here = dt_instance_stretch(&r->zero, region, instance);
    return view_file(v, r, region, here.at + element - here.lo, most, e);
  }
  DtPart part = dt_instance_part(&r->zero, region, instance);
  v->n = dt_device_window(size, most);
  v->bytes = (size_t)v->n * size;
  v->device = part.at + (size_t)(element - part.lo) * size;
  v->at = dt_device_map(v->device, v->bytes, access);
  return 0;
}

void dt_view_close(const DtView *v) {
  if (v->device) dt_device_unmap(v->device, v->at, v->bytes, v->access);
}
