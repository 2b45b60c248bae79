// The optimizer's step and the gradient's norm, over what this rank holds: unit by unit, instance by instance.
#include "runtime/train/bucket.h"
#include "runtime/base/parallel.h"
#include "runtime/train/run.h"
#include "runtime/pipeline/schedule.h"

#include <math.h>
#include <stdlib.h>

// The elements of a unit that are an instance's, of those in `range`.
static DtRange overlap(const DtInstance *x, DtRange range) {
  int64_t end = x->begin + x->count, lo = range.lo > x->begin ? range.lo : x->begin;
  int64_t hi = range.hi < end ? range.hi : end;
  return (DtRange){lo, hi > lo ? hi : lo};
}

static char *element(const DtProgram *p, DtRegion region, const DtPart *part, int64_t i) {
  return part->at ? part->at + (i - part->lo) * (int64_t)dt_type_size(dt_region_type(p, region)) : NULL;
}

// ---- the norm

// Partial sums of one instance, at most.
static int64_t norm_blocks(const DtUnits *u, const DtCut *cut, int64_t block) {
  int64_t most = 0;
  for (int64_t i = 0; i < u->ninstance; i++)
    for (int k = 0; k < cut->owners && u->instance[i].counts; k++) {
      const DtInstance *x = &u->instance[i];
      DtRange r = overlap(x, dt_unit_piece(&u->unit[x->unit], k, cut->owners));
      int64_t n = (r.hi - r.lo + block - 1) / block;
      if (n > most) most = n;
    }
  return most;
}

// A sum for each instance, and then the partial sums of the one that is under way.
int64_t dt_norm_count(const DtUnits *u, const DtCut *cut, const DtDeviceLimits *limits) {
  return u->ninstance + norm_blocks(u, cut, limits->squares_block);
}

// A value that a factor of tp does not split is replicated on its ranks: the first one counts it.
static bool counts(const DtZero *z, int64_t instance) {
  const DtParam *p = &z->p->param[z->units.instance[instance].param];
  for (int a = DT_AXIS_TP; a <= DT_AXIS_TP_OUTER; a++)
    if (!p->shard[a].block && dt_world.coord[a] > 0) return false;
  return true;
}

void dt_norm_parts(const DtRun *r, double *part, int64_t stride) {
  const DtZero *z = &r->zero;
  const DtUnits *u = &z->units;
  size_t bytes = (size_t)u->ninstance * sizeof *r->norm;
  for (int64_t i = 0; i < u->ninstance; i++) {
    const DtInstance *x = &u->instance[i];
    DtPart grad = dt_part(z, DT_GRAD, x->unit);
    DtRange own = overlap(x, dt_owned(z, x->unit));
    int64_t n = x->counts && counts(z, i) ? own.hi - own.lo : 0;
    dt_device_squares(z->p->type, element(z->p, DT_GRAD, &grad, own.lo), n, r->norm + u->ninstance, r->norm + i);
  }
  const double *sum = dt_device_map(r->norm, bytes, DT_READ);
  for (int64_t i = 0; i < u->ninstance; i++) part[u->instance[i].number * stride] += sum[i];
  dt_device_unmap(r->norm, (void *)sum, bytes, DT_READ);
}

// ---- the update

typedef struct Update {
  DtRun *r;
  int regions; // end of those that there are
  int64_t *order; // nothing is updated: the slices of offloaded state that would be visited, `n` so far; or NULL
  int64_t n;
} Update;

// Whether the unit, or one that is gathered with it, awaits its gradient.
static bool awaits(const DtRun *r, int64_t unit) {
  const DtUnits *u = &r->zero.units;
  if (!r->zero.stages.ntie) return false;
  int64_t end = dt_bucket_end(u, unit, u->nunit);
  for (int64_t i = dt_bucket_begin(u, unit); i < end; i++)
    if (dt_walk_awaits(r, i)) return true;
  return false;
}

// Elements of a unit, which are an instance's; those of a region that is in a file are at `staged`, the others at `part`.
static void update_elements(const Update *u, const DtInstance *x, const DtPart part[DT_REGIONS],
                            char *const staged[DT_REGIONS], DtRange range) {
  const DtProgram *p = u->r->zero.p;
  DtCall call = {.scalars = &u->r->scalars[p->param[x->param].decay], .count = range.hi - range.lo};
  char *at[DT_REGIONS] = {0};
  for (int i = 0; i < u->regions; i++)
    at[i] = staged[i] ? staged[i] : element(p, (DtRegion)i, &part[i], range.lo);
  call.param = at[DT_MASTER];
  call.grad = at[DT_GRAD];
  if (dt_has_masters(p)) call.rounded = at[DT_PARAM];
  for (int i = DT_MOMENT; i < u->regions; i++) call.moment[i - DT_MOMENT] = at[i];
  if (call.count && !dt_rehearsing) p->update(&call);
}

// The same, a slice of the offloaded regions after the other; `at`: their element that is the unit's element range.lo.
static int update_slices(Update *u, const DtInstance *x, const DtPart part[DT_REGIONS], DtRange range, int64_t at,
                         DtError *e) {
  DtOffload *o = &u->r->offload;
  for (int64_t n; range.lo < range.hi; range.lo += n, at += n) {
    char *staged[DT_REGIONS];
    n = range.hi - range.lo;
    if (u->order) {
      int64_t slice = dt_offload_slice(o, u->r->p, at, &n);
      if (!u->n || u->order[u->n - 1] != slice) u->order[u->n++] = slice;
      continue;
    }
    if (dt_offload_visit(o, u->r->p, at, &n, staged, e)) return e->status;
    update_elements(u, x, part, staged, (DtRange){range.lo, range.lo + n});
  }
  return 0;
}

static int update_unit(Update *u, int64_t unit, DtError *e) {
  static char *const none[DT_REGIONS];
  const DtZero *z = &u->r->zero;
  const DtUnit *of = &z->units.unit[unit];
  bool slices = u->r->offload.open && !dt_rehearsing;
  DtPart part[DT_REGIONS];
  for (int k = 0; k < u->regions; k++) part[k] = dt_part(z, (DtRegion)k, unit);
  // Where this rank is the owner of a piece, that is all that it steps.
  DtStretch all = dt_stretch(z, DT_MOMENT, unit);
  for (int64_t i = of->first; i < of->first + of->n; i++) {
    const DtInstance *x = &z->units.instance[z->units.inside[i]];
    DtRange range = overlap(x, (DtRange){all.lo, all.hi});
    if (!slices) update_elements(u, x, part, none, range);
    else if (update_slices(u, x, part, range, all.at + range.lo - all.lo, e)) return e->status;
  }
  return 0;
}

// A parameter's update waits for its gradient, where another stage has it too.
static int update_units(Update *u, DtError *e) {
  DtZero *z = &u->r->zero;
  for (int late = 0; late < 2; late++) {
    if (late && !u->order) dt_walk_tie_wait(u->r);
    for (int64_t i = 0; i < z->units.nunit; i++) {
      if (awaits(u->r, i) != late) continue;
      if (update_unit(u, i, e)) return e->status;
      if (!u->order) dt_zero_updated(z, i);
    }
  }
  return 0;
}

int64_t *dt_update_order(DtRun *r, int64_t *n) {
  // Of a unit's elements the first and the last slice are shared with other units, those between are its own.
  int64_t most = 2 * r->zero.units.nunit + r->offload.slices.plan.n;
  Update u = {.r = r, .regions = DT_MOMENT, .order = calloc((size_t)most + 1, sizeof *u.order)};
  DtError none = {0};
  if (u.order) update_units(&u, &none);
  *n = u.n;
  return u.order;
}

int dt_update(DtRun *r, double rate, double scale, DtError *e) {
  const DtProgram *p = r->p;
  const DtTrain *t = &p->train;
  int64_t updates = r->step + 1 - r->scaling.skipped; // this one too
  Update u = {.r = r, .regions = DT_MOMENT + p->nmoment};
  for (int decay = 0; decay < 2; decay++) {
    DtScalars s = dt_scalars(r, (uint64_t)r->step + 1, r->o.batch, NULL);
    double v[DT_UPDATE_SCALARS] = {rate, dt_bias_correction(t->beta1, updates),
                   sqrt(dt_bias_correction(t->beta2, updates)), decay ? t->weight_decay : 0,
                   scale};
    for (int i = 0; i < DT_UPDATE_SCALARS; i++) dt_set(p, &s.update, i, v[i]);
    dt_device_put(&r->scalars[decay], &s, sizeof s);
  }
  if (update_units(&u, e)) return e->status;
  if (r->offload.open && !dt_rehearsing) dt_slices_leave(&r->offload.slices);
  return 0;
}

// ---- gradients without the loss scale

void dt_unscale_gradients(DtRun *r) {
  for (int64_t i = 0; r->p->loss_scaling && i < r->zero.units.nunit; i++) {
    DtPart grad = dt_part(&r->zero, DT_GRAD, i);
    dt_device_divide(r->p->type, grad.at, r->grad_scale, grad.hi - grad.lo);
  }
  r->grad_scale = 1;
}
